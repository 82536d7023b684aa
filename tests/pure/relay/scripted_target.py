"""A target region whose relay says only what a test has it say."""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import attrs
import trio

from geolog.transport.message_socket import MessageSocket
from geolog.transport.websocket import WebSockets
from geolog.wire.session.batches import messages_of
from relay.bridge.target_bridge import BRIDGE_PATH
from relay.protocol.bridge_messages import BridgeHello, BridgeWelcome, FromHome, FromTarget
from relay.wire.bridge import (
    MESSAGE_BYTES_MAX,
    SUBPROTOCOL_BRIDGE,
    decode_from_home,
    encode_bridge,
)
from sim.in_process import InProcessCluster
from tests.pure.relay.test_bridges import address_of
from tests.pure.whole.mirroring import TARGET

T = TypeVar("T", bound=FromHome)


@attrs.define(eq=False)
class ScriptedTarget:
    """The target's end of a bridge; `open_scripted_target` dials."""

    socket: MessageSocket
    heard: deque[FromHome] = attrs.field(factory=deque)
    """Messages of the home that no test has taken yet."""

    async def tell(self, *messages: FromTarget) -> None:
        await self.socket.send(b"".join(encode_bridge(one) for one in messages))

    async def hear(self, kind: type[T]) -> T:
        """The next message of this kind; those before it are dropped."""
        with trio.fail_after(30):
            while True:
                while self.heard:
                    message = self.heard.popleft()
                    if isinstance(message, kind):
                        return message
                data = await self.socket.receive()
                assert isinstance(data, bytes)
                self.heard += map(decode_from_home, messages_of(data))


@asynccontextmanager
async def open_scripted_target(
    cluster: InProcessCluster, *, relay_epoch: int = 1, window_bytes: int = 1 << 20
) -> AsyncIterator[ScriptedTarget]:
    """Dial the home's first coordinator, and be welcomed."""
    async with WebSockets(cluster.network.transport("scripted")).open(
        address_of(1),
        BRIDGE_PATH,
        subprotocols=(SUBPROTOCOL_BRIDGE,),
        message_bytes_max=MESSAGE_BYTES_MAX,
    ) as socket:
        target = ScriptedTarget(socket)
        await target.tell(
            BridgeHello(
                cluster="default",
                region=TARGET,
                relay_epoch=relay_epoch,
                window_bytes=window_bytes,
            )
        )
        await target.hear(BridgeWelcome)
        yield target
