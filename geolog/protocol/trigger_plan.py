"""Decides which records the next trigger of a streaming query reads.

Theory of operation. A query has a place in each partition. Each place also says where its
trigger began, so a trigger that is repeated after a crash reads the same records whatever
was appended, moved or failed over meanwhile. A plan goes from the places of the trigger before
to new ones. If there is more than one trigger may have, each partition gets the same share
of what waits in it; the records left over by rounding go where most is left. So a trigger has
as many records as it may, and the partition with most records is never passed over.

Invariants:
1. Within one home epoch of one life of a stream, no place goes back.
2. A trigger begins where the one before ended. Where it does not, the plan has a loss.
3. If nothing waits and nothing was lost, the plan is the places that it came from.
4. If something waits, a trigger has at least one record, even if that has too many bytes.
"""

import heapq
from collections.abc import Mapping, Sequence
from enum import Enum

import attrs

from geolog.protocol.ids import Position

PartitionKey = tuple[str, int]
"""Stream and number of a partition."""


@attrs.frozen(kw_only=True)
class TriggerPlace:
    """Where a trigger ends in one partition, and where it began."""

    created_us: int
    """When the stream was created: one made again under its name is another stream."""
    home_epoch: int
    first: int
    end: int
    """The sequence behind the last record of the trigger."""

    @property
    def position(self) -> Position:
        """Where the next trigger begins."""
        return Position(self.home_epoch, self.end)


@attrs.frozen(kw_only=True)
class PartitionExtent:
    """One partition as it is now, for someone who has read it up to a position."""

    created_us: int
    first: int
    """The first sequence that was not trimmed."""
    end: int
    position: Position
    """Where to go on, in the log as it goes on now; without a position the first record."""
    diverged_to: int | None = None
    """The end of what was read and is not in the log, for its home was failed over."""
    waiting_bytes: int = 0
    """Bytes of batches from the position to the end, or 0 if nobody asked."""


class LossReason(Enum):
    """Why records between two triggers are not read."""

    TRIMMED = "trimmed"
    DIVERGED = "diverged"
    CREATED_AGAIN = "created again"
    GONE = "gone"


@attrs.frozen(kw_only=True)
class TriggerLoss:
    """Records that a query will not get, or that it got and the log has not."""

    stream: str
    partition: int
    reason: LossReason
    from_sequence: int = 0
    to_sequence: int = 0
    """Exclusive; both are 0 if the stream itself is another one, or gone."""


@attrs.frozen(kw_only=True)
class TriggerLimits:
    """The most that one trigger reads; None: no limit."""

    records: int | None = None
    bytes: int | None = None


NO_LIMITS = TriggerLimits()


@attrs.frozen(kw_only=True)
class TriggerPlan:
    """The places where a trigger ends, and what is lost on the way there."""

    places: Mapping[PartitionKey, TriggerPlace]
    losses: Sequence[TriggerLoss]


@attrs.frozen
class _Waiting:
    """What could be read of one partition."""

    home_epoch: int
    first: int
    records: int
    bytes: int


def plan_trigger(
    start: Mapping[PartitionKey, TriggerPlace],
    extents: Mapping[PartitionKey, PartitionExtent],
    limits: TriggerLimits,
    targets: Mapping[PartitionKey, PartitionExtent] | None = None,
) -> TriggerPlan:
    """Plan from the places of the last trigger. extents: of all partitions that are read.

    targets: extents behind which nothing is read; partitions that are not among them are new,
    and left out. If a home was failed over since, its target's sequence still bounds the read.
    """
    losses = [
        TriggerLoss(stream=key[0], partition=key[1], reason=LossReason.GONE)
        for key in sorted(start.keys() - extents.keys())
    ]
    waiting: dict[PartitionKey, _Waiting] = {}
    for key in sorted(extents):
        if targets is not None and key not in targets and key not in start:
            continue
        extent, before = extents[key], start.get(key)
        losses += _losses(key, before, extent)
        end = extent.end
        if targets is not None:
            end = min(end, targets[key].end) if key in targets else 0
        waiting[key] = _waiting(before, extent, end)
    shares = admitted([(one.records, one.bytes) for one in waiting.values()], limits)
    lost = {(one.stream, one.partition) for one in losses}
    places: dict[PartitionKey, TriggerPlace] = {}
    for (key, one), share in zip(waiting.items(), shares, strict=True):
        before = start.get(key)
        # A new partition has a place as soon as it has records: if they are trimmed before
        # their turn comes, that is told.
        if share or key in lost or (before is None and one.records):
            places[key] = TriggerPlace(
                created_us=extents[key].created_us,
                home_epoch=one.home_epoch,
                first=one.first,
                end=one.first + share,
            )
        elif before is not None:
            places[key] = before
    return TriggerPlan(places=places, losses=losses)


def admitted(waiting: Sequence[tuple[int, int]], limits: TriggerLimits) -> list[int]:
    """Divide what one trigger may read. waiting: records and bytes of each partition."""
    records = sum(count for count, _ in waiting)
    total = records if limits.records is None else min(records, limits.records)
    size_bytes = sum(size for _, size in waiting)
    if limits.bytes is not None and size_bytes > limits.bytes:
        total = min(total, records * limits.bytes // size_bytes)
    total = min(records, max(total, 1))
    shares = [count * total // records if records else 0 for count, _ in waiting]
    left = [
        (share - count, index)
        for index, ((count, _), share) in enumerate(zip(waiting, shares, strict=True))
    ]
    for _, index in heapq.nsmallest(total - sum(shares), left):
        shares[index] += 1
    return shares


def _losses(
    key: PartitionKey, before: TriggerPlace | None, extent: PartitionExtent
) -> list[TriggerLoss]:
    if before is None:
        return []
    stream, partition = key
    if before.created_us != extent.created_us:
        return [
            TriggerLoss(stream=stream, partition=partition, reason=LossReason.CREATED_AGAIN)
        ]
    spans = []
    if extent.diverged_to is not None:
        spans.append((LossReason.DIVERGED, extent.position.sequence, extent.diverged_to))
    if extent.position.sequence < extent.first:
        spans.append((LossReason.TRIMMED, extent.position.sequence, extent.first))
    return [
        TriggerLoss(
            stream=stream,
            partition=partition,
            reason=reason,
            from_sequence=first,
            to_sequence=end,
        )
        for reason, first, end in spans
    ]


def _waiting(before: TriggerPlace | None, extent: PartitionExtent, end: int) -> _Waiting:
    is_known = before is not None and before.created_us == extent.created_us
    at = extent.position.sequence if is_known else extent.first
    first = max(at, extent.first)
    epoch = extent.position.home_epoch
    return _Waiting(epoch, first, max(0, end - first), extent.waiting_bytes)
