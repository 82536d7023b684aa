"""Opening a named writer through proxies that die while they are asked."""

import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.client.proxies.connection import ProxyConnections
from geolog.client.proxies.directory import GivenProxies
from geolog.client.proxies.remote_partition import RemotePartition
from geolog.client.proxies.routes import ProxyRoutes
from geolog.client.writing.writer_session import open_session
from geolog.protocol.session_home import SessionHome
from geolog.protocol.stream_state import PartitionName, StreamName
from geolog.protocol.writer_standing import WriterStanding
from geolog.transport.message_socket import (
    ServedSocket,
    SocketClosedError,
)
from geolog.transport.seam import Address, ByteStream
from geolog.transport.unread_bytes import UnreadBytes
from geolog.wire.session.batches import (
    SUBPROTOCOL_BATCHES,
    BatchesFromClient,
    BatchesFromProxy,
    decode_from_client,
    encode_batches,
    messages_of,
)
from geolog.wire.session.channel_messages import (
    AskStanding,
    ChannelOpened,
    OpenChannel,
    StandingTold,
)

PLACE = Address("proxy", 7000)
HOME = SessionHome("life", 1)


@attrs.define(eq=False)
class MortalProxy:
    """A proxy's end of a connection: it opens channels, and dies at one of the questions."""

    questions_left: int
    subprotocol: str | None = SUBPROTOCOL_BATCHES
    origin: str | None = None
    received_bytes: int = 0
    _answers: deque[bytes] = attrs.field(factory=deque)
    _changed: trio.Event = attrs.field(factory=trio.Event)
    _is_dead: bool = False

    async def receive(self) -> bytes:
        """The next answer."""
        while not self._answers:
            if self._is_dead:
                raise SocketClosedError(None, "")
            await self._changed.wait()
        return self._answers.popleft()

    async def send(self, message: str | bytes) -> None:
        """Answer what the client asks."""
        await trio.lowlevel.checkpoint()
        assert isinstance(message, bytes)
        for one in messages_of(message):
            self._take(decode_from_client(one))

    def _take(self, message: BatchesFromClient) -> None:
        match message:
            case OpenChannel(channel=channel):
                self._answer(
                    ChannelOpened(
                        channel=channel,
                        epoch=1,
                        home_epoch=1,
                        transaction_id=None,
                        credit_bytes=1 << 20,
                    )
                )
            case AskStanding(channel, request, _, fence) if self.questions_left:
                self.questions_left -= 1
                epoch = 0 if fence is None else fence.epoch
                standing = WriterStanding(
                    home_epoch=1, epoch=epoch, seq_highest=-1, generations=(), remembered=()
                )
                self._answer(StandingTold(channel, request, standing))
            case _:
                self._is_dead = True
                self._tell_change()

    def _answer(self, message: BatchesFromProxy) -> None:
        self._answers.append(encode_batches(message))
        self._tell_change()

    def _tell_change(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    async def ping(self) -> None:
        """It answers pings while it lives."""
        await trio.lowlevel.checkpoint()

    async def close(self, close_code: int, reason: str = "") -> None:
        """Nothing is left to close."""


class NextProxies:
    """Connects to a new proxy in the same place whenever the last one has died."""

    def __init__(self, *proxies: MortalProxy) -> None:
        self._left = deque(proxies)

    @asynccontextmanager
    async def open(
        self,
        address: Address,
        target: str,
        *,
        subprotocols: Sequence[str],
        message_bytes_max: int,
    ) -> AsyncIterator[MortalProxy]:
        """Connect to the next proxy."""
        await trio.lowlevel.checkpoint()
        yield self._left.popleft()

    async def serve(
        self,
        stream: ByteStream,
        choose: Callable[[Sequence[str]], str | None],
        handle: Callable[[ServedSocket, str], Awaitable[None]],
        *,
        message_bytes_max: int,
        refusal: str,
        unread: UnreadBytes | None = None,
    ) -> None:
        """No test serves here."""
        raise AssertionError("clients only")


@pytest.mark.parametrize("answered_count", [0, 1])
@pytest.mark.parametrize("seed", range(5))
async def test_a_named_writer_opens_although_its_proxy_dies_at_a_question(
    answered_count: int, seed: int, autojump_clock: MockClock
) -> None:
    rng = random.Random(seed)
    async with trio.open_nursery() as nursery:
        partition = RemotePartition(
            PartitionName(StreamName("a", "b"), 0, "life"),
            home=HOME,
            connections=ProxyConnections(
                NextProxies(MortalProxy(answered_count), MortalProxy(9)), nursery
            ),
            routes=ProxyRoutes(GivenProxies([PLACE]), rng),
            rng=rng,
        )
        nursery.start_soon(partition.run)

        async def count() -> int:
            return 1

        with trio.fail_after(10):
            await partition.wait_opened()
            session = await open_session(
                "till-7",
                [partition],
                home=HOME,
                is_whole=True,
                count_partitions=count,
                rng=rng,
            )
        nursery.cancel_scope.cancel(reason="the session is open")

    assert session.epoch == 1
