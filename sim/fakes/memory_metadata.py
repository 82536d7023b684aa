"""The metadata store in memory: one tree for a whole world, with sessions that can be cut off.

Theory of operation. `MemoryStore` holds the newest tree and is the only one to change it. Each
`MemoryMetadata` is a session together with the server it is connected to. It reads from its own
view of the tree, which a test can make lag. The server of the next session may lag as well, and
the leader from which a server catches up may be deposed. Time is trio's clock, so a history is
deterministic under the mock clock. A session that is cut off notices `noticed_after_s` later.
The store expires it one time-out after the cut. The holder considers it LOST one time-out after
it noticed: as in reality, never before the others do.
"""

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import attrs
import trio

from geolog.background import open_background
from geolog.metadata.rules import check_operations, check_path, ensure_path_by_creates
from geolog.metadata.seam import (
    Create,
    Delete,
    Freshness,
    HeardTime,
    Operation,
    Put,
    SessionLostError,
    SessionState,
    Stored,
)
from sim.fakes.metadata_tree import MetadataTree, NodeChange, SessionId, WriteAnswer
from sim.fakes.metadata_view import View
from sim.waits import sleep_until, wait_until
from topology.errors import GeologError, OutcomeUnknownError, UnavailableError

T = TypeVar("T")

REQUEST_TIMEOUT_S = 10.0

START_OF_TIME_US = 1_700_000_000_000_000
"""The store's clock when trio's clock is at 0."""


@attrs.frozen
class MetadataStatistics:
    """Current size of the store."""

    nodes_count: int
    sessions_count: int


class _NoAnswerError(GeologError):
    """A request was sent but got no answer. Never leaves this file."""


def _late() -> _NoAnswerError:
    return _NoAnswerError(f"the metadata store did not answer in {REQUEST_TIMEOUT_S:g} s")


def _no_time() -> float:
    return 0.0


def _told_to_nobody(_operations: list[Operation]) -> None:
    pass


@attrs.define(eq=False)
class MemoryStore:
    """The world's one tree, and its sessions. Opened by `open_memory_store`."""

    round_trip_s: Callable[[], float] = _no_time
    """Draws the round trip of the next request."""
    clock_offset_us: int = 0
    """How far the store's clock is ahead of the true time."""

    on_written: Callable[[list[Operation]], None] = _told_to_nobody
    """Called with the operations of each request that was carried out."""
    tree: MetadataTree = attrs.field(factory=MetadataTree, init=False)
    _holders: "list[MemoryMetadata]" = attrs.field(factory=list, init=False)
    _sessions_alive: set[SessionId] = attrs.field(factory=set, init=False)
    _sessions_begun_count: int = attrs.field(default=0, init=False)
    _deadlines_moved: trio.Event = attrs.field(factory=trio.Event, init=False)

    @asynccontextmanager
    async def open_session(
        self, timeout_s: float = 6.0, *, round_trip_s: Callable[[], float] | None = None
    ) -> "AsyncIterator[MemoryMetadata]":
        """Begin a session. At the end it is closed, or left to expire if it is cut off.

        `round_trip_s`: the round trip of this session, if it differs from the others.
        """
        metadata = MemoryMetadata(self, timeout_s, round_trip_s)
        self._holders.append(metadata)
        try:
            yield metadata
        finally:
            metadata.leave()

    def statistics(self) -> MetadataStatistics:
        """A snapshot of the store's size."""
        return MetadataStatistics(len(self.tree.nodes), len(self._sessions_alive))

    def begin_session(self) -> SessionId:
        """Create a session."""
        self._sessions_begun_count += 1
        session = SessionId(self._sessions_begun_count)
        self._sessions_alive.add(session)
        return session

    def is_alive(self, session: SessionId) -> bool:
        """Whether the session has neither expired nor been closed."""
        return session in self._sessions_alive

    def end_session(self, session: SessionId) -> None:
        """Delete the session's ephemeral nodes."""
        self._sessions_alive.discard(session)
        self.tree, changes = self.tree.without_session(session)
        self._show(changes)

    def write(self, operations: list[Operation], session: SessionId) -> list[WriteAnswer]:
        """Carry out a request of a session and show it to all views."""
        self.tree, answers, changes = self.tree.apply(operations, session, now_us=self.now_us())
        self.on_written(operations)
        self._show(changes)
        return answers

    def now_us(self) -> int:
        """Current time of the store's clock."""
        return START_OF_TIME_US + self.clock_offset_us + int(trio.current_time() * 1e6)

    def forget(self, metadata: "MemoryMetadata") -> None:
        """Drop a holder that is gone and whose session has ended."""
        self._holders.remove(metadata)

    def watch_deadlines(self) -> None:
        """Make the clock check the holders' deadlines again."""
        self._deadlines_moved.set()

    async def run_clock(self) -> None:
        """Act on due deadlines, forever."""
        while True:
            self._deadlines_moved = trio.Event()
            due_s = min((each.due_s for each in self._holders), default=math.inf)
            await wait_until(self._deadlines_moved, due_s)
            for metadata in list(self._holders):
                metadata.pass_time(trio.current_time())

    def _show(self, changes: list[NodeChange]) -> None:
        for metadata in list(self._holders):
            metadata.show(self.tree, changes)


@asynccontextmanager
async def open_memory_store(
    round_trip_s: Callable[[], float] = _no_time,
) -> AsyncIterator[MemoryStore]:
    """Open an empty store whose sessions expire by trio's clock during the block."""
    store = MemoryStore(round_trip_s)
    async with open_background() as nursery:
        nursery.start_soon(store.run_clock, name="metadata clock")
        yield store


@attrs.define(eq=False)
class MemoryMetadata:
    """`Metadata` over a `MemoryStore`: a session, its connection, and its view of the tree.

    Invariants:
    1. A request issued in one session is never carried out in another.
    2. During a cut, the store ends the session no later than the holder considers it LOST.
    3. No answer is older than an earlier one, even across sessions.
    """

    _store: MemoryStore
    session_timeout_s: float
    _round_trip_s: Callable[[], float] | None
    session_id: SessionId = attrs.field(init=False)
    session_state: SessionState = attrs.field(default=SessionState.CONNECTED, init=False)
    view: View = attrs.field(init=False)
    time_heard: HeardTime | None = attrs.field(default=None, init=False)
    _connection: int = attrs.field(default=0, init=False)
    """Rises when the holder notices that its connection is broken."""
    _is_cut: bool = attrs.field(default=False, init=False)
    _is_left: bool = attrs.field(default=False, init=False)
    _is_caught_up: bool = attrs.field(default=False, init=False)
    """Whether this session's server has caught up with the leader since the session began."""
    _is_leader_deposed: bool = attrs.field(default=False, init=False)
    """Whether the leader that this session's server catches up with is deposed."""
    _server_next: View | None = attrs.field(default=None, init=False)
    """The server of the next session, if it lags."""
    _is_end_due: bool = attrs.field(default=False, init=False)
    """Whether the session ends with the answer to its next write."""
    _changes_seen_count: int = attrs.field(default=0, init=False)
    """Number of changes in the newest tree that any answer came from."""
    _answers_to_lose_count: int = attrs.field(default=0, init=False)
    _moved: trio.Event = attrs.field(factory=trio.Event, init=False)
    _cuts_s: float = attrs.field(default=math.inf, init=False)
    """When the late answers arrive, and the cut begins."""
    _heard: trio.Event | None = attrs.field(default=None, init=False)
    """Set at that moment; None unless answers are late."""
    _noticed_after_s: float = attrs.field(default=0.0, init=False)
    _notices_s: float = attrs.field(default=math.inf, init=False)
    _expires_s: float = attrs.field(default=math.inf, init=False)
    _lost_s: float = attrs.field(default=math.inf, init=False)

    def __attrs_post_init__(self) -> None:
        self.session_id = self._store.begin_session()
        self.view = View(self._store.tree)

    # Controls for tests and the simulator.

    def cut_off(self, *, noticed_after_s: float = 0.0, late_s: float = 0.0) -> None:
        """Cut the session off from the store. With `math.inf` the holder does not notice.

        late_s: the cut begins so much later. Until then requests are carried out, but nothing
        is heard; all answers and watches arrive at that moment.
        """
        now_s = trio.current_time()
        if late_s > 0.0:
            self._cuts_s, self._noticed_after_s = now_s + late_s, noticed_after_s
            self._heard, self.view.is_late = trio.Event(), True
            self._store.watch_deadlines()
            return
        self._is_cut = True
        self._notices_s = now_s + noticed_after_s
        self._expires_s = now_s + self.session_timeout_s
        self.pass_time(now_s)
        self._store.watch_deadlines()

    def restore(self) -> None:
        """End the cut. The session continues; if either side has ended it, a new one begins."""
        self._is_cut = False
        self._notices_s = self._expires_s = self._lost_s = math.inf
        self._hear()
        is_over = self.session_state is SessionState.LOST
        if is_over or not self._store.is_alive(self.session_id):
            self._lose()
            self._store.end_session(self.session_id)
            self.session_id = self._store.begin_session()
            self._begin_at_server()
        self._move(SessionState.CONNECTED)

    def expire(self) -> None:
        """End the session at the store; the holder learns it and begins a new one."""
        self._store.end_session(self.session_id)
        self.restore()

    def lag(self) -> None:
        """Freeze the tree that nearby reads see until the server catches up.

        It catches up for a read that requests it and for its own writes, even refused ones.
        """
        self.view.is_lagging = True

    def lag_deposed(self) -> None:
        """Lag behind a leader that is deposed from now on without knowing it.

        Only a write or a CERTAIN read, which take a quorum, finds the current leader.
        """
        self.lag()
        self._is_leader_deposed = True

    def lag_next(self) -> None:
        """Make the next session begin at a lagging server with the present tree.

        If that server is behind an answer given by then, it refuses the session.
        """
        self._server_next = View(self._store.tree, is_lagging=True)

    def expire_after_write(self) -> None:
        """End the session right after the answer to its next write.

        The next one begins at a lagging server: that of `lag_next`, or one without this write.
        """
        self._is_end_due = True

    def catch_up(self) -> None:
        """Stop lagging: show the newest tree from now on, and keep the session."""
        self._is_end_due = False
        self._server_next = None
        self._is_leader_deposed = False
        self.view.is_lagging = False
        self.view.catch_up()

    def lose_next_answer(self) -> None:
        """Carry out the next write but lose its answer."""
        self._answers_to_lose_count += 1

    def lose_no_answer(self) -> None:
        """Lose no more answers."""
        self._answers_to_lose_count = 0

    @property
    def is_cut(self) -> bool:
        """Whether the session is cut off now, noticed or not."""
        return self._is_cut

    # Calls from the store.

    def show(self, tree: MetadataTree, changes: list[NodeChange]) -> None:
        """Take a newer tree of the store."""
        self.view.show(tree, changes)
        if self._server_next is not None:
            self._server_next.show(tree, changes)

    @property
    def due_s(self) -> float:
        """When `pass_time` has something to do."""
        return min(self._cuts_s, self._notices_s, self._expires_s, self._lost_s)

    def pass_time(self, now_s: float) -> None:
        """Process due deadlines in this order: cut, notice, expire, lose."""
        if self._cuts_s <= now_s:
            self._hear()
            self.cut_off(noticed_after_s=self._noticed_after_s)
        if self._notices_s <= now_s:
            self._notices_s = math.inf
            self._lost_s = now_s + self.session_timeout_s
            self._connection += 1
            self.view.fire_all()
            self._move(SessionState.SUSPENDED)
        if self._expires_s <= now_s:
            self._expires_s = math.inf
            self._store.end_session(self.session_id)
            if self._is_left:
                self._store.forget(self)
        if self._lost_s <= now_s:
            self._lost_s = math.inf
            self._lose()

    def leave(self) -> None:
        """Leave the store: close the session if the store can be reached, else let it expire.

        Leaving twice is harmless: cleanup may run after the process has died.
        """
        if self._is_left:
            return
        self._is_left = True
        self._hear()
        self._notices_s = self._lost_s = math.inf
        self._lose()
        if self._is_cut and self._store.is_alive(self.session_id):
            return
        self._store.end_session(self.session_id)
        self._store.forget(self)

    # The seam.

    async def get(
        self,
        path: str,
        *,
        changed: trio.Event | None = None,
        freshness: Freshness = Freshness.NEARBY,
    ) -> Stored:
        """Read a node of the view."""
        check_path(path)
        return await self._read(lambda: self._seen(path, changed), freshness)

    async def find(
        self,
        path: str,
        *,
        changed: trio.Event | None = None,
        freshness: Freshness = Freshness.NEARBY,
    ) -> Stored | None:
        """Read a node of the view, or None."""
        check_path(path)
        return await self._read(lambda: self._found(path, changed), freshness)

    async def children(
        self,
        path: str,
        *,
        changed: trio.Event | None = None,
        freshness: Freshness = Freshness.NEARBY,
    ) -> list[str]:
        """List the children of a node in the view."""
        check_path(path)
        return await self._read(lambda: self._listed(path, changed), freshness)

    async def multi(self, operations: list[Operation]) -> list[WriteAnswer]:
        """Carry out all operations or none."""
        check_operations(operations)
        return await self._write(list(operations))

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        is_ephemeral: bool = False,
        is_sequential: bool = False,
    ) -> str:
        """Create one node."""
        [made] = await self.multi([Create(path, data, is_ephemeral, is_sequential)])
        assert isinstance(made, str)
        return made

    async def put(self, path: str, data: bytes, version: int) -> int:
        """Replace the content by compare-and-set."""
        [version_new] = await self.multi([Put(path, data, version)])
        assert isinstance(version_new, int)
        return version_new

    async def delete(self, path: str, version: int | None = None) -> None:
        """Delete one node."""
        await self.multi([Delete(path, version)])

    async def ensure_path(self, path: str) -> None:
        """Create a node and its missing parents."""
        check_path(path)
        await ensure_path_by_creates(self, path)

    async def wait_state_change(self, seen: SessionState) -> SessionState:
        """Wait for a state other than `seen`."""
        while self.session_state is seen:
            await self._moved.wait()
        return self.session_state

    def _seen(self, path: str, changed: trio.Event | None) -> Stored:
        stored = self.view.tree.get(path)
        if changed is not None:
            self.view.watch_node(path, changed.set)
        return stored

    def _found(self, path: str, changed: trio.Event | None) -> Stored | None:
        if changed is not None:
            self.view.watch_node(path, changed.set)
        return self.view.tree.find(path)

    def _listed(self, path: str, changed: trio.Event | None) -> list[str]:
        names = self.view.tree.children(path)
        if changed is not None:
            self.view.watch_children(path, changed.set)
        return names

    # The way of a request.

    async def _read(self, look: Callable[[], T], freshness: Freshness) -> T:
        try:
            return await self._ask(lambda: self._look(look, freshness))
        except _NoAnswerError as error:
            raise UnavailableError(f"{error}; reading again can help") from None

    async def _write(self, operations: list[Operation]) -> list[WriteAnswer]:
        if self._is_end_due and self._server_next is None:
            self.lag_next()
        try:
            answers, store_us = await self._ask(lambda: self._carry_out(operations))
        except _NoAnswerError as error:
            raise OutcomeUnknownError(f"{error}: the write may have been done") from None
        if any(isinstance(one, Put) for one in operations):
            self.time_heard = HeardTime(store_us, trio.current_time())
        if self._is_end_due:
            self._is_end_due = False
            self.expire()
        return answers

    async def _ask(self, act: Callable[[], T]) -> T:
        until_s = trio.current_time() + REQUEST_TIMEOUT_S
        await self._wait_connected(until_s)
        connection = self._connection
        await self._travel(connection, until_s)
        try:
            return act()
        finally:  # A refusal travels like any answer.
            await self._travel(connection, until_s)
            if self._heard is not None and not await wait_until(self._heard, until_s):
                raise _late()

    async def _wait_connected(self, until_s: float) -> None:
        issued_in = None if self.session_state is SessionState.LOST else self.session_id
        while self.session_state is not SessionState.CONNECTED and not self._is_left:
            if not await wait_until(self._moved, until_s):
                raise UnavailableError(
                    f"no metadata server was reached in {REQUEST_TIMEOUT_S:g} s"
                )
        if self._is_left or issued_in not in (None, self.session_id):
            raise SessionLostError(f"metadata session {issued_in} is over; nothing was asked")

    async def _travel(self, connection: int, until_s: float) -> None:
        trip_s = (self._round_trip_s or self._store.round_trip_s)() / 2
        arrives_s = trio.current_time() + trip_s
        if arrives_s >= until_s:
            await sleep_until(until_s)
            raise _late()
        if trip_s:
            await sleep_until(arrives_s)
        else:
            await trio.lowlevel.checkpoint()
        while self._is_cut and self._connection == connection:
            if not await wait_until(self._moved, until_s):
                raise _late()
        if self._connection != connection:
            raise _NoAnswerError("the connection to the metadata store broke")

    def _look(self, look: Callable[[], T], freshness: Freshness) -> T:
        """Read from the view once it is as fresh as requested, in one step of the session."""
        self._catch_up(freshness)
        self._note_seen()
        return look()

    def _catch_up(self, freshness: Freshness) -> None:
        if freshness is Freshness.CERTAIN:
            self._see_quorum()
        elif freshness is Freshness.LATEST or not self._is_caught_up:
            self._is_caught_up = True
            if not self._is_leader_deposed:
                self.view.catch_up()

    def _see_quorum(self) -> None:
        self._is_caught_up = True
        self._is_leader_deposed = False
        self.view.catch_up()

    def _note_seen(self) -> None:
        self._changes_seen_count = max(self._changes_seen_count, self.view.tree.changes_count)

    def _begin_at_server(self) -> None:
        """Begin the new session at the lagging server if there is one and it accepts."""
        server, self._server_next = self._server_next, None
        self._is_caught_up = self._is_leader_deposed = False
        if server is None or not self._admits(server.tree):
            server = View(self._store.tree)
        self.view = server

    def _admits(self, tree: MetadataTree) -> bool:
        """Whether a server with this tree accepts the session, which tells what it has seen."""
        return tree.changes_count >= self._changes_seen_count

    def _carry_out(self, operations: list[Operation]) -> tuple[list[WriteAnswer], int]:
        """The answers, and the time of the store's clock."""
        try:
            answers = self._store.write(operations, self.session_id)
        finally:
            # A server answers a write once it has applied it and all earlier ones. This holds
            # for a refused write, too: a refusal has its place in the order of writes. So a
            # client that reads again after a refusal sees its cause and need not retry forever.
            self._see_quorum()
        if self._answers_to_lose_count:
            self._answers_to_lose_count -= 1
            raise _NoAnswerError("the answer of the metadata store was lost")
        self._note_seen()
        return answers, self._store.now_us()

    def _hear(self) -> None:
        """Let late answers and watches arrive."""
        self._cuts_s = math.inf
        if self._heard is not None:
            self._heard.set()
            self._heard = None
            self.view.be_on_time()

    def _lose(self) -> None:
        self._connection += 1
        self.view.fire_all()
        self._move(SessionState.LOST)

    def _move(self, state: SessionState) -> None:
        self.session_state = state
        self._moved.set()
        self._moved = trio.Event()
