"""A session of JSON frames with a proxy: sends when told to, and times each answer."""

import json
import math
import statistics
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import attrs
import trio

from geolog.background import open_background
from geolog.transport.message_socket import MessageSocket, SocketClosedError
from geolog.transport.seam import Address
from geolog.transport.tcp import TcpTransport
from geolog.transport.websocket import open_websocket
from geolog.wire.limits import FRAME_BYTES_MAX
from geolog.wire.session.codes import Code
from sim.processes.drills.loaded_proxy import STREAM
from sim.processes.drills.proxied_verdict import percentile

IDLE_S_MAX = 10.0

_HEAD_CHARACTERS = 24
"""The type of an answer is within so many of its first characters."""


@attrs.define(eq=False)
class Phase:
    """A part of a drill: what was sent in it, and the answers to that."""

    begin_s: float
    answered_count: int = 0
    """Acknowledgements that came meanwhile, whenever their frames were sent."""
    latencies_s: list[float] = attrs.field(factory=list)
    """Of the frames that were sent meanwhile and acknowledged, in order of their answers."""
    answered_s: list[float] = attrs.field(factory=list)
    """When each of these answers came."""
    refused_count: int = 0
    held_back_count: int = 0
    """Frames that were due and not sent: no session had room for them."""
    failures: list[str] = attrs.field(factory=list)
    end_s: float = 0.0

    @property
    def answers_per_s(self) -> float:
        """The rate of acknowledgements."""
        return self.answered_count / (self.end_s - self.begin_s)

    @property
    def p50_s(self) -> float:
        """The median latency; without end if nothing was acknowledged."""
        return statistics.median(self.latencies_s or [math.inf])

    @property
    def p99_s(self) -> float:
        """The latency that a hundredth exceeds; likewise."""
        return percentile(self.latencies_s or [math.inf], 0.99)


@attrs.define(eq=False)
class PhaseClock:
    """The phase that lasts now, which all sessions of a drill share."""

    now: Phase

    def begin(self) -> Phase:
        """End the phase, and begin the next."""
        self.now.end_s = trio.current_time()
        self.now = Phase(trio.current_time())
        return self.now


class TimedSession:
    """One session. Opened by `open_timed_session`."""

    def __init__(
        self, socket: MessageSocket, frame: str, window: int, phases: PhaseClock
    ) -> None:
        self._socket = socket
        self._frame = frame
        self._window = window
        self._phases = phases
        self._unanswered: deque[tuple[Phase, float]] = deque()
        self._due: deque[float] = deque()
        self._has_due = trio.Event()
        self._is_idle = trio.Event()
        self._is_idle.set()
        self._paused_until_s = 0.0
        self.is_over = False

    @property
    def room(self) -> int:
        """How many more frames it takes now."""
        if self.is_over or trio.current_time() < self._paused_until_s:
            return 0
        return max(0, self._window - len(self._unanswered) - len(self._due))

    def send_soon(self) -> None:
        """Send a frame now; its latency counts from here."""
        self._due.append(trio.current_time())
        self._is_idle = trio.Event()
        self._has_due.set()

    async def wait_idle(self) -> None:
        """Wait until everything is answered, or nothing will be."""
        await self._is_idle.wait()

    async def run(self) -> None:
        """Send and take answers until the proxy ends the session, which is a failure."""
        try:
            async with open_background() as nursery:
                nursery.start_soon(self._send_all)
                while True:
                    self._take(await self._socket.receive())
                    if not (self._unanswered or self._due):
                        self._is_idle.set()
        except* SocketClosedError as closed:
            self._phases.now.failures.append(f"a session ended: {closed.exceptions[0]}")
        finally:
            self.is_over = True
            self._is_idle.set()

    async def _send_all(self) -> None:
        while True:
            while self._due:
                self._unanswered.append((self._phases.now, self._due.popleft()))
                await self._socket.send(self._frame)
            self._has_due = trio.Event()
            await self._has_due.wait()

    def _take(self, answer: str | bytes) -> None:
        assert isinstance(answer, str)
        now_s, phase = trio.current_time(), self._phases.now
        sent_in, sent_s = self._unanswered.popleft()
        if '"ack"' in answer[:_HEAD_CHARACTERS]:
            phase.answered_count += 1
            sent_in.latencies_s.append(now_s - sent_s)
            sent_in.answered_s.append(now_s)
            return
        told = json.loads(answer)
        if told.get("code") == Code.OVER_CAPACITY:
            phase.refused_count += 1
            self._paused_until_s = now_s + float(told["retry_after_s"])
        else:
            phase.failures.append(answer[:200])


async def wait_idle(sessions: Sequence[TimedSession]) -> None:
    """Wait until everything that is under way is answered; give up after `IDLE_S_MAX`."""
    with trio.move_on_after(IDLE_S_MAX):
        for one in sessions:
            await one.wait_idle()


@asynccontextmanager
async def open_timed_session(
    proxy: Address, frame: str, window: int, phases: PhaseClock
) -> AsyncIterator[TimedSession]:
    """Open a session that sends this frame; at most `window` of them are unanswered."""
    async with open_websocket(
        TcpTransport(),
        proxy,
        f"/v1/streams/{STREAM}/append",
        subprotocols=(),
        message_bytes_max=FRAME_BYTES_MAX,
    ) as socket:
        hello = json.loads(await socket.receive())
        assert hello["type"] == "hello", hello
        session = TimedSession(socket, frame, window, phases)
        async with open_background() as nursery:
            nursery.start_soon(session.run)
            yield session
