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
from collections.abc import Iterator
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

_given = itertools.count()
"""Number of ports this process has tried; it finds each only once."""


@contextmanager
def held_ports(count: int, *, base_port: int | None = None) -> Iterator[list[int]]:
    """Hold `count` ports for servers that start in the block: `base_port` and up, or any.

    No other search in this module finds them while the block runs. InvalidArgumentError if the
    range is too high; UnavailableError if a port is in use.
    """
    with ExitStack() as held:
        if base_port is None:
            yield _any_ports(held, count)
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


def _any_ports(held: ExitStack, count: int) -> list[int]:
    found: list[int] = []
    for port in _candidates():
        if _hold(held, port, may_be_remembered=False):
            found.append(port)
        if len(found) == count:
            return found
    raise UnavailableError(
        f"{count} ports are needed, but {len(found)} are free: choose some with --base-port"
    )


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
