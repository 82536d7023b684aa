"""Watching the other proxies of the cluster, to learn of a death before metadata does.

`PeerEvidence` judges; this shell keeps one connection to each proxy that is listed, and pings
it. A proxy that drains says so on the connection, and is not suspected.

Rules: PROTOCOL S26.
"""

import logging
from contextlib import suppress
from functools import partial

import attrs
import trio

from geolog.background import open_background
from geolog.metadata.proxies import ProxyRecord, list_live_proxies
from geolog.metadata.seam import Metadata
from geolog.transport.message_socket import (
    MessageSocket,
    MessageTransport,
    SocketClosedError,
)
from geolog.wire.limits import FRAME_BYTES_MAX
from geolog.wire.session.batches import SUBPROTOCOL_BATCHES, decode_from_proxy, messages_of
from geolog.wire.session.channel_messages import SessionGoaway
from geolog.wire.session.paths import SESSION_PATH
from regions.proxy.protocol.peer_evidence import BEAT_S, PeerEvidence
from topology.errors import GeologError

_log = logging.getLogger(__name__)

_RECONNECT_S = 0.1
"""Pause after a connection that was refused or broken."""
_LEFT_S = 1.0
"""Pause after a farewell; by then the proxy is listed no more, or a new one is."""
_RETRY_S = 0.5


@attrs.define(eq=False)
class _Peer:
    """One other proxy, and the task that watches it."""

    record: ProxyRecord
    evidence: PeerEvidence = attrs.field(factory=PeerEvidence)
    watch: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    connection: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    def note(self, evidence: PeerEvidence) -> None:
        """Take the evidence on; log a suspicion that begins or ends."""
        before, self.evidence = self.evidence, evidence
        if evidence.is_suspected and not before.is_suspected:
            _log.warning(
                "%s: does not answer; its partitions may be taken early", self.record.owner
            )
        if before.is_suspected and not evidence.is_suspected:
            _log.warning("%s: answers again", self.record.owner)


class Peers:
    """The other proxies. `run` watches them."""

    def __init__(
        self, *, metadata: Metadata, cluster: str, messages: MessageTransport, here: str
    ) -> None:
        """`here`: this proxy's name in owner records."""
        self._metadata = metadata
        self._cluster = cluster
        self._messages = messages
        self._here = here
        self._peers: dict[str, _Peer] = {}

    def __repr__(self) -> str:
        return f"Peers({len(self._peers)} watched, {len(self.suspected)} suspected)"

    @property
    def suspected(self) -> list[str]:
        """The proxies that are taken for dead, by their names in owner records."""
        return [owner for owner, peer in self._peers.items() if peer.evidence.is_suspected]

    async def run(self) -> None:
        """Watch all proxies that are listed; never returns."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._beat)
            while True:
                changed = trio.Event()
                try:
                    listed = await list_live_proxies(
                        self._metadata, self._cluster, changed=changed
                    )
                except GeologError as error:
                    if not error.retriable:
                        raise
                    await trio.sleep(_RETRY_S)
                    continue
                self._follow(listed, nursery)
                await changed.wait()

    def _follow(self, listed: list[ProxyRecord], nursery: trio.Nursery) -> None:
        """Watch those that are listed, and nobody else."""
        records = {one.owner: one for one in listed if one.owner != self._here}
        for owner, peer in list(self._peers.items()):
            if owner not in records or records[owner].address != peer.record.address:
                peer.watch.cancel(reason="not listed any more")
                del self._peers[owner]
        for owner, record in records.items():
            if owner not in self._peers:
                peer = self._peers[owner] = _Peer(record)
                nursery.start_soon(self._watch, peer, name=f"watch of {owner}")

    async def _beat(self) -> None:
        while True:
            await trio.sleep(BEAT_S)
            for peer in self._peers.values():
                peer.note(peer.evidence.on_beat())
                if peer.evidence.is_connection_stale:
                    peer.connection.cancel(reason="no answer")

    async def _watch(self, peer: _Peer) -> None:
        with peer.watch:
            while True:
                with trio.CancelScope() as peer.connection:
                    await trio.sleep(await self._listen(peer))

    async def _listen(self, peer: _Peer) -> float:
        """Stay connected as long as possible; return how long to pause then."""
        try:
            async with self._messages.open(
                peer.record.address,
                SESSION_PATH,
                subprotocols=(SUBPROTOCOL_BATCHES,),
                message_bytes_max=FRAME_BYTES_MAX,
            ) as socket:
                peer.note(peer.evidence.on_answer())
                await self._wait_farewell(peer, socket)
        except GeologError:
            peer.note(peer.evidence.on_break())
            return BEAT_S if peer.evidence.is_suspected else _RECONNECT_S
        peer.note(PeerEvidence())
        return _LEFT_S

    async def _wait_farewell(self, peer: _Peer, socket: MessageSocket) -> None:
        async with open_background() as nursery:
            nursery.start_soon(partial(self._ping, peer, socket))
            while True:
                message = await socket.receive()
                for one in messages_of(message) if isinstance(message, bytes) else ():
                    if isinstance(decode_from_proxy(one), SessionGoaway):
                        return

    async def _ping(self, peer: _Peer, socket: MessageSocket) -> None:
        with suppress(SocketClosedError):  # The task that receives meets it, too.
            while True:
                next_s = trio.current_time() + BEAT_S
                await socket.ping()
                peer.note(peer.evidence.on_answer())
                await trio.sleep_until(next_s)
