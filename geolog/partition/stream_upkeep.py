"""Ending streams, and cutting off their fronts: seal, truncate, retention, delete.

Rules: PROTOCOL S15 and S16.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import attrs
import trio

from geolog.background import all_of
from geolog.catalog.partition_metadata import PartitionMetadata
from geolog.catalog.stream_catalog import StreamCatalog, check_life
from geolog.ledger.ledger_metadata import NoSuchLedgerError
from geolog.partition.partition_retention import PartitionRetention
from geolog.partition.takeover import Takeover
from geolog.protocol.ids import Sequence as LogSequence
from geolog.protocol.retention import Clocks, RetentionPolicy
from geolog.protocol.stream_state import PartitionName, StreamName, StreamRecord
from topology.errors import GeologError, NoSuchStreamError, SealedError

_log = logging.getLogger(__name__)

_AT_ONCE_MAX = 32
"""Partitions of a stream that are sealed or deleted at the same time."""

_FENCE_S = 10.0
"""How long deleting a stream waits for its writers to be fenced."""


@attrs.frozen(kw_only=True)
class StreamUpkeep:
    """Looks after the streams of one cluster."""

    catalog: StreamCatalog
    partitions: PartitionMetadata
    succession: Takeover
    now_us: Callable[[], int]

    async def seal(self, name: StreamName) -> StreamRecord:
        """Let nothing be appended any more: its writers are fenced, its last ledgers CLOSED.

        SealedError when it is sealed already; one that was only half sealed is sealed whole.
        The stream is sealed by one compare-and-set over the partitions that were sealed: when
        it has got more meanwhile, their turn comes before.
        """
        record = await self.catalog.read_latest(name)
        if record.is_sealed:
            raise SealedError(f"{name} is sealed already")
        sealed_count = 0
        while True:
            more = record.partition_names()[sealed_count:]
            await all_of([partial(self._seal, one) for one in more], at_once_max=_AT_ONCE_MAX)
            sealed_count = record.partitions
            record = await self.catalog.change(name, partial(_sealed_if_same, record))
            if record.is_sealed:
                return record

    async def _seal(self, name: PartitionName) -> None:
        await self.succession.end_open_segment(name, await self.partitions.owners.seal(name))

    async def truncate(self, name: PartitionName, first_sequence: int) -> int:
        """Let a partition begin at this sequence, or further on where it does already.

        Segments that lie before it whole go with their ledgers. Returns where it begins.
        """
        trim = await self.partitions.trims.move(
            name, LogSequence(first_sequence), now_us=self.now_us()
        )
        await self.partitions.trims.drop_trimmed(name)
        return trim.first_sequence

    async def retain(self, retention: PartitionRetention) -> None:
        """Cut off what is to go of a partition."""
        heard = self.partitions.session.time_heard
        metadata_us = None if heard is None else heard.now_us(trio.current_time())
        now = Clocks(local_us=self.now_us(), metadata_us=metadata_us)
        first = await retention.first_kept(now)
        if first is not None:
            await self.truncate(retention.name, first)

    async def delete(self, name: StreamName) -> None:
        """Delete a stream and its records. NoSuchStreamError. Its writers are fenced.

        Where too few nodes answer for a fence, it is deleted all the same. Who is interrupted
        leaves a stream that says so, and goes on where it was when asked again.
        """
        record = await self.catalog.begin_delete(name)
        await all_of(
            [partial(self._delete, one) for one in record.partition_names()],
            at_once_max=_AT_ONCE_MAX,
        )
        await self.catalog.delete(record)

    async def _delete(self, name: PartitionName) -> None:
        try:
            await self.partitions.owners.depose(name)
        except NoSuchStreamError:
            return  # It went before; what may be left of it goes with the stream.
        with trio.move_on_after(_FENCE_S), suppress(NoSuchLedgerError):
            await self.succession.close_open_ledger(name)
        await self.partitions.trims.drop_all(name)
        await self.catalog.delete_partition(name)


def _sealed_if_same(known: StreamRecord, found: StreamRecord) -> StreamRecord:
    """The stream sealed, if those that were known are all its partitions."""
    check_life(known, found)
    return attrs.evolve(found, is_sealed=found.partitions == known.partitions)


async def run_retention(
    upkeep: StreamUpkeep,
    names: Sequence[PartitionName],
    policy: RetentionPolicy,
    *,
    every_s: float,
) -> None:
    """Cut off again and again what the policy lets go, until the stream is gone."""
    watched = [PartitionRetention(name, policy, upkeep.partitions) for name in names]
    while True:
        for one in watched:
            try:
                await upkeep.retain(one)
            except NoSuchStreamError:
                return
            except GeologError as error:
                if not error.retriable:
                    raise
                _log.info("retention of %s waits: %s", one.name, error)
        await trio.sleep(every_s)
