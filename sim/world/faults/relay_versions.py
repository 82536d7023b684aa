"""Relays of other versions: in the middle of an upgrade, or strangers that dial a home."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from random import Random

import trio

from geolog.background import open_background
from geolog.transport.seam import Address
from relay.bridge.target_bridge import BRIDGE_PATH
from relay.protocol.bridge_messages import (
    BRIDGE_VERSION,
    BridgeHello,
    BridgeLeaving,
    BridgeRefused,
)
from relay.wire.bridge import (
    MESSAGE_BYTES_MAX,
    SUBPROTOCOL_BRIDGE,
    decode_from_home,
    encode_bridge,
)
from sim.fakes.memory_messages import MemoryMessages
from sim.world.faults.relay_faults import coordinators, relays_of
from sim.world.seams import CLUSTER
from sim.world.world import World
from topology.errors import GeologError

_VERSIONS = ((0, 0), (BRIDGE_VERSION + 1, BRIDGE_VERSION + 9), (65_000, 65_001))
_EPOCH_OF_NOBODY = 1 << 40
_AGAIN_S_MAX = 0.5
_ANSWER_S_MAX = 15.0
_NO_HELLO = bytes(64)


@contextmanager
def other_version(world: World, rng: Random) -> Iterator[str | None]:
    """Relays of a region, some or all, are started again in another version; they go back."""
    region = rng.choice(world.options.shape.regions)
    hosts = [host for host in relays_of(world, region) if host in world.processes]
    if not hosts or any(place.shifted_count for place in world.relays.values()):
        yield None  # Others in another version might be in the same one.
        return
    struck = sorted(rng.sample(hosts, rng.randint(1, len(hosts))))
    shift = rng.choice((-1, 1))
    for host in struck:
        world.relays[host].version_shift = shift
        world.kill(host)
        world.restart(host)
    try:
        yield f"{', '.join(struck)} by {shift:+d}"
    finally:
        for host in struck:
            world.relays[host].version_shift = 0
            world.relays[host].to_leave.set()


@asynccontextmanager
async def stranger(
    world: World, rng: Random, process: str, details: str
) -> AsyncIterator[str | None]:
    """Relays of unknown versions dial a coordinator, in another region's name; it refuses."""
    _, sender, *_ = details.split()
    regions = world.links.region_of
    if process not in coordinators(world) or regions.get(sender) == regions[process]:
        yield None
        return
    async with open_background() as nursery:
        nursery.start_soon(_dial_again_and_again, world, rng, sender, process)
        yield f"{process} from {sender}"


async def _dial_again_and_again(world: World, rng: Random, sender: str, host: str) -> None:
    address = world.relays[host].config(world.options.knobs).listen
    while True:
        first, last = rng.choice(_VERSIONS)
        hello = BridgeHello(
            cluster=CLUSTER,
            region=world.links.region_of[sender],
            relay_epoch=_EPOCH_OF_NOBODY,
            version_first=first,
            version_last=last,
            window_bytes=1 << 20,
        )
        words = rng.choice((encode_bridge(hello), encode_bridge(hello), _NO_HELLO))
        if not world.relays[host].shifted_count:  # Else it may know the stranger's version.
            with trio.move_on_after(_ANSWER_S_MAX):
                await _dial(world, sender, host, address, words)
        await trio.sleep(rng.random() * _AGAIN_S_MAX)


async def _dial(world: World, sender: str, host: str, address: Address, words: bytes) -> None:
    """Say this to a relay; anything but a refusal counts as a bridge to a stranger.

    A relay that leaves says so to every connection.
    """
    met = world.relays[host].met
    try:
        async with MemoryMessages(world.network.transport(sender)).open(
            address,
            BRIDGE_PATH,
            subprotocols=(SUBPROTOCOL_BRIDGE,),
            message_bytes_max=MESSAGE_BYTES_MAX,
        ) as socket:
            await socket.send(words)
            answer = await socket.receive()
            assert isinstance(answer, bytes)
            told = decode_from_home(answer)
    except GeologError:
        return  # It is down or cut off, or has ended the connection without a word.
    if isinstance(told, BridgeRefused):
        met.refused_count += 1
    elif not isinstance(told, BridgeLeaving):
        met.mixed_count += 1
