"""The ledgers of a node that nobody needs there any more, and when it may give them up.

A ledger is garbage when metadata has no record of it. It is also garbage when it is CLOSED, and
this instance is neither in one of its fragments nor a target of copies: no read will look for
it here. Without a record it never comes back, and is deleted. With one, a repair may choose
this node again, so the ledger is only let go: its entries go, its fence and epoch stay, and
copies that recovery brings are taken again. One look is not enough, since metadata may lag. So
a ledger must be seen as garbage for the whole grace time, by the node's own monotonic clock. In
that time nobody may ask the node to open, fence, or add to it, or ask what it has of it.

When the grace time is over, the shell reads the record again and calls `on_look` again. That
call and giving up are one step in which nothing else can happen: a request for the ledger
before it has ended the candidacy, and one after it finds the ledger deleted, or its entries
gone. So a copier that first notes that copies are coming here, and then asks which are here
already, is told of none that goes.

Rules: PROTOCOL C8 and C9.
"""

import enum

from geolog.protocol.ids import InstanceId, LedgerId
from geolog.protocol.ledger_state import LedgerRecord, LedgerState


class Disposal(enum.Enum):
    """The step to take with a ledger."""

    KEEP = enum.auto()
    LET_GO = enum.auto()
    """Give up its entries; its fence stays."""
    DELETE = enum.auto()
    """Forget it, except for its id."""


def is_needed_at(record: LedgerRecord | None, instance: InstanceId) -> bool:
    """Whether readers of the ledger with this record may look for it at the node."""
    if record is None:
        return False
    if record.state is not LedgerState.CLOSED or instance in record.arriving:
        return True
    return any(
        member.instance == instance
        for fragment in record.fragments
        for member in fragment.ensemble
    )


class GarbageWatch:
    """Remembers since when each candidate is one, and which ledgers were let go."""

    def __init__(self, instance: InstanceId, *, grace_s: float) -> None:
        self._instance = instance
        self._grace_s = grace_s
        self._since_s: dict[LedgerId, float] = {}
        self._let_go: set[LedgerId] = set()

    def __len__(self) -> int:
        """Number of ledgers in their grace time."""
        return len(self._since_s)

    def on_asked(self, ledger: LedgerId) -> None:
        """Somebody may store entries of the ledger here: restart its grace time."""
        if self._since_s:
            self._since_s.pop(ledger, None)
        if self._let_go:
            self._let_go.discard(ledger)

    def on_look(
        self, ledger: LedgerId, record: LedgerRecord | None, *, now_s: float
    ) -> Disposal:
        """Metadata was read: the step to take now, if the ledger's grace time is over."""
        wanted = Disposal.DELETE if record is None else Disposal.LET_GO
        is_let_go = wanted is Disposal.LET_GO and ledger in self._let_go
        if is_let_go or is_needed_at(record, self._instance):
            self._since_s.pop(ledger, None)
            return Disposal.KEEP
        is_over = now_s - self._since_s.setdefault(ledger, now_s) >= self._grace_s
        return wanted if is_over else Disposal.KEEP

    def on_let_go(self, ledger: LedgerId) -> None:
        """Its entries were given up: nothing more to do until somebody asks for it."""
        self._since_s.pop(ledger, None)
        self._let_go.add(ledger)

    def on_deleted(self, ledger: LedgerId) -> None:
        """The ledger is gone."""
        self._since_s.pop(ledger, None)
        self._let_go.discard(ledger)
