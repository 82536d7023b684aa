"""Which of a node's ledgers nobody needs here any more: when it may give them up.

A ledger is garbage when metadata has no record of it, or when it is CLOSED and this instance is
in none of its fragments, nor among those that copies are being brought to: then no read will
look for it here. Without a record it never comes back, and is deleted. With one, a repair may
choose this node once more: so it is only let go. Its entries go, while its fence and epoch
stay, and copies are taken again, as recovery brings them. One look is not enough, since
metadata may lag. So a ledger must be seen so for as long as the grace time, by the node's own
monotonic clock, and during that time nobody may ask the node to open, fence, or add to it, or
what it has of it.

When the grace is over the shell reads the record once more and asks `on_look` again. Asking and
giving up are one step in which nothing else can happen: what was asked of the ledger before has
ended its candidacy, what comes after finds it deleted, or its entries gone. So who notes that
copies are brought here, and then asks which are here already, is told of none that goes.

Rules: PROTOCOL C8 and C9.
"""

import enum

from geolog.protocol.ids import InstanceId, LedgerId
from geolog.protocol.ledger_state import LedgerRecord, LedgerState


class Disposal(enum.Enum):
    """What is to be done with a ledger."""

    KEEP = enum.auto()
    LET_GO = enum.auto()
    """Give up its entries; its fence stays."""
    DELETE = enum.auto()
    """Forget it, but for its id."""


def is_needed_at(record: LedgerRecord | None, instance: InstanceId) -> bool:
    """Whether the ledger with this record may be looked for at the node."""
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
        """How many ledgers wait for the end of their grace."""
        return len(self._since_s)

    def on_asked(self, ledger: LedgerId) -> None:
        """Somebody may store something of the ledger here: its grace begins anew."""
        if self._since_s:
            self._since_s.pop(ledger, None)
        if self._let_go:
            self._let_go.discard(ledger)

    def on_look(
        self, ledger: LedgerId, record: LedgerRecord | None, *, now_s: float
    ) -> Disposal:
        """Metadata was read: what is to be done now. A ledger's grace must be over for it."""
        wanted = Disposal.DELETE if record is None else Disposal.LET_GO
        is_let_go = wanted is Disposal.LET_GO and ledger in self._let_go
        if is_let_go or is_needed_at(record, self._instance):
            self._since_s.pop(ledger, None)
            return Disposal.KEEP
        is_over = now_s - self._since_s.setdefault(ledger, now_s) >= self._grace_s
        return wanted if is_over else Disposal.KEEP

    def on_let_go(self, ledger: LedgerId) -> None:
        """Its entries were given up: there is nothing more to do until it is asked for."""
        self._since_s.pop(ledger, None)
        self._let_go.add(ledger)

    def on_deleted(self, ledger: LedgerId) -> None:
        """The ledger is gone."""
        self._since_s.pop(ledger, None)
        self._let_go.discard(ledger)
