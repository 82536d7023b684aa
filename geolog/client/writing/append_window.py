"""The window that all lanes of a writer share, and the wait for room in it."""

import trio


class AppendWindow:
    """Bytes in flight of one writer. Lanes count theirs, appends wait for a change."""

    def __init__(self) -> None:
        self.in_flight_bytes = 0
        """Bytes that all lanes have collected, or sent and not had answered."""
        self.refusals_count = 0
        """How often seqs were freed, because a batch that had them was refused."""
        self._changed = trio.Event()

    def __repr__(self) -> str:
        return f"AppendWindow({self.in_flight_bytes} bytes in flight)"

    def tell_change(self) -> None:
        """Wake the appends that wait: batches were answered or refused."""
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    async def wait_change(self) -> None:
        """Wait until a lane's batches are answered or refused."""
        await self._changed.wait()
