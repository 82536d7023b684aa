"""One ZooKeeper session through kazoo: its threads and callbacks end here.

Theory of operation. A kazoo client runs three threads. What they tell (an answer, a watch, a
change of state) is handed to trio by one `run_sync_soon` each, and only trio's thread touches a
`KazooSession`. A client serves one session: kazoo would go on with a new one after expiry, but
we end the client then, so that nothing asked in one session is ever carried out in another.

A client tells each server that it connects to the highest zxid, the number of a change, that
it was answered with, and a server that is behind refuses it. Kazoo forgets that number with the
session; here the next session is given it. A new session catches up before its first read as
well, for the number does not cover a write whose answer was lost.

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
"""How long the end of a session may take; a server that hangs is left to expire it."""

_RECONNECT = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0}

# Without any handler Python would print kazoo's warnings on stderr. Who wants to read them adds
# one of his own: they still travel to the root logger.
logging.getLogger("kazoo").addHandler(logging.NullHandler())


class KazooAnswer(Protocol):
    """What kazoo's asynchronous calls return."""

    @property
    def value(self) -> object:
        """What was answered, if it was no exception."""
        ...

    @property
    def exception(self) -> BaseException | None:
        """The refusal, if it was one."""
        ...

    def rawlink(self, callback: "Callable[[KazooAnswer], None]") -> None:
        """Have a thread of kazoo's call when there is an answer."""
        ...


Watcher = Callable[[object], None]
Send = Callable[[KazooClient, Watcher | None], KazooAnswer]
"""Hands a request to kazoo, with what it shall call when the watch fires."""


class NoAnswerError(UnavailableError):
    """A request was sent and its answer will not come: the connection or the session ended."""


@attrs.define(eq=False)
class _Question:
    """A request that was sent and waits for its answer."""

    has_place: bool
    answered: trio.Event = attrs.field(factory=trio.Event)
    answer: KazooAnswer | None = None

    async def wait(self) -> object:
        """The answer. KazooException if it is a refusal, NoAnswerError."""
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
        """What kazoo tells each server that it connects to."""
        return self.zxid_seen

    @last_zxid.setter
    def last_zxid(self, zxid: int) -> None:
        self.zxid_seen = max(self.zxid_seen, zxid)


@attrs.define(eq=False)
class KazooSession:
    """A session, from the first attempt to connect until it is lost.

    Invariants:
    1. `state` is None until the first connection, and LOST is its last.
    2. At most `requests_max` questions wait for an answer, each with at most one that went
       before it; one given up still counts.
    3. When the session ends, every question and every watch has been told.
    """

    _client: _Client
    _token: trio.lowlevel.TrioToken
    _room: trio.Semaphore
    session_timeout_s: float
    state: SessionState | None = None
    session_id: int = 0
    is_caught_up: bool = False
    """Whether something was answered by which the server caught up since the session began."""
    moved: trio.Event = attrs.field(factory=trio.Event)
    _questions: dict[int, _Question] = attrs.field(factory=dict)
    _watches: dict[int, trio.Event] = attrs.field(factory=dict)
    _numbers_given: int = 0

    @property
    def questions_count(self) -> int:
        """How many requests wait for their answer."""
        return sum(question.has_place for question in self._questions.values())

    @property
    def zxid_seen(self) -> int:
        """The number of the newest change that anything was answered from."""
        return self._client.zxid_seen

    @property
    def watches_count(self) -> int:
        """How many watches wait for a change."""
        return len(self._watches)

    async def wait_room(self) -> None:
        """Wait until one more request may be asked, and take its place."""
        await self._room.acquire()
        if self.state is SessionState.LOST:
            self._room.release()
            raise UnavailableError("the metadata session ended before the request was sent")

    async def ask(
        self, send: Send, changed: trio.Event | None, *, behind: Send | None = None
    ) -> object:
        """Send a request, for which `wait_room` took a place, and wait for its answer.

        It counts only if what it stands `behind` is answered as well: that is sent right before
        it, and ZooKeeper keeps the order. KazooException if it is refused, NoAnswerError.
        Cancelled, it keeps its place until the answer comes, because kazoo keeps it too. The
        watch stands only if this returns.
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
        """End the session for us, whatever the servers think."""
        self._move(SessionState.LOST)
        for number in list(self._questions):
            self._hear_answer(number, None)
        for number in list(self._watches):
            self._hear_watch(number)

    # Called on threads of kazoo's. After trio's end there is nobody to tell.

    def tell_state(self, told: str) -> None:
        """Take what kazoo says of the connection."""
        # The id is known from the moment of connecting, and only for as long as that lasts.
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
            return  # What kazoo does after that is a session that we do not want.
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
    """Connect for as long as it takes, in the background; at the end, close the session.

    hosts: the servers, `HOST:PORT,…`, in the order in which they are tried. zxid_seen: what the
    session before was answered; a server that is behind it is not connected to.
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
    """Listen to what kazoo learns before it says CONNECTED, and then keeps to itself."""
    connection = client._connection  # noqa: SLF001 - there is no public way to the time-out.
    invoke = connection._invoke  # noqa: SLF001

    def invoke_and_tell(*request: object) -> object:
        answer = invoke(*request)
        if isinstance(answer, tuple) and isinstance(answer[0], Connect):
            hear(answer[0].time_out / 1000)
        return answer

    connection._invoke = invoke_and_tell  # noqa: SLF001


def _stop(client: KazooClient) -> None:
    with suppress(KazooException):  # Its thread hangs at a server that does not answer.
        client.stop()
        client.close()
