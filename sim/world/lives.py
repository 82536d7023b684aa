"""What is known of a stream that is deleted and made again under its name: its lives.

A life is one stream from when it is made until it is deleted; the first is life 1. Moments are
counts of events of the trace.
"""

import attrs


@attrs.frozen(order=True)
class LifeRange:
    """In which life something was, as far as anybody could know: from one to another."""

    first: int
    last: int


@attrs.define(eq=False, kw_only=True)
class LifeRecord:
    """One record that a writer of such a stream appended."""

    value: bytes
    life: LifeRange
    """Of the stream that its writer was opened on."""
    sent_at: int = 0
    answered_at: int | None = None
    """When it was answered OK."""
    sequence: int | None = None


@attrs.define(eq=False, kw_only=True)
class Walk:
    """One read of such a stream from its earliest record on."""

    reader: str
    begun_at: int
    life: LifeRange
    """The last is known when it has ended."""
    items: list[tuple[int, bytes]] = attrs.field(factory=list)
    """Sequences and values."""
    gaps: list[tuple[int | None, int]] = attrs.field(factory=list)
    """Sequences that it was told to be trimmed, which nobody did."""
    has_reached_end: bool = False


@attrs.define(eq=False, kw_only=True)
class Death:
    """One deletion, from its first attempt until it was answered."""

    begun_s: float
    answered_at: int | None = None
    answered_s: float = 0.0

    @property
    def took_s(self) -> float:
        """How long it took, in simulated time."""
        return self.answered_s - self.begun_s


@attrs.define(eq=False)
class Lives:
    """All lives of one name, and what its applications did and were told."""

    begun: int = attrs.field(default=0, init=False)
    """How many lives have begun, or may have."""
    is_made: bool = attrs.field(default=False, init=False)
    """Whether the last of them was made for certain."""
    deaths: list[Death] = attrs.field(factory=list, init=False)
    """The deletion of each life that was to be deleted."""
    entries: dict[bytes, LifeRecord] = attrs.field(factory=dict, init=False)
    walks: list[Walk] = attrs.field(factory=list, init=False)

    @property
    def ended(self) -> int:
        """How many have ended for certain."""
        return sum(one.answered_at is not None for one in self.deaths)

    @property
    def is_dying(self) -> bool:
        """Whether a deletion was begun, and not answered."""
        return len(self.deaths) > self.ended

    def next_life(self) -> int:
        """The first life that something may be in that begins now."""
        return self.ended + 1
