"""The command run as a person runs it, and a demo that stays, for tests to talk to."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import attrs

GEOLOG = [sys.executable, "-P", "-m", "geolog"]
WAIT_S_MAX = 100.0
"""Time limit for anything that takes a moment on an idle machine; this one may be busy."""

COMMAND_S_MAX = 700.0
"""Time limit for a command, which may be a whole demo or drill."""


def plain_environment() -> dict[str, str]:
    """Return this process's environment without settings of geolog and without Java."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GEOLOG_") and name != "JAVA_HOME"
    }
    return kept | {"PATH": str(Path(sys.executable).parent)}


def geolog(
    *arguments: str, given: bytes = b"", config: Path | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run one command to its end."""
    environment = plain_environment()
    if config is not None:
        environment["GEOLOG_CONFIG"] = str(config)
    return subprocess.run(
        [*GEOLOG, *arguments],
        input=given,
        capture_output=True,
        env=environment,
        cwd=cwd,
        timeout=COMMAND_S_MAX,
        check=False,
    )


@contextmanager
def started(
    *arguments: str, config: Path | None = None, stdin: int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command while the test watches it; kill it at the end if it still runs."""
    named = {} if config is None else {"GEOLOG_CONFIG": str(config)}
    with subprocess.Popen(
        [*GEOLOG, *arguments],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=plain_environment() | named,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@attrs.frozen
class DemoProcess:
    """A running demo without workload."""

    process: subprocess.Popen[bytes]
    directory: Path
    ready: object
    """Contents of its ready file."""

    @property
    def config(self) -> Path:
        """Settings file that another terminal would name."""
        return self.directory / "geolog.toml"

    def run(self, *arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run one command against this demo."""
        return geolog(*arguments, given=given, config=self.config)

    def json(self, *arguments: str) -> object:
        """Run a command that must succeed, and return the JSON document it prints."""
        done = self.run(*arguments, "-o", "json")
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout)

    def pids(self, part: object = None) -> list[int]:
        """Return the process ids of all servers, or those in a part of `ready`, and of their
        children.
        """
        own = list(_pids_in(self.ready if part is None else part))
        return own + [child for pid in own for child in children_of(pid)]


def _pids_in(document: object) -> Iterator[int]:
    match document:
        case {"pid": int(pid)}:
            yield pid
        case dict():
            for item in document.values():
                yield from _pids_in(item)
        case list():
            for item in document:
                yield from _pids_in(item)


def children_of(pid: int) -> list[int]:
    """Return the child processes of a process."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in listed]


@contextmanager
def running_demo(
    directory: Path, *options: str, has_place: bool = True
) -> Iterator[DemoProcess]:
    """Start a demo, wait until all servers answer, and end it with SIGTERM.

    Its note is in this directory, too: only commands with this TMPDIR find it without settings.
    has_place: it also has its data there; else it chooses its place.
    """
    ready_file = directory / "ready.json"
    ready_file.unlink(missing_ok=True)
    argv = [*GEOLOG, "demo", "--stay", "--no-workload"]
    argv += ["--data-dir", str(directory)] if has_place else []
    if "--wan" not in options:
        argv += ["--wan", "none"]  # Few tests are about distance, and it slows all of them.
    if "--proxies-per-region" not in options:
        argv += ["--proxies-per-region", "0"]
    if "--relays-per-region" not in options:
        argv += ["--relays-per-region", "0"]
    log = directory / "demo.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*argv, "--ready-file", str(ready_file), *options],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=plain_environment() | {"TMPDIR": str(directory)},
        )
    try:
        wait_until(lambda: ready_file.exists() or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        yield DemoProcess(process, directory, json.loads(ready_file.read_text()))
    finally:
        process.terminate()
        try:
            process.wait(WAIT_S_MAX)
        finally:
            process.kill()


def wait_until(is_so: Callable[[], bool]) -> None:
    """Poll until the condition holds; fail if that takes too long."""
    until_s = time.monotonic() + WAIT_S_MAX
    while not is_so():
        assert time.monotonic() < until_s, f"not so after {WAIT_S_MAX:.0f} s"
        time.sleep(0.02)


def read_some(stream: IO[bytes] | None, marker: bytes) -> bytes:
    """Read a process's output until the marker is in it."""
    assert stream is not None
    os.set_blocking(stream.fileno(), False)
    seen = b""

    def has_marker() -> bool:
        nonlocal seen
        seen += stream.read() or b""
        return marker in seen

    wait_until(has_marker)
    return seen


def read_rest(stream: IO[bytes] | None) -> bytes:
    """Read what is left in the pipe of a process that has ended."""
    assert stream is not None
    return stream.read()
