"""Directories of demos on this machine, and a note of the latest one for other terminals."""

import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from geolog.settings.running_demo import (
    LOCK_NAME,
    DemoNote,
    default_directory,
    note_path,
)
from sim.processes.cluster.plan import DISK_BYTES_MIN, ClusterPlan
from sim.processes.cluster.readyfile import write_whole
from topology.errors import NotFoundError, NotPermittedError, UnavailableError

_LOCK_WAIT_S = 1.0
"""A process that asks whether a demo runs holds its lock for a moment."""


def fresh_directory() -> Path:
    """A new temporary directory."""
    return Path(tempfile.mkdtemp(prefix="geolog-"))


@asynccontextmanager
async def demo_directory(named: Path | None, *, keeps_data: bool) -> AsyncIterator[Path]:
    """The directory of a demo, locked while the block runs.

    Without a name, it is the default directory, empty at first and removed at the end; or a new
    one if its data is kept. UnavailableError: another demo runs in it. NotPermittedError: the
    default directory belongs to another user.
    """
    directory = (named or (fresh_directory() if keeps_data else default_directory())).absolute()
    is_default = named is None and not keeps_data
    if is_default:
        _make_own(directory)
    descriptor = await _lock(directory)
    try:
        if is_default:  # A demo that was killed could not remove its files.
            _empty(directory)
        yield directory
    finally:
        if is_default:
            _empty(directory)
            _remove_empty(directory)
        os.close(descriptor)


def _make_own(directory: Path) -> None:
    """Make the directory, unless this user has it; others may know its name, too."""
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        status = directory.lstat()
        if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode):
            raise NotPermittedError(
                f"{directory} is not a directory of yours: name another with --data-dir"
            ) from None


async def _lock(directory: Path) -> int:
    with trio.move_on_after(_LOCK_WAIT_S):
        while True:
            if (descriptor := _try_lock(directory)) is not None:
                return descriptor
            await trio.sleep(0.02)
    raise UnavailableError(
        f"a demo runs in {directory}: use it from another terminal (`geolog cluster health`),"
        " end it with Ctrl-C in its own, or name another directory with --data-dir"
    )


def _try_lock(directory: Path) -> int | None:
    """Lock the directory and return the descriptor that holds the lock; None if it is taken."""
    directory.mkdir(parents=True, exist_ok=True)  # A demo that ends may just have removed it.
    path = directory / LOCK_NAME
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
    except BlockingIOError:
        pass  # Another demo has it, or for a moment a process that looks.
    os.close(descriptor)
    return None


def _empty(directory: Path) -> None:
    """Remove all files of a demo but its lock, which shows that they are being removed."""
    for path in directory.iterdir():
        if path.name == LOCK_NAME:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _remove_empty(directory: Path) -> None:
    """Remove the directory and the lock in it, unless the next demo has just made its own."""
    (directory / LOCK_NAME).unlink(missing_ok=True)
    try:
        directory.rmdir()
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise


def check_space(directory: Path, needed_bytes: int = DISK_BYTES_MIN) -> None:
    """Refuse to start where the disk could become full."""
    directory.mkdir(parents=True, exist_ok=True)
    free_bytes = shutil.disk_usage(directory).free
    if free_bytes < needed_bytes:
        raise UnavailableError(
            f"{directory} has {free_bytes >> 20} MiB free, and may need"
            f" {needed_bytes >> 20} MiB: name a directory on another disk with --data-dir"
        )


def note_started(plan: ClusterPlan, ports: Sequence[int]) -> None:
    """Record the latest demo, for commands in other terminals, and for the next demo."""
    write_whole(note_path(), DemoNote(plan.directory, tuple(ports)).text())


def ports_before() -> tuple[int, ...]:
    """The ports of this user's latest demo, unless it still runs; () if there was none."""
    try:
        note = DemoNote.read()
    except NotFoundError:
        return ()
    return () if note.is_running else note.ports


def started_last() -> Path:
    """The directory of this user's latest demo. NotFoundError: there is none."""
    return DemoNote.read().directory
