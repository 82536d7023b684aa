"""Finds the hedge policy that an argument names.

A policy is one of geolog's, an object of the caller's, or one that an installed package offers
under a name: an entry point of the group `geolog.hedging` that names a policy, or a class or
function without parameters that makes one.
"""

import math
from importlib.metadata import EntryPoint, entry_points

import attrs

from geolog.protocol.hedge_policy import HedgeMoment, HedgePolicy, HedgeTerms, parse_hedge
from topology.errors import InvalidArgumentError

_OURS = HedgeTerms.__module__

GROUP = "geolog.hedging"
"""The group of entry points that name policies of other packages."""


def hedge_policy(hedge: str | HedgePolicy) -> HedgePolicy:
    """The policy itself, or the one with this name. InvalidArgumentError."""
    if not isinstance(hedge, str):
        return hedge if type(hedge).__module__ == _OURS else CheckedPolicy.of(hedge)
    try:
        return parse_hedge(hedge)
    except InvalidArgumentError as error:
        offered = {point.name: point for point in entry_points(group=GROUP)}
        if hedge in offered:
            return _loaded(offered[hedge])
        if offered:
            names = ", ".join(sorted(offered))
            raise InvalidArgumentError(f"{error}; installed policies: {names}") from None
        raise


def _loaded(point: EntryPoint) -> HedgePolicy:
    what = f"hedge {point.name!r} (entry point {point.value!r} of group {GROUP!r})"
    try:
        found = point.load()
        is_maker = isinstance(found, type) or not isinstance(found, HedgePolicy)
        made = found() if is_maker and callable(found) else found
    except Exception as error:
        raise InvalidArgumentError(f"{what} cannot be loaded: {error!r}") from error
    return CheckedPolicy.of(made, what=what)


@attrs.frozen(eq=False)
class CheckedPolicy:
    """A policy that is not geolog's: what it does wrong is told with its name."""

    own: HedgePolicy
    name: str
    terms: HedgeTerms

    @classmethod
    def of(cls, own: object, *, what: str | None = None) -> "CheckedPolicy":
        """The policy, once it has been found to be one. InvalidArgumentError."""
        what = what or f"hedge {own!r}"
        try:
            told = (own, own.name, own.terms) if isinstance(own, HedgePolicy) else None
        except Exception as error:
            raise InvalidArgumentError(f"{what} does not tell its terms: {error!r}") from error
        if told is None:
            raise InvalidArgumentError(
                f"{what}: {own!r} is not a hedge policy; it needs `name`, `terms` and `pause_s`"
            )
        policy, name, terms = told
        if not isinstance(terms, HedgeTerms):
            raise InvalidArgumentError(f"{what}: its terms are {terms!r}, no HedgeTerms")
        if not name:
            raise InvalidArgumentError(f"{what}: its name is {name!r}, which names nothing")
        return cls(policy, name, terms)

    def pause_s(self, moment: HedgeMoment) -> float | None:
        """Its answer. InvalidArgumentError if it fails, or answers no time."""
        try:
            pause_s = self.own.pause_s(moment)
        except Exception as error:
            raise InvalidArgumentError(
                f"hedge policy {self.name!r} failed: {error!r}"
            ) from error
        is_number = isinstance(pause_s, int | float) and not isinstance(pause_s, bool)
        if pause_s is None or (is_number and pause_s >= 0 and math.isfinite(pause_s)):
            return pause_s
        raise InvalidArgumentError(
            f"hedge policy {self.name!r} answers {pause_s!r}: a pause is a number of seconds,"
            " or None for never"
        )
