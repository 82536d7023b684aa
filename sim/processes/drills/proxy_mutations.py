"""Sends a proxy messages that are almost right, very many, while others are served.

Frames of JSON and MessagePack, sealed batches, and requests over HTTP, each changed by chance
from a seed. The proxy must live, meet no bug, log no traceback, keep its memory, and answer a
good session all the time. When it meets a bug, what was sent just before is written to a file,
one message in each line, which `--replay` sends again in its order.
"""

import base64
import itertools
import json
import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import attrs
import trio

from geolog.background import open_background
from geolog.transport.message_socket import MessageSocket, SocketClosedError
from geolog.transport.seam import ConnectionFailedError
from geolog.transport.tcp import TcpTransport
from geolog.transport.websocket import open_websocket
from geolog.wire.limits import FRAME_BYTES_MAX
from geolog.wire.session.batches import (
    SUBPROTOCOL_BATCHES,
    decode_from_proxy,
    encode_batches,
    messages_of,
)
from geolog.wire.session.channel_messages import DescribeRequest, OpenChannel, StreamTold
from geolog.wire.session.frames import JSON_FRAMES, MSGPACK_FRAMES
from geolog.wire.session.paths import SESSION_PATH
from sim.processes.drills.loaded_proxy import STREAM, LoadedProxy, MemorySamples
from sim.processes.drills.mutations import KINDS, Message, MessageKind, corpus_of, mutated
from sim.processes.drills.timed_session import (
    Phase,
    PhaseClock,
    TimedSession,
    open_timed_session,
)
from sim.processes.drills.verdict import Verdict
from topology.errors import GeologError

MESSAGES_COUNT = 100_000
GROWTH_BYTES_MAX = 32 << 20

_WORKERS_EACH = 4
"""Connections of each kind at a time."""
_MESSAGES_EACH_MAX = 100
_HTTP_EACH_MAX = 10
"""Messages on one connection, if the proxy does not end it earlier."""
_TELL_EVERY_S = 10.0
_ANSWERS_S = 0.05
"""How long to wait for the end of the answers on a connection."""
_CONNECTION_S_MAX = 10.0
_KEPT_COUNT = 5000
"""Messages that are written out after a bug: those sent last."""
_CHECK_EVERY_S = 0.5
_PACE_S = 0.05
_FRAME = json.dumps({"type": "append", "value": "good"})
_SUBPROTOCOLS = {
    "json": JSON_FRAMES.subprotocol,
    "msgpack": MSGPACK_FRAMES.subprotocol,
    "batches": SUBPROTOCOL_BATCHES,
}


@attrs.frozen(kw_only=True)
class MutationsOptions:
    """How many messages, the seed, and where those go that met a bug."""

    messages_count: int = MESSAGES_COUNT
    seed: int = 0
    replay: Path | None = None
    """A file that an earlier run has written: its messages are sent, and no others."""
    failing: Path
    """Where to write what was sent before a bug."""


class ProxyMetBugError(GeologError):
    """A changed message met a bug: replay the file that was written, and mend it."""


@attrs.define(eq=False)
class _Senders:
    """All connections that send changed messages."""

    proxy: LoadedProxy
    options: MutationsOptions
    life: str
    sent: dict[MessageKind, int] = attrs.field(factory=lambda: dict.fromkeys(KINDS, 0))
    connections_count: int = 0
    kept: deque[Message] = attrs.field(factory=lambda: deque(maxlen=_KEPT_COUNT))

    async def send_changed(self, kind: MessageKind, number: int, count: int) -> None:
        """Send so many changed messages of a kind."""
        rng = random.Random(f"{self.options.seed} {kind} {number}")
        corpus = corpus_of(kind, STREAM)
        left = count
        while left > 0:
            few = min(left, _HTTP_EACH_MAX if kind == "http" else _MESSAGES_EACH_MAX)
            messages = [mutated(corpus, rng) for _ in range(few)]
            target = messages[0].target  # All go over one session.
            left -= await self.send([attrs.evolve(one, target=target) for one in messages])

    async def send(self, messages: list[Message]) -> int:
        """Send these on one connection, until the proxy ends it; returns how many were sent."""
        left = deque(messages)
        self.connections_count += 1
        with trio.move_on_after(_CONNECTION_S_MAX), suppress(ConnectionFailedError):
            if messages[0].kind == "http":
                await self._send_bytes(left)
            else:
                await self._send_frames(messages[0], left)
        return len(messages) - len(left)

    def _next(self, left: deque[Message]) -> Message:
        message = left.popleft()
        self.sent[message.kind] += 1
        self.kept.append(message)
        return message

    async def _send_bytes(self, left: deque[Message]) -> None:
        stream = await TcpTransport().connect(self.proxy.http)
        buffer = bytearray(1 << 16)
        try:
            while left:
                await stream.send([self._next(left).data])
            with trio.move_on_after(_ANSWERS_S):
                while await stream.receive_into(buffer):
                    pass
        finally:
            stream.close()

    async def _send_frames(self, first: Message, left: deque[Message]) -> None:
        async with open_websocket(
            TcpTransport(),
            self.proxy.websocket,
            first.target,
            subprotocols=(_SUBPROTOCOLS[first.kind],),
            message_bytes_max=FRAME_BYTES_MAX,
        ) as socket:
            try:
                if first.kind == "batches":
                    await socket.send(encode_batches(OpenChannel(1, STREAM, self.life, 0)))
                await socket.receive()
                async with open_background() as nursery:
                    nursery.start_soon(_drop_answers, socket)
                    while left:
                        await socket.send(_frame_of(self._next(left)))
                    await trio.sleep(_ANSWERS_S)
            except* SocketClosedError:
                pass  # A session ends that sends a frame it must not send.

    async def watch(self) -> None:
        """Look after the proxy. ProxyMetBugError, UnavailableError, ConnectionFailedError."""
        while True:
            await trio.sleep(_CHECK_EVERY_S)
            await self.check()

    async def check(self) -> None:
        """Whether the proxy lives and has met no bug; likewise."""
        bugs_count = await self.proxy.metric("geolog_proxy_bugs_total")
        if not bugs_count and not self.proxy.tracebacks_count():
            return
        lines = [
            {
                "kind": one.kind,
                "target": one.target,
                "data": base64.b64encode(one.data).decode(),
            }
            for one in self.kept
        ]
        self.options.failing.write_text(
            "".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8"
        )
        raise ProxyMetBugError(
            f"the proxy met {bugs_count:.0f} bugs, see {self.proxy.log}; the last"
            f" {len(lines)} messages are in {self.options.failing}"
        )


async def proxy_mutations(
    proxy: LoadedProxy, options: MutationsOptions, tell: Callable[[str], None]
) -> Verdict:
    """Run the drill on a proxy that has nothing else to do."""
    phases, memory = PhaseClock(Phase(trio.current_time())), MemorySamples(proxy)
    senders = _Senders(proxy, options, await _life_of(proxy))
    problems: list[str] = []
    async with open_timed_session(proxy.websocket, _FRAME, 64, phases) as good:
        phase = phases.begin()
        try:
            async with open_background() as background:
                background.start_soon(memory.run)
                background.start_soon(senders.watch)
                background.start_soon(_be_served, good)
                background.start_soon(_tell_progress, senders, tell)
                if options.replay is not None:
                    await _replay(senders, _messages_in(options.replay))
                else:
                    await _send_all(senders, options.messages_count)
                await senders.check()
        except* GeologError as errors:
            problems += [str(one) for one in _leaves(errors)]
        await trio.sleep(_CHECK_EVERY_S)
        phases.begin()
    if phase.failures:
        problems.append(f"{len(phase.failures)} good appends failed: {phase.failures[0]}")
    if not phase.answered_count:
        problems.append("no good append was answered meanwhile")
    if memory.growth_bytes > GROWTH_BYTES_MAX:
        problems.append(f"memory grew by {memory.growth_bytes >> 20} MiB")
    return Verdict(
        drill="proxy-mutations",
        passed=not problems,
        problems=problems,
        counts={
            "messages": sum(senders.sent.values()),
            **{f"messages_{kind}": count for kind, count in senders.sent.items()},
            "connections": senders.connections_count,
            "good_acknowledged": phase.answered_count,
            "good_failed": len(phase.failures),
            "tracebacks": proxy.tracebacks_count(),
        },
        figures={"good_p99_s": phase.p99_s, **memory.figures()},
        rounds=[],
        seed=options.seed,
    )


async def _send_all(senders: _Senders, messages_count: int) -> None:
    workers = [(kind, number) for kind in KINDS for number in range(_WORKERS_EACH)]
    each = -(-messages_count // len(workers))
    async with trio.open_nursery() as nursery:
        for kind, number in workers:
            nursery.start_soon(senders.send_changed, kind, number, each)


def _messages_in(place: Path) -> list[Message]:
    lines = map(json.loads, place.read_text(encoding="utf-8").splitlines())
    return [Message(one["kind"], one["target"], base64.b64decode(one["data"])) for one in lines]


async def _replay(senders: _Senders, messages: list[Message]) -> None:
    for _, alike in itertools.groupby(messages, key=lambda one: (one.kind, one.target)):
        left = list(alike)
        while left:
            left = left[await senders.send(left[:_MESSAGES_EACH_MAX]) :]


async def _be_served(session: TimedSession) -> None:
    while True:
        if session.room:
            session.send_soon()
        await trio.sleep(_PACE_S)


async def _tell_progress(senders: _Senders, tell: Callable[[str], None]) -> None:
    while True:
        await trio.sleep(_TELL_EVERY_S)
        tell(f"{sum(senders.sent.values()):,} messages sent")


async def _life_of(proxy: LoadedProxy) -> str:
    async with open_websocket(
        TcpTransport(),
        proxy.websocket,
        SESSION_PATH,
        subprotocols=(SUBPROTOCOL_BATCHES,),
        message_bytes_max=FRAME_BYTES_MAX,
    ) as socket:
        await socket.send(encode_batches(DescribeRequest(1, STREAM)))
        answer = await socket.receive()
        assert isinstance(answer, bytes)
        (told,) = map(decode_from_proxy, messages_of(answer))
        assert isinstance(told, StreamTold)
        return told.life


def _frame_of(message: Message) -> str | bytes:
    if message.kind == "json":
        with suppress(UnicodeDecodeError):
            return message.data.decode()
    return message.data


async def _drop_answers(socket: MessageSocket) -> None:
    while True:
        await socket.receive()


def _leaves(errors: BaseExceptionGroup[GeologError]) -> Iterator[GeologError]:
    for one in errors.exceptions:
        if isinstance(one, BaseExceptionGroup):
            yield from _leaves(one)
        else:
            yield one
