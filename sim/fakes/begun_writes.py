"""Writes of a disk that is no thread: begun now, done by a task of their own.

As with a real disk, the write itself happens after the call that began it has returned, and its
end is told between two steps of other tasks. The task belongs to the process that began the
write, so it stands still when that process is killed.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextvars import copy_context

import trio

from regions.storage.disk import OnWritten

Buffers = Sequence[bytes | bytearray | memoryview]


class BegunWrites(ABC):
    """A `DiskFile` whose `begin_write_synced` is its `write_synced`, in a task."""

    @abstractmethod
    async def write_synced(self, offset: int, buffers: Buffers) -> None:
        """Write all buffers and wait until they are on disk."""

    def begin_write_synced(self, offset: int, buffers: Buffers, on_written: OnWritten) -> None:
        """Begin to write; call when it is done."""

        async def write() -> None:
            error: Exception | None = None
            try:
                await self.write_synced(offset, buffers)
            except Exception as raised:  # noqa: BLE001 - handed on.
                error = raised
            on_written(error)

        trio.lowlevel.spawn_system_task(
            write, name=f"write at {offset}", context=copy_context()
        )
