"""The tick of the metadata store is learned from its servers, and noted in the record."""

import pytest
import trio
from trio.testing import MockClock

from geolog.metadata.documents import open_document
from geolog.metadata.nodes import ClusterRecord, find_or_create_cluster
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import Metadata
from geolog.metadata.server_ticks import noted_tick, tick_of
from geolog.transport.seam import Address
from sim.fakes.memory_metadata import open_memory_store
from tests.pure.metadata.asked_servers import DOWN, SILENT, running_servers

FINE, COARSE, CLOSED = (Address("server", port) for port in (1, 4, 5))

ANSWERS = {
    FINE: b"clientPort=2181\ndataDir=/data\ntickTime=500\nmaxClientCnxns=60\n",
    COARSE: b"clientPort=2181\ntickTime=2000\n",
    CLOSED: b"conf is not executed because it is not in the whitelist.\n",
}


async def asked(*those: Address) -> float | None:
    async with running_servers(b"conf", ANSWERS) as servers:
        return await tick_of(those, servers)


async def record_of(metadata: Metadata) -> ClusterRecord:
    path = ClusterPaths("main").cluster
    return open_document((await metadata.get(path)).data, ClusterRecord, path=path)


async def test_the_longest_tick_that_a_server_tells_counts(autojump_clock: MockClock) -> None:
    assert await asked(SILENT, FINE, DOWN) == 0.5
    assert await asked(FINE, COARSE, CLOSED) == 2.0
    assert trio.current_time() <= 1.0


async def test_servers_that_may_not_tell_it_leave_it_unknown(autojump_clock: MockClock) -> None:
    assert await asked(CLOSED, DOWN) is None


async def test_what_was_told_is_noted_and_counts_when_no_server_tells_it(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_memory_store() as store, store.open_session() as metadata:
        assert await noted_tick(metadata, "main", 0.5) == 0.5  # There is no cluster yet.
        await find_or_create_cluster(metadata, "main", new_cluster_id="0" * 32)
        assert await noted_tick(metadata, "main", None) is None

        assert await noted_tick(metadata, "main", 0.5) == 0.5
        assert await noted_tick(metadata, "main", None) == 0.5
        assert await record_of(metadata) == ClusterRecord("0" * 32, metadata_tick_s=0.5)
        assert caplog.records == []


async def test_another_tick_than_was_noted_replaces_it_with_a_warning(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_memory_store() as store, store.open_session() as metadata:
        await find_or_create_cluster(metadata, "main", new_cluster_id="0" * 32)
        await noted_tick(metadata, "main", 0.5)

        assert await noted_tick(metadata, "main", 2.0) == 2.0

        assert (await record_of(metadata)).metadata_tick_s == 2.0
        [warning] = caplog.messages
        assert warning.startswith("the tick of ZooKeeper is 2 s now; it was 0.5 s.")
