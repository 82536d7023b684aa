"""Hedge policies: how long a question waits before it goes to a further replica.

Theory of operation. A policy sees what was observed of the routes to the replicas of one
question, in the order in which they are asked, and says how long after the last request the
next one may go out. It decides nothing else: the order, the budget and the outcome are the same
under every policy. A user may give one of their own; it has to satisfy `HedgePolicy`.

`auto` waits for a percentile of the last replica's route, at least twice as long as before. At
the 98th percentile two of a hundred questions need the second replica, and those that need the
third are two of a hundred of these or fewer. `fixed` waits a given time, then twice that, and
so on. `sla` spreads the requests over the time that is left, so that each still has time to be
answered within the limit. `off` never asks twice; only failures go to another replica.

Rules: PROTOCOL R17.
"""

import difflib
import math
import re
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import attrs

from topology.errors import InvalidArgumentError

PAUSE_S_MIN = 0.001
"""Shortest pause: below that, the answer is more likely under way than late."""

MEDIANS_MAX = 8.0
"""Longest pause, as a multiple of the route's median.

Where many answers are late, their delay is the percentile. Without this bound a slow replica
would hide behind its own delays.
"""

UNKNOWN_S = 0.1
"""The pause while nothing is known of a route."""

UNKNOWN_REMOTE_S = 0.5
"""The same for a replica in another region."""

GROWTH = 2.0
"""Each pause is at least this many times the one before."""

FIXED_S_MIN = PAUSE_S_MIN
FIXED_S_MAX = 10.0
SLA_S_MIN = 0.002
SLA_S_MAX = 60.0

SLA_PERCENTILE = 90.0
"""An answer that takes as long as this percentile still has to come within the limit."""

SLA_EXTRA_MAX = 2
"""How many extra requests to place within the limit."""


class Route(Protocol):
    """The way to one replica, as it was observed."""

    @property
    def is_remote(self) -> bool:
        """Whether the replica is in another region than the reader."""
        ...

    def percentile_s(self, percentile: float) -> float | None:
        """The delay of answers at this percentile; None if too few are known."""
        ...

    def median_s(self) -> float | None:
        """The median delay; None if too few answers are known."""
        ...


@attrs.frozen(kw_only=True)
class HedgeTerms:
    """Terms of a policy that hold for all questions."""

    is_budgeted: bool = True
    """Whether extra requests count against the budget, and stop when it is used up."""

    cancels_losers: bool = True
    """Whether nodes are told that an answer is not needed any more."""

    is_error_patient: bool = False
    """Whether an error sends the next request only if no other is out."""

    sla_s: float | None = None
    """Count reads that take longer than this."""


@attrs.frozen
class HedgeMoment:
    """A question without a good answer, after a request went out."""

    routes: Sequence[Route]
    """The routes of all its replicas, in the order in which they are asked."""
    asked_count: int
    """How many of them were asked; at least one, and not all."""
    elapsed_s: float
    """Time from the first request to the last."""
    pause_before_s: float
    """How long the question waited before the last request; 0 before the second."""


@runtime_checkable
class HedgePolicy(Protocol):
    """When a late question also goes to another replica. It must not keep any state."""

    @property
    def name(self) -> str:
        """The name as given to `connect` and `--hedge`."""
        ...

    @property
    def terms(self) -> HedgeTerms:
        """Terms for all questions."""
        ...

    def pause_s(self, moment: HedgeMoment) -> float | None:
        """How long after the last request the next one may go out; None is never.

        Pauses of less than a millisecond count as one.
        """
        ...


def usual_delay_s(route: Route, percentile: float) -> float:
    """The delay of the route at a percentile, bounded by its median, or a default."""
    late_s, median_s = route.percentile_s(percentile), route.median_s()
    if late_s is None or median_s is None:
        return UNKNOWN_REMOTE_S if route.is_remote else UNKNOWN_S
    return max(PAUSE_S_MIN, min(late_s, MEDIANS_MAX * median_s))


@attrs.frozen
class AutoPolicy:
    """Ask again when the answer is later than most answers of that replica."""

    percentile: float = 98.0
    name: str = "auto"
    terms: HedgeTerms = HedgeTerms()

    def pause_s(self, moment: HedgeMoment) -> float | None:
        """The percentile of the route asked last, and at least twice the pause before."""
        usual_s = usual_delay_s(moment.routes[moment.asked_count - 1], self.percentile)
        return max(usual_s, GROWTH * moment.pause_before_s)


@attrs.frozen
class OffPolicy:
    """Ask one replica after the other, each only when the one before has failed."""

    name: str = "off"
    terms: HedgeTerms = HedgeTerms()

    def pause_s(self, _moment: HedgeMoment) -> float | None:
        """Never."""
        return None


@attrs.frozen
class FixedPolicy:
    """Ask again after a fixed time, then after twice that, and so on."""

    first_s: float
    name: str
    terms: HedgeTerms = HedgeTerms()

    def pause_s(self, moment: HedgeMoment) -> float | None:
        """The fixed time, or twice the pause before."""
        return GROWTH * moment.pause_before_s or self.first_s


@attrs.frozen
class SlaPolicy:
    """Ask again as late as possible, but in time for an answer within a limit."""

    sla_s: float
    name: str

    @property
    def terms(self) -> HedgeTerms:
        """Reads over the limit are counted."""
        return HedgeTerms(sla_s=self.sla_s)

    def pause_s(self, moment: HedgeMoment) -> float | None:
        """Divide the time that is left, each part twice the one before."""
        asked_count = moment.asked_count
        pauses = []
        for extra in range(asked_count, min(SLA_EXTRA_MAX + 1, len(moment.routes))):
            usual_s = usual_delay_s(moment.routes[extra], SLA_PERCENTILE)
            latest_s = self.sla_s - usual_s - moment.elapsed_s
            if latest_s > 0:
                pauses.append(latest_s / (GROWTH ** (extra - asked_count + 1) - 1))
        # Where no answer would come in time, the others are still sooner than none.
        return max(PAUSE_S_MIN, min(pauses, default=GROWTH * moment.pause_before_s))


AUTO = AutoPolicy()
OFF = OffPolicy()

BOOKKEEPER = FixedPolicy(
    2.0,
    "bookkeeper",
    HedgeTerms(is_budgeted=False, cancels_losers=False, is_error_patient=True),
)
"""BookKeeper's policy as it is set by default, to measure against."""

_NAMED = {policy.name: policy for policy in (AUTO, OFF)}
_FORMS = "auto, off, a time (e.g. 25ms), or sla:50ms"
_TIME = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)")
_SECONDS_PER = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}
_SPELLINGS = {
    "msec": "ms",
    "msecs": "ms",
    "millis": "ms",
    "milliseconds": "ms",
    "sec": "s",
    "secs": "s",
    "second": "s",
    "seconds": "s",
    "min": "m",
    "minute": "m",
    "minutes": "m",
    "usec": "us",
}
"""Units as people write them, by the one that is understood."""


def parse_hedge(text: str) -> HedgePolicy:
    """The policy that a text names: auto, off, a time (e.g. 25ms), or sla:50ms.

    InvalidArgumentError, with the nearest text that is right.
    """
    text = text.strip()
    named = _NAMED.get(text)
    if named is not None:
        return named
    if not text:
        raise InvalidArgumentError(f"hedge is empty: use {_FORMS}; 'auto' is the default")
    prefix, colon, rest = text.partition(":")
    if colon and prefix == "sla":
        sla_s = _parsed_s(text, rest, SLA_S_MIN, SLA_S_MAX, prefix="sla:")
        return SlaPolicy(sla_s, f"sla:{format_s(sla_s)}")
    if _TIME.fullmatch(text):
        first_s = _parsed_s(text, text, FIXED_S_MIN, FIXED_S_MAX, prefix="")
        return FixedPolicy(first_s, format_s(first_s))
    if text.startswith("-") and _TIME.fullmatch(text.removeprefix("-")):
        raise InvalidArgumentError(
            f"hedge {text!r} is negative: the shortest time is {format_s(FIXED_S_MIN)};"
            " off never asks again"
        )
    known = ["auto", "off", "sla:50ms"]
    close = difflib.get_close_matches(text.lower(), known, n=1, cutoff=0.4)
    hint = f"; did you mean {close[0]!r}?" if close else "; 'auto' is the default"
    raise InvalidArgumentError(f"hedge {text!r} is not known: use {_FORMS}{hint}")


def _parsed_s(whole: str, text: str, least_s: float, most_s: float, *, prefix: str) -> float:
    found = _TIME.fullmatch(text)
    if found is None:
        raise InvalidArgumentError(
            f"hedge {whole!r} has no time: write it as {prefix}50ms, for example"
        )
    number, spelt = found.groups()
    value, lower = float(number), spelt.lower()
    unit = _SPELLINGS.get(lower, lower)
    if value == 0:
        raise InvalidArgumentError(
            f"hedge {whole!r} asks again at once: the shortest time is"
            f" {prefix}{format_s(least_s)}; off never asks again"
        )

    def nearest(unit: str) -> str:
        return prefix + format_s(min(max(value * _SECONDS_PER[unit], least_s), most_s))

    if unit not in _SECONDS_PER:
        what = f"has the unit {spelt!r}" if spelt else "has no unit"
        raise InvalidArgumentError(f"hedge {whole!r} {what}: use {nearest('ms')}")
    if spelt != unit:
        raise InvalidArgumentError(f"hedge {whole!r}: write {nearest(unit)}")
    time_s = value * _SECONDS_PER[unit]
    if not least_s <= time_s <= most_s:
        meant = nearest("ms") if unit == "m" else nearest(unit)
        minutes = " (m is minutes)" if unit == "m" else ""
        raise InvalidArgumentError(
            f"hedge {whole!r}{minutes} is out of range, {prefix}{format_s(least_s)} to"
            f" {prefix}{format_s(most_s)}: use {meant}"
        )
    return time_s


def format_s(time_s: float) -> str:
    """The time as a hedge policy is written: 25ms, 1.5ms, 2s."""
    if time_s < 1.0 and not math.isclose(time_s, 1.0):
        return f"{time_s * 1000:g}ms"
    return f"{time_s:g}s"
