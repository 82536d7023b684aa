"""A change of a ledger's record by whoever holds its epoch, over what others change meanwhile.

Theory of operation. The holder of a ledger's epoch, its writer or who recovers it, is alone in
changing the last fragment, and in closing the ledger. Others may change earlier fragments (a
copier puts a copy elsewhere), and a rival may take the ledger over. So when a compare-and-set
is refused, or nothing is known of its outcome, the record is read again and judged:

- as I meant it: it was my own write, whose answer was lost (STORED);
- same state and epoch, last fragment as I left it: what others changed is kept, mine is put on
  top, and it is tried again (TRY_AGAIN);
- else another has taken the ledger (TAKEN): stop for good.

The same write may be tried again while an earlier try of it is still on its way: both name one
version, so that one of them is stored at most.

Rules: PROTOCOL L5 and L6.
"""

import enum

import attrs

from geolog.protocol.ids import EntryId, Epoch
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState


class Judgement(enum.Enum):
    """What a record that was read again says of a change."""

    STORED = "stored"
    TRY_AGAIN = "try_again"
    TAKEN = "taken"


@attrs.frozen(kw_only=True)
class LedgerChange:
    """What the holder of an epoch wants a ledger's record to be.

    Invariant: it names at least a new fragment, or the last entry.
    """

    state: LedgerState
    """In which the holder has the ledger: OPEN, or IN_RECOVERY."""
    epoch: Epoch
    lasts: tuple[Fragment, ...]
    """How the holder left the last fragment: one way, or two if it does not know the outcome of
    a change that it gave up."""
    fragments: tuple[Fragment, ...] = ()
    """New ones, to be added in order."""
    last_entry: EntryId | None = None
    """Close the ledger there."""

    def __attrs_post_init__(self) -> None:
        assert self.fragments or self.last_entry is not None, "nothing is to be changed"

    def over(self, record: LedgerRecord) -> LedgerRecord:
        """The successor of a record of which the change may be tried."""
        for fragment in self.fragments:
            record = record.with_fragment(fragment)
        return record if self.last_entry is None else record.closed(self.last_entry)

    def judge(self, found: LedgerRecord) -> Judgement:
        """What the record as it was read again says of the change."""
        if found.epoch != self.epoch:
            return Judgement.TAKEN
        if self._is_stored_in(found):
            return Judgement.STORED
        if found.state is self.state and found.fragments[-1] in self.lasts:
            return Judgement.TRY_AGAIN
        return Judgement.TAKEN

    def _is_stored_in(self, found: LedgerRecord) -> bool:
        if self.last_entry is not None:
            # None but the holder of the epoch closes under it.
            return found.state is LedgerState.CLOSED and found.last_entry == self.last_entry
        return found.state is self.state and found.fragments[-1] == self.fragments[-1]
