"""A change of a ledger's record by the holder of its epoch, while others change it too.

Theory of operation. The holder of a ledger's epoch is its writer, or the recovery that took it
over. Only the holder changes the last fragment or closes the ledger. Others may change earlier
fragments (a copier moves a copy), and a rival may take the ledger over. So when a
compare-and-set is refused, or its outcome is unknown, the holder reads the record again and
judges it:

- the record is as the holder meant it: its own write succeeded and the answer was lost
  (STORED);
- state, epoch and last fragment are as the holder left them: keep what others changed, apply
  the change on top, and try again (TRY_AGAIN);
- anything else: another has taken the ledger (TAKEN); stop for good.

The same write may be tried again while an earlier try of it is still on its way. Both name the
same version, so at most one of them is stored.

Rules: PROTOCOL L5 and L6.
"""

import enum

import attrs

from geolog.protocol.ids import EntryId, Epoch
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState


class Judgement(enum.Enum):
    """The verdict of the record, read again, on a change."""

    STORED = "stored"
    TRY_AGAIN = "try_again"
    TAKEN = "taken"


@attrs.frozen(kw_only=True)
class LedgerChange:
    """The change that the holder of an epoch wants to make to a ledger's record.

    Invariant: it adds a fragment, or closes the ledger, or both.
    """

    state: LedgerState
    """State that the holder has the ledger in: OPEN or IN_RECOVERY."""
    epoch: Epoch
    lasts: tuple[Fragment, ...]
    """The last fragment as the holder left it; two if a change it gave up may be stored."""
    fragments: tuple[Fragment, ...] = ()
    """Fragments to add, in order."""
    last_entry: EntryId | None = None
    """Close the ledger at this entry."""

    def __attrs_post_init__(self) -> None:
        assert self.fragments or self.last_entry is not None, "the change is empty"

    def over(self, record: LedgerRecord) -> LedgerRecord:
        """The record with this change applied."""
        for fragment in self.fragments:
            record = record.with_fragment(fragment)
        return record if self.last_entry is None else record.closed(self.last_entry)

    def judge(self, found: LedgerRecord) -> Judgement:
        """Judge the change by the record as it was read again."""
        if found.epoch != self.epoch:
            return Judgement.TAKEN
        if self._is_stored_in(found):
            return Judgement.STORED
        if found.state is self.state and found.fragments[-1] in self.lasts:
            return Judgement.TRY_AGAIN
        return Judgement.TAKEN

    def _is_stored_in(self, found: LedgerRecord) -> bool:
        if self.last_entry is not None:
            # Only the holder of the epoch closes under it.
            return found.state is LedgerState.CLOSED and found.last_entry == self.last_entry
        return found.state is self.state and found.fragments[-1] == self.fragments[-1]
