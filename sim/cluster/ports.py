"""Finds ports on the loopback interface that nobody listens on.

They are looked for below those that the system gives to outgoing connections: of these, any may
be taken by a connection before the server that it was found for listens. Each process begins
somewhere else, so that two that look at the same time find different ones.
"""

import itertools
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from topology.errors import InvalidArgumentError, UnavailableError

_PORT_MAX = 65535
_FIRST = 10_000
"""Below it many programs have ports of their own."""

_STRIDE = 64
"""How far two processes begin apart: a demo needs half as many."""

_OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")

_OUTGOING_FIRST = 32_768
"""Where Linux begins unless it is told otherwise."""

_given = itertools.count()
"""How many ports this process looked at already: each is found once."""


def free_ports(count: int, *, base_port: int | None = None) -> list[int]:
    """`count` free ports: consecutive ones from `base_port`, or any.

    All are bound at once before any is given back. Another program may take one before its
    server does; the server then says so. InvalidArgumentError, UnavailableError.
    """
    if base_port is None:
        return _any_ports(count)
    if base_port + count - 1 > _PORT_MAX:
        raise InvalidArgumentError(
            f"--base-port {base_port}: {count} ports are needed, and {_PORT_MAX} is the last; "
            f"the highest base port is {_PORT_MAX - count + 1}"
        )
    with ExitStack() as stack:
        for port in range(base_port, base_port + count):
            if not _binds(stack, port):
                raise UnavailableError(
                    f"port {port} is in use: choose another --base-port (ports {base_port} to "
                    f"{base_port + count - 1} are needed), or none for any free ones"
                )
    return list(range(base_port, base_port + count))


def _any_ports(count: int) -> list[int]:
    found: list[int] = []
    with ExitStack() as stack:
        for port in _candidates():
            if _binds(stack, port):
                found.append(port)
            if len(found) == count:
                return found
    raise UnavailableError(f"{count} ports are needed, and {len(found)} are free: name some")


def _candidates() -> Iterator[int]:
    """Each port that may be found, once, from where this process goes on."""
    room = outgoing_first() - _FIRST
    start = os.getpid() * _STRIDE
    for _ in range(room):
        yield _FIRST + (start + next(_given)) % room


def outgoing_first() -> int:
    """The first of the ports that outgoing connections are given."""
    try:
        first = int(_OUTGOING.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _OUTGOING_FIRST
    return first if first > _FIRST + _STRIDE else _PORT_MAX


def _binds(stack: ExitStack, port: int) -> bool:
    """Whether nobody has the port; it is held until the stack is closed."""
    taken = stack.enter_context(socket.socket())
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True
