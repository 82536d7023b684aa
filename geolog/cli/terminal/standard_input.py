"""Standard input, piece by piece, and how much of it was taken."""

import os
import stat

import trio

from topology.errors import InvalidArgumentError

_READ_BYTES_MAX = 1 << 20
_STDIN = 0


class StandardInput:
    """The bytes of stdin as they come; of a file it is known how many there are."""

    def __init__(self) -> None:
        self._taken_bytes = 0
        self._size_bytes = _size_if_file()

    def __repr__(self) -> str:
        return f"<StandardInput taken={self._taken_bytes} of {self._size_bytes}>"

    @property
    def share_taken(self) -> float | None:
        """How much of the whole was taken, from 0 to 1; None if nobody knows the whole."""
        if not self._size_bytes:
            return None
        return min(1.0, self._taken_bytes / self._size_bytes)

    async def read(self) -> bytes:
        """What is there, or comes next; nothing at the end."""
        # Not through sys.stdin: a thread left waiting in it would hold its lock at exit.
        try:
            data = await trio.to_thread.run_sync(
                os.read, _STDIN, _READ_BYTES_MAX, abandon_on_cancel=True
            )
        except OSError as error:
            raise InvalidArgumentError(
                f"stdin cannot be read: {error.strerror}; give it a file or a pipe of records"
            ) from error
        self._taken_bytes += len(data)
        return data


def _size_if_file() -> int | None:
    """What is left of a file; None of a pipe, a terminal, or nothing at all."""
    try:
        status = os.fstat(_STDIN)
        if not stat.S_ISREG(status.st_mode):
            return None
        return status.st_size - os.lseek(_STDIN, 0, os.SEEK_CUR)
    except OSError:
        return None  # Reading it will tell why.
