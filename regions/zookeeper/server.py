"""An embedded ZooKeeper server: one Java child, alone or one voter of a quorum.

Theory of operation. `serve_zookeeper` first checks the data directory and the ports, so that
errors that a person can fix are reported plainly. Then it writes the server's settings, starts
Java, and reports when the server answers (a voter answers once there is a quorum). When it is
cancelled, it ends Java.

Java must never outlive us, not even when we are killed with SIGKILL. So a few lines of Python
between us and Java ask the kernel to kill this child when its parent ends (`PR_SET_PDEATHSIG`,
which survives `exec`). The kernel means the parent's *thread*: the child is therefore started
from trio's own thread, which ends with the process, and never from a worker thread. Conversely,
when Java is killed, we end too. Java stays in our process group, so that a signal to the group
pauses or ends both.
"""

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import attrs
import trio

from geolog.transport.seam import Address, AddressInUseError
from regions.zookeeper.java import (
    LOG_SETTINGS_FILE,
    SETTINGS_FILE,
    heap_bytes_for,
    java_command,
    machine_memory_bytes,
)
from topology.errors import InvalidConfigError, UnavailableError

SERVER_ID_MAX = 255

_READY_PAUSE_S = 0.05
_ANSWER_TIMEOUT_S = 2.0
_END_TIMEOUT_S = 5.0
_OUT_OF_MEMORY = "OutOfMemoryError"

_RUN_WITH_PARENT = """
import ctypes, os, signal, sys
parent = int(sys.argv[1])
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == parent:
    os.execv(sys.argv[2], sys.argv[2:])
"""

_LOG_SETTINGS = """\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = zookeeper.log
appender.file.filePattern = zookeeper.log.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{ISO8601} %p %c{1} %m%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 8MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""


@attrs.frozen
class Peer:
    """One voter of a quorum, and the ports on which it talks to the others."""

    server_id: int
    host: str
    quorum_port: int
    election_port: int

    def __str__(self) -> str:
        return f"{self.server_id}={self.host}:{self.quorum_port}:{self.election_port}"


def parse_peers(text: str) -> tuple[Peer, ...]:
    """Read `ID=HOST:QUORUM_PORT:ELECTION_PORT,…`."""
    return tuple(_parse_peer(each.strip()) for each in text.split(",") if each.strip())


def _parse_peer(text: str) -> Peer:
    server_id, _, where = text.partition("=")
    host, *ports = where.rsplit(":", 2)
    numbers = [server_id, *ports]
    if not host or len(ports) != 2 or not all(each.isdecimal() for each in numbers):
        raise InvalidConfigError(
            f"{text!r} is not a peer: use ID=HOST:QUORUM_PORT:ELECTION_PORT, "
            "e.g. 1=127.0.0.1:2888:3888"
        )
    return Peer(int(server_id), host, int(ports[0]), int(ports[1]))


@attrs.frozen(kw_only=True)
class ZooKeeperConfig:
    """Settings of one ZooKeeper server."""

    data_dir: Path
    """Directory for the server's data, settings and log. It belongs to one server id for
    ever."""

    id: int = attrs.field(default=1)
    """Id of this server among the peers, 1 to 255."""

    listen: Address
    """Address for clients."""

    peers: str = ""
    """All voters of the quorum, including this one, `ID=HOST:QUORUM_PORT:ELECTION_PORT,…`; an
    odd number. If unset, the server runs alone."""

    tick_s: float = 0.5
    """ZooKeeper's unit of time. Heartbeats depend on it; the shortest session time-out is two
    ticks."""

    session_timeout_s_max: float = 60.0
    """Longest session time-out that a client may request."""

    heap_bytes_max: int | None = None
    """Maximum Java heap, taken as needed; by default an eighth of the machine's memory, between
    128 MiB and 1 GiB. It holds all metadata: about 5 KiB for each segment of a stream, so 1 GiB
    is enough for 200,000 segments."""

    connections_max: int = 4096
    """Connections from one address. ZooKeeper's own default, 60, is too low for one busy
    machine."""

    @id.validator
    def _check_id(self, _attribute: "attrs.Attribute[int]", value: int) -> None:
        if not 1 <= value <= SERVER_ID_MAX:
            raise InvalidConfigError(f"server id must be 1 to {SERVER_ID_MAX}, got {value}")

    def __attrs_post_init__(self) -> None:
        ids = [peer.server_id for peer in self.voters]
        if len(set(ids)) < len(ids):
            raise InvalidConfigError(f"duplicate server id in {self.peers}")
        if ids and self.id not in ids:
            raise InvalidConfigError(f"server {self.id} is not among the peers {self.peers}")
        if len(ids) == 2:
            raise InvalidConfigError("two voters survive no failure: use one, three or five")

    @property
    def voters(self) -> tuple[Peer, ...]:
        """All voters. None or one: the server runs alone."""
        return parse_peers(self.peers)

    @property
    def heap_bytes(self) -> int:
        """The maximum heap of this server."""
        if self.heap_bytes_max is not None:
            return self.heap_bytes_max
        return heap_bytes_for(machine_memory_bytes())

    @property
    def log(self) -> Path:
        """The server's log file."""
        return self.data_dir / "zookeeper.log"

    @property
    def console(self) -> Path:
        """File for Java's own output, e.g. when it cannot run."""
        return self.data_dir / "java.out"


async def serve_zookeeper(config: ZooKeeperConfig, on_ready: Callable[[], None]) -> None:
    """Run the server until it is cancelled; call `on_ready` when it answers clients.

    InvalidConfigError if the directory belongs to another server, AddressInUseError,
    JavaNotFoundError; UnavailableError if the server ends by itself.
    """
    command = java_command(os.environ, config.heap_bytes)
    claim_data_dir(config)
    _check_ports_free(config)
    write_settings(config)
    with config.console.open("wb") as console:
        # Not through trio, which would start it from a worker thread: see the theory of
        # operation.
        java = subprocess.Popen(  # noqa: ASYNC220 - it returns within milliseconds.
            [sys.executable, "-I", "-S", "-c", _RUN_WITH_PARENT, str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            cwd=config.data_dir,
        )
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_tell_when_ready, config.listen, on_ready)
            await _wait_ended(java)
            nursery.cancel_scope.cancel(reason="Java has ended")
    finally:
        with trio.CancelScope(shield=True):
            await _end(java)
    raise UnavailableError(_why_ended(config, java.returncode))


def claim_data_dir(config: ZooKeeperConfig) -> None:
    """Claim the directory for this server; InvalidConfigError if it belongs to another."""
    myid = config.data_dir / "myid"
    config.data_dir.mkdir(parents=True, exist_ok=True)
    if myid.exists():
        held = myid.read_text(errors="replace").strip()
        if held != str(config.id):
            raise InvalidConfigError(
                f"{config.data_dir} holds the data of ZooKeeper server {held}, not of server "
                f"{config.id}: give each server its own directory"
            )
    elif any(config.data_dir.iterdir()):
        raise InvalidConfigError(
            f"{config.data_dir} is not empty and holds no ZooKeeper data: use another directory"
        )
    else:
        myid.write_text(f"{config.id}\n")


def write_settings(config: ZooKeeperConfig) -> None:
    """Write `zoo.cfg` and the log's settings into the data directory."""
    settings = {
        "tickTime": round(config.tick_s * 1000),
        # Ticks that a voter may take to join, and to fall behind: 10 s and 5 s.
        "initLimit": 20,
        "syncLimit": 10,
        "dataDir": "./.",  # A plain "." trips ZooKeeper's check of relative paths.
        "clientPortAddress": config.listen.host,
        "clientPort": config.listen.port,
        "maxClientCnxns": config.connections_max,
        "maxSessionTimeout": round(config.session_timeout_s_max * 1000),
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "ruok,srvr,mntr,conf",
        "autopurge.snapRetainCount": 3,
        "autopurge.purgeInterval": 1,
    }
    if len(config.voters) > 1:
        for peer in config.voters:
            where = f"{peer.host}:{peer.quorum_port}:{peer.election_port}"
            settings[f"server.{peer.server_id}"] = where
    text = "".join(f"{key}={value}\n" for key, value in settings.items())
    (config.data_dir / SETTINGS_FILE).write_text(text, encoding="ascii")
    (config.data_dir / LOG_SETTINGS_FILE).write_text(_LOG_SETTINGS, encoding="ascii")


async def wait_ready(address: Address) -> None:
    """Wait until the server there answers clients: alone, or with a quorum."""
    while not await _is_ready(address):  # noqa: ASYNC110 - another process is asked.
        await trio.sleep(_READY_PAUSE_S)


async def _tell_when_ready(address: Address, on_ready: Callable[[], None]) -> None:
    await wait_ready(address)
    on_ready()


async def _is_ready(address: Address) -> bool:
    try:
        stream = await trio.open_tcp_stream(address.host, address.port)
    except OSError:
        return False
    try:
        async with stream:
            with trio.move_on_after(_ANSWER_TIMEOUT_S):
                await stream.send_all(b"srvr")
                answer = b"".join([chunk async for chunk in stream])
                return b"\nMode: " in answer
    except trio.BrokenResourceError:
        pass
    return False


async def _wait_ended(process: subprocess.Popen[bytes]) -> None:
    process_file = os.pidfd_open(process.pid)
    try:
        await trio.lowlevel.wait_readable(process_file)
    finally:
        os.close(process_file)


async def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        with trio.move_on_after(_END_TIMEOUT_S):
            await _wait_ended(process)
        process.kill()
        process.wait()


def _check_ports_free(config: ZooKeeperConfig) -> None:
    wanted = [config.listen]
    for peer in config.voters:
        if peer.server_id == config.id and len(config.voters) > 1:
            wanted += [
                Address(peer.host, peer.quorum_port),
                Address(peer.host, peer.election_port),
            ]
    for address in wanted:
        _check_port_free(address)


def _check_port_free(address: Address) -> None:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
            probe.listen()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise AddressInUseError(
                    f"another process listens on {address}: end it, or choose another port"
                ) from error
            raise InvalidConfigError(f"cannot listen on {address}: {error.strerror}") from error


def _why_ended(config: ZooKeeperConfig, code: int) -> str:
    last_lines = _last_lines(config)
    told = f"the end of {config.log}:\n{last_lines}"
    if _OUT_OF_MEMORY not in last_lines:
        return f"ZooKeeper server {config.id} ended with code {code}; {told}"
    heap_mib = config.heap_bytes >> 20
    return (
        f"ZooKeeper server {config.id} ran out of memory: its data does not fit into"
        f" {heap_mib} MiB. Restart it with more, e.g."
        f" GEOLOG_SERVE_ZOOKEEPER_HEAP_BYTES_MAX={2 * heap_mib}MiB (`heap_bytes_max`); {told}"
    )


def _last_lines(config: ZooKeeperConfig) -> str:
    lines: list[str] = []
    for path in (config.log, config.console):
        if path.exists():
            said = path.read_text(errors="replace").splitlines()
            lines += [line for line in said if not line.startswith("\tat ")][-5:]
    return "\n".join(lines)
