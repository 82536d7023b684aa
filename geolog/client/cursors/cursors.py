"""The cursors of streams, as a log offers them: read, list, describe, seek and delete."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial

import attrs

from geolog.background import all_of
from geolog.catalog.cursors import CursorCatalog, NoSuchCursorError
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.client.cursors.cursor_keeper import CursorKeeper, CursorTerms
from geolog.client.cursors.cursor_reader import CursorReader
from geolog.client.cursors.cursor_runs import CursorRange
from geolog.client.cursors.lag import lag_of
from geolog.client.cursors.opening import open_cursor_readers
from geolog.client.reading.bounds import AtSequence, Bound, bound_text, check_order
from geolog.client.reading.place_search import PlaceSearch
from geolog.client.reading.scan import PartitionScan, ReaderConfig
from geolog.client.reading.stream_reader import check_one_partition
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import Metadata
from geolog.protocol.ids import Position
from geolog.protocol.read_end import PartitionEnd
from geolog.protocol.stream_state import PartitionName, StreamRecord
from topology.errors import InvalidArgumentError

_AT_ONCE_MAX = 16
"""Partitions whose ends or lags are found at the same time."""


@attrs.frozen(kw_only=True)
class CursorReaderDescription:
    """One reader of a cursor."""

    who: str
    since_us: int
    """When its lease began, by the metadata store's clock."""
    partitions: list[int]
    """The partitions that it reads; none if it is a spare."""


@attrs.frozen(kw_only=True)
class CursorPartitionDescription:
    """Where a cursor stands in one partition."""

    partition: int
    reader: str | None
    """The process that reads it; None if none does."""
    home_epoch: int | None
    sequence: int | None
    """The first record that is not done; None before the first commit."""
    end_sequence: int
    lag_records: int
    lag_bytes: int
    lag_s: float
    committed_us: int | None
    """When the position was written last, by the metadata store's clock."""


@attrs.frozen(kw_only=True)
class CursorDescription:
    """A cursor, its readers, and its lag."""

    stream: str
    cursor: str
    is_shared: bool
    """Whether its readers, or those that it had last, share it."""
    created_us: int
    readers: list[CursorReaderDescription]
    lag_records: int
    lag_bytes: int
    lag_s: float
    """The largest of all partitions."""
    partition_list: list[CursorPartitionDescription]


class Cursors:
    """The cursors of one cluster's streams, for one log."""

    def __init__(
        self,
        *,
        metadata: Metadata,
        paths: ClusterPaths,
        streams: StreamCatalog,
        scan: Callable[[StreamRecord, PartitionName], PartitionScan],
        sequence_at: Callable[[StreamRecord, PartitionName, Bound, int], Awaitable[int]],
        who: str,
        rng: random.Random,
        now_us: Callable[[], int],
        config: ReaderConfig,
    ) -> None:
        self._metadata = metadata
        self._catalog = CursorCatalog(metadata, paths)
        self._streams = streams
        self._scan = scan
        self._sequence_at = sequence_at
        self._who = who
        self._rng = rng
        self._now_us = now_us
        self._config = config

    @asynccontextmanager
    async def open_readers(
        self,
        record: StreamRecord,
        only: int | None,
        name: str,
        *,
        start: Bound,
        stop: Bound | None,
        is_following: bool,
        is_shared: bool,
        is_taking: bool,
        is_automatic: bool,
        count: int,
        scan: Callable[[StreamRecord, PartitionName], PartitionScan],
    ) -> AsyncIterator[list[CursorReader]]:
        """Read from where the cursor stands. only: one partition of the stream.

        count: divide the partitions among so many readers.
        """
        if is_shared and only is not None:
            raise InvalidArgumentError(
                f"a shared cursor divides all partitions of {record.name}: read the stream, not"
                f" {record.name}#{only}"
            )
        what = str(record.name) if only is None else f"{record.name}#{only}"
        partitions_count = record.partitions if only is None else 1
        check_one_partition(what, partitions_count, start)
        check_one_partition(what, partitions_count, stop)
        check_order(start, stop)
        cursor = await self._catalog.ensure(
            record,
            name,
            cursor_id=f"{self._rng.getrandbits(64):016x}",
            now_us=self._now_us(),
        )
        found = await self._catalog.read(record, name)
        keeper = CursorKeeper(
            CursorTerms(
                name=cursor,
                cursor_id=found.record.cursor_id,
                who=self._who,
                is_shared=is_shared,
                is_taking=is_taking,
                only=only,
            ),
            stream=record,
            streams=self._streams,
            cursors=self._catalog,
            metadata=self._metadata,
            rng=self._rng,
        )
        latest = record

        async def scan_of(number: int, home_epoch: int) -> PartitionScan:
            """The log at home; another reader may know of a later home than this one."""
            nonlocal latest
            if home_epoch > latest.home_epoch:
                latest = await self._streams.read_same_latest(latest)
            return scan(latest, latest.log_in(latest.home, number))

        wanted = CursorRange(
            scan_of=scan_of,
            start=start,
            start_partitions=found.record.partitions,
            stop=stop,
            is_following=is_following,
            config=self._config,
        )
        async with open_cursor_readers(
            keeper,
            wanted,
            what=f"{what} by cursor {name!r}",
            home_epoch=record.home_epoch,
            count=count,
            is_automatic=is_automatic,
        ) as readers:
            yield readers

    async def describe_all(self, record: StreamRecord) -> list[CursorDescription]:
        """All cursors of a stream, by name."""
        names = await self._catalog.names(record)
        if not names:
            return []
        ends = await self._ends(record)
        described = []
        for name in names:
            with suppress(NoSuchCursorError):  # It was deleted meanwhile.
                described.append(await self._describe(record, name, ends))
        return described

    async def describe(self, record: StreamRecord, name: str) -> CursorDescription:
        """One cursor. NoSuchCursorError."""
        await self._catalog.read(record, name)
        return await self._describe(record, name, await self._ends(record))

    async def seek(
        self, record: StreamRecord, only: int | None, name: str, to: Bound, *, is_forced: bool
    ) -> CursorDescription:
        """Set the position in all partitions, or in one.

        NoSuchCursorError, CursorHeldError; InvalidArgumentError for a place outside the stream.
        """
        found = await self._catalog.read(record, name)
        names = record.partition_names() if only is None else [record.partition(only)]
        sequences = await all_of(
            [partial(self._sequence_at, record, one, to, len(names)) for one in names]
        )
        for one, sequence in zip(names, sequences, strict=True):
            if isinstance(to, AtSequence) and sequence > to.sequence:
                raise InvalidArgumentError(
                    f"{bound_text(to)} is before the beginning of {one}: its first sequence"
                    f" is {sequence}"
                )
        positions = {
            one.number: Position(record.home_epoch, sequence)
            for one, sequence in zip(names, sequences, strict=True)
        }
        await self._catalog.seek(found, positions, is_forced=is_forced)
        return await self.describe(record, name)

    async def commit(
        self, record: StreamRecord, name: str, positions: Mapping[int, Position]
    ) -> None:
        """Move the cursor to those positions that are ahead; make it if it is new.

        CursorHeldError, ConflictError.
        """
        await self._catalog.ensure(
            record,
            name,
            cursor_id=f"{self._rng.getrandbits(64):016x}",
            now_us=self._now_us(),
        )
        found = await self._catalog.read(record, name)
        ahead = {}
        for number, position in positions.items():
            standing = found.standings[number].record
            if (position.home_epoch, position.sequence) > (
                standing.home_epoch or 0,
                -1 if standing.sequence is None else standing.sequence,
            ):
                ahead[number] = position
        if ahead:
            await self._catalog.seek(found, ahead, is_forced=False)

    async def delete(self, record: StreamRecord, name: str, *, is_forced: bool) -> None:
        """Delete a cursor. NoSuchCursorError, CursorHeldError."""
        await self._catalog.delete(record, name, is_forced=is_forced)

    async def _ends(self, record: StreamRecord) -> list[PartitionEnd]:
        """The ends of all partitions."""
        return await all_of(
            [self._scan(record, one).end for one in record.partition_names()],
            at_once_max=_AT_ONCE_MAX,
        )

    async def _describe(
        self, record: StreamRecord, name: str, ends: list[PartitionEnd]
    ) -> CursorDescription:
        found = await self._catalog.read(record, name)
        now_us = self._now_us()

        async def described(number: int) -> CursorPartitionDescription:
            standing, end = found.standings[number].record, ends[number]
            scan = self._scan(record, record.partition(number))
            sequence = standing.sequence or 0
            if standing.sequence is not None:
                at = AtSequence(standing.sequence, standing.home_epoch)
                _, gone = await PlaceSearch(scan).in_lineage(at)
                # The reader goes on where the branch that it has read ends.
                sequence = gone.from_sequence if gone is not None else standing.sequence
            lag = await lag_of(scan, sequence, end, now_us=now_us)
            return CursorPartitionDescription(
                partition=number,
                reader=who_of.get(standing.reader),
                home_epoch=standing.home_epoch,
                sequence=standing.sequence,
                end_sequence=end.sequence,
                lag_records=lag.records,
                lag_bytes=lag.bytes,
                lag_s=lag.seconds,
                committed_us=found.committed_us[number],
            )

        who_of = {one.reader: one.who for one in found.readers}
        partitions = await all_of(
            [partial(described, number) for number in range(record.partitions)],
            at_once_max=_AT_ONCE_MAX,
        )
        return CursorDescription(
            stream=str(record.name),
            cursor=name,
            is_shared=found.record.is_shared,
            created_us=found.record.created_us,
            readers=[
                CursorReaderDescription(
                    who=one.who,
                    since_us=one.since_us,
                    partitions=[
                        number
                        for number, standing in enumerate(found.standings)
                        if standing.record.reader == one.reader
                    ],
                )
                for one in found.readers
            ],
            lag_records=sum(one.lag_records for one in partitions),
            lag_bytes=sum(one.lag_bytes for one in partitions),
            lag_s=max(one.lag_s for one in partitions),
            partition_list=partitions,
        )
