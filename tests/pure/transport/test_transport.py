"""Promises of every transport: the same tests run over TCP and in memory."""

import errno
import itertools
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from geolog.transport import tcp as tcp_module
from geolog.transport.seam import (
    Address,
    AddressInUseError,
    ByteStream,
    ConnectionFailedError,
    Transport,
)
from geolog.transport.tcp import ACCEPTS_A_TURN, TcpConfig, TcpListener, TcpStream, TcpTransport
from sim.fakes.memory_transport import MemoryNetwork
from topology.errors import InvalidArgumentError

HOST = "127.0.0.1"
ANY_PORT = Address(HOST, 0)


def tcp() -> Transport:
    return TcpTransport()


def memory() -> Transport:
    return MemoryNetwork().transport(HOST)


both = pytest.mark.parametrize("make", [tcp, memory])


@asynccontextmanager
async def connected(
    make: Callable[[], Transport],
) -> AsyncIterator[tuple[ByteStream, ByteStream]]:
    transport = make()
    listener = await transport.listen(ANY_PORT)
    near = await transport.connect(listener.address)
    far = await listener.accept()
    yield near, far
    near.close()
    far.close()
    listener.close()


async def receive_all(stream: ByteStream, count: int | None = None) -> bytes:
    received = bytearray()
    buffer = bytearray(1 << 18)
    while count is None or len(received) < count:
        size = await stream.receive_into(buffer)
        if not size:
            break
        received += memoryview(buffer)[:size]
    return bytes(received)


@both
async def test_bytes_arrive_in_order_whatever_the_buffers_are(
    make: Callable[[], Transport],
) -> None:
    sizes = [0, 1, 100, 9000, 0, 8191, 8192, 3_000_000, 5, *[20] * 3000, *[10_000] * 1500]
    pattern = bytes(range(251)) * 12_000
    sent = [pattern[index : index + size] for index, size in enumerate(sizes)]
    views = [memoryview(piece) for piece in sent[50:]]
    buffers: list[bytes | bytearray | memoryview] = [*sent[:50], bytearray(b"x"), *views]

    async with connected(make) as (near, far), trio.open_nursery() as nursery:
        nursery.start_soon(near.send, buffers)
        received = await receive_all(far, sum(sizes) + 1)
    assert received == b"".join([*sent[:50], b"x", *sent[50:]])


@both
async def test_after_a_close_sent_bytes_are_read_and_then_the_end(
    make: Callable[[], Transport],
) -> None:
    async with connected(make) as (near, far):
        await near.send([b"last", b" words"])
        near.close()
        near.close()

        assert await receive_all(far) == b"last words"
        assert await far.receive_into(bytearray(1)) == 0


async def fill(stream: ByteStream) -> int:
    """Send as long as anything is taken; return how many bytes were.

    A busy kernel moves bytes on to the receiver a moment later, and then there is room again.
    """
    total = 0
    while taken := sum(iter(lambda: stream.send_nowait([bytes(1 << 20)]), 0)):
        total += taken
        await trio.sleep(0.02)
    return total


@both
async def test_a_sender_waits_for_a_slow_receiver(make: Callable[[], Transport]) -> None:
    async with connected(make) as (near, far), trio.open_nursery() as nursery:
        taken = await fill(near)
        assert taken > 0
        is_sent = False

        async def send() -> None:
            nonlocal is_sent
            await near.send([b"x" * 100])
            is_sent = True

        nursery.start_soon(send)
        await wait_all_tasks_blocked()
        assert not is_sent
        received = await receive_all(far, taken + 100)
    assert received == bytes(taken) + b"x" * 100


@both
async def test_a_failed_connection_names_the_address(make: Callable[[], Transport]) -> None:
    transport = make()
    listener = await transport.listen(ANY_PORT)
    listener.close()

    with pytest.raises(ConnectionFailedError, match=f"{listener.address}.*refused"):
        await transport.connect(listener.address)


@both
async def test_a_port_in_use_is_refused_by_name(make: Callable[[], Transport]) -> None:
    transport = make()
    listener = await transport.listen(ANY_PORT)

    with pytest.raises(AddressInUseError, match=f"listens on {listener.address}"):
        await transport.listen(listener.address)
    listener.close()
    again = await transport.listen(listener.address)
    again.close()


@both
async def test_a_close_wakes_the_local_receiver_and_sender(
    make: Callable[[], Transport],
) -> None:
    async def wait_broken(waits: Callable[[], object]) -> None:
        with pytest.raises(ConnectionFailedError, match="closed here"):
            await waits()  # type: ignore[misc]

    async with connected(make) as (near, _far), trio.open_nursery() as nursery:
        await fill(near)
        nursery.start_soon(wait_broken, lambda: near.receive_into(bytearray(10)))
        nursery.start_soon(wait_broken, lambda: near.send([b"more"]))
        await wait_all_tasks_blocked()
        near.close()


@both
async def test_a_closed_stream_refuses_by_name(make: Callable[[], Transport]) -> None:
    async with connected(make) as (near, _far):
        near.close()

        with pytest.raises(ConnectionFailedError, match="closed here"):
            await near.send([b"x"])
        with pytest.raises(ConnectionFailedError, match="closed here"):
            near.send_nowait([b"x"])
        with pytest.raises(ConnectionFailedError, match="closed here"):
            await near.receive_into(bytearray(1))


@both
async def test_closing_a_listener_wakes_its_acceptor(make: Callable[[], Transport]) -> None:
    listener = await make().listen(ANY_PORT)

    async def accept() -> None:
        with pytest.raises(ConnectionFailedError, match="no longer listening"):
            await listener.accept()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept)
        await wait_all_tasks_blocked()
        listener.close()
        listener.close()


@both
async def test_sending_to_a_peer_that_went_away_fails(make: Callable[[], Transport]) -> None:
    async with connected(make) as (near, far):
        far.close()

        async def send_for_ever() -> None:
            while True:
                await near.send([bytes(1000)])

        with pytest.raises(ConnectionFailedError, match="broke"):
            await send_for_ever()


@both
async def test_a_cancelled_wait_leaves_the_stream_usable_for_receiving(
    make: Callable[[], Transport],
) -> None:
    async with connected(make) as (near, far):
        with trio.move_on_after(0):
            await far.receive_into(bytearray(1))
        await near.send([b"x"])

        assert await receive_all(far, 1) == b"x"


@both
async def test_each_side_names_the_other(make: Callable[[], Transport]) -> None:
    async with connected(make) as (near, far):
        assert near.peer.startswith(f"{HOST}:")
        assert far.peer.startswith(HOST)


async def test_a_busy_tcp_stream_lets_others_take_turns() -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with connected(tcp) as (near, far), trio.open_nursery() as nursery:
        nursery.start_soon(count_turns)
        buffer = bytearray(1 << 16)
        for _ in range(5000):  # Never blocks: each piece is there on request.
            assert near.send_nowait([bytes(100)]) == 100
            await far.receive_into(buffer)
        nursery.cancel_scope.cancel()
    assert turns >= 2


class CountingSocket(socket.socket):
    """Counts the reads that found nothing."""

    vain_count = 0

    def recv_into(  # type: ignore[override]
        self, buffer: bytearray | memoryview, nbytes: int = 0, flags: int = 0
    ) -> int:
        try:
            return super().recv_into(buffer, nbytes, flags)
        except BlockingIOError:
            self.vain_count += 1
            raise


async def test_a_listener_takes_a_few_waiting_connections_in_each_turn() -> None:
    listener = await TcpTransport().listen(ANY_PORT)
    clients = [
        socket.create_connection((HOST, listener.address.port))
        for _ in range(4 * ACCEPTS_A_TURN)
    ]
    accepted: list[ByteStream] = []

    async def accept_all() -> None:
        while len(accepted) < len(clients):
            accepted.append(await listener.accept())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept_all)
        seen = []
        while len(accepted) < len(clients):
            await trio.lowlevel.checkpoint()
            seen.append(len(accepted))

    steps = [later - earlier for earlier, later in itertools.pairwise([0, *seen])]
    # Two turns of the listener may lie between two of this task: their order is by chance.
    assert max(steps) <= 2 * ACCEPTS_A_TURN
    assert len(seen) < len(clients)
    listener.close()
    for near, far in zip(clients, accepted, strict=True):
        near.close()
        far.close()


async def test_a_read_that_took_all_is_followed_by_a_wait_and_not_by_a_vain_call() -> None:
    there, here = socket.socketpair()
    with there, CountingSocket(fileno=here.detach()) as counting:
        counting.settimeout(0)
        stream = TcpStream("there", counting)
        there.send(b"0123456789")
        whole, rest = bytearray(8), bytearray(8)
        sizes = [await stream.receive_into(whole), await stream.receive_into(rest)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.receive_into, whole)
            await wait_all_tasks_blocked()
            there.send(b"more")
        there.shutdown(socket.SHUT_WR)
        sizes.append(await stream.receive_into(rest))

        assert (sizes, counting.vain_count) == ([8, 2, 0], 0)
        assert bytes(whole[:4] + rest[:2]) == b"more89"


async def test_a_stream_that_is_closed_after_a_short_read_refuses_by_name() -> None:
    async with connected(tcp) as (near, far):
        await near.send([b"all that there is"])
        await far.receive_into(bytearray(100))
        far.close()
        for _ in range(2):
            with pytest.raises(ConnectionFailedError, match="was closed here"):
                await far.receive_into(bytearray(100))


async def test_an_unknown_host_is_a_failed_connection() -> None:
    with pytest.raises(ConnectionFailedError, match=r"unknown host in no-such-host\.invalid:1"):
        await TcpTransport().connect(Address("no-such-host.invalid", 1))


class UnluckySocket(socket.socket):
    """A listening socket whose next calls of `accept` fail with these errors, in turn."""

    errors: Sequence[int] = ()

    def accept(self) -> tuple[socket.socket, object]:
        if self.errors:
            number, *self.errors = self.errors
            raise OSError(number, os.strerror(number))
        return super().accept()


def unlucky_listener(*errors: int, config: TcpConfig | None = None) -> TcpListener:
    listening = UnluckySocket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setblocking(False)  # noqa: FBT003 - the standard library's own signature.
    listening.bind((HOST, 0))
    listening.listen(10)
    listening.errors = errors
    address = Address(HOST, listening.getsockname()[1])
    return TcpListener(address, listening, config or TcpConfig(accept_pause_s=0.001))


ENDS_NO_LISTENER = [
    *(errno.EPERM, errno.ENETDOWN, errno.EPROTO, errno.EHOSTUNREACH, errno.ECONNABORTED),
    *(errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ENETUNREACH),
]


@pytest.mark.parametrize("number", ENDS_NO_LISTENER, ids=lambda one: errno.errorcode[one])
async def test_a_connection_that_cannot_be_accepted_is_skipped_and_counted(
    number: int,
) -> None:
    listener = unlucky_listener(number, number)

    near = await TcpTransport().connect(listener.address)
    far = await listener.accept()

    await near.send([b"x"])
    assert await receive_all(far, 1) == b"x"
    assert listener.failures_count == 2
    near.close()
    far.close()
    listener.close()


async def test_a_process_without_descriptors_pauses_before_it_accepts_again(
    autojump_clock: MockClock,
) -> None:
    config = TcpConfig(accept_pause_s=60)
    listener = unlucky_listener(errno.ECONNABORTED, errno.EMFILE, config=config)
    near = socket.create_connection((HOST, listener.address.port))

    began_s = trio.current_time()
    far = await listener.accept()

    assert trio.current_time() - began_s == pytest.approx(60)
    far.close()
    near.close()
    listener.close()


async def test_a_socket_that_cannot_be_set_up_is_closed_and_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tcp_module, "_OPTIONS_ARE_INHERITED", False)
    listener = unlucky_listener(config=TcpConfig(keepalive_idle_s=0))  # No kernel takes that.
    near = await TcpTransport().connect(listener.address)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener.accept)
        assert await near.receive_into(bytearray(1)) == 0
        nursery.cancel_scope.cancel()

    assert listener.failures_count == 1
    near.close()
    listener.close()


async def test_a_socket_that_cannot_be_set_up_does_not_listen() -> None:
    with pytest.raises(InvalidArgumentError, match="cannot listen"):
        await TcpTransport(TcpConfig(keepalive_idle_s=0)).listen(ANY_PORT)


@pytest.mark.parametrize("is_inherited", [sys.platform == "linux", False])
async def test_a_connection_that_is_accepted_has_the_options_of_its_transport(
    monkeypatch: pytest.MonkeyPatch, *, is_inherited: bool
) -> None:
    monkeypatch.setattr(tcp_module, "_OPTIONS_ARE_INHERITED", is_inherited)
    config = TcpConfig(keepalive_idle_s=77, notsent_lowat_bytes=12_345)
    listener = await TcpTransport(config).listen(ANY_PORT)
    near = socket.create_connection((HOST, listener.address.port))
    far = await listener.accept()

    assert isinstance(far, TcpStream)
    there, level = far._socket, socket.IPPROTO_TCP  # noqa: SLF001 - nothing else tells.
    assert there.getsockopt(level, socket.TCP_NODELAY) == 1
    assert there.getsockopt(level, socket.TCP_KEEPIDLE) == 77
    assert there.getsockopt(level, 25) == 12_345  # TCP_NOTSENT_LOWAT
    assert there.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert not there.getblocking()
    near.close()
    far.close()
    listener.close()


async def test_a_client_that_drips_wakes_nobody_before_it_could_have_said_anything() -> None:
    listener = await TcpTransport().listen(ANY_PORT, first_bytes_min=10)
    near = socket.create_connection((HOST, listener.address.port))
    near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    far = await listener.accept()
    send, pieces = trio.open_memory_channel[bytes](10)

    async def receive() -> None:
        buffer = bytearray(100)
        while count := await far.receive_into(buffer):
            send.send_nowait(bytes(buffer[:count]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await wait_all_tasks_blocked()
        for byte in b"012345678":
            near.send(bytes([byte]))
            await trio.sleep(0.005)
        with pytest.raises(trio.WouldBlock):
            pieces.receive_nowait()
        near.send(b"9")
        with trio.fail_after(5):
            assert await pieces.receive() == b"0123456789"
            near.send(b"x")  # From here on each byte is heard.
            assert await pieces.receive() == b"x"
        near.close()
    far.close()
    listener.close()


async def test_a_client_that_has_begun_is_heard_once_the_rest_could_be_whole() -> None:
    listener = await TcpTransport().listen(ANY_PORT, first_bytes_min=10)
    near = socket.create_connection((HOST, listener.address.port))
    near.send(b"0123")
    far = await listener.accept()
    buffer = bytearray(100)
    with trio.fail_after(5):
        assert await far.receive_into(buffer) == 4  # It was there already.
        near.send(b"456789")
        assert await far.receive_into(buffer) == 6
        near.send(b"y")
        near.shutdown(socket.SHUT_WR)
        assert await far.receive_into(buffer) == 1
        assert await far.receive_into(buffer) == 0
    near.close()
    far.close()
    listener.close()


async def test_a_client_that_leaves_before_it_said_enough_is_noticed() -> None:
    listener = await TcpTransport().listen(ANY_PORT, first_bytes_min=10)
    near = socket.create_connection((HOST, listener.address.port))
    far = await listener.accept()
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive_all, far)
            await wait_all_tasks_blocked()
            near.send(b"0")
            near.close()
    far.close()
    listener.close()
