"""Defects of streams: each function replaces a good method."""

import trio

from geolog.catalog.partition_owners import VersionedOwner
from geolog.catalog.partition_trims import PartitionTrims
from geolog.catalog.segment_records import VersionedSegment
from geolog.client.reading.gone import TrimmedRun
from geolog.client.reading.walk import PartitionWalk
from geolog.client.writing import partitioner
from geolog.client.writing.partition_batcher import PartitionBatcher
from geolog.client.writing.record_fields import RecordFields
from geolog.client.writing.writer_pending import Receipt
from geolog.partition.append_times import AppendTimes
from geolog.partition.batch_admission import BatchAdmission
from geolog.partition.stream_upkeep import StreamUpkeep
from geolog.protocol.append_clock import AHEAD_US_MAX
from geolog.protocol.partition_state import PartitionState
from geolog.protocol.retention import Clocks, RetentionPolicy, StoredSegment
from geolog.protocol.stream_state import PartitionName, SegmentRecord
from geolog.wire.batch_terms import BatchTerms
from sim.planted.planted_bug import PlantedBug
from sim.world.draws.clock_draws import with_store_clock_off

# A planted bug changes private state of the code that it breaks.
# ruff: noqa: SLF001

_check = PartitionBatcher.check
_admit = BatchAdmission.admit
_drop = PartitionTrims._drop
_go_to = PartitionWalk._go_to
_truncate = StreamUpkeep.truncate
_goes = RetentionPolicy.goes
_partition_of_key = partitioner.partition_of_key


def _forget(_receipt: Receipt, _is_provisional: object) -> None:
    """Keep nothing."""


said_to_be_final = property(lambda _receipt: False, _forget)
"""Of a receipt: does not say that it is provisional."""


async def drop_one_more(
    trims: PartitionTrims,
    name: PartitionName,
    segments: list[VersionedSegment],
    owner: VersionedOwner | None = None,
) -> None:
    """Remove one segment more from the list than lies before the trim."""
    listed = await trims._segments.all(name)
    going = {one.record.segment for one in segments}
    completed = [one for one in listed if one.record.is_completed]
    behind = [one for one in completed if one.record.segment not in going]
    await _drop(trims, name, segments + behind[:1] if segments else [], owner)


async def go_on_silently(walk: PartitionWalk, number: int) -> TrimmedRun | None:
    """Continue at the partition's current beginning, without a gap."""
    await _go_to(walk, number)
    return None


async def truncate_whole_segment(
    upkeep: StreamUpkeep, name: PartitionName, first_sequence: int
) -> int:
    """Also cut off the segment that holds the truncation point."""
    ends = [
        one.record.last_sequence + 1
        for one in await upkeep.partitions.segments.all(name)
        if one.record.last_sequence is not None
    ]
    beyond = [end for end in ends if end >= first_sequence]
    return await _truncate(upkeep, name, min(beyond, default=first_sequence))


async def seal_and_close_nothing(upkeep: StreamUpkeep, name: PartitionName) -> None:
    """Depose the owner, but leave its ledger open: its appends continue."""
    await upkeep.partitions.owners.seal(name)


def count_open_segment(
    policy: RetentionPolicy, segment: StoredSegment, *, last: SegmentRecord, now: Clocks
) -> bool:
    """Count the open segment as if it alone were as many bytes as must be kept."""
    is_completed = segment.record.is_completed
    if policy.retention_bytes is not None and is_completed and not last.is_completed:
        return True
    return _goes(policy, segment, last=last, now=now)


def is_old_by_first_record(
    policy: RetentionPolicy, segment: StoredSegment, now: Clocks
) -> bool:
    """Let a segment go as soon as its first record is old enough."""
    if policy.retention_s is None:
        return False
    return segment.record.activated_us < now.local_us - policy.retention_s * 1e6


def partition_of_older_count(key: bytes, partitions: int) -> int:
    """Spread keys over one partition fewer than there are."""
    return _partition_of_key(key, max(1, partitions - 1))


def check_no_transaction_id(lane: PartitionBatcher, fields: RecordFields) -> None:
    """Let transaction ids go back."""
    lane._transaction_id = None
    _check(lane, fields)


def admit_any_transaction(
    admission: BatchAdmission,
    terms: BatchTerms,
    *,
    sent: PartitionState,
    sequence_next: int,
) -> None:
    """Let transaction ids go back, including those of a whole batch."""
    admission._transaction_id = None
    _admit(admission, terms, sent=sent, sequence_next=sequence_next)


async def flush_without_waiting(lane: PartitionBatcher) -> None:
    """Send the batch, and report it as durable."""
    lane.seal()
    await trio.lowlevel.checkpoint()


def believe_local_clock(times: AppendTimes) -> int:
    """Stamp appends with the host's clock, unclamped."""
    return times.local_us()


def is_old_by_local_clock(policy: RetentionPolicy, segment: StoredSegment, now: Clocks) -> bool:
    """Let a segment go by its append times and the host's clock alone."""
    last_us = segment.record.last_append_time_us
    if policy.retention_s is None or last_us is None:
        return False
    return last_us < now.local_us - policy.retention_s * 1e6


def is_old_by_held_times(policy: RetentionPolicy, segment: StoredSegment, now: Clocks) -> bool:
    """Let a segment go by times that are all clamped to the metadata store's clock."""
    stamped_us = segment.record.last_append_time_us
    if policy.retention_s is None or stamped_us is None or now.metadata_us is None:
        return False
    kept_us = policy.retention_s * 1e6
    last_us = min(stamped_us, segment.stored_us + AHEAD_US_MAX)
    return last_us < now.local_us - kept_us and segment.stored_us < now.metadata_us - kept_us


STREAM_BUGS: dict[str, PlantedBug] = {
    "one-segment-too-many": PlantedBug(
        41,
        "truncation removes one segment that still has records",
        [(PartitionTrims, "_drop", drop_one_more)],
        is_of_streams=True,
    ),
    "silent-gap": PlantedBug(
        42,
        "a reader overtaken by truncation goes on without a gap",
        [(PartitionWalk, "_go_to", go_on_silently)],
        is_of_streams=True,
    ),
    "truncation-of-whole-segment": PlantedBug(
        43,
        "truncation in the middle of a segment cuts off all of it",
        [(StreamUpkeep, "truncate", truncate_whole_segment)],
        is_of_streams=True,
    ),
    "seal-leaves-ledger-open": PlantedBug(
        44,
        "a stream is sealed, but its open ledger still takes appends",
        [(StreamUpkeep, "_seal", seal_and_close_nothing)],
        is_of_streams=True,
    ),
    "received-as-durable": PlantedBug(
        45,
        "an entry only in memory is answered as if it were on disk",
        [(Receipt, "provisional", said_to_be_final)],
        is_of_streams=True,
    ),
    "retention-counts-open-segment": PlantedBug(
        46,
        "retention by size counts the open segment as a full one",
        [(RetentionPolicy, "goes", count_open_segment)],
        is_of_streams=True,
    ),
    "retention-by-first-record": PlantedBug(
        47,
        "retention by time goes by the age of a segment's first record",
        [(RetentionPolicy, "_is_old", is_old_by_first_record)],
        is_of_streams=True,
    ),
    "key-of-older-count": PlantedBug(
        48,
        "keys are spread over fewer partitions than there are",
        [(partitioner, "partition_of_key", partition_of_older_count)],
        is_of_streams=True,
    ),
    "transaction-ids-unchecked": PlantedBug(
        49,
        "transaction ids may go back",
        [
            (PartitionBatcher, "check", check_no_transaction_id),
            (BatchAdmission, "admit", admit_any_transaction),
        ],
        is_of_streams=True,
    ),
    "append-time-unclamped": PlantedBug(
        74,
        "append times follow the owner's clock, however far ahead it is",
        [(AppendTimes, "now_us", believe_local_clock)],
        is_of_clocks=True,
    ),
    "retention-by-local-clock": PlantedBug(
        75,
        "retention by time relies on the clock of one host alone",
        [(RetentionPolicy, "_is_old", is_old_by_local_clock)],
        is_of_clocks=True,
    ),
    "retention-by-held-times": PlantedBug(
        77,
        "retention by time compares clamped append times with a host's clock",
        [(RetentionPolicy, "_is_old", is_old_by_held_times)],
        made_for=with_store_clock_off,
    ),
    "flush-waits-for-nothing": PlantedBug(
        50,
        "a flush returns before posted records are durable",
        [(PartitionBatcher, "flush", flush_without_waiting)],
        is_of_streams=True,
    ),
}
"""These bugs, by name."""
