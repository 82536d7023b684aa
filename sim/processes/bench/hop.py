"""Measures the ceiling of the WebSocket hop to a proxy: the same messages to an empty server.

Run `python -P -m sim.processes.bench.hop` for the server. It prints the port that it listens
on, answers each message as a proxy answers a batch, and ends with its standard input.
"""

import os
import random
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import trio

from geolog.background import open_background
from geolog.transport.message_socket import MessageSocket, SocketClosedError
from geolog.transport.seam import Address, ByteStream, Listener
from geolog.transport.tcp import TcpTransport
from geolog.transport.websocket import WebSocket, open_websocket, serve_websocket
from geolog.wire.limits import FRAME_BYTES_MAX
from geolog.wire.session.batches import SUBPROTOCOL_BATCHES, encode_batches
from geolog.wire.session.channel_messages import BatchPlaced
from geolog.wire.session.paths import SESSION_PATH

_ANSWER = encode_batches(BatchPlaced(1, 0, 1, 0, 0, 0))


async def measure_hop(*, message_bytes: int, in_flight_bytes: int, duration_s: float) -> float:
    """Bytes per second of messages of this size, with many in flight."""
    payload = random.Random(0).randbytes(message_bytes)
    window = trio.Semaphore(max(1, in_flight_bytes // message_bytes))
    async with _open_hop() as socket, open_background() as nursery:
        nursery.start_soon(_take_answers, socket, window)
        started_s, count = trio.current_time(), 0
        while trio.current_time() < started_s + duration_s:
            await window.acquire()
            await socket.send(payload)
            count += 1
        return count * message_bytes / (trio.current_time() - started_s)


async def _take_answers(socket: WebSocket, window: trio.Semaphore) -> None:
    while True:
        await socket.receive()
        window.release()


async def measure_round_trip(*, message_bytes: int, duration_s: float) -> float:
    """Median seconds from a message of this size to its answer, one at a time."""
    payload = random.Random(0).randbytes(message_bytes)
    times_s: list[float] = []
    async with _open_hop() as socket:
        until_s = trio.current_time() + duration_s
        while (started_s := trio.current_time()) < until_s:
            await socket.send(payload)
            await socket.receive()
            times_s.append(trio.current_time() - started_s)
    return statistics.median(times_s)


@asynccontextmanager
async def _open_hop() -> AsyncIterator[WebSocket]:
    async with (
        _other_side() as address,
        open_websocket(
            TcpTransport(),
            address,
            SESSION_PATH,
            subprotocols=(SUBPROTOCOL_BATCHES,),
            message_bytes_max=FRAME_BYTES_MAX,
        ) as socket,
    ):
        yield socket


@asynccontextmanager
async def _other_side() -> AsyncIterator[Address]:
    argv = [sys.executable, "-P", "-m", "sim.processes.bench.hop"]
    process = await trio.lowlevel.open_process(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Address("127.0.0.1", int(await process.stdout.receive_some()))
    finally:
        with trio.CancelScope(shield=True):
            await process.stdin.aclose()
            await process.wait()


async def _answer_messages() -> None:
    """Serve until standard input ends."""
    listener = await TcpTransport().listen(Address("127.0.0.1", 0))
    async with open_background() as nursery:
        nursery.start_soon(_accept_connections, listener, nursery)
        sys.stdout.write(f"{listener.address.port}\n")
        sys.stdout.flush()
        async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as given:
            while await given.receive_some():
                pass


async def _accept_connections(listener: Listener, nursery: trio.Nursery) -> None:
    while True:
        nursery.start_soon(_serve, await listener.accept())


async def _serve(stream: ByteStream) -> None:
    await serve_websocket(
        stream,
        lambda offered: offered[0],
        _answer_each,
        refusal="",
        message_bytes_max=FRAME_BYTES_MAX,
    )


async def _answer_each(socket: MessageSocket, target: str) -> None:  # noqa: ARG001 - the handler's shape.
    with suppress(SocketClosedError):
        while True:
            await socket.receive()
            await socket.send(_ANSWER)


if __name__ == "__main__":
    trio.run(_answer_messages)
