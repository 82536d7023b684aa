"""Conditions of one link between two regions, and of a whole WAN. Values only.

A link has two directions, each with its own conditions. Settings for the round trip are split:
each direction gets half of the delay and half of the jitter.
"""

import math
from collections.abc import Mapping

import attrs

from topology.errors import InvalidArgumentError, NotFoundError

BANDWIDTH_DEFAULT = 125e6
"""One gigabit per second. Every link has a bandwidth, because it bounds the bytes in flight."""

DELAY_S_MAX = 60.0
BANDWIDTH_MIN, BANDWIDTH_MAX = 1e3, 10e9
ALL = "all"
"""Stands for every region."""


@attrs.frozen(kw_only=True)
class Conditions:
    """Conditions of one direction of a link. InvalidArgumentError for impossible values."""

    delay_s: float = 0.0
    """One way."""

    jitter_s: float = 0.0
    """Maximum deviation of the delay, either way; uniform. It never reorders bytes."""

    bandwidth_bytes_per_s: float = BANDWIDTH_DEFAULT
    """Shared by all connections."""

    stall_rate: float = 0.0
    """Share of the pieces that are delayed, as by a lost packet. A delayed piece also delays
    those behind it on the same connection."""

    stall_s: float = 0.2
    """Length of a stall. The default is TCP's shortest retransmission time-out."""

    is_cut: bool = False
    """Nothing arrives. Bytes in flight wait, as TCP would resend them after the heal."""

    def __attrs_post_init__(self) -> None:
        _check_within("the round trip", 2 * self.delay_s, "s", 0, 2 * DELAY_S_MAX)
        _check_within("the stall", self.stall_s, "s", 0, DELAY_S_MAX)
        _check_within("the stall rate", 100 * self.stall_rate, "%", 0, 100)
        _check_within(
            "the bandwidth", self.bandwidth_bytes_per_s, " B/s", BANDWIDTH_MIN, BANDWIDTH_MAX
        )
        if not 0 <= self.jitter_s <= self.delay_s:
            raise InvalidArgumentError(
                f"the jitter must be 0s to {2 * self.delay_s:g}s, the round trip, got"
                f" {2 * self.jitter_s:g}s: else bytes would arrive before they were sent"
            )


@attrs.frozen(kw_only=True)
class LinkChange:
    """A change of a link's conditions; None keeps the present value."""

    rtt_s: float | None = None
    jitter_s: float | None = None
    """Of the round trip."""
    bandwidth_bytes_per_s: float | None = None
    stall_rate: float | None = None
    stall_s: float | None = None
    is_cut: bool | None = None

    @property
    def is_nothing(self) -> bool:
        """Whether it changes nothing."""
        return all(value is None for value in attrs.astuple(self))

    def of(self, conditions: Conditions) -> Conditions:
        """The conditions of one direction after the change."""

        def either(wanted: float | None, present: float) -> float:
            return present if wanted is None else wanted

        return Conditions(
            delay_s=either(self.rtt_s, 2 * conditions.delay_s) / 2,
            jitter_s=either(self.jitter_s, 2 * conditions.jitter_s) / 2,
            bandwidth_bytes_per_s=either(
                self.bandwidth_bytes_per_s, conditions.bandwidth_bytes_per_s
            ),
            stall_rate=either(self.stall_rate, conditions.stall_rate),
            stall_s=either(self.stall_s, conditions.stall_s),
            is_cut=conditions.is_cut if self.is_cut is None else self.is_cut,
        )


Direction = tuple[str, str]
"""From one region to another."""


@attrs.frozen
class Wan:
    """All regions, and each direction between two of them."""

    regions: tuple[str, ...]
    directions: Mapping[Direction, Conditions]

    @classmethod
    def between(cls, regions: tuple[str, ...]) -> "Wan":
        """Links without delay between all pairs of regions."""
        pairs = [(here, there) for here in regions for there in regions if here != there]
        return cls(regions, dict.fromkeys(pairs, Conditions()))

    def changed(self, here: str, there: str, change: LinkChange, *, is_one_way: bool) -> "Wan":
        """The WAN after changing the links that `here` and `there` select.

        Either may be `all`. NotFoundError for an unknown link, InvalidArgumentError for
        impossible conditions; then nothing changes.
        """
        concerned = self.named(here, there)
        if not is_one_way:
            concerned += [(b, a) for a, b in concerned if (b, a) not in concerned]
        updated = {each: change.of(self.directions[each]) for each in concerned}
        return attrs.evolve(self, directions={**self.directions, **updated})

    def round_trip_s(self, here: str, there: str) -> float:
        """Round-trip delay without jitter."""
        return self.directions[here, there].delay_s + self.directions[there, here].delay_s

    def nearest_s(self, here: str, *, without: str | None = None) -> float | None:
        """Round trip to the nearest other region except `without`; None if there is none."""
        others = [region for region in self.regions if region not in (here, without)]
        return min((self.round_trip_s(here, there) for there in others), default=None)

    def named(self, here: str, there: str) -> list[Direction]:
        """The directions that the two names select."""
        for name in (here, there):
            if name != ALL and name not in self.regions:
                raise NotFoundError(
                    f"no link {here}-{there}: unknown region {name!r}; the regions are "
                    f"{', '.join(self.regions)} (or {ALL})"
                )
        if here == there != ALL:
            raise NotFoundError(
                f"no link {here}-{there}: links within a region are not emulated"
            )
        return [(a, b) for a, b in self.directions if here in (a, ALL) and there in (b, ALL)]


def _check_within(what: str, value: float, unit: str, low: float, high: float) -> None:
    # Test for finite values explicitly rather than rely on comparisons with nan.
    if not math.isfinite(value) or not low <= value <= high:
        raise InvalidArgumentError(
            f"{what} must be {low:g} to {high:g}{unit}, got {value:g}{unit}"
        )
