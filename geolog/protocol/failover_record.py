"""The record of a failover: its decision, and the records that it may have cost.

A relay tells each target how far its home has come. The last of these tails that a target heard
is the best that anybody knows of a home that is lost. Nobody knows of records that the home
answered since, so the age of the tail is kept with it.

Rules: PROTOCOL H22.
"""

from collections.abc import Collection, Iterable
from collections.abc import Sequence as Several

import attrs

from geolog.protocol.ids import Sequence


@attrs.frozen(kw_only=True)
class HeardTail:
    """How far a home had come in one partition, as one of its targets heard it last."""

    stream: str
    life: str
    partition: int
    home: str
    home_epoch: int
    region: str
    """The target that heard it."""
    sequence_next: int
    """The sequence behind the home's last record then."""
    heard_us: int
    """When, by the target's clock."""
    heard_ago_s: float | None = None
    """How long before it was told here; no two clocks are compared for it. None if the relay is
    of a version that does not tell."""
    lag_bytes: int | None = None
    """Bytes of the home's entries that were not known to be durable in that target then."""
    tail_us: int | None = None
    """When the home's last record then was appended, by the home's clock."""


@attrs.frozen
class HeardTailsReport:
    """The tails that one relay has heard of."""

    tails: tuple[HeardTail, ...]


@attrs.frozen(kw_only=True)
class RangeAtRisk:
    """The records of one partition that the new home does not have, as far as is known."""

    partition: int
    from_sequence: Sequence
    """Where the new home goes on: everything before it is there."""
    to_sequence: Sequence | None = None
    """The sequence behind the last record that the old home is known to have had, by metadata
    or by a target; None if nothing is known."""
    heard_us: int | None = None
    """When a target heard that, by the target's clock; what was answered since is not known.
    None if no target has told: then the home may have come any distance further."""
    heard_ago_s: float | None = None
    """How long ago that was when the range was told; None if it is not known."""
    bytes_max: int | None = None
    """Bytes of the entries at risk, at most; None if it is not known."""
    seconds: float | None = None
    """Time by which the new home is behind the old one's last known record; None if that is
    not known."""
    is_nothing_lost: bool = False
    """Whether the old home's own log was read to its end, and the new home has all of it."""
    older_records: int = 0
    """Records of the old home that the new one never got, because it begins later."""
    is_end_known: bool = False
    """Whether the old home's own log was read to its end: then nothing newer is lost."""

    @property
    def records_count(self) -> int | None:
        """Records known to be at risk; None unless a target has told how far the home came."""
        is_known = self.is_nothing_lost or self.is_end_known
        return None if not is_known and self.heard_us is None else self.records_min

    @property
    def records_min(self) -> int:
        """Records that are at risk at least."""
        if self.is_nothing_lost:
            return 0
        is_none = self.is_end_known or self.to_sequence is None
        newer = 0 if is_none else max(0, (self.to_sequence or 0) - self.from_sequence)
        return self.older_records + newer


@attrs.frozen(kw_only=True)
class RiskTotal:
    """Total at risk in all partitions; a value is None unless it is known of each."""

    records: int | None
    records_min: int
    """Records that are at risk at least, whether or not more is known."""
    bytes_max: int | None
    seconds: float | None
    """Of the partition that is furthest behind."""
    heard_ago_s: float | None
    """The age of the oldest tail by which that is told; None if one has none."""
    unheard_count: int
    """Partitions of which no target has told how far the home came."""


def risk_total(ranges: Iterable[RangeAtRisk]) -> RiskTotal:
    """Sum up the ranges of partitions."""
    found = list(ranges)
    at_risk = [one for one in found if not (one.is_nothing_lost or one.is_end_known)]
    seconds = _known(one.seconds for one in at_risk)
    bytes_max = _known(one.bytes_max for one in at_risk)
    ages = _known(one.heard_ago_s for one in at_risk)
    unheard_count = sum(one.records_count is None for one in found)
    return RiskTotal(
        records=None if unheard_count else sum(one.records_min for one in found),
        records_min=sum(one.records_min for one in found),
        bytes_max=None if bytes_max is None else round(sum(bytes_max)),
        seconds=None if seconds is None else max(seconds, default=0.0),
        heard_ago_s=max(ages, default=None) if ages else None,
        unheard_count=unheard_count,
    )


def _known(values: Iterable[float | None]) -> list[float] | None:
    """The values; None if one of them is not known."""
    found = list(values)
    known = [one for one in found if one is not None]
    return known if len(known) == len(found) else None


@attrs.frozen(kw_only=True)
class FailoverRecord:
    """One failover of a stream, as it was decided."""

    home_epoch: int
    """Of the home that it made."""
    home_before: str
    home: str
    decided_us: int
    """When the fork was written, by the clock of the process that failed it over."""
    who: str
    """That process's name."""
    ranges: tuple[RangeAtRisk, ...]
    """One for each partition."""

    @property
    def is_nothing_lost(self) -> bool:
        """Whether nothing that was answered is missing in the new home."""
        return all(one.is_nothing_lost for one in self.ranges)

    @property
    def at_risk(self) -> RiskTotal:
        """Total that was at risk in all partitions."""
        return risk_total(self.ranges)


def latest_tails(tails: Several[HeardTail]) -> dict[int, HeardTail]:
    """For each partition the tail that is furthest; of equal ones that heard last."""
    ordered = sorted(tails, key=lambda one: (one.sequence_next, one.heard_us))
    return {one.partition: one for one in ordered}


def range_at_risk(
    partition: int,
    *,
    from_sequence: int,
    tail: HeardTail | None,
    known: int,
    is_end_known: bool,
    older_records: int = 0,
    compared: Collection[str] = (),
    from_us: int | None = None,
    passed_s: float = 0.0,
) -> RangeAtRisk:
    """The range that a new home lacks if it goes on at `from_sequence`, as far as is known.

    known: the sequence behind the last record that metadata knows the old home to have.
    is_end_known: whether the old home's log was read to its end. older_records: those of the
    old home from before the new one begins.
    compared: regions whose logs of the partition are known not to reach further than that.
    from_us: when the last record before it was appended, by the clock of its home. passed_s:
    time since `tail` was told here.
    """
    ends = [one for one in (known, 0 if tail is None else tail.sequence_next) if one > 0]
    found = RangeAtRisk(
        partition=partition,
        from_sequence=Sequence(from_sequence),
        to_sequence=Sequence(max(from_sequence, *ends)) if ends else None,
        heard_us=None if tail is None else tail.heard_us,
        is_nothing_lost=is_end_known and not older_records,
        older_records=older_records,
        is_end_known=is_end_known,
    )
    if tail is None or is_end_known:
        return found
    is_none = found.records_min == older_records
    # The bytes are those above what that region had; where the new home begins lies no lower
    # only if that region's log was compared.
    is_bound = tail.region in compared and known <= tail.sequence_next
    seconds: float | None = None
    if tail.tail_us and from_us is not None:
        seconds = max(0.0, (tail.tail_us - from_us) / 1e6)
    return attrs.evolve(
        found,
        heard_ago_s=None if tail.heard_ago_s is None else tail.heard_ago_s + passed_s,
        bytes_max=0 if is_none else tail.lag_bytes if is_bound else None,
        seconds=0.0 if is_none else seconds,
    )
