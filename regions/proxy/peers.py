"""Watching the other proxies of the cluster, to learn of a death before metadata does.

One `PeerWatch` for each proxy that is listed keeps a connection to it. A proxy that drains says
so there, and is not suspected.

Rules: PROTOCOL S26.
"""

import logging
from functools import partial

import attrs
import trio

from geolog.metadata.proxies import ProxyRecord, list_live_proxies
from geolog.metadata.seam import Metadata
from geolog.protocol.peer_evidence import BEAT_S, PeerEvidence
from geolog.transport.message_socket import MessageTransport
from geolog.transport.peer_watch import PeerWatch
from geolog.wire.limits import FRAME_BYTES_MAX
from geolog.wire.session.batches import SUBPROTOCOL_BATCHES, decode_from_proxy, messages_of
from geolog.wire.session.channel_messages import SessionGoaway
from geolog.wire.session.paths import SESSION_PATH
from topology.errors import GeologError

_log = logging.getLogger(__name__)

_RETRY_S = 0.5


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
        return [
            owner for owner, peer in self._peers.items() if peer.watch.evidence.is_suspected
        ]

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
                peer.scope.cancel(reason="not listed any more")
                del self._peers[owner]
        for owner, record in records.items():
            if owner not in self._peers:
                peer = self._peers[owner] = _Peer(record, self._watch_of(record))
                nursery.start_soon(peer.run, name=f"watch of {owner}")

    def _watch_of(self, record: ProxyRecord) -> PeerWatch:
        return PeerWatch(
            messages=self._messages,
            address=record.address,
            path=SESSION_PATH,
            subprotocol=SUBPROTOCOL_BATCHES,
            message_bytes_max=FRAME_BYTES_MAX,
            on_change=partial(self._note, record.owner),
            is_farewell=_is_goaway,
        )

    async def _beat(self) -> None:
        while True:
            await trio.sleep(BEAT_S)
            for peer in self._peers.values():
                peer.watch.beat()

    def _note(self, owner: str, before: PeerEvidence, after: PeerEvidence) -> None:
        """Log a suspicion that begins or ends."""
        if after.is_suspected and not before.is_suspected:
            _log.warning("%s: does not answer; its partitions may be taken early", owner)
        if before.is_suspected and not after.is_suspected:
            _log.warning("%s: answers again", owner)


@attrs.define(eq=False)
class _Peer:
    """One other proxy, and the task that watches it."""

    record: ProxyRecord
    watch: PeerWatch
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    @property
    def is_suspected(self) -> bool:
        """Whether it is taken for dead."""
        return self.watch.evidence.is_suspected

    async def run(self) -> None:
        """Watch it until `scope` is cancelled."""
        with self.scope:
            await self.watch.run()


def _is_goaway(message: str | bytes) -> bool:
    """Whether the proxy says that it drains."""
    return isinstance(message, bytes) and any(
        isinstance(decode_from_proxy(one), SessionGoaway) for one in messages_of(message)
    )
