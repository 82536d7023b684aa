"""Finds ports on the loopback interface that nobody listens on."""

import socket
from contextlib import ExitStack

from topology.errors import InvalidArgumentError, UnavailableError

_PORT_MAX = 65535


def free_ports(count: int, *, base_port: int | None = None) -> list[int]:
    """`count` free ports: consecutive ones from `base_port`, or any.

    All are bound at once before any is given back, so that they are distinct. Another program
    may take one before its server does; the server then says so.
    """
    wanted = [0] * count if base_port is None else range(base_port, base_port + count)
    if wanted[-1] > _PORT_MAX:
        raise InvalidArgumentError(
            f"--base-port {base_port}: {count} ports are needed, and {_PORT_MAX} is the last; "
            f"the highest base port is {_PORT_MAX - count + 1}"
        )
    with ExitStack() as stack:
        found = []
        for port in wanted:
            taken = stack.enter_context(socket.socket())
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                taken.bind(("127.0.0.1", port))
            except OSError as error:
                raise UnavailableError(
                    f"port {port} is in use: choose another --base-port (ports {wanted[0]} to "
                    f"{wanted[-1]} are needed), or none for any free ones"
                ) from error
            found.append(taken.getsockname()[1])
    return found
