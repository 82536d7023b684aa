"""Bytes of appends that a proxy has taken and not answered, over all its sessions.

Answers to comparisons of batches count, too, until they are sent.
"""

import trio


class InFlightBytes:
    """A bound that sessions keep together: above it, each stops reading from its client.

    Answers free the bytes without any reading, and a client that takes no answers loses its
    session, so no session waits for another's client for long.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        """The bound."""
        self._bytes = 0
        self._changed = trio.Event()

    def __repr__(self) -> str:
        return f"InFlightBytes({self._bytes} of {self.max_bytes})"

    @property
    def bytes(self) -> int:
        """Bytes in flight now."""
        return self._bytes

    def take(self, count: int) -> None:
        """Note bytes that were read."""
        self._bytes += count

    def give_back(self, count: int) -> None:
        """Note bytes that were answered, or whose session has ended."""
        self._bytes -= count
        assert self._bytes >= 0, "more bytes were given back than taken"
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    async def wait_changed(self) -> None:
        """Wait until some were given back."""
        await self._changed.wait()

    async def wait_room(self) -> None:
        """Wait until more may be read."""
        while self._bytes >= self.max_bytes:
            await self.wait_changed()
