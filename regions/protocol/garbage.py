"""Which of a node's ledgers nobody needs here any more: when it may delete them.

A ledger is garbage when metadata has no record of it, or when it is CLOSED and this instance is
in none of its fragments, nor among those that copies are being brought to: then no read will
ever look for it here. One look is not enough, since metadata may lag. So a ledger must be seen
so for as long as the grace time, by the node's own monotonic clock, and during that time nobody
may ask the node to open, fence, or add to it.

When the grace is over the shell reads the record once more and asks `on_look` again. Asking and
deleting are one step in which nothing else can happen: what was asked of the ledger before has
ended its candidacy, what comes after is refused. So no add is answered for a ledger that goes.
"""

from geolog.protocol.ids import InstanceId, LedgerId
from geolog.protocol.ledger_state import LedgerRecord, LedgerState


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
    """Remembers since when each candidate is one."""

    def __init__(self, instance: InstanceId, *, grace_s: float) -> None:
        self._instance = instance
        self._grace_s = grace_s
        self._since_s: dict[LedgerId, float] = {}

    def __len__(self) -> int:
        """How many ledgers wait for the end of their grace."""
        return len(self._since_s)

    def on_asked(self, ledger: LedgerId) -> None:
        """Somebody wants to store something of the ledger here: its grace begins anew."""
        if self._since_s:
            self._since_s.pop(ledger, None)

    def on_look(self, ledger: LedgerId, record: LedgerRecord | None, *, now_s: float) -> bool:
        """Metadata was read: whether the ledger is garbage, and its grace is over."""
        if is_needed_at(record, self._instance):
            self._since_s.pop(ledger, None)
            return False
        return now_s - self._since_s.setdefault(ledger, now_s) >= self._grace_s

    def forget(self, ledger: LedgerId) -> None:
        """The ledger was deleted."""
        self._since_s.pop(ledger, None)
