"""Taking a ledger from its writer: the fence holds once it blocks every write set.

Theory of operation. The new owner has raised the ledger's epoch in metadata. It then asks all
members of the last fragment to fence. The fence is taken when, in every write set of that
fragment, the members that confirmed it form a blocking set. From then on no entry can gather an
ack set under an older epoch, because each ack set would need one of those members
(`topology.quorum`). Blocking one write set is not enough: an entry of another could still be
acknowledged.

Invariant: `FenceTaken` is returned at most once, and carries the highest LAC answered so far.

Rules: PROTOCOL F1.
"""

import attrs

from geolog.protocol.ids import NO_ENTRY, EntryId
from topology.quorum import AckRule


@attrs.frozen
class FenceTaken:
    """No older writer can commit any more. `lac` is the highest of the fenced members."""

    lac: EntryId


class FenceRound:
    """The core of fencing one ledger."""

    def __init__(self, rule: AckRule) -> None:
        self._rule = rule
        self._fenced = 0
        self._lac = NO_ENTRY
        self._is_taken = False

    def on_fenced(self, slot: int, lac: EntryId) -> list[FenceTaken]:
        """The member at `slot` has the fence on disk."""
        self._fenced |= 1 << slot
        self._lac = max(self._lac, lac)
        if self._is_taken or not self._rule.blocks_all(self._fenced):
            return []
        self._is_taken = True
        return [FenceTaken(self._lac)]
