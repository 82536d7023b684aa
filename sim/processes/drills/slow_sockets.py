"""Opens connections to a proxy that say next to nothing, in a process of its own.

`python -P -m sim.processes.drills.slow_sockets WEBSOCKET HTTP SOURCE STANDING PER_S DURATION_S`

Half of all are WebSockets, half HTTP. STANDING of them send one byte of a request each second,
and are opened again when the proxy closes them. PER_S more are opened each second, send half of
a request's head, and leave soon. All come from the address SOURCE. At the end it prints its
counts as JSON.
"""

import json
import resource
import socket
import struct
import sys
from contextlib import suppress

import attrs
import trio

from geolog.transport.seam import Address

_HEAD = b"GET /v1/session HTTP/1.1\r\nhost: proxy\r\nupgrade: websocket\r\nfiller: "
_DRIP_S = 1.0
_HELD_S = 0.2
_AGAIN_S = 1.0
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)
"""Leaves no port behind that waits: there are fewer than a minute's connections."""
_DESCRIPTORS_SPARE = 1000


@attrs.define
class SlowSockets:
    """All connections of this process, and their counts."""

    places: tuple[Address, Address]
    source: str
    opened: int = 0
    unopened: int = 0
    closed_by_proxy: int = 0
    standing: int = 0
    standing_most: int = 0

    async def stand(self, number: int) -> None:
        """Hold a connection, and open it again whenever the proxy closes it."""
        while True:
            with suppress(OSError):
                await self._drip(self.places[number % 2])
            await trio.sleep(_AGAIN_S)

    async def _drip(self, place: Address) -> None:
        with await self._open(place) as opened:
            self.standing += 1
            self.standing_most = max(self.standing, self.standing_most)
            try:
                for byte in _HEAD + b"x" * (1 << 20):
                    await opened.send(bytes([byte]))
                    with trio.move_on_after(_DRIP_S):
                        while await opened.recv(1 << 16):
                            pass
                        self.closed_by_proxy += 1
                        return
            except OSError:
                self.closed_by_proxy += 1
            finally:
                self.standing -= 1

    async def visit(self, number: int) -> None:
        """Open a connection, send half of a head, and leave."""
        with suppress(OSError), await self._open(self.places[number % 2]) as opened:
            await opened.send(_HEAD)
            await trio.sleep(_HELD_S)

    async def _open(self, place: Address) -> trio.socket.SocketType:
        opened = trio.socket.socket()
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
            await opened.bind((self.source, 0))
            await opened.connect((place.host, place.port))
        except OSError:
            self.unopened += 1
            opened.close()
            raise
        except trio.Cancelled:
            opened.close()
            raise
        self.opened += 1
        return opened


async def _run(
    sockets: SlowSockets, standing_count: int, per_s: float, duration_s: float
) -> None:
    with trio.move_on_after(duration_s):
        async with trio.open_nursery() as nursery:
            began_s, visits = trio.current_time(), 0
            for number in range(standing_count):
                nursery.start_soon(sockets.stand, number)
            while True:
                due = int((trio.current_time() - began_s) * per_s)
                for number in range(visits, due):
                    nursery.start_soon(sockets.visit, number)
                visits = due
                await trio.sleep(0.01)


def _main() -> None:
    websocket, http, source, standing, per_s, duration_s = sys.argv[1:]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = int(standing) + _DESCRIPTORS_SPARE
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft if hard < 0 else min(soft, hard), hard))
    sockets = SlowSockets((Address.parse(websocket), Address.parse(http)), source)
    trio.run(_run, sockets, int(standing), float(per_s), float(duration_s))
    counts = ("opened", "unopened", "closed_by_proxy", "standing_most")
    print(json.dumps({name: getattr(sockets, name) for name in counts}))  # noqa: T201


if __name__ == "__main__":
    _main()
