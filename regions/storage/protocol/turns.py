"""Reads that wait for their turn, first come first served, each of which can be dropped.

A client gives each of its open requests a number of its own. If one does not, the newest of
those with the same number is dropped; the others keep their turns.
"""

from collections import OrderedDict

from geolog.protocol.messages import Read


class Turns:
    """The queue of one connection. Every operation takes constant time."""

    def __init__(self) -> None:
        self._reads: OrderedDict[int, Read] = OrderedDict()  # By ticket, in order.
        self._tickets: dict[int, int] = {}  # The newest of each request number.
        self._ticket_last = 0

    def __len__(self) -> int:
        return len(self._reads)

    def __repr__(self) -> str:
        return f"Turns({len(self)} reads)"

    def put(self, read: Read) -> None:
        """Queue a read behind all others."""
        self._ticket_last += 1
        self._reads[self._ticket_last] = read
        self._tickets[read.request] = self._ticket_last

    def take(self) -> Read:
        """Take the first read out."""
        ticket, read = self._reads.popitem(last=False)
        if self._tickets.get(read.request) == ticket:
            del self._tickets[read.request]
        return read

    def drop(self, request: int) -> bool:
        """Take the read with this number out; False if none waits."""
        ticket = self._tickets.pop(request, None)
        if ticket is None:
            return False
        del self._reads[ticket]
        return True

    def clear(self) -> None:
        """Drop all of them."""
        self._reads.clear()
        self._tickets.clear()
