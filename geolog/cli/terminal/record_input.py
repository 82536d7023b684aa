"""Reads the inputs of an append in pieces, one after the other, and counts the share read."""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import attrs
import trio

from topology.errors import InvalidArgumentError, NotFoundError

STDIN_NAME = "-"
"""Stands for stdin among the names of files."""

_READ_BYTES_MAX = 1 << 20
_STDIN = 0


@attrs.define
class RecordInput:
    """Bytes of one file, or of stdin as they arrive."""

    descriptor: int
    name: str | None
    """Name of the file; None for stdin."""
    size_bytes: int | None
    """None if it is not known before the end, as of a pipe."""
    taken_bytes: int = 0

    async def read(self) -> bytes:
        """Read the next bytes; empty at the end. InvalidArgumentError if it cannot be read."""
        # Not through sys.stdin: a thread still waiting in it would hold its lock at exit.
        try:
            data = await trio.to_thread.run_sync(
                os.read, self.descriptor, _READ_BYTES_MAX, abandon_on_cancel=True
            )
        except OSError as error:
            hint = "; redirect a file or pipe of records to it" if self.name is None else ""
            raise InvalidArgumentError(
                f"cannot read {self.name or 'stdin'}: {error.strerror}{hint}"
            ) from error
        self.taken_bytes += len(data)
        return data


@attrs.frozen
class RecordInputs:
    """All inputs of one append, in their order."""

    inputs: Sequence[RecordInput]

    @property
    def share_taken(self) -> float | None:
        """Share of the bytes read so far, 0 to 1; None if the total is unknown."""
        sizes = [each.size_bytes for each in self.inputs]
        known = [size for size in sizes if size is not None]
        if len(known) < len(sizes) or not sum(known):
            return None
        return min(1.0, sum(each.taken_bytes for each in self.inputs) / sum(known))


@contextmanager
def open_inputs(names: Sequence[str]) -> Iterator[RecordInputs]:
    """Open the files of these names for the length of the block, or stdin without any.

    All are opened at once, so that a wrong name costs no record. NotFoundError,
    InvalidArgumentError: one cannot be opened, or is a directory.
    """
    with ExitStack() as stack:
        yield RecordInputs([_open(name, stack) for name in names or (STDIN_NAME,)])


def _open(name: str, stack: ExitStack) -> RecordInput:
    if name == STDIN_NAME:
        return RecordInput(_STDIN, None, _size_if_file(_STDIN))
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise NotFoundError(f"no such file: {name}") from error
    except OSError as error:
        raise InvalidArgumentError(f"cannot open {name}: {error.strerror}") from error
    stack.callback(os.close, descriptor)
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        raise InvalidArgumentError(f"{name} is a directory: name files of records")
    return RecordInput(descriptor, name, _size_if_file(descriptor))


def _size_if_file(descriptor: int) -> int | None:
    """Return the bytes left if it is a file; None if it is not, or is closed."""
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        return status.st_size - os.lseek(descriptor, 0, os.SEEK_CUR)
    except OSError:
        return None  # Reading it will raise the error.
