"""One ZooKeeper session through kazoo; it hides kazoo's threads and callbacks.

Theory of operation. A kazoo client runs three threads. Each event from them (an answer, a
watch, a change of state) is handed to trio by one `run_sync_soon`, and only trio's thread
touches a `KazooSession`. A client serves one session. After expiry kazoo would go on with a new
session, but we end the client, so that a request made in one session is never carried out in
another.

A client tells each server that it connects to the highest zxid (the number of a change) that it
has been answered with, and a server that is behind refuses it. Kazoo forgets that number with
the session; we pass it on to the next session. A new session also catches up before its first
read, because the number does not cover a write whose answer was lost.

Rules: PROTOCOL M6.
"""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Protocol

import attrs
import trio
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import KazooException
from kazoo.protocol.serialization import Connect

from geolog.metadata.kazoo_gateway import GatewaySockets
from geolog.metadata.seam import SessionState
from geolog.transport.gateway import Gateway
from topology.errors import UnavailableError

_STOP_TIMEOUT_S = 3.0
"""Time limit for ending a session; if a server hangs, the session is left to expire."""

_RECONNECT = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0}

# Without any handler Python would print kazoo's warnings on stderr. Add a handler to read
# them: they still propagate to the root logger.
logging.getLogger("kazoo").addHandler(logging.NullHandler())


class KazooAnswer(Protocol):
    """The return value of kazoo's asynchronous calls."""

    @property
    def value(self) -> object:
        """The answer, if it was not an exception."""
        ...

    @property
    def exception(self) -> BaseException | None:
        """The refusal, if it was one."""
        ...

    def rawlink(self, callback: "Callable[[KazooAnswer], None]") -> None:
        """Have a thread of kazoo call back when there is an answer."""
        ...


Watcher = Callable[[object], None]
Send = Callable[[KazooClient, Watcher | None], KazooAnswer]
"""Hands a request to kazoo, with the callback for its watch."""


class NoAnswerError(UnavailableError):
    """A request was sent and its answer will not come: the connection or the session ended."""


@attrs.define(eq=False)
class _Question:
    """A sent request that waits for its answer."""

    has_place: bool
    answered: trio.Event = attrs.field(factory=trio.Event)
    answer: KazooAnswer | None = None

    async def wait(self) -> object:
        """Wait for the answer. KazooException if it is a refusal, NoAnswerError."""
        await self.answered.wait()
        if self.answer is None:
            raise NoAnswerError("the metadata session ended before the answer came")
        if self.answer.exception is not None:
            raise self.answer.exception
        return self.answer.value


class _Client(KazooClient):  # type: ignore[misc]  # Kazoo has no types.
    """A client whose highest zxid never falls, not even when kazoo resets it at an expiry."""

    zxid_seen = 0

    @property
    def last_zxid(self) -> int:
        """The zxid that kazoo tells each server it connects to."""
        return self.zxid_seen

    @last_zxid.setter
    def last_zxid(self, zxid: int) -> None:
        self.zxid_seen = max(self.zxid_seen, zxid)


@attrs.define(eq=False)
class KazooSession:
    """A session, from the first attempt to connect until it is lost.

    Invariants:
    1. `state` is None until the first connection, and LOST is its last.
    2. At most `requests_max` questions wait for an answer, each with at most one request that
       went before it; an abandoned one still counts.
    3. When the session ends, every question and every watch has been notified.
    """

    _client: _Client
    _token: trio.lowlevel.TrioToken
    _room: trio.Semaphore
    session_timeout_s: float
    state: SessionState | None = None
    session_id: int = 0
    is_caught_up: bool = False
    """Whether the session's server has caught up since the session began."""
    moved: trio.Event = attrs.field(factory=trio.Event)
    _questions: dict[int, _Question] = attrs.field(factory=dict)
    _watches: dict[int, trio.Event] = attrs.field(factory=dict)
    _numbers_given: int = 0

    @property
    def questions_count(self) -> int:
        """Number of requests that wait for their answer."""
        return sum(question.has_place for question in self._questions.values())

    @property
    def zxid_seen(self) -> int:
        """The number of the newest change seen in any answer."""
        return self._client.zxid_seen

    @property
    def watches_count(self) -> int:
        """Number of watches that wait for a change."""
        return len(self._watches)

    async def wait_room(self) -> None:
        """Wait until there is room for one more request, and reserve it."""
        await self._room.acquire()
        if self.state is SessionState.LOST:
            self._room.release()
            raise UnavailableError("the metadata session ended before the request was sent")

    async def ask(
        self, send: Send, changed: trio.Event | None, *, behind: Send | None = None
    ) -> object:
        """Send a request, after reserving its place with `wait_room`, and wait for its answer.

        The answer counts only if the request `behind` which it is sent is answered as well:
        that one is sent right before, and ZooKeeper keeps the order. KazooException if refused,
        NoAnswerError. If cancelled, it keeps its place until the answer comes, because kazoo
        keeps it too. The watch is set only if this returns.
        """
        first = None if behind is None else self._send(behind, None, has_place=False)[1]
        number, question = self._send(send, changed)
        try:
            if first is not None:
                await first.wait()
            answer = await question.wait()
        except BaseException:
            self._watches.pop(number, None)
            raise
        self.is_caught_up = True
        return answer

    def _send(
        self, send: Send, changed: trio.Event | None, *, has_place: bool = True
    ) -> tuple[int, _Question]:
        self._numbers_given += 1
        number = self._numbers_given
        question = self._questions[number] = _Question(has_place)
        watcher = None
        if changed is not None:
            self._watches[number] = changed
            watcher = partial(self._tell_watch, number)
        send(self._client, watcher).rawlink(partial(self._tell_answer, number))
        return number, question

    def lose(self) -> None:
        """End the session on our side, whatever the servers think."""
        self._move(SessionState.LOST)
        for number in list(self._questions):
            self._hear_answer(number, None)
        for number in list(self._watches):
            self._hear_watch(number)

    # Called on kazoo's threads. After trio has ended there is nobody to tell.

    def tell_state(self, told: str) -> None:
        """Take kazoo's report of the connection state."""
        # The id is known from the moment of connecting, and only while the connection lasts.
        client_id = self._client.client_id
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._hear_state, told, client_id[0] if client_id else 0)

    def tell_agreement(self, session_timeout_s: float) -> None:
        """Take the time-out that a server agreed to."""
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._hear_agreement, session_timeout_s)

    def _tell_answer(self, number: int, answer: KazooAnswer) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._hear_answer, number, answer)

    def _tell_watch(self, number: int, _event: object) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._hear_watch, number)

    # Called on trio's thread.

    def _hear_state(self, told: str, session_id: int) -> None:
        if self.state is SessionState.LOST:
            return  # Later events belong to a session that we do not want.
        if told == KazooState.CONNECTED:
            self.session_id = session_id or self.session_id
            self._move(SessionState.CONNECTED)
        elif told == KazooState.SUSPENDED:
            self._move(SessionState.SUSPENDED)
        else:
            self.lose()

    def _hear_agreement(self, session_timeout_s: float) -> None:
        self.session_timeout_s = session_timeout_s

    def _hear_answer(self, number: int, answer: KazooAnswer | None) -> None:
        question = self._questions.pop(number, None)
        if question is not None:
            if question.has_place:
                self._room.release()
            question.answer = answer
            question.answered.set()

    def _hear_watch(self, number: int) -> None:
        changed = self._watches.pop(number, None)
        if changed is not None:
            changed.set()

    def _move(self, state: SessionState) -> None:
        self.state = state
        self.moved.set()
        self.moved = trio.Event()


@asynccontextmanager
async def open_kazoo_session(
    hosts: str,
    session_timeout_s: float,
    requests_max: int,
    gateway: Gateway | None = None,
    *,
    zxid_seen: int = 0,
) -> AsyncIterator[KazooSession]:
    """Keep connecting, without a time limit, in the background; at the end, close the session.

    hosts: the servers, `HOST:PORT,…`, in the order in which they are tried. zxid_seen: the
    highest zxid answered to the previous session; servers behind it are not used.
    """
    client = _Client(
        hosts,
        timeout=session_timeout_s,
        connection_retry=_RECONNECT,
        randomize_hosts=False,
        handler=None if gateway is None else GatewaySockets(gateway),
    )
    client.last_zxid = zxid_seen
    session = KazooSession(
        client,
        trio.lowlevel.current_trio_token(),
        trio.Semaphore(requests_max),
        session_timeout_s,
    )
    client.add_listener(session.tell_state)
    _overhear_agreement(client, session.tell_agreement)
    client.start_async()
    try:
        yield session
    finally:
        session.lose()
        with trio.move_on_after(_STOP_TIMEOUT_S, shield=True):
            await trio.to_thread.run_sync(_stop, client, abandon_on_cancel=True)


def _overhear_agreement(client: KazooClient, hear: Callable[[float], None]) -> None:
    """Catch the time-out that kazoo learns before CONNECTED, and does not pass on."""
    connection = client._connection  # noqa: SLF001 - there is no public way to the time-out.
    invoke = connection._invoke  # noqa: SLF001

    def invoke_and_tell(*request: object) -> object:
        answer = invoke(*request)
        if isinstance(answer, tuple) and isinstance(answer[0], Connect):
            hear(answer[0].time_out / 1000)
        return answer

    connection._invoke = invoke_and_tell  # noqa: SLF001


def _stop(client: KazooClient) -> None:
    with suppress(KazooException):  # Its thread hangs on a server that does not answer.
        client.stop()
        client.close()
