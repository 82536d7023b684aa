"""The note of this user's latest demo on this machine, by which other processes find it.

A demo holds a lock in its directory while it runs, so a note that it could not remove, e.g.
because it was killed, leads nobody to a demo that has ended.
"""

import fcntl
import json
import os
import stat
import tempfile
from pathlib import Path

import attrs

from geolog.settings.settings_file import SettingsFile
from topology.errors import NotFoundError

SETTINGS_NAME = "geolog.toml"
"""The settings file in the directory of a demo."""

LOCK_NAME = "demo.lock"
"""A file in the directory of a demo, locked with `flock` while the demo runs."""


@attrs.frozen
class DemoNote:
    """Content of the note of a demo."""

    directory: Path
    ports: tuple[int, ...] = ()
    """Ports of its servers, in the order of its plan; a demo that is restarted takes them."""

    @property
    def settings_file(self) -> Path:
        """The settings of commands that use the demo. It exists once all servers answer."""
        return self.directory / SETTINGS_NAME

    @property
    def is_running(self) -> bool:
        """Whether the demo runs."""
        return is_locked(self.directory / LOCK_NAME)

    @classmethod
    def read(cls) -> "DemoNote":
        """Read the note. NotFoundError: there is none, or it is not this user's own."""
        path = note_path()
        try:
            status = path.lstat()
            if status.st_uid != os.getuid() or not stat.S_ISREG(status.st_mode):
                raise NotFoundError(
                    f"{path} belongs to another user: name the demo's directory with --data-dir"
                )
            document = json.loads(path.read_text(encoding="utf-8"))
            return cls(Path(document["directory"]), tuple(map(int, document["ports"])))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise NotFoundError("no demo found: start one with `geolog demo`") from error

    def text(self) -> str:
        """Return the content of the note."""
        place = {"directory": str(self.directory), "settings": str(self.settings_file)}
        return json.dumps(place | {"ports": self.ports}) + "\n"


def note_path() -> Path:
    """Path of this user's note."""
    return Path(tempfile.gettempdir()) / f"geolog-demo-of-{os.getuid()}.json"


def default_directory() -> Path:
    """Directory of this user's demo, if the demo names none."""
    return Path(tempfile.gettempdir()) / f"geolog-demo-{os.getuid()}"


def running_demo() -> DemoNote | None:
    """Return the latest demo of this user if its servers run and answer; else None."""
    try:
        note = DemoNote.read()
    except NotFoundError:
        return None
    return note if note.is_running and note.settings_file.exists() else None


def is_locked(path: Path) -> bool:
    """True if a process holds the lock on this file; False if there is no such file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def check_demo_runs(file: SettingsFile, named_by: str) -> None:
    """NotFoundError if a demo that has ended wrote this file. named_by: what names the file."""
    written = file.values.get("demo.data_dir")
    if not isinstance(written, str):
        return
    directory = Path(written)
    lock = directory / LOCK_NAME
    if file.path.resolve().parent != directory.resolve() or not lock.exists():
        return  # The file may be about a demo, but no demo wrote it.
    if not is_locked(lock):
        again = "" if directory == default_directory() else f" --data-dir {directory}"
        raise NotFoundError(
            f"{named_by} is of a demo that does not run any more: start it again with `geolog"
            f" demo{again}`, or {other_settings(named_by)}"
        )


def other_settings(named_by: str) -> str:
    """What to do about settings of a demo that has ended, as the end of an error."""
    undo = "unset GEOLOG_CONFIG" if named_by.startswith("GEOLOG_CONFIG") else "drop that file"
    note = running_demo()
    return undo if note is None else f"{undo} to use the demo that runs in {note.directory}"
