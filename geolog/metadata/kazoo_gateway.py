"""Kazoo's connections through a gateway. Each connects in its own thread, and may block."""

import socket

from kazoo.handlers.threading import SequentialThreadingHandler

from geolog.transport.gateway import LINE_BYTES_MAX, Gateway, dial_line, is_open
from geolog.transport.seam import Address, ConnectionFailedError


class GatewaySockets(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types.
    """Kazoo's threads and sockets, with another way to connect."""

    def __init__(self, gateway: Gateway) -> None:
        super().__init__()
        self._gateway = gateway

    def create_connection(
        self, address: tuple[str, int], timeout: float | None = None, **options: object
    ) -> socket.socket:
        """Ask the gateway for the server; OSError, as kazoo expects, if it is unreachable."""
        wanted = Address(*address)
        host, port = self._gateway.address.host, self._gateway.address.port
        connection = socket.create_connection((host, port), timeout)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(dial_line(self._gateway.region, wanted))
            opened = is_open(_line(connection), wanted)
        except ConnectionFailedError as error:
            connection.close()
            raise ConnectionRefusedError(str(error)) from error
        except BaseException:
            connection.close()
            raise
        if opened:
            connection.setblocking(False)  # noqa: FBT003 - the standard library's own signature.
            return connection
        connection.close()
        made = super().create_connection(address=address, timeout=timeout, **options)
        assert isinstance(made, socket.socket)
        return made


def _line(connection: socket.socket) -> bytes:
    """The gateway's answer, without consuming any byte after it."""
    line = b""
    while not line.endswith(b"\n") and len(line) < LINE_BYTES_MAX:
        byte = connection.recv(1)
        if not byte:
            break
        line += byte
    return line
