"""A mistyped cluster name is told from an empty cluster."""

import pytest
from trio.testing import MockClock

from geolog.metadata.clusters import NoSuchClusterError, check_cluster, list_clusters
from geolog.metadata.nodes import find_or_create_cluster
from sim.fakes.memory_metadata import open_memory_store


async def test_leftovers_of_a_client_are_not_a_cluster(autojump_clock: MockClock) -> None:
    async with open_memory_store() as store, store.open_session() as metadata:
        await find_or_create_cluster(metadata, "main", new_cluster_id="0" * 32)
        await find_or_create_cluster(metadata, "demo", new_cluster_id="1" * 32)
        await metadata.ensure_path("/geolog/mian/streams")

        assert await list_clusters(metadata) == ["demo", "main"]
        with pytest.raises(NoSuchClusterError, match=r"ZooKeeper h:1 .*'mian' .*demo, main$"):
            await check_cluster(metadata, "mian", where="h:1")


async def test_a_cluster_that_a_lagging_server_has_not_seen_is_found(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_memory_store() as store,
        store.open_session() as metadata,
        store.open_session() as other,
    ):
        with pytest.raises(
            NoSuchClusterError, match="nor any other: the first storage node creates it"
        ):
            await check_cluster(metadata, "main", where="h:1")
        metadata.lag()
        await find_or_create_cluster(other, "main", new_cluster_id="0" * 32)

        await check_cluster(metadata, "main", where="h:1")
