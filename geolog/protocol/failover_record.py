"""The record of a failover: its decision, and the records that it may have cost.

A relay tells each target how far its home has come. The last of these tails that a target heard
is the best that anybody knows of a home that is lost. Nobody knows of records that the home
answered since, so the age of the tail is kept with it.

Rules: PROTOCOL H22.
"""

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
    """The sequence behind the last record that the old home is known to have had; None if no
    target has heard of it."""
    heard_us: int | None = None
    """When that was heard, by a target's clock; what was answered since is not known."""
    is_nothing_lost: bool = False
    """Whether the old home's own log was read to its end."""

    @property
    def records_count(self) -> int | None:
        """Records known to be at risk; None if nothing is known."""
        if self.is_nothing_lost:
            return 0
        if self.to_sequence is None:
            return None
        return max(0, self.to_sequence - self.from_sequence)


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
    is_nothing_lost: bool,
) -> RangeAtRisk:
    """The range that a new home lacks if it goes on at `from_sequence`, as far as is known.

    known: the sequence behind the last record that metadata knows the old home to have.
    """
    ends = [one for one in (known, 0 if tail is None else tail.sequence_next) if one > 0]
    return RangeAtRisk(
        partition=partition,
        from_sequence=Sequence(from_sequence),
        to_sequence=Sequence(max(from_sequence, *ends)) if ends else None,
        heard_us=None if tail is None else tail.heard_us,
        is_nothing_lost=is_nothing_lost,
    )
