"""The shape of a model: nodes, regions, quorums, clients, and how much may go wrong."""

from collections.abc import Sequence
from itertools import permutations, product

import attrs

from geolog.protocol.ids import EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState, Member
from topology.location import Location
from topology.quorum import AckRule, QuorumConfig

LEDGER = LedgerId(1)
FIRST_EPOCH = Epoch(1)

_THREE = QuorumConfig(ensemble_size=3, write_quorum=3, ack_quorum=2, min_regions=2)


@attrs.frozen(kw_only=True)
class ModelShape:
    """The bounds of a model; everything within them is tried."""

    regions: tuple[str, ...] = ("a", "a", "b")
    """The region of each node, in ring order."""
    quorum: QuorumConfig = _THREE
    entries_count: int = 1
    """The most entries that the owner appends."""
    recoverers_count: int = 1
    takes_max: int = 1
    """How often all recoverers together take the ledger over."""
    crashes_max: int = 1
    """Power losses of nodes, each followed by a restart."""
    has_timeouts: bool = False
    """Whether a recoverer may give up a member that has not answered a read."""
    has_late_answers: bool = False
    """Whether a recoverer may hear a node's answer later than it was sent, or never."""
    pushes_lac: bool = True
    """Whether the owner sends its LAC without an add."""

    def instance(self, slot: int) -> InstanceId:
        """The instance in this slot."""
        return InstanceId(f"{slot + 1:032x}")

    def record(self) -> LedgerRecord:
        """The initial record of the ledger: open, empty, one fragment."""
        ensemble = tuple(
            Member(self.instance(slot), f"node-{slot}", Location.parse(f"/{region}/rack"))
            for slot, region in enumerate(self.regions)
        )
        return LedgerRecord(
            ledger=LEDGER,
            state=LedgerState.OPEN,
            epoch=FIRST_EPOCH,
            quorum=self.quorum,
            fragments=(Fragment(EntryId(0), ensemble),),
        )

    def rule(self) -> AckRule:
        """The ack rule of the only fragment."""
        return AckRule(self.quorum, self.regions)

    def symmetries(self) -> Sequence[tuple[int, ...]]:
        """Renamings of slots that change nothing, because the nodes are equal.

        They exist only where each write set is the whole ensemble: otherwise the ring order
        distinguishes nodes.
        """
        slots = tuple(range(len(self.regions)))
        if self.quorum.write_quorum < self.quorum.ensemble_size:
            return (slots,)
        groups = [
            [slot for slot in slots if self.regions[slot] == region]
            for region in sorted(set(self.regions))
        ]
        return [
            _renaming(groups, orders)
            for orders in product(*(list(permutations(group)) for group in groups))
        ]


def _renaming(
    groups: Sequence[Sequence[int]], orders: Sequence[Sequence[int]]
) -> tuple[int, ...]:
    names = {
        slot: name
        for group, order in zip(groups, orders, strict=True)
        for slot, name in zip(group, order, strict=True)
    }
    return tuple(names[slot] for slot in sorted(names))
