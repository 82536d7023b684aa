"""A stand-in for `systemctl` on a host of a test, where systemd itself does not run.

    python stand_in_systemctl.py DIRECTORY VERB [OPTION]… UNIT…

It runs the units in DIRECTORY/units as their lines say: ExecStart, Type, Environment,
TimeoutStopSec and the order of `After`. Everything else in a unit is ignored, `Restart` and the
hardening included. The output of the servers goes to DIRECTORY/log.
"""

import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

START_S = 100.0
TARGET = "geolog.target"


class Unit:
    """One service of the host."""

    def __init__(self, host: Path, name: str) -> None:
        """Read the unit's file; exit with 5, as systemctl does, if there is none."""
        self.name = name
        self._process_id_file = host / "run" / f"{name}.pid"
        self.enabled_file = host / "run" / f"{name}.enabled"
        self._log = host / "log" / f"{name}.log"
        self._socket_path = host / "run" / f"{name}.notify"
        path = host / "units" / name
        if not path.exists():
            sys.exit(f"Failed to start {name}: Unit {name} not found.")
        lines = [line.partition("=") for line in path.read_text().splitlines()]
        self._values = {key: value for key, _, value in lines}
        for each in (self._process_id_file, self._log):
            each.parent.mkdir(parents=True, exist_ok=True)

    @property
    def after(self) -> int:
        """How many units start before it."""
        return len(self._values["After"].split())

    @property
    def process_id(self) -> int | None:
        """The server's process; None if it does not run."""
        with suppress(FileNotFoundError, ProcessLookupError):
            number = int(self._process_id_file.read_text())
            state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
            return None if state == "Z" else number
        return None

    def start(self) -> None:
        """Start the server; with `Type=notify`, wait until it says that it is ready."""
        if self.process_id is not None:
            return
        command = shlex.split(self._values["ExecStart"].replace("%%", "%").replace("$$", "$"))
        self._socket_path.unlink(missing_ok=True)
        # A path of a socket is short, and that of a test may be long.
        os.chdir(self._socket_path.parent)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(self._socket_path.name)
            manager.settimeout(0.1)
            with self._log.open("ab") as log:
                server = subprocess.Popen(
                    command,
                    cwd=self._socket_path.parent,
                    env=os.environ | {"NOTIFY_SOCKET": self._socket_path.name},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            self._process_id_file.write_text(str(server.pid))
            if self._values["Type"] == "notify":
                self._wait_ready(server, manager)

    def _wait_ready(self, server: "subprocess.Popen[bytes]", manager: socket.socket) -> None:
        deadline_s = time.monotonic() + START_S
        while time.monotonic() < deadline_s and server.poll() is None:
            with suppress(TimeoutError):
                if b"READY=1" in manager.recv(1000).split(b"\n"):
                    return
        said = self._log.read_text(errors="replace")
        sys.exit(f"Job for {self.name} failed.\n{said}")

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the server, if it runs."""
        if (process_id := self.process_id) is not None:
            os.kill(process_id, number)

    def stop(self) -> None:
        """End the server, and wait until it has ended; kill it if that takes too long."""
        process_id = self.process_id
        if process_id is None:
            return
        patience_s = float(self._values["TimeoutStopSec"].removesuffix("s"))
        process = os.pidfd_open(process_id)
        try:
            os.kill(process_id, signal.SIGTERM)
            if not select.select([process], [], [], patience_s)[0]:
                os.kill(process_id, signal.SIGKILL)
                sys.exit(f"{self.name} did not stop within {patience_s:g} s")
        finally:
            os.close(process)


def services_of(host: Path, names: Sequence[str]) -> list[Unit]:
    """The services named, in the order of their start; a target stands for those enabled."""
    found = {name: Unit(host, name) for name in _expanded(host, names)}
    return sorted(found.values(), key=lambda unit: unit.after)


def _expanded(host: Path, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        if name == TARGET:
            for path in (host / "run").glob("*.service.enabled"):
                yield path.name.removesuffix(".enabled")
        else:
            yield name if name.endswith(".service") else f"{name}.service"


def main(host: Path, verb: str, *arguments: str) -> None:
    """Perform one command."""
    units = services_of(host, [each for each in arguments if not each.startswith("-")])
    for unit in units:
        if verb == "enable":
            unit.enabled_file.touch()
        if verb == "disable":
            unit.enabled_file.unlink(missing_ok=True)
    is_now = "--now" in arguments
    if verb in ("stop", "restart") or (verb == "disable" and is_now):
        for unit in reversed(units):
            unit.stop()
    if verb in ("start", "restart") or (verb == "enable" and is_now):
        for unit in units:
            unit.start()
    if verb == "is-active":
        states = ["inactive" if unit.process_id is None else "active" for unit in units]
        sys.stdout.write("".join(f"{state}\n" for state in states))
        sys.exit(0 if "inactive" not in states else 3)
    assert verb in ("daemon-reload", "enable", "disable", "start", "stop", "restart"), verb


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
