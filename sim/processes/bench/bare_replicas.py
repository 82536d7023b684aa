"""Measures what Python can give one append alone: replicas that do nothing but store.

Run `python -P -m sim.processes.bench.bare_replicas DIRECTORY KIND` for one replica. It prints
the port that it listens on, and serves one connection: it writes and syncs each message of
`MESSAGE_BYTES`, and answers it. There is no protocol and nothing is checked, so a log on the
same event loop cannot be faster. The client sends each message to all replicas, and the next
one when all but one have answered.
"""

import os
import random
import select
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Literal

import trio

from geolog.background import open_background

MESSAGE_BYTES = 1024

Kind = Literal["sockets", "trio"]
"""How a replica and its client wait: in system calls, or on trio's event loop, without a thread
for the disk."""

_FILE_BYTES = 16 << 20
_ANSWER = b"answered"
_WARM_UP_S = 0.5
_SYNC_FLAG: int = getattr(os, "RWF_DSYNC", 0)


async def measure_bare_append(
    directory: Path, kind: Kind, *, replicas_count: int, duration_s: float
) -> float:
    """Median seconds of one message alone, from its sending to the answers that count."""
    async with _open_replicas(directory, kind, replicas_count) as ports:
        sides = [socket.create_connection(("127.0.0.1", port)) for port in ports]
        try:
            for side in sides:
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                side.settimeout(0)
            if kind == "trio":
                times_s = await _send_on_trio(sides, duration_s)
            else:
                times_s = await trio.to_thread.run_sync(_send_on_sockets, sides, duration_s)
        finally:
            for side in sides:
                side.close()
    return statistics.median(times_s)


@asynccontextmanager
async def _open_replicas(directory: Path, kind: Kind, count: int) -> AsyncIterator[list[int]]:
    processes, ports = [], []
    try:
        for number in range(count):
            place = directory / f"bare-{kind}-{number}"
            place.mkdir(parents=True, exist_ok=True)
            argv = [sys.executable, "-P", "-m", "sim.processes.bench.bare_replicas"]
            process = await trio.lowlevel.open_process(
                [*argv, str(place), kind], stdout=subprocess.PIPE
            )
            processes.append(process)
            assert process.stdout is not None
            ports.append(int(await process.stdout.receive_some()))
        yield ports
    finally:
        with trio.CancelScope(shield=True):
            for process in processes:
                process.kill()
                await process.wait()


class _Answers:
    """How many messages each replica has answered."""

    def __init__(self, replicas_count: int) -> None:
        self._bytes = [0] * replicas_count

    def take(self, replica: int, received: bytes) -> None:
        if not received:
            raise ConnectionError(f"bare replica {replica} ended")
        self._bytes[replica] += len(received)

    def are_enough(self, messages_count: int) -> bool:
        """Whether all replicas but one have answered so many messages; the only one has to."""
        wanted = messages_count * len(_ANSWER)
        return sum(one >= wanted for one in self._bytes) >= max(1, len(self._bytes) - 1)


def _payload() -> bytes:
    return random.Random(0).randbytes(MESSAGE_BYTES)


def _send_on_sockets(sides: Sequence[socket.socket], duration_s: float) -> list[float]:
    now_s = time.perf_counter  # noqa: TID251 - This thread does nothing but measure time.
    payload, answers, times_s = _payload(), _Answers(len(sides)), []
    with select.epoll() as poll:
        number_of = {side.fileno(): number for number, side in enumerate(sides)}
        for descriptor in number_of:
            poll.register(descriptor, select.EPOLLIN)
        began_s, count = now_s(), 0
        while (started_s := now_s()) < began_s + _WARM_UP_S + duration_s:
            for side in sides:
                side.sendall(payload)
            count += 1
            while not answers.are_enough(count):
                for descriptor, _ in poll.poll():
                    number = number_of[descriptor]
                    answers.take(number, sides[number].recv(4096))
            if started_s > began_s + _WARM_UP_S:
                times_s.append(now_s() - started_s)
    return times_s


async def _send_on_trio(sides: Sequence[socket.socket], duration_s: float) -> list[float]:
    ours = [trio.socket.from_stdlib_socket(side) for side in sides]
    payload, answers, times_s = _payload(), _Answers(len(sides)), []
    is_answered = trio.Event()

    async def take_answers(number: int) -> None:
        while True:
            answers.take(number, await ours[number].recv(4096))
            is_answered.set()

    async with open_background() as nursery:
        for number in range(len(ours)):
            nursery.start_soon(take_answers, number)
        began_s, count = trio.current_time(), 0
        while (started_s := trio.current_time()) < began_s + _WARM_UP_S + duration_s:
            for one in ours:
                await one.send(payload)
            count += 1
            while not answers.are_enough(count):
                is_answered = trio.Event()
                await is_answered.wait()
            if started_s > began_s + _WARM_UP_S:
                times_s.append(trio.current_time() - started_s)
    return times_s


class _File:
    """Where a replica writes: one file of a fixed size, again from its beginning when full."""

    def __init__(self, directory: Path) -> None:
        self._file = os.open(directory / "written", os.O_CREAT | os.O_RDWR, 0o600)
        os.posix_fallocate(self._file, 0, _FILE_BYTES)
        os.fsync(self._file)
        self._offset = 0

    def store(self, message: bytes | bytearray) -> None:
        os.pwritev(self._file, [message], self._offset, _SYNC_FLAG)
        if not _SYNC_FLAG:
            os.fdatasync(self._file)
        self._offset = (self._offset + len(message)) % _FILE_BYTES


def _listen() -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    return listener


def _serve_on_sockets(file: _File) -> None:
    side, _ = _listen().accept()
    side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while len(message := side.recv(MESSAGE_BYTES, socket.MSG_WAITALL)) == MESSAGE_BYTES:
        file.store(message)
        side.sendall(_ANSWER)


async def _serve_on_trio(file: _File) -> None:
    listener = trio.socket.from_stdlib_socket(_listen())
    side, _ = await listener.accept()
    side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    received = bytearray()
    while more := await side.recv(MESSAGE_BYTES - len(received)):
        received += more
        if len(received) == MESSAGE_BYTES:
            file.store(received)
            received = bytearray()
            await side.send(_ANSWER)


def _main(directory: str, kind: str) -> None:
    file = _File(Path(directory))
    with suppress(ConnectionError):  # The client does not wait for the last answer.
        if kind == "trio":
            trio.run(_serve_on_trio, file)
        else:
            _serve_on_sockets(file)


if __name__ == "__main__":
    _main(*sys.argv[1:])
