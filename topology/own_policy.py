"""Placement policies of other packages: what they must offer, and which a process knows.

Theory of operation. A stream may be placed by a policy that is not geolog's. Its name is frozen
in the records of the stream and of each ledger; the policy itself is Python code that every
process which places must have. It answers two questions: which nodes take the open slots of a
ring, and how well a ring adheres. `topology.policies.of_package` asks them, and checks the
answers.

Rules: PROTOCOL P15.
"""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Protocol, runtime_checkable

import attrs

from topology.errors import InvalidArgumentError, public
from topology.location import Location
from topology.membership import KnownNode
from topology.nearest import suggestion
from topology.quorum import QuorumConfig
from topology.ring.search import PlacementUndecidedError
from topology.ring.window_rule import Adherence

GROUP = "geolog.placement"
"""The group of entry points that name policies of other packages."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


@public
class UnknownPolicyError(PlacementUndecidedError):
    """This process does not know a stream's placement policy: install it, or go elsewhere."""

    retriable: ClassVar[bool] = False


@public
class PolicyFailedError(PlacementUndecidedError):
    """A placement policy of another package failed, or chose what is not allowed: mend it."""

    retriable: ClassVar[bool] = False


@attrs.frozen(kw_only=True)
class Ring:
    """An ensemble to complete or to judge."""

    quorum: QuorumConfig
    """E slots; each W that follow one another hold an entry, and A of them acknowledge it."""
    slots: tuple[KnownNode | None, ...]
    """The node of each slot, in ring order; None if it is open, or its node does not count."""
    local: Location | None = None
    """Where the writer is, if known; its rack may be unknown."""

    @property
    def open_slots(self) -> list[int]:
        """The slots without a node."""
        return [slot for slot, node in enumerate(self.slots) if node is None]


@runtime_checkable
class OwnPlacement(Protocol):
    """A placement policy that is not geolog's.

    It must be pure: the same answer for the same arguments, with all chance from `rng`. It may
    be asked in any thread.
    """

    @property
    def name(self) -> str:
        """The name by which streams name it: `a-z`, `0-9`, `.`, `_` and `-`."""
        ...

    def fill(
        self, ring: Ring, free: Sequence[KnownNode], rng: random.Random
    ) -> Mapping[int, str]:
        """Choose a free node for each open slot: `{slot: free[0].node}`.

        `free` are the nodes that may be taken now, sorted by id; none of them is in the ring.
        Leave a slot out if none of them suits it.
        """
        ...

    def adherence(self, ring: Ring) -> Adherence:
        """Judge the nodes of a ring; FAIL if it breaks the policy."""
        ...


def check_name(name: str) -> str:
    """The name, if a policy may have it. InvalidArgumentError."""
    if not _NAME.fullmatch(name):
        raise InvalidArgumentError(
            f"policy {name!r:.80} is no name: use up to 64 of a-z, 0-9, '.', '_' and '-'"
        )
    return name


@attrs.frozen(eq=False)
class OwnPolicies:
    """The policies of other packages that a process knows, by name."""

    makers: Mapping[str, Callable[[], OwnPlacement]] = attrs.field(factory=dict)
    """InvalidArgumentError of a maker: the package offers something else."""

    def find(self, name: str) -> OwnPlacement:
        """The policy of this name. UnknownPolicyError names the nearest."""
        make = self.makers.get(name)
        if make is None:
            raise UnknownPolicyError(
                f"this process does not know placement policy {name!r}, so it places nothing"
                f" by it ({self.told(name)}). Install the package with an entry point of that"
                f" name in the group {GROUP!r}, or give the policy to connect(placement=[…])"
            )
        try:
            return make()
        except InvalidArgumentError as error:
            raise UnknownPolicyError(str(error)) from error

    def told(self, name: str) -> str:
        """The policies that are known, with the nearest to a name, for an error."""
        if not self.makers:
            return "none of another package is known here"
        return f"known here are {', '.join(sorted(self.makers))}{suggestion(name, self.makers)}"


NONE_KNOWN = OwnPolicies()
