"""Taking a ledger from its writer: the fence holds once it blocks every write set.

Theory of operation. The new owner has raised the ledger's epoch in metadata, then asks all
members of the last fragment to fence. The fence is taken when, in every write set of that
fragment, the members that confirmed it form a blocking set: from then on no entry can gather an
ack set under an older epoch, because each ack set would need one of them (`topology.quorum`).
One write set is not enough: an entry of another may still slip through.

Invariant: `FenceTaken` is said at most once, and carries the highest LAC among the answers.

Rules: PROTOCOL F1.
"""

import attrs

from geolog.protocol.ids import NO_ENTRY, EntryId
from topology.quorum import AckRule


@attrs.frozen
class FenceTaken:
    """No older writer can commit any more. `lac` is the highest that a fenced member saw."""

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
