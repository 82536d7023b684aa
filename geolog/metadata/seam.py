"""The metadata seam: a small tree of versioned nodes that every process of a cluster shares.

Writes are linearizable. A read says how new its answer must be (`Freshness`). A watch fires
once, some time after the change, and also when the connection or the session is lost, since a
change may have been missed then: after a watch, look again. Ephemeral nodes vanish when the
session that made them expires, which its holder may learn later than the others. A write whose
answer does not come in time raises `OutcomeUnknownError`: it may have been carried out. Read
again, and compare.

Reads of one process never go back, across sessions too:

1. Within a session a server answers in order, and a server that is behind what the session was
   answered does not serve it.
2. A new session begins only at a server that is not behind what the process was answered.
3. The first read of a session is LATEST, if it did not ask for more. So it also sees a write of
   the session before whose answer was lost.

Therefore a procedure of several steps may begin in one session and go on in the next: what it
read stays true of what it reads, and what it wrote stays written. Each answer itself belongs to
one session: a read that catches up in one session and looks in another fails as unavailable.

Rules: PROTOCOL M2 and M3.
"""

import enum
from typing import ClassVar, Protocol

import attrs
import trio

from topology.errors import ConflictError, NotFoundError


class NoNodeError(NotFoundError):
    """The metadata node, or the parent that it needs, does not exist."""


class NodeExistsError(ConflictError):
    """A metadata node of that path exists already."""


class BadVersionError(ConflictError):
    """The metadata node was changed by somebody else since it was read: read it again."""


class NotEmptyError(ConflictError):
    """A metadata node with children cannot be deleted."""


class SessionLostError(ConflictError):
    """The session of this process is over, its ephemerals are gone; ask again in the next."""

    retriable: ClassVar[bool] = True


class SessionState(enum.Enum):
    """What this process knows of its session.

    SUSPENDED: no server answers now. LOST: expired, or SUSPENDED for longer than the session
    time-out by this process's own clock, whichever it learns first. LOST is final for the
    session; a new one begins, with a new `session_id`, as soon as a server can be reached.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class Freshness(enum.Enum):
    """How new the answer of a read must be. Each costs more than the one before."""

    NEARBY = "nearby"
    """What the server of this session has. It may lag behind the others."""
    LATEST = "latest"
    """All that was written before the call: the server first catches up with its leader.

    The leader answers for itself. One that was deposed and has not noticed yet, because it
    stood still or is cut off, answers what it has. No choice between servers rules that out.
    """
    CERTAIN = "certain"
    """All that was written before the call, whatever the leader believes.

    The server first carries out a write that changes nothing, which takes a quorum. Ask so
    where a wrong answer would be final: that a stream ends here, that a record is lost.
    """


@attrs.frozen
class Stored:
    """A node's content as read, with the version that a compare-and-set names."""

    data: bytes
    version: int
    session_id: int = attrs.field(default=0, eq=bool)
    """Of an ephemeral node: the session that it goes with, as `Metadata.session_id` names it;
    0 for any other. Stores number sessions differently: equal nodes are both ephemeral or not.
    """
    children_count: int = 0
    children_changes: int = attrs.field(default=0, eq=False)
    """How many children were ever made, or went: the same number says that none has since."""
    created_us: int = attrs.field(default=0, eq=False)
    """When it was made: Unix time in microseconds, by the metadata store's own clock."""
    modified_us: int = attrs.field(default=0, eq=False)
    """When its content was last replaced, or it was made, by the same clock."""

    @property
    def is_ephemeral(self) -> bool:
        """Whether it goes with a session."""
        return self.session_id != 0


@attrs.frozen
class HeardTime:
    """What the metadata store's clock said, and when this process heard it, monotonically."""

    store_us: int
    heard_s: float

    def now_us(self, now_s: float) -> int:
        """What that clock says now, or a little less: the answer took a while to come."""
        return self.store_us + round((now_s - self.heard_s) * 1e6)


@attrs.frozen
class Create:
    """Make a node under a parent that exists. Sequential: a rising 10-digit number is added."""

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
    """Delete a childless node if its version is still `version` (None: whatever it is)."""

    path: str
    version: int | None = None


@attrs.frozen
class Check:
    """Do nothing, but fail the whole multi unless the node is at `version`."""

    path: str
    version: int


Operation = Create | Put | Delete | Check


class Metadata(Protocol):
    """The seam. Paths are absolute and normalised, as /a/b; data is under 1 MiB by a margin."""

    @property
    def session_state(self) -> SessionState:
        """What is known of the session now, without asking."""
        ...

    @property
    def session_id(self) -> int:
        """Names the session. When it has changed, the ephemerals made before are gone."""
        ...

    @property
    def session_timeout_s(self) -> float:
        """The time-out that was agreed for the session."""
        ...

    @property
    def time_heard(self) -> HeardTime | None:
        """What the store's clock said of this process's latest Put; None before the first."""
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
        """As `get`, but None if absent; `changed` is then set once, after it is made."""
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

        Raises what the first operation that failed would raise alone; nothing was done then.
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
        """Make one node and return its path. NodeExistsError, NoNodeError (no parent)."""
        ...

    async def put(self, path: str, data: bytes, version: int) -> int:
        """Replace the content by compare-and-set, return the new version. BadVersionError."""
        ...

    async def delete(self, path: str, version: int | None = None) -> None:
        """Delete one node. NoNodeError, BadVersionError, NotEmptyError."""
        ...

    async def ensure_path(self, path: str) -> None:
        """Make the node, empty, and its missing parents; nothing if it exists."""
        ...

    async def wait_state_change(self, seen: SessionState) -> SessionState:
        """Wait until the session's state is not `seen`, and return it."""
        ...
