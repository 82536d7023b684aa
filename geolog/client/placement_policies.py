"""Finds the placement policies of other packages.

A policy is given to `connect`, or an installed package offers it under a name: an entry point
of the group `geolog.placement` that names a policy, or a class or function without parameters
that makes one. An entry point is imported when a stream of its name is first placed. A process
looks for them once: it reads a file of every package that is installed.

Rules: PROTOCOL P15.
"""

import sys
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from importlib.metadata import EntryPoint, entry_points

from topology.errors import InvalidArgumentError
from topology.own_policy import GROUP, OwnPlacement, OwnPolicies, check_name
from topology.stream_policy import OURS

_NEEDED = "`name`, `fill` and `adherence`"


def own_policies(given: Sequence[OwnPlacement] = ()) -> OwnPolicies:
    """The given policies, and those that installed packages offer. InvalidArgumentError."""
    makers: dict[str, Callable[[], OwnPlacement]] = {
        point.name: cache(partial(_loaded, point)) for point in _offered(tuple(sys.path))
    }
    named: dict[str, OwnPlacement] = {}
    for policy in given:
        if not isinstance(policy, OwnPlacement):
            raise InvalidArgumentError(
                f"placement has {policy!r}, which is not a placement policy; it needs {_NEEDED}"
            )
        if check_name(policy.name) in _OURS:
            raise InvalidArgumentError(
                f"placement policy {policy!r} has the name {policy.name!r}, which is one of"
                " geolog's: give it another"
            )
        if named.setdefault(policy.name, policy) is not policy:
            raise InvalidArgumentError(f"two placement policies have the name {policy.name!r}")
    makers.update({name: partial(_same, policy) for name, policy in named.items()})
    return OwnPolicies({name: make for name, make in makers.items() if name not in _OURS})


_OURS = frozenset(kind.value for kind in OURS)


@lru_cache(maxsize=8)
def _offered(path: tuple[str, ...]) -> tuple[EntryPoint, ...]:  # noqa: ARG001 - the cache's key.
    return tuple(entry_points(group=GROUP))


def _same(policy: OwnPlacement) -> OwnPlacement:
    return policy


def _loaded(point: EntryPoint) -> OwnPlacement:
    what = f"placement policy {point.name!r} (entry point {point.value!r} of group {GROUP!r})"
    try:
        found = point.load()
        is_maker = isinstance(found, type) or not isinstance(found, OwnPlacement)
        made = found() if is_maker and callable(found) else found
    except Exception as error:
        raise InvalidArgumentError(f"{what} cannot be loaded: {error!r}") from error
    if not isinstance(made, OwnPlacement):
        raise InvalidArgumentError(
            f"{what}: {made!r} is not a placement policy; it needs {_NEEDED}"
        )
    if made.name != point.name:
        raise InvalidArgumentError(
            f"{what} has the name {made.name!r}: streams freeze the name, so the two must agree"
        )
    return made
