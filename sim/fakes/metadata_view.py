"""One server's view of the metadata tree, which may lag, with the watches of one session."""

from collections.abc import Callable
from itertools import chain

import attrs

from sim.fakes.metadata_tree import ChangeKind, MetadataTree, NodeChange

Watcher = Callable[[], None]
"""Called once after the change."""


@attrs.frozen
class _Watch:
    """One watch at a path: kinds of change and a callback."""

    kinds: frozenset[ChangeKind]
    tell: Watcher


@attrs.define
class View:
    """The tree as one session sees it. The next session may have another server's view.

    Invariants:
    1. `tree` is a tree that the store had; it never goes back.
    2. A watch fires exactly once, when this view shows its change.
    """

    tree: MetadataTree
    is_lagging: bool = False
    is_late: bool = False
    """Whether watches that fire are heard of only when it is on time again."""
    _newest: MetadataTree = attrs.field(init=False)
    _changes_unseen: list[NodeChange] = attrs.field(factory=list, init=False)
    _watches: dict[str, list[_Watch]] = attrs.field(factory=dict, init=False)
    _unheard: list[_Watch] = attrs.field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self._newest = self.tree

    @property
    def watches_count(self) -> int:
        """Number of waiting watches."""
        return sum(map(len, self._watches.values()))

    def show(self, tree: MetadataTree, changes: list[NodeChange]) -> None:
        """Take a newer tree; show it now, or when a lagging view catches up."""
        self._newest = tree
        self._changes_unseen += changes
        if not self.is_lagging:
            self.catch_up()

    def catch_up(self) -> None:
        """Show the newest tree."""
        self.tree = self._newest
        changes, self._changes_unseen = self._changes_unseen, []
        for change in changes:
            self._fire(change)

    def be_on_time(self) -> None:
        """Tell of the watches that fired while it was late."""
        self.is_late = False
        watches, self._unheard = self._unheard, []
        for one in watches:
            one.tell()

    def watch_node(self, path: str, watcher: Watcher) -> None:
        """Call when the node is created, put or deleted."""
        self._watch(path, watcher, {ChangeKind.MADE, ChangeKind.PUT, ChangeKind.DELETED})

    def watch_children(self, path: str, watcher: Watcher) -> None:
        """Call when a child is created or deleted, or the node itself is deleted."""
        self._watch(path, watcher, {ChangeKind.CHILDREN, ChangeKind.DELETED})

    def fire_all(self) -> None:
        """Fire and drop all watches: the connection is lost, and changes may be missed."""
        watches, self._watches = self._watches, {}
        self.be_on_time()
        for one in chain.from_iterable(watches.values()):
            one.tell()

    def _watch(self, path: str, watcher: Watcher, kinds: set[ChangeKind]) -> None:
        self._watches.setdefault(path, []).append(_Watch(frozenset(kinds), watcher))

    def _fire(self, change: NodeChange) -> None:
        watches = self._watches.pop(change.path, [])
        left = [one for one in watches if change.kind not in one.kinds]
        if left:
            self._watches[change.path] = left
        for one in watches:
            if change.kind not in one.kinds:
                continue
            if self.is_late:
                self._unheard.append(one)
            else:
                one.tell()
