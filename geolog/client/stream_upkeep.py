"""Ending streams, and cutting off their fronts: seal, truncate, retention, delete."""

import logging
from collections.abc import Callable, Sequence
from functools import partial

import attrs
import trio

from geolog.background import all_of
from geolog.client.partition_metadata import PartitionMetadata, VersionedSegment
from geolog.client.stream_catalog import StreamCatalog
from geolog.client.takeover import Succession
from geolog.protocol.ids import Sequence as LogSequence
from geolog.protocol.retention import RetentionPolicy
from geolog.protocol.stream_state import PartitionName, StreamName, StreamRecord
from topology.errors import GeologError, NoSuchStreamError, SealedError

_log = logging.getLogger(__name__)

_FENCE_S = 10.0
"""How long deleting a stream waits for its writers to be fenced."""


@attrs.frozen(kw_only=True)
class StreamUpkeep:
    """Looks after the streams of one cluster."""

    catalog: StreamCatalog
    partitions: PartitionMetadata
    succession: Succession
    now_us: Callable[[], int]

    async def seal(self, name: StreamName) -> StreamRecord:
        """Let nothing be appended any more: its writers are fenced, its last ledgers CLOSED.

        SealedError when it is sealed already; one that was only half sealed is sealed whole.
        """
        record = await self.catalog.read_latest(name)
        if record.is_sealed:
            raise SealedError(f"{name} is sealed already")
        await all_of([partial(self._seal, one) for one in record.partition_names()])
        return await self.catalog.change(
            name, lambda found: attrs.evolve(found, is_sealed=True)
        )

    async def _seal(self, name: PartitionName) -> None:
        await self.succession.end_open_segment(name, await self.partitions.seal(name))

    async def truncate(self, name: PartitionName, first_sequence: int) -> int:
        """Let a partition begin at this sequence, or further on where it does already.

        Segments that lie before it whole go with their ledgers. Returns where it begins.
        """
        trim = await self.partitions.move_trim(
            name, LogSequence(first_sequence), now_us=self.now_us()
        )
        await self.partitions.drop_trimmed(name)
        return trim.first_sequence

    async def retain(self, name: PartitionName, policy: RetentionPolicy) -> None:
        """Cut off what the policy lets go."""
        if policy.keeps_all:
            return
        first = policy.first_kept(
            [one.record for one in await self._newest_first(name)], now_us=self.now_us()
        )
        if first is not None:
            await self.truncate(name, first)

    async def _newest_first(self, name: PartitionName) -> list[VersionedSegment]:
        numbers = (await self.partitions.segment_numbers(name))[::-1]
        return await self.partitions.segments_at(name, numbers)

    async def delete(self, name: StreamName) -> None:
        """Delete a stream and its records. NoSuchStreamError. Its writers are fenced.

        Where too few nodes answer for a fence, it is deleted all the same.
        """
        record = await self.catalog.read_latest(name)
        for partition in record.partition_names():
            await self._end(partition)
            await self.partitions.drop_all(partition)
        await self.catalog.delete(name)

    async def _end(self, name: PartitionName) -> None:
        await self.partitions.depose(name)
        with trio.move_on_after(_FENCE_S):
            await self.succession.close_open_ledger(name)


async def run_retention(
    upkeep: StreamUpkeep,
    names: Sequence[PartitionName],
    policy: RetentionPolicy,
    *,
    every_s: float,
) -> None:
    """Cut off again and again what the policy lets go, until the stream is gone."""
    while True:
        for name in names:
            try:
                await upkeep.retain(name, policy)
            except NoSuchStreamError:
                return
            except GeologError as error:
                if not error.retriable:
                    raise
                _log.info("retention of %s waits: %s", name, error)
        await trio.sleep(every_s)
