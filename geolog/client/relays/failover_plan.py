"""Looks ahead at a failover: what each mirror has, and what may be lost, before anything moves.

Rules: PROTOCOL H19 and H22.
"""

from collections.abc import Mapping, Sequence

import attrs

from geolog.protocol.failover_record import (
    HeardTail,
    RangeAtRisk,
    RiskTotal,
    latest_tails,
    range_at_risk,
    risk_total,
)
from geolog.protocol.isolation_lease import longest_lease_s, wait_of_failover_s
from geolog.protocol.stream_state import OwnerRecord, StreamRecord


@attrs.frozen(kw_only=True)
class FoundEnd:
    """Where a partition's log in one region ends, as far as it could be read."""

    region: str
    partition: int
    sequence_next: int
    """The sequence behind its last record."""
    append_time_us: int = 0
    """When its last record was appended, by the clock of its home; 0 if it has none."""
    is_least: bool = False
    """Whether it may end later: nobody has closed it, and the look is not to."""
    lacks: int = 0
    """Records that its home has dropped, or is to drop, and that it never got."""
    older: int = 0
    """Records of the home from before it begins."""


@attrs.frozen(kw_only=True)
class FailoverCandidate:
    """A region that has mirrors of the stream."""

    region: str
    partitions_reached: int
    """Partitions whose mirror there could be read to its end."""
    records: int
    """Sequences that those mirrors reach, in all."""
    lacks_records: int
    """Records that other regions have and it lacks; it would fetch them first."""
    lacks_evicted: int
    """Records that its mirrors never got, because the home had dropped them: a home there would
    lack them for good."""


@attrs.frozen(kw_only=True)
class FailoverPlan:
    """A failover of one stream, before it is made."""

    stream: str
    home: str | None
    home_epoch: int
    """Counts the homes up to this one: another home is not failed over by this plan."""
    to: str
    """The new home: the one that was named, else the best candidate; empty if there is none."""
    partitions: int
    candidates: tuple[FailoverCandidate, ...]
    """The best first."""
    home_answers: bool
    """Whether the logs at home can be read to their ends: then nothing is lost, and the home
    may not be lost at all."""
    home_partitions_reached: int = 0
    """Partitions of whose log at home something could be read: if any, the home may not be
    lost at all."""
    may_answer_on: tuple[int, ...] = ()
    """Partitions whose owner at home would go on acknowledging appends if it is only cut off
    from metadata: it has no lease (`on_isolation="continue"`, or `stop` was set shortly
    before)."""
    lease_wait_s: float = 0.0
    """How long a failover waits until all leases of owners at home are over."""
    ranges: tuple[RangeAtRisk, ...]
    """For each partition what would be at risk."""
    why_not: str | None
    """Why the stream cannot be failed over now; None if nothing is known."""
    is_wrong: bool = False
    """Whether it cannot be failed over there at any time."""

    @property
    def goes_on_at(self) -> dict[int, int]:
        """For each partition the sequence at which the new home would go on, at least."""
        return {one.partition: one.from_sequence for one in self.ranges}

    @property
    def at_risk(self) -> RiskTotal:
        """Total at risk in all partitions."""
        return risk_total(self.ranges)


def failover_plan(
    record: StreamRecord,
    to: str | None,
    found: Sequence[FoundEnd],
    tails: Sequence[HeardTail],
    known: Mapping[int, int],
    *,
    why_never: str | None,
    owners: Mapping[int, OwnerRecord] | None = None,
) -> FailoverPlan:
    """The plan for one stream.

    found: the ends that could be read, the home's among them. tails: what was heard of the
    home. known: for each partition the sequence behind the last record that metadata knows the
    home to have. why_never: why it cannot move there whatever the logs have. owners: the owner
    records of its partitions at home.
    """
    home = record.home
    by_partition: dict[int, list[FoundEnd]] = {}
    for one in found:
        by_partition.setdefault(one.partition, []).append(one)
    best = {
        number: max((one.sequence_next for one in ends), default=0)
        for number, ends in by_partition.items()
    }
    candidates = sorted(
        (_candidate(region, found, best) for region in record.relay_to),
        key=lambda one: (
            one.lacks_evicted,
            -one.partitions_reached,
            one.lacks_records,
            one.region,
        ),
    )
    chosen = to
    if chosen is None:
        ready = [one for one in candidates if one.partitions_reached == record.partitions]
        chosen = ready[0].region if ready else ""
    why_not = why_never
    if why_not is None:
        why_not = _why_not_now(record, chosen, candidates)
    reached = {one.partition for one in found if one.region == home}
    at_home = {one.partition for one in found if one.region == home and not one.is_least}
    owners = owners or {}
    lease_s = longest_lease_s(record.isolation_lease_s, owners.values())
    heard = latest_tails(tails)
    return FailoverPlan(
        stream=str(record.name),
        home=home,
        home_epoch=record.home_epoch,
        to=chosen,
        partitions=record.partitions,
        candidates=tuple(candidates),
        home_answers=len(at_home) == record.partitions,
        home_partitions_reached=len(reached),
        may_answer_on=tuple(
            number
            for number in range(record.partitions)
            if number not in at_home
            and (
                record.isolation_lease_s is None
                or (number in owners and owners[number].may_answer_always)
            )
        ),
        lease_wait_s=wait_of_failover_s(lease_s),
        ranges=tuple(
            _at_risk(
                number,
                by_partition.get(number, ()),
                heard.get(number),
                known.get(number, 0),
                chosen,
                is_whole=number in at_home,
            )
            for number in range(record.partitions)
        ),
        why_not=why_not,
        is_wrong=why_never is not None,
    )


def unplanned(stream: str, home: str | None, to: str | None, why_not: str) -> FailoverPlan:
    """The plan for a stream of which nothing could be found out."""
    return FailoverPlan(
        stream=stream,
        home=home,
        home_epoch=0,
        to=to or "",
        partitions=0,
        candidates=(),
        home_answers=False,
        ranges=(),
        why_not=why_not,
    )


def _candidate(
    region: str, found: Sequence[FoundEnd], best: Mapping[int, int]
) -> FailoverCandidate:
    mine = [one for one in found if one.region == region]
    return FailoverCandidate(
        region=region,
        partitions_reached=len(mine),
        records=sum(one.sequence_next for one in mine),
        lacks_records=sum(best[one.partition] - one.sequence_next for one in mine),
        lacks_evicted=sum(one.lacks for one in mine),
    )


def _why_not_now(
    record: StreamRecord, to: str, candidates: Sequence[FailoverCandidate]
) -> str | None:
    if not candidates:
        return f"{record.name} has no targets, so no other region has a copy: bring it back"
    if not to:
        reached = ", ".join(f"{one.region} {one.partitions_reached}" for one in candidates)
        return (
            f"no region has reachable mirrors of all {record.partitions} partitions of"
            f" {record.name}"
            f" (partitions reached: {reached}). Start nodes there, and try again"
        )
    (chosen,) = (one for one in candidates if one.region == to)
    missing = record.partitions - chosen.partitions_reached
    if missing:
        return (
            f"{missing} of {record.partitions} mirrors in {to} cannot be read: start its nodes,"
            " or choose another region (--to)"
        )
    return None


def _at_risk(
    number: int,
    ends: Sequence[FoundEnd],
    tail: HeardTail | None,
    known: int,
    to: str,
    *,
    is_whole: bool,
) -> RangeAtRisk:
    best = max(ends, key=lambda one: one.sequence_next, default=None)
    return range_at_risk(
        number,
        from_sequence=0 if best is None else best.sequence_next,
        tail=tail,
        known=known,
        is_end_known=is_whole,
        older_records=sum(one.older for one in ends if one.region == to),
        compared=[one.region for one in ends],
        from_us=None if best is None else best.append_time_us or None,
    )
