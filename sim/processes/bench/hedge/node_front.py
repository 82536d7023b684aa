"""Stands in front of storage nodes, and delays, stalls or cuts what passes.

Run `python -P -m sim.processes.bench.hedge.node_front LISTEN=NODE …` for the process. It
carries each connection to LISTEN on to NODE. Requests pass unchanged. Answers pass frame by
frame, and a stalled answer to a read holds up no other. A line of JSON on its standard input
changes the conditions of nodes, and is answered by a line; the process ends with its standard
input.
"""

import heapq
import json
import math
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress

import attrs
import trio

from geolog.background import open_background
from geolog.transport.seam import (
    Address,
    ByteStream,
    ConnectionFailedError,
    Listener,
    Transport,
)
from geolog.transport.tcp import TcpTransport
from geolog.wire.frame import FrameReader, encode_frame_front
from geolog.wire.layouts import FrameType
from topology.errors import UnavailableError

_BUFFER_BYTES = 64 << 10


@attrs.frozen(kw_only=True)
class FrontConditions:
    """How the answers of one node pass."""

    delay_s: float = 0.0
    """Delay of every answer."""

    stall_rate: float = 0.0
    """Share of the answers to reads that are late."""

    stall_s: float = 0.0
    """How late these are."""

    is_cut: bool = False
    """Nothing passes, either way; connections stay open."""


class NodeFront:
    """A running front process, as seen by the process that started it."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process

    def __repr__(self) -> str:
        return f"NodeFront(pid {self._process.pid})"

    async def change(self, nodes: Iterable[str], conditions: FrontConditions) -> None:
        """Change how these nodes answer, from now on."""
        assert self._process.stdin is not None
        change = {"nodes": list(nodes), "conditions": attrs.asdict(conditions)}
        await self._process.stdin.send_all(json.dumps(change).encode() + b"\n")
        await self._wait_line()

    async def _wait_line(self) -> None:
        assert self._process.stdout is not None
        if not await self._process.stdout.receive_some():
            raise UnavailableError("the front of the storage nodes has ended")


@asynccontextmanager
async def open_node_front(fronts: Mapping[str, str]) -> AsyncIterator[NodeFront]:
    """Start a process that listens at each of these addresses for the node of the other."""
    pairs = [f"{front}={node}" for node, front in fronts.items()]
    process = await trio.lowlevel.open_process(
        [sys.executable, "-P", "-m", "sim.processes.bench.hedge.node_front", *pairs],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        front = NodeFront(process)
        await front._wait_line()  # noqa: SLF001 - The first says that it listens.
        yield front
    finally:
        with trio.CancelScope(shield=True):
            assert process.stdin is not None
            await process.stdin.aclose()
            await process.wait()


class NodePassage:
    """The way to one node, in the front process."""

    def __init__(self, transport: Transport, node: Address, rng: random.Random) -> None:
        self.node = node
        self._transport = transport
        self.conditions = FrontConditions()
        self._rng = rng
        self._healed = trio.Event()

    def __repr__(self) -> str:
        return f"NodePassage(to {self.node}, {self.conditions})"

    def change(self, conditions: FrontConditions) -> None:
        """Apply to what comes from now on."""
        self.conditions = conditions
        if not conditions.is_cut:
            self._healed.set()
            self._healed = trio.Event()

    async def wait_healed(self) -> None:
        """Wait while the way is cut."""
        while self.conditions.is_cut:
            await self._healed.wait()

    def delay_s(self, type_: int) -> float:
        """How late an answer of this type passes."""
        now = self.conditions
        is_stalled = type_ == FrameType.READ_ANSWER and self._rng.random() < now.stall_rate
        return now.delay_s + (now.stall_s if is_stalled else 0.0)

    async def carry(self, near: ByteStream) -> None:
        """Carry one connection of a client until either side ends it."""
        try:
            with suppress(ConnectionFailedError):
                far = await self._transport.connect(self.node)
                try:
                    await _Carried(self, near, far).run()
                finally:
                    far.close()
        finally:
            near.close()


class _Carried:
    """One connection: requests as they come, answers when they are due."""

    def __init__(self, passage: NodePassage, near: ByteStream, far: ByteStream) -> None:
        self._passage = passage
        self._near = near
        self._far = far
        self._answers: list[tuple[float, int, bytes]] = []  # A heap, by time and number.
        self._count = 0
        self._came = trio.Event()

    async def run(self) -> None:
        """Carry until either side ends."""
        async with open_background() as nursery:
            nursery.start_soon(_ending, self._carry_requests, nursery.cancel_scope)
            nursery.start_soon(_ending, self._send_answers, nursery.cancel_scope)
            await self._take_answers()

    async def _carry_requests(self) -> None:
        buffer = bytearray(_BUFFER_BYTES)
        while count := await self._near.receive_into(buffer):
            await self._passage.wait_healed()
            await self._far.send([bytes(buffer[:count])])

    async def _take_answers(self) -> None:
        reader = FrameReader()
        while count := await self._far.receive_into(reader.buffer()):
            reader.received(count)
            now_s = trio.current_time()
            for type_, fields, body, crc in reader.frames():
                front = encode_frame_front(type_, bytes(fields), len(body), crc)
                self._count += 1
                due_s = now_s + self._passage.delay_s(type_)
                heapq.heappush(self._answers, (due_s, self._count, front + body))
            self._came.set()

    async def _send_answers(self) -> None:
        while True:
            next_s = self._answers[0][0] if self._answers else math.inf
            if next_s > trio.current_time():
                self._came = trio.Event()
                with trio.move_on_at(next_s):
                    await self._came.wait()
                continue
            await self._passage.wait_healed()
            due = []
            while self._answers and self._answers[0][0] <= trio.current_time():
                due.append(heapq.heappop(self._answers)[2])
            await self._near.send(due)


async def _ending(run: Callable[[], Awaitable[None]], scope: trio.CancelScope) -> None:
    """Run until the connection ends, and end the other tasks of the connection then."""
    with suppress(ConnectionFailedError):
        await run()
    scope.cancel(reason="one side has ended")


async def serve_fronts(pairs: Iterable[str]) -> None:
    """Serve until standard input ends."""
    rng, transport = random.Random(0), TcpTransport()
    passages: dict[str, NodePassage] = {}
    async with open_background() as nursery:
        for pair in pairs:
            front, _, node = pair.partition("=")
            passages[node] = NodePassage(transport, Address.parse(node), rng)
            listener = await transport.listen(Address.parse(front))
            nursery.start_soon(_accept, listener, passages[node], nursery)
        _say()
        async with trio.lowlevel.FdStream(0) as given:
            rest = b""
            async for chunk in given:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    change = json.loads(line)
                    for node in change["nodes"]:
                        passages[node].change(FrontConditions(**change["conditions"]))
                    _say()


async def _accept(listener: Listener, passage: NodePassage, nursery: trio.Nursery) -> None:
    while True:
        nursery.start_soon(passage.carry, await listener.accept())


def _say() -> None:
    sys.stdout.write("done\n")
    sys.stdout.flush()


if __name__ == "__main__":
    trio.run(serve_fronts, sys.argv[1:])
