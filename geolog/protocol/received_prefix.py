"""Tracks how far the entries of a ledger are in the memory of an ack set.

It serves appends that want an early, provisional answer. Memory can be lost, so nothing else
depends on this prefix: neither the LAC nor what readers see. A copy on disk counts as a copy in
memory. An ensemble change drops the answers of replaced members, but takes back nothing that
was already reported.

Invariants.
1. The prefix never shrinks, and never ends below the LAC.
2. It passes an entry only when the slots that reported it are an ack set.

Rules: PROTOCOL W10.
"""

from collections import deque
from collections.abc import Iterable

from geolog.protocol.ids import EntryId
from topology.quorum import AckRule


class ReceivedPrefix:
    """Works next to the add window when a ledger's writer asks for `received` answers."""

    def __init__(self, rule: AckRule, *, lac: EntryId) -> None:
        self._rule = rule
        self._through = lac
        self._received: deque[int] = deque()  # One mask of slots per entry above `through`.

    @property
    def through(self) -> EntryId:
        """Every entry up to here is, or was, in the memory of an ack set."""
        return self._through

    def push(self) -> None:
        """The next entry was sent."""
        self._received.append(0)

    def on_received(self, slot: int, entry: EntryId) -> bool:
        """The member has the entry in memory or on disk. Returns whether the prefix grew."""
        place = entry - self._through - 1
        if place < 0:
            return False
        assert place < len(self._received), f"entry {entry} was never pushed"
        self._received[place] |= 1 << slot
        before = self._through
        while self._received and self._rule.is_ack(self._through + 1, self._received[0]):
            self._received.popleft()
            self._through = EntryId(self._through + 1)
        return self._through > before

    def on_lac(self, lac: EntryId) -> bool:
        """Entries up to `lac` are on the disks of ack sets. Returns whether the prefix grew."""
        before = self._through
        while self._through < lac:
            self._received.popleft()
            self._through = EntryId(self._through + 1)
        return self._through > before

    def change(self, rule: AckRule, slots: Iterable[int]) -> None:
        """Give these slots to other members."""
        gone = sum(1 << slot for slot in set(slots))
        self._received = deque(received & ~gone for received in self._received)
        self._rule = rule
