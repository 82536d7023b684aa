"""Any single call of a disk fails: nothing false is acknowledged, and nothing is lost.

Each test runs a small history with the n-th call failing, for every possible n. The node ends
with the disk's own error. Then it restarts on the disk as it is, without the pages of a failed
sync, and keeps all its promises.
"""

import errno
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import Literal

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.transport.seam import Address, ConnectionFailedError
from regions.storage.config import StorageConfig
from regions.storage.disk import Disk, DiskFailedError, DiskFullError
from regions.storage.node import open_storage_node
from sim.fakes.failing_disk import (
    ALL_CALLS,
    CALLS_THAT_TAKE_SPACE,
    DiskCall,
    FailingDisk,
    Failure,
)
from sim.fakes.memory_disk import MemoryDisk
from sim.fakes.memory_metadata import MemoryStore, open_memory_store
from sim.fakes.memory_transport import MemoryNetwork
from sim.processes.drills.node_client import NodeClient, NodeGoneError
from sim.processes.drills.node_promises import NodePromises
from tests.pure.thinned import sampled, thinned

ACTS_COUNT = 45
CONFIG = StorageConfig(
    location="/here/rack-1",
    listen=Address("storage", 7001),
    node_id="node",
    journal_file_bytes=1 << 20,
    mark_idle_s=0.001,
)

GOES_ON = frozenset({DiskCall.READ})
"""A failed read is one damaged copy, at a start too."""


@attrs.define
class History:
    """A node through several lives, and its promises."""

    store: MemoryStore
    seed: int
    network: MemoryNetwork = attrs.field(factory=MemoryNetwork)
    disk: MemoryDisk = attrs.field(factory=MemoryDisk)
    promises: NodePromises = attrs.field(factory=NodePromises)
    has_acted: bool = False
    """Whether the load finished, so that the node was asked to end in order."""
    rng: Random = attrs.field(init=False)
    client: NodeClient = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.client = NodeClient(self.promises, self.rng)

    async def load(self) -> None:
        await self.client.reopen()
        for _ in range(ACTS_COUNT):
            await self.client.act()
        await self.client.wait_all_answered()

    async def load_two_files(self) -> None:
        await self.load()
        await self.client.fill(bytes_min=CONFIG.journal_file_bytes)
        self.has_acted = True

    async def look(self) -> None:
        await self.client.check()

    async def live(self, disk: Disk, act: Callable[[], Awaitable[None]]) -> Exception | None:
        """One life of the node; the disk error that ended it, if any."""
        address: list[Address] = []
        begun, over = trio.Event(), trio.Event()
        ended_by: list[Exception] = []

        async def be_node() -> None:
            try:
                async with (
                    self.store.open_session() as metadata,
                    open_storage_node(
                        CONFIG,
                        transport=self.network.transport("storage"),
                        disks=[disk],
                        metadata=metadata,
                        random_bytes=self.rng.randbytes,
                    ) as node,
                ):
                    address.append(node.address)
                    begun.set()
                    await over.wait()
            except (DiskFailedError, DiskFullError) as error:
                ended_by.append(error)
            begun.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(be_node)
            await begun.wait()
            if address:
                await self._act_at(address[0], act, nursery)
            over.set()
        return ended_by[0] if ended_by else None

    async def _act_at(
        self, address: Address, act: Callable[[], Awaitable[None]], nursery: trio.Nursery
    ) -> None:
        try:
            self.client.use(await self.network.transport("client").connect(address))
            nursery.start_soon(self.client.run)
            await self.client.wait_welcome()
            await act()
        except (NodeGoneError, ConnectionFailedError):
            return


async def first_life(store: MemoryStore, failure: Failure) -> History:
    """A new node meets the failure."""
    history = History(store, seed=1)
    await live_with(history, failure)
    return history


async def second_life(store: MemoryStore, failure: Failure) -> History:
    """A node that lost power under load meets the failure as it starts again, or after."""
    history = History(store, seed=2)
    await history.live(history.disk, history.load)
    history.disk = history.disk.crash(keep_unsynced=Random(3))
    await live_with(history, failure)
    return history


async def live_with(history: History, failure: Failure) -> None:
    ended_by = await history.live(FailingDisk(history.disk, failure), history.load_two_files)
    if failure.failed is None or failure.failed in GOES_ON:
        assert ended_by is None
    elif failure.error == errno.ENOSPC and failure.failed is DiskCall.ALLOCATE:
        assert ended_by is None, "failing to take space ahead is not a failure"
    elif failure.error == errno.ENOSPC and history.has_acted:
        assert ended_by is None, "without space a file is not sealed; its successor will do"
    else:
        expected = DiskFullError if failure.error == errno.ENOSPC else DiskFailedError
        assert isinstance(ended_by, expected), failure
    assert failure.used_again == []


STORIES = [first_life, second_life]


@pytest.mark.parametrize("story", sampled(STORIES, one_in=2), ids=["first life", "second life"])
@pytest.mark.parametrize(
    ("make_failure", "keep_unsynced"),
    [
        (partial(Failure, error=errno.EIO, calls=ALL_CALLS), False),
        (partial(Failure, error=errno.ENOSPC, calls=CALLS_THAT_TAKE_SPACE), Random(4)),
    ],
    ids=["EIO", "ENOSPC"],
)
async def test_nothing_is_lost_whichever_call_of_the_disk_fails(
    make_failure: Callable[[int | None], Failure],
    keep_unsynced: Literal[False] | Random,
    story: Callable[[MemoryStore, Failure], Awaitable[History]],
    autojump_clock: MockClock,
) -> None:
    async with open_memory_store() as store:
        whole = make_failure(None)
        await story(store, whole)
    failed: set[DiskCall | None] = set()
    tried = thinned(range(1, whole.seen_count + 1), one_in=3)
    for at in tried:
        async with open_memory_store() as store:
            failure = make_failure(at)
            history = await story(store, failure)
            failed.add(failure.failed)
            # Reads said CORRUPT while the disk failed; nothing else may be wrong.
            problems = [each for each in history.promises.problems if "CORRUPT" not in each]
            assert problems == [], failure
            history.promises.problems.clear()

            history.disk = history.disk.crash(keep_unsynced=keep_unsynced)
            assert await history.live(history.disk, history.look) is None, failure

            assert history.promises.problems == [], failure
    each = {
        DiskCall.WRITE,
        DiskCall.SYNC,
        DiskCall.CREATE,
        DiskCall.RENAME,
        DiskCall.SYNC_DIRECTORY,
    }
    assert each & whole.calls <= failed or len(tried) < whole.seen_count
