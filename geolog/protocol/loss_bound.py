"""Whether a relayed stream takes appends: bounds what the loss of its home could cost.

Theory of operation. Mirrors follow their home later, so what they lack is lost with the
home. A stream may bound that, in bytes or in seconds, at targets that it chooses: at all of
them, at any one, or at those named. The owner of a partition judges each append before it
takes it in.

The owner knows what it took in itself, and each target's place only as it is told: by the
coordinator of its region, which the target told. An answer may be old, but was true: a
mirror has no less later. So each target counts as being where it was last known to be, and
as lacking everything since, in flight or acknowledged. Of a target that was never heard of,
nothing is known to be there. The coordinator counts the records
from before this owner began, at most; until it has told that, the target counts as too far
behind.

A partition that refused an append is held: it takes none until what the targets lack is
below nine tenths of the bound. Else it would go back and forth with each answer of a
target.

Invariants:

1. Bytes: at no time does a chosen target lack more bytes of batches than the bound, counted
   from what is durable there. With `any`, one chosen target does not.
2. Seconds: no batch is taken in later after the oldest one that such a target lacks.
3. Once no chosen target lacks nine tenths of the bound, and a batch fits into the rest, it is
   taken in.

Rules: PROTOCOL T8.
"""

import math

import attrs

from geolog.protocol.tail_history import NO_TAIL_LAG, TailHistory

ALL_TARGETS = "all"
"""A stream's choice of its targets: each of them must be within the bound."""

ANY_TARGET = "any"
"""A stream's choice of its targets: one of them within the bound is enough."""

RELEASED_BELOW = 0.9
"""Share of the bound below which a held partition goes on."""

RUNS_MAX = 1024
"""Runs of batches that are told apart; lags are told up to 1/512 too large."""


@attrs.frozen(kw_only=True)
class LossTerms:
    """The bound on what one partition could lose, and the targets at which it is judged."""

    targets: tuple[str, ...]
    """The chosen targets, sorted; at least one."""
    is_any: bool = False
    """Whether one of them within the bound is enough."""
    max_bytes: int | None = None
    max_s: float | None = None
    """Exactly one of the two is given."""

    def __attrs_post_init__(self) -> None:
        assert self.targets
        assert (self.max_bytes is None) != (self.max_s is None)


@attrs.frozen(kw_only=True)
class TargetTold:
    """One target's place, as the coordinator of the home told it."""

    target: str
    relay_epoch: int
    """Of the coordinator; what an older one told is dropped."""
    durable_next: int
    """The first sequence that the target lacks."""
    tail_next: int = 0
    """The sequence behind the last record that the coordinator has read."""
    lag_bytes: int = 0
    """Bytes between the two, at most."""
    lag_s: float = 0.0
    """Age of the oldest record between them when this was heard, at least."""


@attrs.frozen(kw_only=True)
class HeldBack:
    """The reason why appends are refused: the target that is furthest from the bound.

    Of several targets of which any is enough, it is the one that lacks the least.
    """

    target: str
    lag_bytes: int | None
    """Bytes that it lacks, at most; None if that is not known."""
    lag_s: float | None

    @property
    def is_known(self) -> bool:
        """Whether it is known how far behind the target is."""
        return self.lag_bytes is not None


@attrs.define
class _Target:
    name: str
    told: TargetTold
    told_since_s: float | None = None
    """When the oldest record was appended of those that the coordinator counted."""
    lag_bytes: int | None = None
    """All that it lacks; None: not known."""
    since_s: float | None = None
    """When the oldest of it was appended; None if it lacks nothing, or that is not known."""

    def age_s(self, now_s: float) -> float:
        """Age of the oldest record that it lacks."""
        return 0.0 if self.since_s is None else max(0.0, now_s - self.since_s)


class LossBound:
    """The bound of one partition, at one owner. All times are of a monotonic clock."""

    def __init__(
        self,
        terms: LossTerms,
        *,
        sequence_next: int,
        now_s: float,
        runs_max: int = RUNS_MAX,
    ) -> None:
        """sequence_next: the first sequence that this owner assigns from now on."""
        self._terms = terms
        self._opened_s = now_s
        self._taken = TailHistory(runs_max)
        self._taken.on_run(sequence_next, sequence_next, size_bytes=0, since_us=_us(now_s))
        self._targets: dict[str, _Target] = {}
        self._held: HeldBack | None = None
        self.refused_count = 0
        """Appends that were refused because of the bound."""
        self.on_terms(terms, now_s=now_s)

    def __repr__(self) -> str:
        return f"LossBound({self._terms}, {'open' if self._held is None else self._held})"

    @property
    def terms(self) -> LossTerms:
        """The bound now."""
        return self._terms

    @property
    def held(self) -> HeldBack | None:
        """Why appends were refused when it was last judged; None if they were taken."""
        return self._held

    @property
    def is_known(self) -> bool:
        """Whether it is known of each chosen target how far behind it is."""
        return all(one.lag_bytes is not None for one in self._targets.values())

    # Events.

    def on_terms(self, terms: LossTerms, *, now_s: float) -> None:
        """The stream has other terms; a target that is new was never heard of."""
        self._terms = terms
        before = self._targets
        self._targets = {
            name: before.get(name)
            or _Target(name, TargetTold(target=name, relay_epoch=-1, durable_next=0))
            for name in terms.targets
        }
        for target in self._targets.values():
            self._measure(target)
        self.look(now_s=now_s)

    def on_told(self, told: TargetTold, *, now_s: float) -> None:
        """The coordinator told where a target is."""
        target = self._targets.get(told.target)
        if target is None or told.relay_epoch < target.told.relay_epoch:
            return
        target.told = told
        # Records before this owner's first are older than the owner.
        target.told_since_s = min(self._opened_s, now_s - told.lag_s)
        self._measure(target)
        self.look(now_s=now_s)

    def on_taken(
        self, first: int, sequence_next: int, size_bytes: int, *, now_s: float
    ) -> None:
        """The owner has taken in a batch with these sequences, from `first` on."""
        self._taken.on_run(first, sequence_next, size_bytes=size_bytes, since_us=_us(now_s))
        for target in self._targets.values():
            if target.lag_bytes is not None:
                target.lag_bytes += size_bytes
                if target.since_s is None:
                    target.since_s = now_s

    def admit(self, size_bytes: int, *, now_s: float) -> HeldBack | None:
        """Judge an append of a batch of this size; None takes it, and `on_taken` follows."""
        if self.look(now_s=now_s) is None:
            rate, target = self._nearest(size_bytes, now_s)
            if rate > 1.0:
                self._held = self._held_by(target, now_s)
        if self._held is not None:
            self.refused_count += 1
        return self._held

    def look(self, *, now_s: float) -> HeldBack | None:
        """Judge without an append: why the partition is held, if so."""
        rate, target = self._nearest(0, now_s)
        is_held = rate > 1.0 if self._held is None else rate >= RELEASED_BELOW
        self._held = self._held_by(target, now_s) if is_held else None
        return self._held

    # Judging.

    def _nearest(self, more_bytes: int, now_s: float) -> tuple[float, _Target]:
        """The target that decides, and which share of the bound it lacks."""
        rated = sorted(
            (self._rate(one, more_bytes, now_s), one.name) for one in self._targets.values()
        )
        rate, name = rated[0] if self._terms.is_any else rated[-1]
        return rate, self._targets[name]

    def _rate(self, target: _Target, more_bytes: int, now_s: float) -> float:
        if target.lag_bytes is None:
            return math.inf
        if self._terms.max_bytes is not None:
            return (target.lag_bytes + more_bytes) / self._terms.max_bytes
        assert self._terms.max_s is not None
        return target.age_s(now_s) / self._terms.max_s

    def _held_by(self, target: _Target, now_s: float) -> HeldBack:
        is_known = target.lag_bytes is not None
        return HeldBack(
            target=target.name,
            lag_bytes=target.lag_bytes,
            lag_s=target.age_s(now_s) if is_known else None,
        )

    def _measure(self, target: _Target) -> None:
        """Count what the target lacks: all that may lie behind its place."""
        told = target.told
        lag = self._taken.at_most(told.durable_next)
        since_s: float | None
        if lag is not None:
            size_bytes = lag.bytes
            since_s = None if lag == NO_TAIL_LAG else _seconds(lag.since_us)
        else:  # It lacks some of what was there before this owner: the coordinator counted it.
            lag = self._taken.at_most(told.tail_next)
            if lag is None:
                target.lag_bytes = target.since_s = None
                return
            size_bytes = told.lag_bytes + lag.bytes
            since_s = target.told_since_s
        target.lag_bytes, target.since_s = size_bytes, since_s


def _us(now_s: float) -> int:
    return round(now_s * 1e6)


def _seconds(since_us: int | None) -> float | None:
    return None if since_us is None else since_us / 1e6
