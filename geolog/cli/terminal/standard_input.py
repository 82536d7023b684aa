"""Reads standard input in pieces, and keeps count of the share read."""

import os
import stat

import trio

from topology.errors import InvalidArgumentError

_READ_BYTES_MAX = 1 << 20
_STDIN = 0


class StandardInput:
    """Bytes of stdin as they arrive; the total is known if stdin is a file."""

    def __init__(self) -> None:
        self._taken_bytes = 0
        self._size_bytes = _size_if_file()

    def __repr__(self) -> str:
        return f"<StandardInput taken={self._taken_bytes} of {self._size_bytes}>"

    @property
    def share_taken(self) -> float | None:
        """Share of the input read so far, 0 to 1; None if the total is unknown."""
        if not self._size_bytes:
            return None
        return min(1.0, self._taken_bytes / self._size_bytes)

    async def read(self) -> bytes:
        """Read the next bytes; empty at the end."""
        # Not through sys.stdin: a thread still waiting in it would hold its lock at exit.
        try:
            data = await trio.to_thread.run_sync(
                os.read, _STDIN, _READ_BYTES_MAX, abandon_on_cancel=True
            )
        except OSError as error:
            raise InvalidArgumentError(
                f"cannot read stdin: {error.strerror}; redirect a file or pipe of records to it"
            ) from error
        self._taken_bytes += len(data)
        return data


def _size_if_file() -> int | None:
    """Return the bytes left if stdin is a file; None if it is not, or is closed."""
    try:
        status = os.fstat(_STDIN)
        if not stat.S_ISREG(status.st_mode):
            return None
        return status.st_size - os.lseek(_STDIN, 0, os.SEEK_CUR)
    except OSError:
        return None  # Reading it will raise the error.
