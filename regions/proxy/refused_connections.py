"""Connections over a limit, while they are told so: few at a time, and for a short time each.

A new one is always taken, and the oldest gives way to it. So connections that say nothing hold
up no others: the port goes on accepting, and those that have a place get it. A few that asked
for something that is answered in any case keep their places until they have it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import trio

from geolog.transport.seam import ByteStream

COUNT_MAX = 64
"""Connections that are being told so, at one port."""

KEPT_MAX = 16
"""Of them, those that keep their places."""

TIME_S = 2.0
"""How long one is heard and answered."""


class RefusedConnections:
    """The refused connections of one port."""

    def __init__(self) -> None:
        self._open: dict[object, tuple[trio.CancelScope, ByteStream]] = {}
        self._kept: set[object] = set()

    def __repr__(self) -> str:
        return f"RefusedConnections({len(self)})"

    def __len__(self) -> int:
        return len(self._open) + len(self._kept)

    @contextmanager
    def place(self, stream: ByteStream) -> Iterator[Callable[[], None]]:
        """Cancel the block when its time is over, or when too many others have come.

        It gets a function to call if only its time shall end it from now on.
        """
        while len(self) >= COUNT_MAX:
            scope, oldest = self._open.pop(next(iter(self._open)))
            scope.cancel(reason="other refused connections have come")
            oldest.close()  # At once: its descriptor is needed for the new one.
        key = object()
        try:
            with trio.move_on_after(TIME_S) as scope:
                self._open[key] = scope, stream
                yield partial(self._keep, key)
        finally:
            self._open.pop(key, None)
            self._kept.discard(key)

    def _keep(self, key: object) -> None:
        if len(self._kept) < KEPT_MAX and self._open.pop(key, None) is not None:
            self._kept.add(key)
