"""Three hosts on this machine: network namespaces, or addresses of the loopback interface.

With the privilege (root), each host has network and mount namespaces of its own, an address on
a bridge that only the hosts are on, and an /etc/hosts that names all of them. Without, a host
is an address, 127.0.N.10, which stands for its name in commands and expected outputs.
Then nothing stops a server from using a port of another host.

Either way the hosts share the disk of this machine, so the directories of the page are replaced
with directories of the test, and a stand-in for systemctl runs the units.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import attrs

NAMES = ("paris", "dublin", "milan")
EACH = "each-host"
LOST = "-lost"
"""End of a place: the host in front of it loses its servers."""
HOST_PLACES = {EACH, *NAMES, *(f"{name}{LOST}" for name in NAMES)}

DOMAIN = "example.net"
COMMAND_S = 100.0

_BIN = Path(sys.executable).parent
_STAND_IN = Path(__file__).with_name("stand_in_systemctl.py")


@attrs.define
class Host:
    """One host: where its commands run, and what the page's words mean there."""

    name: str
    directory: Path
    entrance: Sequence[str]
    """Command that runs another one on the host."""
    words: Sequence[tuple[str, str]]
    """Words of the page, each with the one that replaces it."""
    exported: list[str] = attrs.field(factory=list)

    def translated(self, text: str) -> str:
        """The same text with this host's directories and addresses."""
        for word, instead in self.words:
            text = text.replace(word, instead)
        return text

    def run(self, text: str) -> "subprocess.CompletedProcess[str]":
        """Run a command of the page; an `export` holds for all later commands."""
        command = self.translated(text)
        if command.startswith("export "):
            self.exported.append(command)
        script = [f"cd {self.directory}", *self.exported, command]
        return subprocess.run(
            [*self.entrance, "bash", "-o", "pipefail", "-c", "\n".join(script)],
            cwd=self.directory,
            env={**_environment(), "PATH": f"{self.directory / 'bin'}:{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )

    def lose(self) -> None:
        """Kill every server of the host at once."""
        for path in (self.directory / "run").glob("*.pid"):
            with suppress(ProcessLookupError):
                os.kill(int(path.read_text()), signal.SIGKILL)


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GEOLOG_")}
    return {**kept, "COLUMNS": "110"}


def has_namespaces() -> bool:
    """Whether this process may make network and mount namespaces."""
    try:
        made = subprocess.run(
            ["unshare", "--net", "--mount", "ip", "link", "add", "probe", "type", "bridge"],
            check=False,
            capture_output=True,
        )
    except FileNotFoundError:
        return False
    return made.returncode == 0


@contextmanager
def open_hosts(directory: Path) -> Iterator[list[Host]]:
    """Have hosts; all of their processes end with the block."""
    with ExitStack() as stack:
        enter = _bridged(stack, directory) if has_namespaces() else None
        hosts = [
            _host(directory / name, name, [] if enter is None else enter[name])
            for name in NAMES
        ]
        try:
            yield hosts
        finally:
            for host in hosts:
                host.lose()


def _host(directory: Path, name: str, entrance: Sequence[str]) -> Host:
    for each in ("bin", "etc", "data"):
        (directory / each).mkdir(parents=True)
    stand_in = directory / "bin" / "systemctl"
    stand_in.write_text(f'#!/bin/sh\nexec {sys.executable} {_STAND_IN} {directory} "$@"\n')
    stand_in.chmod(0o755)
    words = [
        ("/opt/geolog/bin", str(_BIN)),
        ("/etc/systemd/system", str(directory / "units")),
        ("/etc/geolog", str(directory / "etc")),
        ("/var/lib/geolog", str(directory / "data")),
    ]
    if not entrance:
        words += [(f"{each}.{DOMAIN}", _loopback(each)) for each in NAMES]
        words += [(f"$region.{DOMAIN}", _loopback(name))]
    return Host(name, directory, entrance, words)


def _loopback(name: str) -> str:
    return f"127.0.{NAMES.index(name) + 1}.10"


def _bridged(stack: ExitStack, directory: Path) -> dict[str, Sequence[str]]:
    """Make a namespace with a bridge, and one on that bridge for each host."""
    hosts_file = directory / "hosts"
    hosts_file.write_text(
        "127.0.0.1 localhost\n"
        + "".join(f"10.0.{i}.10 {name}.{DOMAIN}\n" for i, name in enumerate(NAMES, 1))
    )
    switch = _namespace(stack)
    _do(switch, "ip link add bridge type bridge && ip link set bridge up")
    entrances: dict[str, Sequence[str]] = {}
    for number, name in enumerate(NAMES, 1):
        host = _namespace(stack)
        _do(
            switch,
            f"ip link add port{number} type veth peer name eth0 netns {host}"
            f" && ip link set port{number} master bridge up",
        )
        _do(
            host,
            "ip link set lo up && ip link set eth0 up"
            f" && ip addr add 10.0.{number}.10/16 dev eth0"
            f" && mount --bind {hosts_file} /etc/hosts",
        )
        entrances[name] = ["nsenter", f"--target={host}", "--net", "--mount", "--"]
    return entrances


def _namespace(stack: ExitStack) -> int:
    """Id of a process that keeps namespaces of its own until the block ends."""
    # It says something once it is there: until then, its namespaces are ours.
    keeper = subprocess.Popen(
        ["unshare", "--net", "--mount", "sh", "-c", "echo there; exec cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    stack.enter_context(keeper)  # It closes the pipe, which ends it.
    assert keeper.stdout is not None
    keeper.stdout.readline()
    return keeper.pid


def _do(namespace: int, script: str) -> None:
    done = subprocess.run(
        ["nsenter", f"--target={namespace}", "--net", "--mount", "--", "sh", "-c", script],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
