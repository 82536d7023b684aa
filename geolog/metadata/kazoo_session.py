"""One ZooKeeper session through kazoo: its threads and callbacks end here.

Theory of operation. A kazoo client runs three threads. What they tell (an answer, a watch, a
change of state) is handed to trio by one `run_sync_soon` each, and only trio's thread touches a
`KazooSession`. A client serves one session: kazoo would go on with a new one after expiry, but
we end the client then, so that nothing asked in one session is ever carried out in another.
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


class Answer(Protocol):
    """What kazoo's asynchronous calls return."""

    @property
    def value(self) -> object:
        """What was answered, if it was no exception."""
        ...

    @property
    def exception(self) -> BaseException | None:
        """The refusal, if it was one."""
        ...

    def rawlink(self, callback: "Callable[[Answer], None]") -> None:
        """Have a thread of kazoo's call when there is an answer."""
        ...


Watcher = Callable[[object], None]
Send = Callable[[KazooClient, Watcher | None], Answer]
"""Hands a request to kazoo, with what it shall call when the watch fires."""


class NoAnswerError(UnavailableError):
    """A request was sent and its answer will not come: the connection or the session ended."""


@attrs.define(eq=False)
class _Question:
    """A request that was sent and waits for its answer."""

    answered: trio.Event = attrs.field(factory=trio.Event)
    answer: Answer | None = None


@attrs.define(eq=False)
class KazooSession:
    """A session, from the first attempt to connect until it is lost.

    Invariants:
    1. `state` is None until the first connection, and LOST is its last.
    2. At most `requests_max` questions wait for an answer; one given up still counts.
    3. When the session ends, every question and every watch has been told.
    """

    _client: KazooClient
    _token: trio.lowlevel.TrioToken
    _room: trio.Semaphore
    session_timeout_s: float
    state: SessionState | None = None
    session_id: int = 0
    moved: trio.Event = attrs.field(factory=trio.Event)
    _questions: dict[int, _Question] = attrs.field(factory=dict)
    _watches: dict[int, trio.Event] = attrs.field(factory=dict)
    _numbers_given: int = 0

    @property
    def questions_count(self) -> int:
        """How many requests wait for their answer."""
        return len(self._questions)

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

    async def ask(self, send: Send, changed: trio.Event | None) -> object:
        """Send a request, for which `wait_room` took a place, and wait for its answer.

        KazooException if it is refused, NoAnswerError. Cancelled, it keeps its place until the
        answer comes, because kazoo keeps it too. The watch stands only if this returns.
        """
        self._numbers_given += 1
        number = self._numbers_given
        question = self._questions[number] = _Question()
        watcher = None
        if changed is not None:
            self._watches[number] = changed
            watcher = partial(self._tell_watch, number)
        try:
            send(self._client, watcher).rawlink(partial(self._tell_answer, number))
            await question.answered.wait()
            if question.answer is None:
                raise NoAnswerError("the metadata session ended before the answer came")
            if question.answer.exception is not None:
                raise question.answer.exception
        except BaseException:
            self._watches.pop(number, None)
            raise
        return question.answer.value

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

    def _tell_answer(self, number: int, answer: Answer) -> None:
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

    def _hear_answer(self, number: int, answer: Answer | None) -> None:
        question = self._questions.pop(number, None)
        if question is not None:
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
    hosts: str, session_timeout_s: float, requests_max: int, gateway: Gateway | None = None
) -> AsyncIterator[KazooSession]:
    """Connect for as long as it takes, in the background; at the end, close the session.

    hosts: the servers, `HOST:PORT,…`, in the order in which they are tried.
    """
    client = KazooClient(
        hosts,
        timeout=session_timeout_s,
        connection_retry=_RECONNECT,
        randomize_hosts=False,
        handler=None if gateway is None else GatewaySockets(gateway),
    )
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
