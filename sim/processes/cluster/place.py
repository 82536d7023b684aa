"""Directories of demos on this machine, and a note of the latest one for other terminals."""

import json
import os
import shutil
import tempfile
from pathlib import Path

from sim.processes.cluster.plan import DISK_BYTES_MIN
from sim.processes.cluster.readyfile import write_whole
from topology.errors import NotFoundError, UnavailableError


def fresh_directory() -> Path:
    """A new temporary directory, for a demo without --data-dir."""
    return Path(tempfile.mkdtemp(prefix="geolog-demo-"))


def check_space(directory: Path, needed_bytes: int = DISK_BYTES_MIN) -> None:
    """Refuse to start where the disk could become full."""
    directory.mkdir(parents=True, exist_ok=True)
    free_bytes = shutil.disk_usage(directory).free
    if free_bytes < needed_bytes:
        raise UnavailableError(
            f"{directory} has {free_bytes >> 20} MiB free, and may need"
            f" {needed_bytes >> 20} MiB: name a directory on another disk with --data-dir"
        )


def note_started(directory: Path) -> None:
    """Record the latest demo, for `geolog demo kill` and similar commands."""
    write_whole(_note(), json.dumps({"directory": str(directory)}))


def started_last() -> Path:
    """The directory of this user's latest demo."""
    try:
        note = _note()
        if note.stat().st_uid != os.getuid():
            raise NotFoundError(
                f"{note} belongs to another user: name the demo's directory with --data-dir"
            )
        return Path(json.loads(note.read_text())["directory"])
    except (OSError, ValueError, KeyError) as error:
        raise NotFoundError("no demo found: start one with `geolog demo`") from error


def _note() -> Path:
    return Path(tempfile.gettempdir()) / f"geolog-demo-of-{os.getuid()}.json"
