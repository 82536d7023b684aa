"""The metadata seam: a small tree of versioned nodes that every process of a cluster shares.

Writes are linearizable. A read says how new its answer must be (`Freshness`). A watch fires
once, some time after the change. It also fires when the connection or the session is lost,
since a change may have been missed then: after a watch, read again. Ephemeral nodes vanish when
the session that created them expires; its holder may learn that later than others. A write
whose answer does not come in time raises `OutcomeUnknownError`: it may have been carried out.
Read again, and compare.

Reads of one process never go back, not even across sessions:

1. Within a session a server answers in order, and a server that is behind the session's last
   answer does not serve it.
2. A new session begins only at a server that is not behind the process's last answer.
3. The first read of a session is at least LATEST. So it also sees a write of the previous
   session whose answer was lost.

So a procedure of several steps may begin in one session and continue in the next: its earlier
reads stay consistent with later ones, and its writes stay written. Each single answer belongs
to one session: a read that catches up in one session and looks in another fails as unavailable.

Rules: PROTOCOL M2 and M3.
"""

import enum
from typing import ClassVar, Protocol

import attrs
import trio

from topology.errors import ConflictError, NotFoundError, UnavailableError


class NoNodeError(NotFoundError):
    """The metadata node, or its required parent, does not exist."""


class NodeExistsError(ConflictError):
    """A metadata node of that path already exists."""


class BadVersionError(ConflictError):
    """Another process changed the metadata node since it was read: read it again."""


class NotEmptyError(ConflictError):
    """A metadata node with children cannot be deleted."""


class SessionLostError(ConflictError):
    """The session of this process is over and its ephemerals are gone; retry in the next.

    Another process takes it as "unavailable": the session is not its own.
    """

    code: ClassVar[int] = UnavailableError.code
    retriable: ClassVar[bool] = True


class SessionState(enum.Enum):
    """This process's knowledge of its session.

    SUSPENDED: no server answers now. LOST: expired, or SUSPENDED for longer than the session
    time-out by this process's own clock, whichever comes first. LOST is final for the session;
    a new one begins, with a new `session_id`, as soon as a server can be reached.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class Freshness(enum.Enum):
    """How new the answer of a read must be. Each costs more than the one before."""

    NEARBY = "nearby"
    """The state of this session's server. It may lag behind the others."""
    LATEST = "latest"
    """Everything written before the call: the server first catches up with its leader.

    The leader answers for itself. A leader that was deposed and has not noticed yet, because it
    was paused or is cut off, answers with what it has. No choice between servers rules that
    out.
    """
    CERTAIN = "certain"
    """Everything written before the call, whatever the leader believes.

    The server first carries out a write that changes nothing, which takes a quorum. Use it
    where a wrong answer would be final: that a stream ends here, that a record is lost.
    """


@attrs.frozen
class Stored:
    """A node's content as read, with the version for a compare-and-set."""

    data: bytes
    version: int
    session_id: int = attrs.field(default=0, eq=bool)
    """For an ephemeral node: its session, as in `Metadata.session_id`; 0 for any other.
    Stores number sessions differently: equal nodes are both ephemeral or both not.
    """
    children_count: int = 0
    children_changes: int = attrs.field(default=0, eq=False)
    """Count of children ever created or deleted: an equal number means that none was since."""
    created_us: int = attrs.field(default=0, eq=False)
    """Creation time: Unix time in microseconds, by the metadata store's own clock."""
    modified_us: int = attrs.field(default=0, eq=False)
    """Time of the last write of its content, or of its creation, by the same clock."""

    @property
    def is_ephemeral(self) -> bool:
        """Whether it vanishes with a session."""
        return self.session_id != 0


@attrs.frozen
class HeardTime:
    """A time of the metadata store's clock, and when it was received, on a monotonic clock."""

    store_us: int
    heard_s: float

    def now_us(self, now_s: float) -> int:
        """That clock's time now, or a little less: the answer took a while to arrive."""
        return self.store_us + round((now_s - self.heard_s) * 1e6)


@attrs.frozen
class Create:
    """Create a node under an existing parent. Sequential: appends a rising 10-digit number."""

    path: str
    data: bytes = b""
    is_ephemeral: bool = False
    is_sequential: bool = False


@attrs.frozen
class Put:
    """Replace a node's content if its version is still `version`."""

    path: str
    data: bytes
    version: int


@attrs.frozen
class Delete:
    """Delete a childless node if its version is still `version` (None: any version)."""

    path: str
    version: int | None = None


@attrs.frozen
class Check:
    """Do nothing, but fail the whole multi unless the node is at `version` (None: any)."""

    path: str
    version: int | None = None


Operation = Create | Put | Delete | Check


class Metadata(Protocol):
    """The seam. Paths are absolute and normalised, e.g. /a/b; data is safely below 1 MiB."""

    @property
    def session_state(self) -> SessionState:
        """The last known state of the session, without asking."""
        ...

    @property
    def session_id(self) -> int:
        """Id of the session. When it has changed, earlier ephemerals are gone."""
        ...

    @property
    def session_timeout_s(self) -> float:
        """The agreed session time-out."""
        ...

    @property
    def time_heard(self) -> HeardTime | None:
        """The store's time at this process's latest Put; None before the first."""
        ...

    async def get(
        self,
        path: str,
        *,
        changed: trio.Event | None = None,
        freshness: Freshness = Freshness.NEARBY,
    ) -> Stored:
        """Read a node; `changed` is set once, after it changes or goes. NoNodeError."""
        ...

    async def find(
        self,
        path: str,
        *,
        changed: trio.Event | None = None,
        freshness: Freshness = Freshness.NEARBY,
    ) -> Stored | None:
        """As `get`, but None if absent; `changed` is then set once, after it is created."""
        ...

    async def children(
        self,
        path: str,
        *,
        changed: trio.Event | None = None,
        freshness: Freshness = Freshness.NEARBY,
    ) -> list[str]:
        """Names of the children, sorted; `changed` is set once, after one comes or goes."""
        ...

    async def multi(self, operations: list[Operation]) -> list[str | int | None]:
        """Do all or none. For each operation: Create its path, Put the new version, else None.

        Raises the error that the first failed operation would raise alone; then nothing was
        done.
        """
        ...

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        is_ephemeral: bool = False,
        is_sequential: bool = False,
    ) -> str:
        """Create one node and return its path. NodeExistsError, NoNodeError (no parent)."""
        ...

    async def put(self, path: str, data: bytes, version: int) -> int:
        """Replace the content by compare-and-set, return the new version. BadVersionError."""
        ...

    async def delete(self, path: str, version: int | None = None) -> None:
        """Delete one node. NoNodeError, BadVersionError, NotEmptyError."""
        ...

    async def ensure_path(self, path: str) -> None:
        """Create the node, empty, and its missing parents; does nothing if it exists."""
        ...

    async def wait_state_change(self, seen: SessionState) -> SessionState:
        """Wait until the session's state is not `seen`, and return it."""
        ...
