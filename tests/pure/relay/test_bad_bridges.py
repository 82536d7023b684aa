"""Bad bytes on bridges in one process: each end says what was wrong, and stores nothing.

The home or the target is a stranger that speaks over a real WebSocket, in memory.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.transport.message_socket import MessageSocket, SocketClosedError
from geolog.transport.websocket import WebSockets
from geolog.wire.session.batches import messages_of
from geolog.wire.session.codes import CLOSE_TOO_LARGE, close_code
from relay.bridge.bridge_ends import REFUSED_S, refuse
from relay.bridge.target_bridge import BRIDGE_PATH
from relay.protocol.bridge_messages import (
    AskWatermark,
    BridgeHello,
    BridgeRefused,
    BridgeWelcome,
    FromHome,
    FromTarget,
    WindowTold,
)
from relay.wire.bridge import (
    MESSAGE_BYTES_MAX,
    SUBPROTOCOL_BRIDGE,
    decode_from_home,
    decode_from_target,
    encode_bridge,
)
from sim.in_process import InProcessCluster, open_in_process_cluster
from tests.pure.relay.test_bridges import address_of, open_home, open_target, wait_equal
from tests.pure.whole.clusters import append_each
from tests.pure.whole.mirroring import (
    HOME,
    REGIONS,
    STREAM,
    TARGET,
    create,
    mirror_of,
    record_of,
    rows_of,
)

_HELLO = BridgeHello(cluster="default", region=TARGET, relay_epoch=1, window_bytes=1 << 20)
_WELCOME = BridgeWelcome(cluster="default", region=HOME, relay_epoch=1)
_WHOLE = encode_bridge(WindowTold(1 << 20))
_DAMAGED = bytes((*_WHOLE[:-2], _WHOLE[-2] ^ 4, _WHOLE[-1]))
_BAD = [
    pytest.param(_WHOLE[:9], "400 a message of 9 bytes is cut within its header", id="cut"),
    pytest.param(_WHOLE[:-3], "400 a message of ", id="cut in its fields"),
    pytest.param(_DAMAGED, "400 a message does not match its checksum", id="damaged"),
    pytest.param("append", "400 a text on a bridge: 'append'", id="text"),
    pytest.param(
        bytes(MESSAGE_BYTES_MAX + 1),
        f"a message is over {MESSAGE_BYTES_MAX} bytes",
        id="too large",
    ),
]


@attrs.define(eq=False)
class _Told:
    """Answers of the other end, and how it ended the bridge."""

    answers: list[FromHome | FromTarget] = attrs.field(factory=list)
    close: SocketClosedError | None = None
    ended: trio.Event = attrs.field(factory=trio.Event)

    async def hear(self, socket: MessageSocket, *, is_home: bool) -> None:
        decode = decode_from_target if is_home else decode_from_home
        try:
            while True:
                data = await socket.receive()
                assert isinstance(data, bytes)
                self.answers += map(decode, messages_of(data))
        except SocketClosedError as error:
            self.close = error
        self.ended.set()

    @property
    def refusal(self) -> str:
        """How the other end refused."""
        last = self.answers[-1] if self.answers else None
        if isinstance(last, BridgeRefused):
            return f"{last.code} {last.error}"
        return f"closed: {self.close}"


async def tell_home(cluster: InProcessCluster, *said: str | bytes) -> _Told:
    """Be a target that says this; the answers of the home."""
    told = _Told()
    async with WebSockets(cluster.network.transport("stranger")).open(
        address_of(1),
        BRIDGE_PATH,
        subprotocols=(SUBPROTOCOL_BRIDGE,),
        message_bytes_max=MESSAGE_BYTES_MAX,
    ) as socket:
        for one in said:
            await socket.send(one)
        with trio.fail_after(30):
            await told.hear(socket, is_home=False)
    return told


@asynccontextmanager
async def open_false_home(
    cluster: InProcessCluster, *said: str | bytes
) -> AsyncIterator[_Told]:
    """Be a home that says this to each target that dials."""
    told = _Told()
    transport = cluster.network.transport(address_of(1).host)

    async def handle(socket: MessageSocket, _target: str) -> None:
        try:
            await socket.receive()
            for one in said:
                await socket.send(one)
        except SocketClosedError as error:
            told.close = error
        await told.hear(socket, is_home=True)

    async with trio.open_nursery() as nursery:
        listener = await transport.listen(address_of(1))

        async def serve() -> None:
            while True:
                await WebSockets(transport).serve(
                    await listener.accept(),
                    lambda offered: offered[0],
                    handle,
                    refusal="",
                    message_bytes_max=MESSAGE_BYTES_MAX,
                )

        nursery.start_soon(serve)
        yield told
        nursery.cancel_scope.cancel()


def assert_told(refusal: str, told: _Told, failure: str) -> None:
    """The other side knows, and so does the relay's operator."""
    if told.close is not None and told.close.close_code == CLOSE_TOO_LARGE:
        assert refusal in failure
    else:
        assert refusal in told.refusal
        assert refusal.partition(" ")[2] in failure


@pytest.mark.parametrize(("said", "refusal"), _BAD)
@pytest.mark.parametrize("first", [(), (encode_bridge(_HELLO),)], ids=["first", "later"])
async def test_a_home_refuses_bad_bytes_and_goes_on_with_others(
    autojump_clock: MockClock, first: tuple[bytes, ...], said: str | bytes, refusal: str
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster) as home,
    ):
        await create(log)
        told = await tell_home(cluster, *first, said)
        failure = home.failures[-1]
        async with open_target(cluster), log.open_writer(STREAM, writer_id="till") as writer:
            await append_each(writer, [b"1", b"2"])
            entries_count = await wait_equal(log)

    assert_told(refusal, told, failure)
    assert entries_count >= 2
    assert (home.damaged_count, home.bugs_count) == (1, 0)


@pytest.mark.parametrize(("said", "refusal"), _BAD)
async def test_a_target_refuses_bad_bytes_and_stores_nothing(
    autojump_clock: MockClock, said: str | bytes, refusal: str
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
    ):
        await create(log)
        asked = AskWatermark(
            channel=1,
            stream=STREAM,
            life=(await record_of(log)).life,
            partition=0,
            home_epoch=1,
        )
        first = encode_bridge(_WELCOME), encode_bridge(asked)
        async with (
            open_false_home(cluster, *first, said) as told,
            open_target(cluster) as target,
        ):
            with trio.fail_after(30):
                await told.ended.wait()
            await trio.sleep(0.1)
            failure = target.failures[-1]
            rows = await rows_of(log, await mirror_of(log))

    assert_told(refusal, told, failure)
    assert target.damaged_count >= 1
    assert target.bugs_count == 0
    assert rows == []


async def test_a_home_notes_why_a_target_refused_its_bytes(autojump_clock: MockClock) -> None:
    refused = BridgeRefused(400, "a message does not match its checksum")
    async with open_in_process_cluster(REGIONS) as cluster, open_home(cluster) as home:
        await tell_home(cluster, encode_bridge(_HELLO), encode_bridge(refused))
        failure = home.failures[-1]

    assert f"{TARGET} refused the bridge: 400 a message does not match its" in failure
    assert (home.damaged_count, home.bugs_count) == (0, 0)


class _Deaf:
    """A connection whose other side reads nothing."""

    subprotocol = origin = None

    def __init__(self) -> None:
        self.close_code: int | None = None

    async def receive(self) -> str | bytes:
        raise SocketClosedError(None, "")

    async def send(self, message: str | bytes) -> None:
        await trio.sleep_forever()

    async def ping(self) -> None:
        await trio.sleep_forever()

    async def close(self, close_code: int, reason: str = "") -> None:
        self.close_code = close_code


async def test_a_refusal_that_nobody_reads_ends_in_a_close(autojump_clock: MockClock) -> None:
    deaf = _Deaf()
    with trio.fail_after(REFUSED_S + 1):
        await refuse(deaf, BridgeRefused(403, "another cluster"))

    assert deaf.close_code == close_code(403)
