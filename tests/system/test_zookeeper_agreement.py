"""One property: the store in memory and a real ZooKeeper answer requests alike."""

import itertools
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import attrs
import pytest
import trio
from hypothesis import example, given
from hypothesis import strategies as st

from geolog.background import open_background
from geolog.metadata.seam import (
    Check,
    Create,
    Delete,
    Freshness,
    Metadata,
    Operation,
    Put,
    Stored,
)
from geolog.metadata.zookeeper import open_zookeeper
from geolog.transport.seam import Address
from regions.zookeeper.server import wait_ready
from sim.fakes.memory_metadata import open_memory_store
from tests.system.addresses import free_addresses
from tests.system.zookeeper_server import SERVE, START_TIMEOUT_S
from topology.errors import GeologError

ANSWER_TIMEOUT_S = 30.0

# Few paths, so that requests interact: a parent, its children, a grandchild, and the nodes of
# sequential creates.
PATHS = ["/a", "/a/b", "/a/b/d", "/a/c", "/a/s-0000000000", "/a/s-0000000001", "/"]
WHO = ["one", "other"]


@attrs.frozen
class Do:
    """Do all or none of some operations."""

    who: str
    operations: list[Operation]


@attrs.frozen
class Look:
    """Read by one of the three ways, with a given freshness, with or without a watch."""

    who: str
    verb: str
    path: str
    is_watched: bool
    freshness: Freshness = Freshness.NEARBY


@attrs.frozen
class Ensure:
    """Make a path with its parents."""

    who: str
    path: str


@attrs.frozen
class Reopen:
    """Close a session, with its ephemerals, and open another."""

    who: str


Step = Do | Look | Ensure | Reopen

whos = st.sampled_from(WHO)
paths = st.sampled_from(PATHS[:1] * 3 + PATHS[:2] * 2 + PATHS)
verbs = st.sampled_from(["get", "find", "children"])
freshnesses = st.sampled_from([Freshness.NEARBY, *Freshness])
bytes_few = st.sampled_from([b"", b"x", b"y"])
versions = st.sampled_from([0, 0, 0, 1, 2])
creates: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Create, st.just("/a")),
    st.builds(Create, st.just("/a/s-"), bytes_few, st.booleans(), st.just(value=True)),
    st.builds(Create, paths, bytes_few, st.booleans()),
)
operations: st.SearchStrategy[Operation] = st.one_of(
    creates,
    st.builds(Delete, paths),
    st.builds(Delete, paths, versions),
    st.builds(Put, paths, bytes_few, versions),
    st.builds(Check, paths, versions | st.none()),
)
single = st.lists(operations, min_size=1, max_size=1)
kinds: dict[str, st.SearchStrategy[Step]] = {
    "make": st.builds(Do, whos, st.lists(creates, min_size=1, max_size=1)),
    "single": st.builds(Do, whos, single),
    "multi": st.builds(Do, whos, st.lists(operations, max_size=4)),
    "watch": st.builds(Look, whos, verbs, paths, st.just(value=True), freshnesses),
    "look": st.builds(Look, whos, verbs, paths, st.just(value=False), freshnesses),
    "ensure": st.builds(Ensure, whos, paths),
    "reopen": st.builds(Reopen, whos),
}
# Steps that interact often are drawn often: a uniform choice of kinds rarely fires a watch.
steps = st.sampled_from(
    ["make"] * 4 + ["single"] * 6 + ["multi"] * 2 + ["watch"] * 6 + ["look", "ensure", "reopen"]
).flatmap(kinds.__getitem__)


class Side:
    """One of the stores, with two sessions and all watches set in them."""

    def __init__(
        self,
        open_session: Callable[[], AbstractAsyncContextManager[Metadata]],
        nursery: trio.Nursery,
    ) -> None:
        self.watches: list[trio.Event] = []
        self._open_session = open_session
        self._nursery = nursery
        self._sessions: dict[str, tuple[Metadata, trio.Event, trio.Event]] = {}

    async def open(self, who: str) -> None:
        await self._nursery.start(self._hold, who)

    async def close(self, who: str) -> None:
        _, leave, left = self._sessions[who]
        leave.set()
        await left.wait()

    async def _hold(self, who: str, *, task_status: trio.TaskStatus[None]) -> None:
        # A task for each session, because they are opened and closed in any order.
        leave, left = trio.Event(), trio.Event()
        async with self._open_session() as metadata:
            self._sessions[who] = metadata, leave, left
            task_status.started()
            await leave.wait()
        left.set()

    async def take(self, step: Step) -> object:
        """The store's answer: a value, or the class of the error."""
        try:
            return await self._take(step)
        except GeologError as error:
            return type(error)

    async def sync(self) -> None:
        for who in WHO:
            await self._sessions[who][0].children("/", freshness=Freshness.LATEST)

    async def _take(self, step: Step) -> object:
        metadata, _, _ = self._sessions[step.who]
        match step:
            case Do(_, operations):
                return await metadata.multi(operations)
            case Look(_, verb, path, is_watched, freshness):
                changed = trio.Event() if is_watched else None
                ask = {
                    "get": metadata.get,
                    "find": metadata.find,
                    "children": metadata.children,
                }
                answer = await ask[verb](path, changed=changed, freshness=freshness)
                if changed is not None:
                    self.watches.append(changed)
                return answer
            case Ensure(_, path):
                await metadata.ensure_path(path)
            case Reopen(who):
                await self.close(who)
                await self.open(who)
        return None

    def session_of(self, answer: object) -> str | None:
        """The session whose ephemeral node was read; None for a plain node."""
        if not isinstance(answer, Stored) or not answer.is_ephemeral:
            return None
        [who] = [who for who in WHO if self._sessions[who][0].session_id == answer.session_id]
        return who


def changes_of(answer: object) -> int | None:
    """How often a child of a node that was read was created or deleted."""
    return answer.children_changes if isinstance(answer, Stored) else None


def check_times(answer: object) -> None:
    """Each store has a clock of its own; they must agree on the order."""
    if isinstance(answer, Stored):
        assert 0 <= answer.created_us <= answer.modified_us
        assert answer.version > 0 or answer.created_us == answer.modified_us


@asynccontextmanager
async def open_side(
    open_session: Callable[[], AbstractAsyncContextManager[Metadata]],
) -> AsyncIterator[Side]:
    async with open_background() as nursery:
        side = Side(open_session, nursery)
        for who in WHO:
            await side.open(who)
        yield side
        for who in WHO:
            await side.close(who)


async def compare(servers: str, history: list[Step]) -> None:
    async with (
        open_memory_store() as store,
        open_side(store.open_session) as memory,
        open_side(lambda: open_zookeeper(servers)) as zookeeper,
    ):
        for step in history:
            answers = await memory.take(step), await zookeeper.take(step)
            assert answers[0] == answers[1], step
            assert memory.session_of(answers[0]) == zookeeper.session_of(answers[1]), step
            assert changes_of(answers[0]) == changes_of(answers[1]), step
            for answer in answers:
                check_times(answer)
            await check_watches(memory, zookeeper)
        await zookeeper.sync()
        await check_watches(memory, zookeeper)


async def check_watches(memory: Side, zookeeper: Side) -> None:
    """Watches that fired in memory fire in ZooKeeper, if a little later, and no others."""
    for expected, found in zip(memory.watches, zookeeper.watches, strict=True):
        if expected.is_set():
            with trio.fail_after(ANSWER_TIMEOUT_S):
                await found.wait()
        else:
            assert not found.is_set(), "a watch fired only in ZooKeeper"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    [address] = free_addresses(1)
    data_dir = tmp_path_factory.mktemp("zookeeper") / "data"
    with subprocess.Popen(
        [sys.executable, "-P", "-c", SERVE, str(data_dir), str(address.port)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    ) as process:

        async def wait_started() -> None:
            with trio.fail_after(START_TIMEOUT_S):
                await wait_ready(address)

        trio.run(wait_started)
        yield address
        process.kill()


chroots = itertools.count()


EVERY_WATCH: list[Step] = [
    Look("one", "find", "/a", is_watched=True),
    Ensure("other", "/a"),
    Look("one", "get", "/a", is_watched=True),
    Do("other", [Put("/a", b"x", 0)]),
    Look("one", "find", "/a", is_watched=True),
    Do("one", [Put("/a", b"y", 1)]),
    Look("other", "children", "/a", is_watched=True),
    Do("one", [Create("/a/b", is_ephemeral=True)]),
    Look("other", "children", "/a", is_watched=True),
    Look("other", "get", "/a/b", is_watched=True),
    Reopen("one"),
    Look("one", "children", "/a", is_watched=True),
    Look("one", "find", "/a", is_watched=True),
    Do("other", [Delete("/a")]),
]


# An ephemeral node is handed on to another session, and stays when the first ends.
HANDED_ON: list[Step] = [
    Ensure("one", "/a"),
    Do("one", [Create("/a/b", is_ephemeral=True)]),
    Look("other", "get", "/a/b", is_watched=True),
    Do("other", [Delete("/a/b"), Create("/a/b", is_ephemeral=True)]),
    Look("one", "get", "/a/b", is_watched=False),
    Reopen("one"),
    Look("one", "get", "/a/b", is_watched=False),
]


# A child that tells a node from a recreated one goes in one step with it.
MADE_AGAIN: list[Step] = [
    Do("one", [Create("/a"), Create("/a/b")]),
    Do("one", [Check("/a/b", 0), Put("/a", b"x", 0)]),
    Do("one", [Delete("/a/b"), Delete("/a")]),
    Do("other", [Create("/a"), Create("/a/c")]),
    Do("one", [Check("/a/b", 0), Put("/a", b"x", 0)]),
    Do("one", [Delete("/a/b"), Delete("/a")]),
    Look("one", "get", "/a", is_watched=False),
]


@example(HANDED_ON)
@example(MADE_AGAIN)
@example(EVERY_WATCH)
@given(st.lists(steps, min_size=20, max_size=40))
def test_memory_and_zookeeper_agree(server: Address, history: list[Step]) -> None:
    trio.run(compare, f"{server}/history-{next(chroots)}", history)
