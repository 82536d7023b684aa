"""Finds the hedge policy that an argument names.

A policy is one of geolog's, an object of the caller's, or one that an installed package offers
under a name: an entry point of the group `geolog.hedging` that names a policy, or a class or
function without parameters that makes one.
"""

from importlib.metadata import entry_points

from geolog.protocol.hedge_policy import HedgePolicy, parse_hedge
from topology.errors import InvalidArgumentError

GROUP = "geolog.hedging"
"""The group of entry points that name policies of other packages."""


def hedge_policy(hedge: str | HedgePolicy) -> HedgePolicy:
    """The policy itself, or the one with this name. InvalidArgumentError."""
    if not isinstance(hedge, str):
        return hedge
    try:
        return parse_hedge(hedge)
    except InvalidArgumentError as error:
        offered = {point.name: point for point in entry_points(group=GROUP)}
        if hedge in offered:
            return _loaded(hedge, offered[hedge].load())
        if offered:
            names = ", ".join(sorted(offered))
            raise InvalidArgumentError(f"{error}; installed policies: {names}") from None
        raise


def _loaded(name: str, found: object) -> HedgePolicy:
    is_maker = isinstance(found, type) or not isinstance(found, HedgePolicy)
    made = found() if is_maker and callable(found) else found
    if not isinstance(made, HedgePolicy):
        raise InvalidArgumentError(
            f"hedge {name!r}: {made!r} is not a hedge policy; it needs `name`, `terms` and"
            " `pause_s`"
        )
    return made
