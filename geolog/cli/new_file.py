"""A file that is there whole, on disk, or not at all."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import attrs

from topology.errors import ConflictError, GeologError, InvalidArgumentError

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""How file systems without hard links refuse one."""

_NO_DIRECTORY_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
"""How file systems refuse to sync a directory, because they do so themselves."""


class FileNotWrittenError(GeologError):
    """A file could not be written, e.g. because its disk is full. Mend that, and repeat."""


@attrs.frozen
class NewFile:
    """A file that is being written; it has its name only once it is whole."""

    path: Path
    file: BinaryIO

    def write(self, data: bytes) -> None:
        """Append to the file. FileNotWrittenError."""
        try:
            self.file.write(data)
        except OSError as error:
            raise _not_written(self.path, error) from error


@contextmanager
def open_new_file(path: Path) -> Iterator[NewFile]:
    """Open a file to write; it appears under its name, synced to disk, if the block succeeds.

    ConflictError if there is one of this name, before or after; InvalidArgumentError if none
    can be made there; FileNotWrittenError if it cannot be written. Then nothing stays.
    """
    _check_absent(path)
    try:
        descriptor, name = tempfile.mkstemp(prefix=".geolog-", suffix=".part", dir=path.parent)
    except OSError as error:
        raise InvalidArgumentError(f"{path} cannot be written: {error.strerror}") from error
    part = Path(name)
    file = open(descriptor, "wb")  # noqa: SIM115 - closing may fail, which is handled below.
    try:
        yield NewFile(path, file)
        try:
            file.flush()
            os.fchmod(descriptor, 0o666 & ~_umask())
            os.fsync(descriptor)
            _give_name(part, path)
        except OSError as error:
            raise _not_written(path, error) from error
    finally:
        with suppress(OSError):  # All that counts is on disk, or the file is given up.
            file.close()
        with suppress(FileNotFoundError):
            part.unlink()


def _check_absent(path: Path) -> None:
    if os.path.lexists(path):
        raise ConflictError(
            f"{path} exists already, and an export does not overwrite: name another file"
        )


def _give_name(part: Path, path: Path) -> None:
    """Name the file, but never in place of another one."""
    try:
        os.link(part, path)
    except FileExistsError:
        _check_absent(path)
        raise
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            _check_absent(path)
            raise
        try:
            part.replace(path)
        except OSError:
            path.unlink()
            raise
    try:
        _sync_directory(path.parent)
    except OSError as error:
        if error.errno in _NO_DIRECTORY_SYNC:
            return
        path.unlink()  # Nobody knows whether the name would last.
        raise


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _not_written(path: Path, error: OSError) -> FileNotWrittenError:
    return FileNotWrittenError(f"{path} could not be written: {error.strerror}")
