"""Opens readers of all streams of a pattern, as `Log.open_reader` offers them."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial

import attrs
import trio

from geolog.background import all_of
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.catalog.stream_watch import StreamWatch
from geolog.client.reading.bounds import (
    EARLIEST,
    AtDlsn,
    AtSequence,
    AtTransaction,
    Bound,
    bound_text,
    check_order,
)
from geolog.client.reading.reader import Reader
from geolog.client.reading.saved_positions import parse_saved
from geolog.client.reading.scan import PartitionScan, ReaderConfig
from geolog.client.reading.stream_reader import open_stream_reader
from geolog.client.reading.subscribing import (
    OpenedPartition,
    SubscriptionConfig,
    check_some,
    open_subscription,
)
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import Metadata
from geolog.protocol.ids import Position
from geolog.protocol.stream_pattern import StreamPattern
from geolog.protocol.stream_state import PartitionName, StreamRecord
from geolog.protocol.subscription import SubscribedPartition, Subscription
from topology.errors import GeologError, InvalidArgumentError
from topology.nearest import suggestion

_BEGINS_AT_ONCE_MAX = 16
"""Partitions whose begin is looked for at a time."""

_END_S = 2.0
"""How long to look for the end of a partition that is followed, which may have no owner now."""

_COMPARED_MAX = 200
"""Names of streams that are compared with a pattern that matches none."""


@attrs.frozen(kw_only=True)
class PatternReads:
    """What readers of patterns need of a log."""

    metadata: Metadata
    paths: ClusterPaths
    catalog: StreamCatalog
    nearest_scan: Callable[
        [StreamRecord, PartitionName, tuple[Bound, Bound | None]], Awaitable[PartitionScan]
    ]
    sequence_at: Callable[[StreamRecord, PartitionName, Bound, int], Awaitable[int]]
    config: ReaderConfig
    subscription: SubscriptionConfig
    rng: random.Random

    @asynccontextmanager
    async def open(
        self,
        text: str,
        *,
        start: Bound,
        stop: Bound | None,
        is_following: bool,
        positions: Mapping[str, str] | None,
    ) -> AsyncIterator[Reader]:
        """Read all streams of the pattern. Arguments: as of `Log.open_reader`."""
        pattern = StreamPattern.parse(text)
        _check_bounds(text, start, stop, is_following=is_following, positions=positions)
        saved = {} if positions is None else parse_saved(positions, pattern)
        watch = StreamWatch(self.metadata, self.paths, pattern)
        streams = await watch.records_latest()
        if not is_following:
            check_some(text, streams, "" if streams else await self._hint(text))
        if start != EARLIEST:
            saved = await self._begins(streams, start)
        async with open_subscription(
            text,
            subscription=Subscription(saved),
            streams=streams,
            look=watch.records,
            open_partition=partial(self._open_partition, stop, is_following),
            is_following=is_following,
            rng=self.rng,
            config=self.subscription,
        ) as reader:
            yield reader

    async def _begins(
        self, streams: list[StreamRecord], start: Bound
    ) -> dict[SubscribedPartition, Position]:
        """Where to begin in the streams that are there now."""

        async def begin_of(
            record: StreamRecord, name: PartitionName
        ) -> tuple[SubscribedPartition, Position]:
            sequence = await self.sequence_at(record, name, start, 1)
            one = SubscribedPartition(record.name, name.number, record.life)
            return one, Position(record.home_epoch, sequence)

        begins = await all_of(
            [
                partial(begin_of, record, name)
                for record in streams
                for name in record.partition_names()
            ],
            at_once_max=_BEGINS_AT_ONCE_MAX,
        )
        return dict(begins)

    @asynccontextmanager
    async def _open_partition(
        self,
        stop: Bound | None,
        is_following: bool,  # noqa: FBT001 - called through a partial.
        record: StreamRecord,
        partition: SubscribedPartition,
        begin: Position | None,
    ) -> AsyncIterator[OpenedPartition]:
        bound = EARLIEST if begin is None else AtSequence(begin.sequence, begin.home_epoch)
        scan = await self.nearest_scan(
            record, record.partition(partition.number), (bound, stop)
        )
        end = await _end_of(scan) if is_following else 0
        async with open_stream_reader(
            [scan], start=bound, stop=stop, is_following=is_following, config=self.config
        ) as reader:
            yield OpenedPartition(reader, end)

    async def _hint(self, text: str) -> str:
        """The names that may be meant by a pattern that matches none."""
        known = [str(one) for one in (await self.catalog.names())[:_COMPARED_MAX]]
        return suggestion(text.replace("*", ""), known)


async def _end_of(scan: PartitionScan) -> int:
    """The next sequence of a partition; 0, as if it were empty, if that is not known soon."""
    with trio.move_on_after(_END_S), suppress(GeologError):  # Reading meets it, too.
        return (await scan.end()).sequence
    return 0


def _check_bounds(
    text: str,
    start: Bound,
    stop: Bound | None,
    *,
    is_following: bool,
    positions: Mapping[str, str] | None,
) -> None:
    """InvalidArgumentError for bounds that cannot hold for all streams of a pattern."""
    for bound in (start, stop):
        if isinstance(bound, AtDlsn | AtSequence | AtTransaction):
            raise InvalidArgumentError(
                f"{bound_text(bound)} is a position in one partition, and {text!r} names"
                " streams, each with positions of its own: use earliest, latest, last:N or a"
                " time, or positions=… to go on after an earlier read"
            )
    if is_following and stop is not None:
        raise InvalidArgumentError(
            f"a read of {text!r} that follows has no end, because streams may come at any time:"
            " give either follow or stop"
        )
    if positions is not None and start != EARLIEST:
        raise InvalidArgumentError(
            "give either start or positions: streams without a saved position are read from"
            " their first record"
        )
    check_order(start, stop)
