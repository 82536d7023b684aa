"""Metadata in ZooKeeper: successive sessions, deadlines, and our own errors.

Theory of operation. `open_zookeeper` runs one task that opens a session, follows its state and
opens the next when it is lost, for as long as the block runs. A session is lost when a server
says so, or when it was SUSPENDED for its whole time-out by this process's clock: then the
servers have most likely ended it, but there is nobody to ask. A process with ephemerals
compares `session_id`.

A request waits for a connection and for one of `requests_max` places; then it is sent. Before
that, a deadline or the end of the session refuses it for certain; after it, the outcome of a
write is unknown. ZooKeeper answers a session in order, so a read after an unknown write on the
same session shows the outcome.

A read that must be newer than the server's state is sent right behind a sync, or behind a write
that changes nothing, over the same session: it counts only if both are answered. The same goes
for each read of a new session, until one of them, or a write, was answered.

Rules: PROTOCOL M4 and M6.
"""

import logging
import math
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import attrs
import trio
from kazoo import exceptions as kazoo_errors
from kazoo.protocol.states import ZnodeStat

from geolog.background import open_background
from geolog.metadata.kazoo_session import (
    KazooSession,
    NoAnswerError,
    Send,
    open_kazoo_session,
)
from geolog.metadata.kazoo_words import (
    CONNECTION_ERRORS,
    refusal_of,
    transaction,
    transaction_on_nothing,
    unless_refused,
)
from geolog.metadata.nearest_servers import nearest_first
from geolog.metadata.reachability import Whereabouts, in_short, reach_of
from geolog.metadata.rules import check_operations, check_path, ensure_path_by_creates
from geolog.metadata.seam import (
    Create,
    Delete,
    Freshness,
    HeardTime,
    NoNodeError,
    Operation,
    Put,
    SessionLostError,
    SessionState,
    Stored,
)
from geolog.transport.gateway import Gateway, transport_through
from geolog.transport.seam import Address
from topology.errors import (
    InvalidArgumentError,
    InvalidConfigError,
    OutcomeUnknownError,
    UnavailableError,
)

_SERVERS_EXAMPLE = "10.0.0.1:2181,10.0.0.2:2181/geolog"

_log = logging.getLogger(__name__)

_NOTICE_S = 10.0
"""Interval of log lines while a process waits without limit for its first session."""

_RENEWAL_PAUSE_S = 0.2
"""Pause between a lost session and the next, so that a failing client does not spin."""


@attrs.frozen(kw_only=True)
class ZooKeeperClientConfig:
    """How a process talks to ZooKeeper. Always in seconds."""

    session_timeout_s: float = 6.0
    """Silence after which the servers end the session. They may agree to less, or to more."""

    request_timeout_s: float = 10.0
    """How long a request waits for its answer; after that the outcome of a write is unknown."""

    connect_timeout_s: float = 10.0
    """Time limit of the first connection, or inf for none: the log then says every ten seconds
    what it waits for. Later connections are retried without limit."""

    requests_max: int = 256
    """Requests that may wait for an answer; more wait for a place. It bounds kazoo's memory."""

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(ZooKeeperClientConfig):
            if not getattr(self, field.name) > 0:
                raise InvalidConfigError(f"{field.name} must be positive")


@attrs.frozen
class ZooKeeperStatistics:
    """How close a client is to its bounds, and its counts of losses."""

    questions_count: int
    watches_count: int
    sessions_lost_count: int
    answers_missed_count: int


@asynccontextmanager
async def open_zookeeper(
    servers: str,
    *,
    session_timeout_s: float = 6.0,
    request_timeout_s: float = 10.0,
    connect_timeout_s: float = 10.0,
    requests_max: int = 256,
    gateway: Gateway | None = None,
    whereabouts: Whereabouts | None = None,
) -> "AsyncIterator[ZooKeeperMetadata]":
    """Connect to `HOST:PORT,…[/chroot]`; a missing chroot is created.

    gateway: the one to reach the servers through, if any. whereabouts: regions of the caller
    and the servers, for the error, if known. InvalidConfigError if `hosts` cannot
    be parsed; UnavailableError if no server answers.
    """
    config = ZooKeeperClientConfig(
        session_timeout_s=session_timeout_s,
        request_timeout_s=request_timeout_s,
        connect_timeout_s=connect_timeout_s,
        requests_max=requests_max,
    )
    hosts, chroot = parse_servers(servers)
    metadata = ZooKeeperMetadata(hosts, config, gateway)
    async with _sessions_of(metadata):
        await _wait_connected_first(metadata, hosts, config, gateway, whereabouts)
        if chroot:
            await metadata.enter(chroot)
        yield metadata


async def _wait_connected_first(
    metadata: "ZooKeeperMetadata",
    hosts: str,
    config: ZooKeeperClientConfig,
    gateway: Gateway | None,
    whereabouts: Whereabouts | None,
) -> None:
    """Wait for the first session. UnavailableError if that takes too long."""
    began_s = trio.current_time()
    nobody = partial(_nobody_answered, hosts, gateway=gateway, whereabouts=whereabouts)
    while metadata.session_state is SessionState.LOST:
        waited_s = trio.current_time() - began_s
        if waited_s >= config.connect_timeout_s:
            raise await nobody(config.connect_timeout_s)
        with trio.move_on_after(min(_NOTICE_S, config.connect_timeout_s - waited_s)):
            await metadata.wait_state_change(SessionState.LOST)
            return
        if config.connect_timeout_s == math.inf:
            waited_s = trio.current_time() - began_s
            _log.warning("%s", await nobody(waited_s))


async def _nobody_answered(
    hosts: str,
    waited_s: float,
    *,
    gateway: Gateway | None,
    whereabouts: Whereabouts | None,
) -> UnavailableError:
    """The error for no session; checks which servers can be reached, and which serve."""
    servers = [Address.parse(host) for host in hosts.split(",")]
    reach = await reach_of(servers, transport_through(gateway))
    waited = f"no ZooKeeper answered at {hosts} within {waited_s:.3g} s"
    if reach.idle and not reach.serving:
        return UnavailableError(f"{waited}: {reach.why_away(whereabouts)}")
    why = f": {in_short(reach.unreached)}" if reach.unreached else ""
    return UnavailableError(
        f"{waited}{why}. Is one running? `geolog serve zookeeper` starts one, `geolog demo` a"
        " cluster"
    )


@asynccontextmanager
async def _sessions_of(metadata: "ZooKeeperMetadata") -> AsyncIterator[None]:
    """Keep a session until the block has ended, even while it is cancelled.

    The last words of a block in metadata, e.g. how far a storage node's journal is, come after
    the cancellation that ends it; the same cancellation must not have ended the session.
    """
    session_scope = trio.CancelScope(shield=True)

    async def run() -> None:
        with session_scope:
            await metadata.run()

    async with open_background() as nursery:
        nursery.start_soon(run, name=f"sessions of {metadata}")
        try:
            yield
        finally:
            session_scope.cancel(reason="the block has ended")


def parse_servers(text: str) -> tuple[str, str]:
    """Split into the servers and the chroot: empty, or a path."""
    hosts, slash, rest = text.partition("/")
    for where in hosts.split(","):
        host, colon, port = where.strip().rpartition(":")
        if not (host and colon and port.isdecimal() and 0 < int(port) < 1 << 16):
            raise InvalidConfigError(
                f"{where!r} in {text!r} is not a ZooKeeper server: use "
                f"HOST:PORT,…[/chroot], e.g. {_SERVERS_EXAMPLE}"
            )
    chroot = f"/{rest.rstrip('/')}" if slash and rest.rstrip("/") else ""
    try:
        check_path(chroot or "/")
    except InvalidArgumentError as error:
        raise InvalidConfigError(f"invalid chroot in {text!r}: {error}") from error
    return hosts, chroot


@attrs.define(eq=False)
class ZooKeeperMetadata:
    """`Metadata` in ZooKeeper. Returned by `open_zookeeper`.

    Invariants:
    1. A request issued in one session is never sent in another.
    2. `session_state` is CONNECTED or SUSPENDED only if `session_id` names a session that was
       not lost, as far as this process knows.
    3. No answer is older than an earlier one, whichever session gave it.
    """

    _hosts: str
    _config: ZooKeeperClientConfig
    _gateway: Gateway | None = None
    _chroot: str = attrs.field(default="", init=False)
    session_state: SessionState = attrs.field(default=SessionState.LOST, init=False)
    session_id: int = attrs.field(default=0, init=False)
    time_heard: HeardTime | None = attrs.field(default=None, init=False)
    _session: KazooSession | None = attrs.field(default=None, init=False)
    _moved: trio.Event = attrs.field(factory=trio.Event, init=False)
    _sessions_lost_count: int = attrs.field(default=0, init=False)
    _answers_missed_count: int = attrs.field(default=0, init=False)

    def __repr__(self) -> str:
        state = self.session_state.value
        return f"<ZooKeeperMetadata {self._hosts}{self._chroot} {state} {self.session_id:#x}>"

    @property
    def session_timeout_s(self) -> float:
        """The time-out that the servers agreed to."""
        session = self._session
        return self._config.session_timeout_s if session is None else session.session_timeout_s

    def statistics(self) -> ZooKeeperStatistics:
        """A snapshot."""
        session = self._session
        return ZooKeeperStatistics(
            questions_count=0 if session is None else session.questions_count,
            watches_count=0 if session is None else session.watches_count,
            sessions_lost_count=self._sessions_lost_count,
            answers_missed_count=self._answers_missed_count,
        )

    async def get(
        self,
        path: str,
        *,
        changed: trio.Event | None = None,
        freshness: Freshness = Freshness.NEARBY,
    ) -> Stored:
        """Read a node."""
        stored = await self._get(path, changed, freshness)
        if stored is None:
            raise NoNodeError(f"{path} does not exist")
        return stored

    async def find(
        self,
        path: str,
        *,
        changed: trio.Event | None = None,
        freshness: Freshness = Freshness.NEARBY,
    ) -> Stored | None:
        """Read a node, or None: then a second request sets the watch."""
        stored = await self._get(path, changed, freshness)
        if stored is None and changed is not None and await self._exists(path, changed):
            stored = await self._get(path, None)  # Created in between: the watch is set on it.
        return stored

    async def children(
        self,
        path: str,
        *,
        changed: trio.Event | None = None,
        freshness: Freshness = Freshness.NEARBY,
    ) -> list[str]:
        """List the children of a node."""
        full = self._full(path)
        try:
            names = await self._ask(
                lambda client, watcher: client.get_children_async(full, watch=watcher),
                changed,
                freshness=freshness,
            )
        except kazoo_errors.KazooException as error:
            raise refusal_of(error, path) from error
        assert isinstance(names, list)
        return sorted(names)

    async def multi(self, operations: list[Operation]) -> list[str | int | None]:
        """Do all or none, in one request."""
        check_operations(operations)
        if not operations:
            return []
        requests = [attrs.evolve(each, path=self._full(each.path)) for each in operations]
        try:
            answers = await self._ask(
                lambda client, _: transaction(client, requests).commit_async()
            )
        except NoAnswerError as error:
            raise OutcomeUnknownError(f"{error}: the write may have been done") from error
        except kazoo_errors.KazooException as error:
            raise refusal_of(error, operations[0].path) from error
        assert isinstance(answers, list)
        assert len(answers) == len(operations), f"{answers} answers {operations}"
        return [
            self._done(operation, answer)
            for operation, answer in zip(
                operations, unless_refused(operations, answers), strict=True
            )
        ]

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
        """Wait for another state than `seen`."""
        while self.session_state is seen:
            await self._moved.wait()
        return self.session_state

    async def enter(self, chroot: str) -> None:
        """Create a node if missing; from now on all paths are relative to it."""
        await self.ensure_path(chroot)
        self._chroot = chroot

    async def run(self) -> None:
        """Open one session after the other; never returns."""
        servers = [Address.parse(each) for each in self._hosts.split(",")]
        transport = transport_through(self._gateway)
        zxid_seen = 0
        while True:
            nearest = await nearest_first(servers, transport, random.Random())
            async with open_kazoo_session(
                ",".join(map(str, nearest)),
                self._config.session_timeout_s,
                self._config.requests_max,
                self._gateway,
                zxid_seen=zxid_seen,
            ) as session:
                await self._follow(session)
            zxid_seen = session.zxid_seen
            await trio.sleep(_RENEWAL_PAUSE_S)

    async def _follow(self, session: KazooSession) -> None:
        """Publish a session's state until it is lost, by a server's word or by our clock."""
        while session.state is not SessionState.LOST:
            moved = session.moved
            patience_s = math.inf
            if session.state is not None:
                self._session, self.session_id = session, session.session_id
                self._show(session.state)
            if session.state is SessionState.SUSPENDED:
                patience_s = session.session_timeout_s
            with trio.move_on_after(patience_s):
                await moved.wait()
                continue
            break
        session.lose()
        self._sessions_lost_count += 1
        self._show(SessionState.LOST)

    async def _get(
        self,
        path: str,
        changed: trio.Event | None,
        freshness: Freshness = Freshness.NEARBY,
    ) -> Stored | None:
        full = self._full(path)
        try:
            answer = await self._ask(
                lambda client, watcher: client.get_async(full, watch=watcher),
                changed,
                freshness=freshness,
            )
        except kazoo_errors.NoNodeError:
            return None
        except kazoo_errors.KazooException as error:
            raise refusal_of(error, path) from error
        assert isinstance(answer, tuple)
        data, stat = answer
        return Stored(
            data,
            stat.version,
            stat.ephemeralOwner,
            stat.numChildren,
            stat.cversion,
            created_us=stat.ctime * 1000,
            modified_us=stat.mtime * 1000,
        )

    async def _exists(self, path: str, changed: trio.Event) -> bool:
        full = self._full(path)
        try:
            stat = await self._ask(
                lambda client, watcher: client.exists_async(full, watch=watcher),
                changed,
                freshness=Freshness.NEARBY,
            )
        except kazoo_errors.KazooException as error:
            raise refusal_of(error, path) from error
        return stat is not None

    async def _ask(
        self,
        send: Send,
        changed: trio.Event | None = None,
        *,
        freshness: Freshness | None = None,
    ) -> object:
        """Ask in the current session. A read gives its freshness; a write has none."""
        is_sent = False
        with trio.move_on_after(self._config.request_timeout_s):
            session = await self._wait_connected()
            await session.wait_room()
            is_sent = True
            try:
                return await session.ask(send, changed, behind=self._before(freshness, session))
            except CONNECTION_ERRORS as error:
                self._answers_missed_count += 1
                raise NoAnswerError(f"the connection to {self._hosts} broke") from error
        within = f"within {self._config.request_timeout_s:g} s"
        if is_sent:
            self._answers_missed_count += 1
            raise NoAnswerError(f"ZooKeeper at {self._hosts} did not answer {within}")
        raise UnavailableError(f"no ZooKeeper server at {self._hosts} was reached {within}")

    def _before(self, freshness: Freshness | None, session: KazooSession) -> Send | None:
        """The request to send right before another, so that its answer is new enough."""
        root = self._full("/")
        match freshness:
            case Freshness.CERTAIN:
                return lambda client, _: transaction_on_nothing(client, root).commit_async()
            case Freshness.LATEST:
                return lambda client, _: client.sync_async(root)
            case Freshness.NEARBY if not session.is_caught_up:
                return lambda client, _: client.sync_async(root)
            case _:
                return None  # A write catches up by itself.

    async def _wait_connected(self) -> KazooSession:
        issued_in = None if self.session_state is SessionState.LOST else self.session_id
        while self.session_state is not SessionState.CONNECTED:
            await self._moved.wait()
        if issued_in not in (None, self.session_id):
            raise SessionLostError(
                f"metadata session {issued_in:#x} has ended; the request was not sent"
            )
        assert self._session is not None
        return self._session

    def _show(self, state: SessionState) -> None:
        self.session_state = state
        self._moved.set()
        self._moved = trio.Event()

    def _full(self, path: str) -> str:
        check_path(path)
        return self._chroot + path if path != "/" else self._chroot or "/"

    def _done(self, operation: Operation, answer: object) -> str | int | None:
        """Our answer for an operation that ZooKeeper carried out."""
        match operation:
            case Create():
                assert isinstance(answer, str)
                return answer.removeprefix(self._chroot)
            case Put(version=version):
                assert isinstance(answer, ZnodeStat)
                self.time_heard = HeardTime(answer.mtime * 1000, trio.current_time())
                return version + 1
            case _:
                return None
