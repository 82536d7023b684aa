"""Faults of the drill `relay-matrix`: relays of other versions, at either end of a bridge.

Real bridges must go on meanwhile: not merely come back, but be the same ones.
"""

from collections.abc import Mapping, Sequence

import attrs
import trio

from geolog.background import open_background
from geolog.metadata.documents import seal_document
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.relays import RelayViewRecord
from geolog.transport.message_socket import MessageSocket, SocketClosedError
from geolog.transport.seam import Address, ByteStream, Listener
from geolog.transport.tcp import TcpTransport
from geolog.transport.websocket import WebSockets
from geolog.wire.session.codes import Code
from relay.bridge.target_bridge import BRIDGE_PATH
from relay.protocol.bridge_messages import (
    BRIDGE_VERSION,
    BridgeHello,
    BridgeRefused,
    BridgeWelcome,
)
from relay.wire.bridge import (
    MESSAGE_BYTES_MAX,
    SUBPROTOCOL_BRIDGE,
    decode_from_home,
    decode_from_target,
    encode_bridge,
)
from sim.processes.drills.mirrored_load import LOOK_AGAIN_S
from sim.processes.drills.relay_replays import report_of
from sim.processes.drills.relayed_regions import ANSWER_S_MAX, RelayedRegions

_EPOCH_OF_NOBODY = 1_000_000
"""A home that remembered it would refuse the real coordinators."""

_ANSWER_S_MAX = 20.0
_REGION = "other-version"
"""The region of a home that exists for this fault alone."""

_Bridge = tuple[str, int | None, float | None]
"""Coordinator and epoch of a bridge's home, and how long the target's answer took: no two
bridges have the same."""


async def meet_foreign_targets(regions: RelayedRegions) -> str:
    """Relays of older and of unknown versions dial a home, under the name of a target.

    Each must be told why it cannot be served.
    """
    home, target = regions.any_two()
    coordinator, _ = await regions.members(home)
    address = await regions.address(home, coordinator)
    before = await _bridges(regions)
    for first, last in ((0, 0), (BRIDGE_VERSION + 1, BRIDGE_VERSION + 9), (65_000, 65_001)):
        hello = BridgeHello(
            cluster=regions.cluster.cluster,
            region=target,
            relay_epoch=_EPOCH_OF_NOBODY,
            version_first=first,
            version_last=last,
            window_bytes=1 << 20,
        )
        told = await _answer_to(address, encode_bridge(hello))
        wanted = f"the other side {first} to {last}"
        if not isinstance(told, BridgeRefused) or wanted not in told.error:
            regions.problems.append(f"{coordinator} answered version {first} with {told}")
    told = await _answer_to(address, b"\x00" * 64)
    if not isinstance(told, BridgeRefused):
        regions.problems.append(f"{coordinator} answered bytes of no version with {told}")
    await _check_same(regions, before, f"{coordinator} refused others")
    return f"{coordinator} refused 4 relays of other versions; all bridges stayed open"


async def meet_foreign_homes(regions: RelayedRegions) -> str:
    """A home of other versions joins: it answers the coordinator of each region in four ways.

    Each must leave it and say why, dial it again, and keep its other bridges.
    """
    before = await _bridges(regions)
    listener = await TcpTransport().listen(Address("127.0.0.1", 0))
    home = _ForeignHome(
        {region: [] for region in regions.regions}, _answers(regions.cluster.cluster)
    )
    metadata = regions.logs[regions.regions[0]].access.metadata
    path = ClusterPaths(regions.cluster.cluster).relay_view(_REGION)
    group, _, _ = path.rpartition("/")
    view = RelayViewRecord(epoch=1, number=0, relay_id=_REGION, address=listener.address)
    async with open_background() as nursery:
        nursery.start_soon(home.serve, listener)
        await metadata.ensure_path(group)
        await metadata.create(path, seal_document(view))
        regions.note("a home of other versions")
        try:
            with trio.move_on_after(ANSWER_S_MAX):
                while not home.is_done:  # noqa: ASYNC110 - other processes.
                    await trio.sleep(LOOK_AGAIN_S)
        finally:
            await metadata.delete(path)
            await metadata.delete(group)
        nursery.cancel_scope.cancel(reason="each region has met the foreign home")
    listener.close()
    for region, said in home.said.items():
        for (what, _, wanted), answer in zip(home.answers, said, strict=False):
            told = answer.error if isinstance(answer, BridgeRefused) else f"{answer}"
            if wanted not in told:
                regions.problems.append(f"{region} answered {what} with {told}")
        if len(said) < len(home.answers):
            regions.problems.append(f"{region} dialled a foreign home {len(said)} times only")
    await _check_same(regions, before, "a home of another version was dialled")
    return f"each region left a home of other versions {len(home.answers)} times"


_Answer = tuple[str, bytes, str]
"""An answer of a foreign home: its name, its bytes, and a part of what the target must say."""


def _answers(cluster: str) -> list[_Answer]:
    welcomes = [
        BridgeWelcome(cluster=cluster, region=_REGION, relay_epoch=1, version=version)
        for version in (BRIDGE_VERSION + 1, 0)
    ]
    refusal = BridgeRefused(Code.BAD_MESSAGE, "this relay speaks version 7 only")
    return [
        *(
            (
                f"a welcome of version {one.version}",
                encode_bridge(one),
                f"version {one.version} with",
            )
            for one in welcomes
        ),
        ("bytes of no version", bytes(64), ""),
        ("a refusal", encode_bridge(refusal), _LEFT),
    ]


_LEFT = "nothing, and left"


@attrs.define(eq=False)
class _ForeignHome:
    said: Mapping[str, list[BridgeRefused | str]]
    """What each region has said to the answers so far."""
    answers: Sequence[_Answer]

    @property
    def is_done(self) -> bool:
        return all(len(said) >= len(self.answers) for said in self.said.values())

    async def serve(self, listener: Listener) -> None:
        """Serve dials, several at a time; never returns."""
        async with trio.open_nursery() as nursery:
            while True:
                nursery.start_soon(self._serve_one, await listener.accept())

    async def _serve_one(self, stream: ByteStream) -> None:
        try:
            await WebSockets(TcpTransport()).serve(
                stream,
                lambda offered: SUBPROTOCOL_BRIDGE if SUBPROTOCOL_BRIDGE in offered else None,
                self._handle,
                refusal="a foreign home",
                message_bytes_max=MESSAGE_BYTES_MAX,
            )
        finally:
            stream.close()

    async def _handle(self, socket: MessageSocket, path: str) -> None:
        assert path == BRIDGE_PATH, path
        try:
            hello = await socket.receive()
            assert isinstance(hello, bytes)
            told = decode_from_target(hello)
            assert isinstance(told, BridgeHello), told
            said = self.said[told.region]
            _, answer, _ = self.answers[len(said) % len(self.answers)]
            await socket.send(answer)
        except SocketClosedError:
            return  # Its coordinator has ended.
        try:
            back = await socket.receive()
            assert isinstance(back, bytes)
            found = decode_from_target(back)
            said.append(found if isinstance(found, BridgeRefused) else f"{found}")
        except SocketClosedError:
            said.append(_LEFT)


async def _answer_to(address: Address, first_words: bytes) -> object:
    """The first answer of a home to this message."""
    with trio.fail_after(_ANSWER_S_MAX):
        async with WebSockets(TcpTransport()).open(
            address,
            BRIDGE_PATH,
            subprotocols=(SUBPROTOCOL_BRIDGE,),
            message_bytes_max=MESSAGE_BYTES_MAX,
        ) as socket:
            await socket.send(first_words)
            answer = await socket.receive()
    assert isinstance(answer, bytes)
    return decode_from_home(answer)


async def _bridges(regions: RelayedRegions) -> dict[tuple[str, str], _Bridge]:
    """All bridges between regions that carry records now, by home and target."""
    found = {}
    for each in regions.streams:
        for one in each.mirrors:
            with trio.fail_after(ANSWER_S_MAX):
                report = await report_of(regions.logs[each.home], each.name, one.region)
                while report.replay_s is None:
                    await trio.sleep(LOOK_AGAIN_S)
                    report = await report_of(regions.logs[each.home], each.name, one.region)
            found[each.home, one.region] = (
                report.coordinator or "",
                report.relay_epoch,
                report.question_s,
            )
    return found


async def _check_same(
    regions: RelayedRegions, before: Mapping[tuple[str, str], _Bridge], when: str
) -> None:
    await regions.wait_moved()
    after = await _bridges(regions)
    regions.problems.extend(
        f"the bridge from {home} to {target} was replaced while {when}"
        for (home, target), one in before.items()
        if after[home, target] != one
    )
