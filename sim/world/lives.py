"""The lives of a stream that is deleted and created again under its name.

A life lasts from the creation of the stream until its deletion; the first is life 1. Moments
are counts of trace events.
"""

import attrs


@attrs.frozen(order=True)
class LifeRange:
    """The lives that something may belong to, as far as anybody could know: first to last."""

    first: int
    last: int


@attrs.define(eq=False, kw_only=True)
class LifeRecord:
    """One record that a writer of such a stream appended."""

    value: bytes
    life: LifeRange
    """The life of the stream that its writer opened."""
    sent_at: int = 0
    answered_at: int | None = None
    """When it was acknowledged."""
    sequence: int | None = None


@attrs.define(eq=False, kw_only=True)
class Walk:
    """One read of such a stream from its earliest record on."""

    reader: str
    begun_at: int
    life: LifeRange
    """`last` is known when the walk has ended."""
    items: list[tuple[int, bytes]] = attrs.field(factory=list)
    """Sequences and values."""
    gaps: list[tuple[int | None, int]] = attrs.field(factory=list)
    """Sequences that were reported as trimmed, though nobody trims this stream."""
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
    """All lives of one name, with everything its applications did and were told."""

    begun: int = attrs.field(default=0, init=False)
    """How many lives have begun, or may have begun."""
    is_made: bool = attrs.field(default=False, init=False)
    """Whether the last life was certainly created."""
    deaths: list[Death] = attrs.field(factory=list, init=False)
    """The deletion of each life, as far as one was begun."""
    entries: dict[bytes, LifeRecord] = attrs.field(factory=dict, init=False)
    walks: list[Walk] = attrs.field(factory=list, init=False)

    @property
    def ended(self) -> int:
        """How many lives have certainly ended."""
        return sum(one.answered_at is not None for one in self.deaths)

    @property
    def is_dying(self) -> bool:
        """Whether a deletion was begun and not yet answered."""
        return len(self.deaths) > self.ended

    def next_life(self) -> int:
        """The first life that an operation beginning now may belong to."""
        return self.ended + 1
