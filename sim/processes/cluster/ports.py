"""Finds free ports on the loopback interface and holds them for their servers.

A port is found long before its server listens on it, and a server that is down does not listen
at all. So the finder stays bound to the port without listening. Linux still lets a server that
sets `SO_REUSEADDR` listen there, as all of ours and Java's do. A search for ports binds without
that option and therefore skips held ports.

The search stays below the ports that the system gives to outgoing connections, and each process
starts it elsewhere, so even a process that does not hold its ports seldom collides.
"""

import itertools
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from topology.errors import InvalidArgumentError, UnavailableError

_PORT_MAX = 65535
_FIRST = 10_000
"""Many programs have well-known ports below it."""

_STRIDE = 64
"""Distance between the starting points of two processes; a demo needs half as many ports."""

_OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")

_OUTGOING_FIRST = 32_768
"""The default of Linux."""

_CONNECTIONS = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))

_CLOSING = frozenset(("04", "05", "06", "09", "0B"))
"""States of a connection that no process has any more, from FIN_WAIT1 to TIME_WAIT."""

_given = itertools.count()
"""Number of ports this process has tried; it finds each only once."""


@contextmanager
def held_ports(
    count: int, *, base_port: int | None = None, wanted: Sequence[int] = ()
) -> Iterator[list[int]]:
    """Hold `count` ports for servers that start in the block: `base_port` and up, or any.

    wanted: ports to hold in their places if they are free; others replace those that are not.
    No other search in this module finds them while the block runs. InvalidArgumentError if the
    range is too high; UnavailableError if a port is in use.
    """
    with ExitStack() as held:
        if base_port is None:
            yield _any_ports(held, count, wanted[:count])
        else:
            yield _ports_from(held, base_port, count)


def _ports_from(held: ExitStack, base_port: int, count: int) -> list[int]:
    if base_port + count - 1 > _PORT_MAX:
        raise InvalidArgumentError(
            f"--base-port {base_port} is too high: for {count} ports the highest base port is"
            f" {_PORT_MAX - count + 1}"
        )
    for port in range(base_port, base_port + count):
        # The caller may just have released these ports, which the kernel remembers for a while.
        if not _hold(held, port, may_be_remembered=True):
            raise UnavailableError(
                f"port {port} is in use: choose another --base-port (the demo needs ports"
                f" {base_port} to {base_port + count - 1}), or leave it out to use free ports"
            )
    return list(range(base_port, base_port + count))


def _any_ports(held: ExitStack, count: int, wanted: Sequence[int]) -> list[int]:
    found: list[int | None] = [None] * count
    closing = _closing_ports() if wanted else frozenset[int]()
    for place, port in enumerate(wanted):
        if _hold(held, port, may_be_remembered=port in closing):
            found[place] = port
    candidates = _candidates()
    for place in (place for place, port in enumerate(found) if port is None):
        found[place] = next(
            (port for port in candidates if _hold(held, port, may_be_remembered=False)), None
        )
    ports = [port for port in found if port is not None]
    if len(ports) < count:
        raise UnavailableError(
            f"{count} ports are needed, but {len(ports)} are free: choose some with --base-port"
        )
    return ports


def _closing_ports() -> frozenset[int]:
    """Local ports of connections that the kernel only remembers.

    A port that cannot be bound is either one of these, or held by a process: a search that
    looks away from what the kernel remembers would take a held port for a free one.
    """
    ports = set()
    for table in _CONNECTIONS:
        if table.exists():
            for line in table.read_text().splitlines()[1:]:
                _, local, _, state = line.split(maxsplit=4)[:4]
                if state in _CLOSING:
                    ports.add(int(local.rpartition(":")[2], 16))
    return frozenset(ports)


def _candidates() -> Iterator[int]:
    """Each candidate port once, continuing where this process stopped."""
    room = outgoing_first() - _FIRST
    start = os.getpid() * _STRIDE
    for _ in range(room):
        yield _FIRST + (start + next(_given)) % room


def outgoing_first() -> int:
    """The first port of the range for outgoing connections."""
    try:
        first = int(_OUTGOING.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _OUTGOING_FIRST
    return first if first > _FIRST + _STRIDE else _PORT_MAX


def _hold(held: ExitStack, port: int, *, may_be_remembered: bool) -> bool:
    """Bind the port until `held` is closed; False if it is taken."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, may_be_remembered)
    try:
        holder.bind(("127.0.0.1", port))
    except OSError:
        holder.close()
        return False
    held.enter_context(holder)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # Lets the server in.
    return True
