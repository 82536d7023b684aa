"""Wakes one task that waits for any of several things."""

import trio


class Bell:
    """Given to everything that a task waits for; whatever happens first rings it.

    A ring while nobody waits ends the next wait at once. Rings are not counted, so the task
    looks at everything that it waits for.
    """

    __slots__ = ("_is_rung", "_woken")

    def __init__(self) -> None:
        self._is_rung = False
        self._woken: trio.Event | None = None

    def ring(self) -> None:
        """Wake the waiting task."""
        self._is_rung = True
        if self._woken is not None:
            self._woken.set()

    async def wait(self) -> None:
        """Wait until it rings; at once if it has rung since the last wait."""
        if self._is_rung:
            await trio.lowlevel.checkpoint()
        else:
            self._woken = trio.Event()
            try:
                await self._woken.wait()
            finally:
                self._woken = None
        self._is_rung = False
