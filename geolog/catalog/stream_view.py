"""Describing streams: their settings, partitions and segments, as values to print."""

from contextlib import aclosing
from functools import partial

import attrs

from geolog.background import all_of, both
from geolog.catalog.descriptions import (
    MirrorDescription,
    PartitionDescription,
    SegmentDescription,
    StreamDescription,
)
from geolog.catalog.partition_metadata import PartitionMetadata
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.ledger.ledger_metadata import LedgerMetadata, NoSuchLedgerError
from geolog.ledger.writing.ledger_placement import adherence_as_recorded
from geolog.protocol.stream_state import (
    PartitionName,
    SegmentRecord,
    StreamName,
    StreamRecord,
)
from topology.own_policy import OwnPolicies

_AT_ONCE = 64


@attrs.frozen
class StreamView:
    """Describes the streams of one cluster."""

    catalog: StreamCatalog
    partitions: PartitionMetadata
    ledgers: LedgerMetadata
    own_policies: OwnPolicies
    """The placement policies of other packages that this process knows."""

    async def describe(self, name: StreamName) -> StreamDescription:
        """A stream's settings, owners and extent. NoSuchStreamError."""
        record = await self.catalog.read(name)
        found = await all_of(
            [partial(self._describe_partition, one) for one in record.partition_names()]
        )
        mirrors = await all_of(
            [
                partial(self._describe_mirror, one, str(record.region_of(one)))
                for one in record.mirrors_of(range(record.partitions))
            ]
        )
        return attrs.evolve(_description(record, found), mirror_list=mirrors)

    def describe_new(self, record: StreamRecord) -> StreamDescription:
        """A stream that was just made; nothing is read, since nothing was written yet."""
        found = [
            PartitionDescription(
                partition=number,
                owner=None,
                owner_epoch=0,
                owner_is_alive=False,
                segments_count=0,
                last_segment=None,
                first_sequence=0,
                completed_sequence=0,
                completed_bytes=0,
            )
            for number in range(record.partitions)
        ]
        return _description(record, found)

    async def _describe_partition(self, name: PartitionName) -> PartitionDescription:
        owner = (await self.partitions.owners.read_latest(name)).record
        (numbers, ends), (is_alive, trim) = await both(
            partial(self._extent, name),
            partial(
                both,
                partial(self.partitions.owners.is_owner_alive, owner),
                partial(self.partitions.trims.read, name),
            ),
        )
        return PartitionDescription(
            partition=name.number,
            owner=owner.owner or None,
            owner_epoch=owner.epoch,
            owner_is_alive=is_alive,
            segments_count=len(numbers),
            last_segment=numbers[-1] if numbers else None,
            first_sequence=trim.first_sequence,
            completed_sequence=_completed_sequence(ends),
            completed_bytes=_completed_bytes(ends),
        )

    async def _describe_mirror(self, name: PartitionName, region: str) -> MirrorDescription:
        found, trim = await both(
            partial(self._describe_partition, name), partial(self.partitions.trims.read, name)
        )
        gap = trim.gap
        return MirrorDescription(
            partition=name.number,
            region=region,
            owner=found.owner,
            owner_epoch=found.owner_epoch,
            owner_is_alive=found.owner_is_alive,
            rows_count=found.segments_count,
            first_sequence=found.first_sequence,
            completed_sequence=found.completed_sequence,
            evicted=None if gap is None else f"{gap.first}-{gap.end - 1}",
        )

    async def _extent(self, name: PartitionName) -> tuple[list[int], list[SegmentRecord]]:
        """The numbers of the segments, and the records of the first and the last two."""
        numbers = await self.partitions.segments.numbers(name)
        asked = sorted({*numbers[:1], *numbers[-2:]})
        return numbers, [one.record for one in await self.partitions.segments.at(name, asked)]

    async def segments(
        self, names: list[PartitionName], *, limit: int | None = None
    ) -> list[SegmentDescription]:
        """The segments of partitions, in order; `limit`: only the last ones of each."""
        found = []
        for name in names:
            numbers = await self._last_numbers(name, limit)
            for start in range(0, len(numbers), _AT_ONCE):
                asked = numbers[start : start + _AT_ONCE]
                some = [one.record for one in await self.partitions.segments.at(name, asked)]
                described = await all_of(
                    [partial(self._describe_segment, name.number, one) for one in some]
                )
                found += [one for one in described if one is not None]
        return found

    async def _last_numbers(self, name: PartitionName, limit: int | None) -> list[int]:
        if limit is None:
            return await self.partitions.segments.numbers(name)
        last: list[int] = []
        async with aclosing(self.partitions.segments.numbers_back(name)) as numbers:
            async for number in numbers:
                if len(last) == limit:
                    break
                last.append(number)
        return last[::-1]

    async def _describe_segment(
        self, partition: int, segment: SegmentRecord
    ) -> SegmentDescription | None:
        try:
            ledger = (await self.ledgers.read(segment.ledger)).record
        except NoSuchLedgerError:
            return None  # Trimmed meanwhile.
        members = ledger.fragments[-1].ensemble
        regions = [member.location.region for member in members]
        return SegmentDescription(
            partition=partition,
            segment=segment.segment,
            ledger=segment.ledger,
            state=ledger.state.value,
            epoch=ledger.epoch,
            owner_epoch=segment.owner_epoch,
            first_sequence=segment.first_sequence,
            last_sequence=segment.last_sequence,
            last_entry=segment.last_entry,
            size_bytes=segment.size_bytes,
            ensemble=[member.node_id for member in members],
            regions=regions,
            adherence=adherence_as_recorded(
                ledger, ledger.fragments[-1], self.own_policies
            ).value,
        )


def _completed_sequence(ends: list[SegmentRecord]) -> int:
    """Sequence of the first record after the completed segments. ends: as of `_extent`."""
    last = [one.last_sequence for one in ends if one.last_sequence is not None]
    return last[-1] + 1 if last else 0


def _completed_bytes(ends: list[SegmentRecord]) -> int:
    """Bytes of the completed segments that are kept. ends: as of `_extent`."""
    if not ends:
        return 0
    return ends[-1].size_bytes_before + (ends[-1].size_bytes or 0) - ends[0].size_bytes_before


def _description(
    record: StreamRecord, partitions: list[PartitionDescription]
) -> StreamDescription:
    return StreamDescription(
        name=str(record.name),
        mode=record.mode.value,
        home=record.home,
        relay_to=list(record.relay_to),
        relay_evict_bytes=record.relay_evict_bytes,
        rpo_max_s=record.rpo_max_s,
        rpo_max_bytes=record.rpo_max_bytes,
        rpo_targets=list(record.rpo_targets),
        on_isolation="continue" if record.isolation_lease_s is None else "stop",
        partitions=record.partitions,
        ensemble_size=record.quorum.ensemble_size,
        write_quorum=record.quorum.write_quorum,
        ack_quorum=record.quorum.ack_quorum,
        min_regions=record.quorum.min_regions,
        durability=record.quorum.durability.value,
        policy=record.placement.name,
        survive=record.survive or None,
        segment_bytes=record.segment_bytes,
        segment_age_s=record.segment_age_s,
        retention_s=record.retention_s,
        retention_bytes=record.retention_bytes,
        writer_retention_s=record.writer_retention_s,
        is_sealed=record.is_sealed,
        created_us=record.created_us,
        partition_list=partitions,
    )
