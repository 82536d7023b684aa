"""One server's view of the metadata tree: it may lag, and it holds a session's watches."""

from collections.abc import Callable

import attrs

from geolog.metadata.tree import Change, Kind, Tree

Watcher = Callable[[], None]
"""Called once, after the change."""


@attrs.define
class View:
    """The tree as one session sees it.

    Invariants:
    1. `tree` is a tree that the store had, and never goes back.
    2. A watch fires when its change is seen here, not before, and once.
    """

    tree: Tree
    is_lagging: bool = False
    _newest: Tree = attrs.field(init=False)
    _changes_unseen: list[Change] = attrs.field(factory=list, init=False)
    _watchers: dict[Change, list[Watcher]] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._newest = self.tree

    def show(self, tree: Tree, changes: list[Change]) -> None:
        """The store has a newer tree: see it now, or when this view catches up."""
        self._newest = tree
        self._changes_unseen += changes
        if not self.is_lagging:
            self.catch_up()

    def catch_up(self) -> None:
        """See all that was shown."""
        self.tree = self._newest
        changes, self._changes_unseen = self._changes_unseen, []
        for change in changes:
            self._fire(change)

    def watch_node(self, path: str, watcher: Watcher) -> None:
        """Call when the node is made, put or deleted."""
        self._watch(
            watcher, [Change(kind, path) for kind in (Kind.MADE, Kind.PUT, Kind.DELETED)]
        )

    def watch_children(self, path: str, watcher: Watcher) -> None:
        """Call when a child comes or goes, or the node itself is deleted."""
        self._watch(watcher, [Change(kind, path) for kind in (Kind.CHILDREN, Kind.DELETED)])

    def fire_all(self) -> None:
        """The connection is lost, and changes may be missed: call all, and forget them."""
        for change in list(self._watchers):
            self._fire(change)

    def _watch(self, watcher: Watcher, changes: list[Change]) -> None:
        is_fired = False

        def fire_once() -> None:
            nonlocal is_fired
            if not is_fired:
                is_fired = True
                watcher()

        for change in changes:
            self._watchers.setdefault(change, []).append(fire_once)

    def _fire(self, change: Change) -> None:
        for watcher in self._watchers.pop(change, []):
            watcher()
