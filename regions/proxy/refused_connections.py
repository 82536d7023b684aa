"""Connections over a limit, while they are told so: few at a time, and for a short time each.

A new one is always taken, and the oldest gives way to it. So connections that say nothing hold
up no others: the port goes on accepting, and those that have a place get it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from geolog.transport.seam import ByteStream

COUNT_MAX = 64
"""Connections that are being told so, at one port."""

TIME_S = 2.0
"""How long one is heard and answered."""


class RefusedConnections:
    """The refused connections of one port."""

    def __init__(self) -> None:
        self._open: dict[object, tuple[trio.CancelScope, ByteStream]] = {}

    def __repr__(self) -> str:
        return f"RefusedConnections({len(self._open)})"

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def place(self, stream: ByteStream) -> Iterator[None]:
        """Cancel the block when its time is over, or when too many others have come."""
        while len(self._open) >= COUNT_MAX:
            scope, oldest = self._open.pop(next(iter(self._open)))
            scope.cancel(reason="other refused connections have come")
            oldest.close()  # At once: its descriptor is needed for the new one.
        key = object()
        try:
            with trio.move_on_after(TIME_S) as scope:
                self._open[key] = scope, stream
                yield
        finally:
            self._open.pop(key, None)
