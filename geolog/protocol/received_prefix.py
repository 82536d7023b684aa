"""How far the entries of a ledger are in the memory of an ack set.

It is for those who want to be told early, and provisionally: what is in memory can be lost, and
nothing else follows from it, neither the LAC nor what a reader is shown. A copy on disk counts
as one in memory. An ensemble change takes back what the replaced members said, but never what
was told.

Invariants.
1. The prefix never shrinks, and never ends below the LAC.
2. It passes an entry only when the slots that said they have it are an ack set.

Rules: PROTOCOL W10.
"""

from collections import deque
from collections.abc import Iterable

from geolog.protocol.ids import EntryId
from topology.quorum import AckRule


class ReceivedPrefix:
    """The core beside the add window, for a ledger whose writer asks for `received` answers."""

    def __init__(self, rule: AckRule, *, lac: EntryId) -> None:
        self._rule = rule
        self._through = lac
        self._received: deque[int] = deque()  # For entries above: slots, as a mask.

    @property
    def through(self) -> EntryId:
        """All entries up to here are, or were, in the memory of an ack set."""
        return self._through

    def push(self) -> None:
        """The next entry is on its way."""
        self._received.append(0)

    def on_received(self, slot: int, entry: EntryId) -> bool:
        """The slot's member has the entry in memory, or on disk; whether the prefix grew."""
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
        """All entries up to here are on the disks of ack sets; whether the prefix grew."""
        before = self._through
        while self._through < lac:
            self._received.popleft()
            self._through = EntryId(self._through + 1)
        return self._through > before

    def change(self, rule: AckRule, slots: Iterable[int]) -> None:
        """Other members have these slots from now on."""
        gone = sum(1 << slot for slot in set(slots))
        self._received = deque(received & ~gone for received in self._received)
        self._rule = rule
