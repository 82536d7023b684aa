"""Wakes the tasks of a proxy that wait for something to change."""

import trio


class Changes:
    """A task looks at what it needs, and if it lacks that, waits for a change and looks again.

    Telling costs nothing while nobody waits: an event for each change would, at thousands of
    appends a second.
    """

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event: trio.Event | None = None

    def __repr__(self) -> str:
        return f"<Changes: {'awaited' if self._event is not None else 'nobody waits'}>"

    def tell(self) -> None:
        """Wake all that wait."""
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self) -> None:
        """Wait until something changes from now on."""
        if self._event is None:
            self._event = trio.Event()
        await self._event.wait()
