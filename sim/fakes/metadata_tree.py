"""ZooKeeper's tree as a value: the rules of its writes, without clock, socket or session timer.

Theory of operation. A `MetadataTree` is frozen. `apply` takes the operations of one request and
returns the successor, the answer to each operation, and the changes that watches wait for. If
an operation fails, `apply` raises its error and the tree is unchanged. A lagging server is
simply an older tree.

Invariants:
1. The parent of every node except the root is in the tree and lists it in `children`.
2. A node with an owner has no children.
3. `children_made` counts the children ever created under a node, ignoring deletions. The
   next sequential child gets this number.
"""

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import NewType, assert_never

import attrs

from geolog.metadata.rules import parent_of
from geolog.metadata.seam import (
    BadVersionError,
    Check,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Put,
    Stored,
)
from topology.errors import InvalidArgumentError

SessionId = NewType("SessionId", int)
"""Id of a session of the store; never 0 and never reused."""

WriteAnswer = str | int | None


class ChangeKind(enum.Enum):
    """Kind of a change to a node."""

    MADE = "made"
    PUT = "put"
    DELETED = "deleted"
    CHILDREN = "children"


@attrs.frozen
class NodeChange:
    """One change at one path, for watches."""

    kind: ChangeKind
    path: str


@attrs.frozen
class MetadataNode:
    """One node of the tree; `owner` is the session of an ephemeral node."""

    data: bytes = b""
    version: int = 0
    owner: SessionId | None = None
    children: frozenset[str] = frozenset()
    children_made: int = 0
    children_changes: int = 0
    created_us: int = 0
    modified_us: int = 0


@attrs.frozen
class MetadataTree:
    """All nodes by path. Changes return a successor and leave this tree as it is."""

    nodes: Mapping[str, MetadataNode] = attrs.field(
        factory=lambda: MappingProxyType({"/": MetadataNode()})
    )
    changes_count: int = attrs.field(default=0, eq=False)
    """Number of requests and session ends so far; the newer of two trees has more."""

    def find(self, path: str) -> Stored | None:
        """Read a node, or None."""
        node = self.nodes.get(path)
        if node is None:
            return None
        return Stored(
            node.data,
            node.version,
            node.owner or 0,
            len(node.children),
            node.children_changes,
            created_us=node.created_us,
            modified_us=node.modified_us,
        )

    def get(self, path: str) -> Stored:
        """Read a node, or raise NoNodeError."""
        stored = self.find(path)
        if stored is None:
            raise _no_node(path)
        return stored

    def children(self, path: str) -> list[str]:
        """Names of the children, sorted, or raise NoNodeError."""
        if path not in self.nodes:
            raise _no_node(path)
        return sorted(self.nodes[path].children)

    def apply(
        self, operations: list[Operation], session: SessionId, *, now_us: int = 0
    ) -> tuple["MetadataTree", list[WriteAnswer], list[NodeChange]]:
        """Carry out all operations in order, or raise and carry out none."""
        draft = _Draft(dict(self.nodes), session, now_us)
        answers = [draft.perform(operation) for operation in operations]
        return self._successor(draft), answers, draft.changes

    def without_session(self, session: SessionId) -> tuple["MetadataTree", list[NodeChange]]:
        """Delete all ephemeral nodes of a session that has ended."""
        draft = _Draft(dict(self.nodes), session)
        for path in sorted(path for path, node in self.nodes.items() if node.owner == session):
            draft.perform(Delete(path))
        return self._successor(draft), draft.changes

    def _successor(self, draft: "_Draft") -> "MetadataTree":
        return MetadataTree(MappingProxyType(draft.nodes), self.changes_count + 1)


@attrs.define
class _Draft:
    """A tree under construction; discarded when an operation fails."""

    nodes: dict[str, MetadataNode]
    session: SessionId
    now_us: int = 0
    changes: list[NodeChange] = attrs.Factory(list)

    def perform(self, operation: Operation) -> WriteAnswer:
        match operation:
            case Create():
                return self._make(operation)
            case Put(path, data, version):
                node = self._at_version(path, version)
                self.nodes[path] = attrs.evolve(
                    node, data=data, version=version + 1, modified_us=self.now_us
                )
                self.changes.append(NodeChange(ChangeKind.PUT, path))
                return version + 1
            case Delete(path, version):
                self._delete(path, version)
            case Check(path, version):
                self._at_version(path, version)
            case _:
                assert_never(operation)
        return None

    def _make(self, create: Create) -> str:
        parent_path = parent_of(create.path)
        parent = self._node(parent_path)
        path = create.path
        if create.is_sequential:
            path = f"{path}{parent.children_made:010d}"
        if path in self.nodes:
            raise NodeExistsError(f"{path} exists already")
        if parent.owner is not None:
            raise InvalidArgumentError(
                f"{parent_path} is ephemeral and can have no child {path.rpartition('/')[2]}"
            )
        self.nodes[path] = MetadataNode(
            create.data,
            owner=self.session if create.is_ephemeral else None,
            created_us=self.now_us,
            modified_us=self.now_us,
        )
        self.nodes[parent_path] = attrs.evolve(
            parent,
            children=parent.children | {path.rpartition("/")[2]},
            children_made=parent.children_made + 1,
            children_changes=parent.children_changes + 1,
        )
        self.changes += [
            NodeChange(ChangeKind.MADE, path),
            NodeChange(ChangeKind.CHILDREN, parent_path),
        ]
        return path

    def _delete(self, path: str, version: int | None) -> None:
        node = self._at_version(path, version)
        if node.children:
            raise NotEmptyError(f"{path} has {len(node.children)} children")
        parent_path = parent_of(path)
        parent = self.nodes[parent_path]
        self.nodes[parent_path] = attrs.evolve(
            parent,
            children=parent.children - {path.rpartition("/")[2]},
            children_changes=parent.children_changes + 1,
        )
        del self.nodes[path]
        self.changes += [
            NodeChange(ChangeKind.DELETED, path),
            NodeChange(ChangeKind.CHILDREN, parent_path),
        ]

    def _at_version(self, path: str, version: int | None) -> MetadataNode:
        node = self._node(path)
        if version is not None and node.version != version:
            raise BadVersionError(f"{path} is at version {node.version}, not {version}")
        return node

    def _node(self, path: str) -> MetadataNode:
        if path not in self.nodes:
            raise _no_node(path)
        return self.nodes[path]


def _no_node(path: str) -> NoNodeError:
    return NoNodeError(f"{path} does not exist")
