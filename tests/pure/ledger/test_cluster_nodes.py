"""The nodes as placement sees them: states, locations, weights, and flapping."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.background import open_background
from geolog.ledger.nodes.cluster_nodes import ClusterNodes
from geolog.ledger.nodes.placement_config import PlacementConfig
from geolog.metadata.documents import seal_document
from geolog.metadata.nodes import NodeRecord, NodeState, list_live_nodes
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.placement_switches import change_switches
from geolog.protocol.ids import InstanceId
from geolog.transport.seam import Address
from sim.fakes.memory_metadata import MemoryMetadata, open_memory_store
from topology.errors import InvalidConfigError, NotEnoughNodesError
from topology.location import Location
from topology.membership import NodeUse as Seen
from topology.policy import PlacementRequest
from topology.quorum import QuorumConfig
from topology.stream_policy import PlacementTerms, PolicyKind, policy_of
from topology.switches import PlacementSwitches

PATHS = ClusterPaths("default")


@attrs.define
class Cluster:
    """Metadata with live records that a test writes, and a client that looks at them."""

    metadata: MemoryMetadata
    nodes: ClusterNodes

    async def up(self, name: str, location: str, **fields: object) -> None:
        record = NodeRecord(
            name, InstanceId(name), Address("host", 1), Location.parse(location)
        )
        changed = attrs.evolve(record, **fields)  # type: ignore[arg-type]
        await self.metadata.create(PATHS.node_live(record.instance), seal_document(changed))

    async def down(self, name: str) -> None:
        await self.metadata.delete(PATHS.node_live(InstanceId(name)))

    async def placed(self, size: int, count: int = 1) -> list[str]:
        """The nodes of so many new ensembles of a rack-aware stream."""
        seen = await self.nodes.look("r")
        quorum = QuorumConfig(ensemble_size=size, write_quorum=size, ack_quorum=1)
        policy = policy_of(PlacementTerms(policy=PolicyKind.DEFAULT), quorum, seen.place)
        request = PlacementRequest(
            ensemble_size=size,
            write_quorum=size,
            ack_quorum=1,
            exclude=seen.excluded(),
            now_s=seen.now_s,
        )
        rng = random.Random(5)
        rings = [policy.new_ensemble(seen.members, request, rng).nodes for _ in range(count)]
        return [node for ring in rings for node in ring]


@asynccontextmanager
async def cluster_of(config: PlacementConfig) -> AsyncIterator[Cluster]:
    async with (
        open_memory_store() as store,
        store.open_session() as metadata,
        open_background() as nursery,
    ):
        await metadata.ensure_path(PATHS.nodes_live)
        nodes = ClusterNodes(
            metadata,
            "default",
            config,
            live_nodes=lambda: list_live_nodes(metadata, "default"),
            nursery=nursery,
        )
        yield Cluster(metadata, nodes)


async def test_states_and_locations_are_those_of_metadata(autojump_clock: MockClock) -> None:
    async with cluster_of(PlacementConfig()) as cluster:
        await cluster.up("a", "/r/1")
        await cluster.up("b", "/r/2", state=NodeState.READ_ONLY)
        await cluster.up("c", "/r/3")
        await cluster.nodes.look("r")
        await cluster.down("c")
        members = (await cluster.nodes.look("r")).members

        states = {node: members.state_of(node) for node in "abcd"}
        assert states == {
            "a": Seen.WRITABLE,
            "b": Seen.READONLY,
            "c": Seen.DOWN,
            "d": Seen.NEVER_REGISTERED,
        }
        assert members.location_of("c") == Location("r", "3")


async def test_a_node_that_flaps_is_chosen_last_until_it_has_stayed(
    autojump_clock: MockClock,
) -> None:
    async with cluster_of(PlacementConfig(departures_max=2, flapping_s=60)) as cluster:
        for name in "abc":
            await cluster.up(name, f"/r/{name}")
        await cluster.nodes.look("r")
        for _ in range(3):
            await trio.sleep(1)
            await cluster.down("a")
            await trio.sleep(1)  # Without a look: departures are watched.
            await cluster.up("a", "/r/a")
            await cluster.nodes.look("r")

        assert set(await cluster.placed(2, count=20)) == {"b", "c"}
        assert set(await cluster.placed(3)) == {"a", "b", "c"}
        await trio.sleep(61)
        assert set(await cluster.placed(2, count=20)) == {"a", "b", "c"}


async def test_a_node_that_just_left_is_chosen_if_others_do_not_suffice(
    autojump_clock: MockClock,
) -> None:
    async with cluster_of(PlacementConfig(stabilize_s=30)) as cluster:
        await cluster.up("a", "/r/1")
        await cluster.up("b", "/r/2")
        await cluster.nodes.look("r")
        await cluster.down("b")

        assert await cluster.placed(1, count=3) == ["a", "a", "a"]
        assert set(await cluster.placed(2)) == {"a", "b"}
        assert (await cluster.nodes.look("r")).member("b").node_id == "b"
        await trio.sleep(31)
        with pytest.raises(NotEnoughNodesError):
            await cluster.placed(2)


async def test_nodes_with_more_free_space_are_chosen_more_often_up_to_the_cap(
    autojump_clock: MockClock,
) -> None:
    config = PlacementConfig(weight_by_free_space=True, weight_multiple_max=2)
    async with cluster_of(config) as cluster:
        for name, free_bytes in (("a", 1000), ("b", 1000), ("c", 100_000)):
            await cluster.up(name, f"/r/{name}", free_bytes=free_bytes)
        drawn = await cluster.placed(1, count=2000)

        assert 0.45 < drawn.count("c") / len(drawn) < 0.55  # Twice as often as each other.


async def test_switches_are_followed_without_another_look(autojump_clock: MockClock) -> None:
    async with cluster_of(PlacementConfig()) as cluster:
        await cluster.up("a", "/r/1")
        await cluster.up("b", "/s/1")
        await cluster.nodes.look("r")
        await change_switches(
            cluster.metadata, "default", lambda _: PlacementSwitches(frozenset({"s"}))
        )
        await trio.sleep(0.1)

        assert cluster.nodes.switches.forbidden_regions == {"s"}
        assert set(await cluster.placed(1, count=20)) == {"a"}


async def test_a_table_is_read_again_and_moves_a_node_at_once(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    table = tmp_path / "locations.toml"
    table.write_text('[locations]\na = "/s/9"\n')
    async with cluster_of(PlacementConfig(locations=table)) as cluster:
        await cluster.up("a", "/r/1")
        await cluster.up("b", "/r/2")
        first = (await cluster.nodes.look("r")).members
        table.write_text('[locations]\n"*" = "/t/77"\n')
        second = (await cluster.nodes.look("r")).members

        assert first.location_of("a") == Location("s", "9")
        assert first.location_of("b") == Location("r", "2")
        assert second.location_of("a") == second.location_of("b") == Location("t", "77")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[locations\n", "is not TOML"),
        ('[locations]\na = ""\n', "node 'a': location ''"),
        ('[locations]\na = "/x/y/z"\n', "'a' has 3"),
        ('[places]\na = "/x/y"\n', "unknown key 'places'; use locations"),
        (None, r"cannot read the locations table .*: No such file"),
    ],
)
async def test_a_bad_table_is_an_error_at_first_and_ignored_later(
    autojump_clock: MockClock, tmp_path: Path, text: str | None, message: str
) -> None:
    table = tmp_path / "locations.toml"

    def spoil() -> None:
        if text is None:
            table.unlink(missing_ok=True)
        else:
            table.write_text(text)

    spoil()
    async with cluster_of(PlacementConfig(locations=table)) as cluster:
        await cluster.up("a", "/r/1")
        await cluster.up("b", "/r/2")
        with pytest.raises(InvalidConfigError, match=message):
            await cluster.nodes.look("r")
        table.write_text('[locations]\na = "/moved/here"\n')
        await cluster.nodes.look("r")
        spoil()
        members = (await cluster.nodes.look("r")).members

        assert members.location_of("a") == Location("moved", "here")


def test_a_location_that_contradicts_the_region_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="is not in region 'b'"):
        PlacementConfig(location="/a/1").standing("b")
    with pytest.raises(InvalidConfigError, match="not of the form /REGION/RACK"):
        PlacementConfig(location="a")
