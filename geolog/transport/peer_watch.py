"""Watching one other process over a connection of its own, to learn early that it died.

`PeerEvidence` judges; this shell keeps the connection, and pings. Beats come from outside, for
all peers at the same moment.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import attrs
import trio

from geolog.background import open_background
from geolog.protocol.peer_evidence import BEAT_S, PeerEvidence
from geolog.transport.message_socket import MessageSocket, MessageTransport, SocketClosedError
from geolog.transport.seam import Address
from topology.errors import GeologError

_RECONNECT_S = 0.1
"""Pause after a connection that was refused or broken."""
_LEFT_S = 1.0
"""Pause after a farewell; by then the process is listed no more, or a new one is."""


def _no_farewell(_message: str | bytes) -> bool:
    return False


@attrs.define(eq=False, kw_only=True)
class PeerWatch:
    """The watch of one process. `run` watches until it is cancelled."""

    messages: MessageTransport
    address: Address
    path: str
    subprotocol: str
    message_bytes_max: int
    on_change: Callable[[PeerEvidence, PeerEvidence], None]
    """Hears of each change of the evidence: before, after."""
    is_farewell: Callable[[str | bytes], bool] = _no_farewell
    """Whether a message says that the process ends in good order."""
    evidence: PeerEvidence = attrs.field(factory=PeerEvidence, init=False)
    _connection: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    def beat(self) -> None:
        """Note that the time between two heartbeats has passed."""
        self._note(self.evidence.on_beat())
        if self.evidence.is_connection_stale:
            self._connection.cancel(reason="no answer")

    async def run(self) -> None:
        """Stay connected as long as possible; never returns."""
        while True:
            with trio.CancelScope() as self._connection:
                await trio.sleep(await self._listen())

    def _note(self, evidence: PeerEvidence) -> None:
        before, self.evidence = self.evidence, evidence
        self.on_change(before, evidence)

    async def _listen(self) -> float:
        """Use one connection to its end; return how long to pause then."""
        try:
            async with self.messages.open(
                self.address,
                self.path,
                subprotocols=(self.subprotocol,),
                message_bytes_max=self.message_bytes_max,
            ) as socket:
                self._note(self.evidence.on_answer())
                await self._wait_farewell(socket)
        except GeologError:
            self._note(self.evidence.on_break())
            return BEAT_S if self.evidence.is_suspected else _RECONNECT_S
        self._note(PeerEvidence())
        return _LEFT_S

    async def _wait_farewell(self, socket: MessageSocket) -> None:
        async with open_background() as nursery:
            nursery.start_soon(partial(self._ping, socket))
            while not self.is_farewell(await socket.receive()):
                pass

    async def _ping(self, socket: MessageSocket) -> None:
        with suppress(SocketClosedError):  # The task that receives meets it, too.
            while True:
                next_s = trio.current_time() + BEAT_S
                await socket.ping()
                self._note(self.evidence.on_answer())
                await trio.sleep_until(next_s)
