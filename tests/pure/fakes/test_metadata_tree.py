"""Laws of the metadata tree and its views."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from geolog.metadata.rules import parent_of
from geolog.metadata.seam import Create, Delete, Operation, Put
from sim.fakes.metadata_tree import ChangeKind, MetadataTree, NodeChange, SessionId
from sim.fakes.metadata_view import View
from topology.errors import GeologError

ONE, OTHER = SessionId(1), SessionId(2)

paths = st.sampled_from(["/a", "/b", "/a/c", "/a/d", "/a/c/e"])
operations: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Create, paths, st.binary(max_size=2), st.booleans(), st.booleans()),
    st.builds(Put, paths, st.binary(max_size=2), st.integers(0, 2)),
    st.builds(Delete, paths, st.none()),
)
requests = st.lists(
    st.tuples(st.sampled_from([ONE, OTHER]), st.lists(operations, min_size=1, max_size=3)),
    max_size=20,
)


def after(
    history: list[tuple[SessionId, list[Operation]]],
) -> list[tuple[MetadataTree, list[NodeChange]]]:
    """The tree after each accepted request, with its changes."""
    trees = [(MetadataTree(), list[NodeChange]())]
    for session, asked in history:
        try:
            tree, _, changes = trees[-1][0].apply(asked, session)
        except GeologError:
            continue
        trees.append((tree, changes))
    return trees


def check_shape(tree: MetadataTree) -> None:
    """Invariants 1 to 3 of the tree, the slow way."""
    for path, node in tree.nodes.items():
        names = {each.rpartition("/")[2] for each in tree.nodes if parent_of(each) == path}
        assert node.children == names - {""}
        assert node.owner is None or not node.children
        assert node.children_made >= len(node.children)
        assert parent_of(path) in tree.nodes


@given(requests)
def test_the_tree_keeps_its_shape(history: list[tuple[SessionId, list[Operation]]]) -> None:
    for tree, _ in after(history):
        check_shape(tree)


@given(requests)
def test_the_end_of_a_session_takes_its_ephemerals_and_nothing_else(
    history: list[tuple[SessionId, list[Operation]]],
) -> None:
    tree = after(history)[-1][0]
    left, changes = tree.without_session(ONE)

    check_shape(left)
    gone = {path for path, node in tree.nodes.items() if node.owner == ONE}
    assert set(left.nodes) == set(tree.nodes) - gone
    assert {change.path for change in changes if change.kind is ChangeKind.DELETED} == gone


@given(requests)
def test_the_changes_report_every_difference(
    history: list[tuple[SessionId, list[Operation]]],
) -> None:
    trees = after(history)
    for (before, _), (tree, changes) in pairwise(trees):
        for path in {*before.nodes, *tree.nodes}:
            said = {change.kind for change in changes if change.path == path}
            old, new = before.find(path), tree.find(path)
            if (old and (old.data, old.version)) != (new and (new.data, new.version)):
                assert said & {ChangeKind.MADE, ChangeKind.PUT, ChangeKind.DELETED}
            if old and new and before.children(path) != tree.children(path):
                assert said & {ChangeKind.CHILDREN, ChangeKind.MADE}


@given(requests, st.integers(0, 20))
def test_a_view_that_lags_sees_and_tells_nothing_until_it_catches_up(
    history: list[tuple[SessionId, list[Operation]]], lags_from: int
) -> None:
    trees = after(history)
    view = View(trees[0][0])
    fired: list[str] = []
    for tree, changes in trees[1 : lags_from + 1]:
        view.show(tree, changes)
        assert view.tree is tree
    seen, view.is_lagging = view.tree, True
    view.watch_children("/", lambda: fired.append("/"))
    for tree, changes in trees[lags_from + 1 :]:
        view.show(tree, changes)
        assert view.tree is seen
        assert fired == []
    view.catch_up()

    assert view.tree is trees[-1][0]
    late = [change for _, changes in trees[lags_from + 1 :] for change in changes]
    assert (fired == ["/"]) == (NodeChange(ChangeKind.CHILDREN, "/") in late)
