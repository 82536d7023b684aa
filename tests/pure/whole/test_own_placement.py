"""A stream placed by a policy that is not ours, in a whole cluster."""

import random
from collections.abc import Mapping, Sequence

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.admin.cluster_view import judge_cluster
from geolog.admin.placement.region_switches import RegionSwitches
from geolog.catalog.descriptions import StreamDescription
from geolog.metadata.placement_switches import change_switches
from sim.in_process import InProcessCluster, open_in_process_cluster
from tests.pure.whole.clusters import STREAM, append_each, numbered, values_of
from topology.errors import InvalidArgumentError, NotEnoughNodesError
from topology.switches import PlacementSwitches

NINE = {"us-east": 3, "eu-west": 3, "ap-northeast": 3}


class LastRacks:
    """Take the last nodes by location, of different racks; STRICT in one region alone."""

    name = "last_racks"

    def fill(
        self, ring: geolog.Ring, free: Sequence[geolog.KnownNode], rng: random.Random
    ) -> Mapping[int, str]:
        """The last free nodes."""
        last = sorted(free, key=lambda one: str(one.location), reverse=True)
        return {slot: one.node for slot, one in zip(ring.open_slots, last, strict=False)}

    def adherence(self, ring: geolog.Ring) -> geolog.Adherence:
        """STRICT if all nodes are in one region."""
        regions = {one.location.region for one in ring.slots if one}
        return geolog.Adherence.STRICT if len(regions) == 1 else geolog.Adherence.SOFT


class Twice(LastRacks):
    """A policy with a bug: it chooses the same node for all slots."""

    name = "twice"

    def fill(
        self, ring: geolog.Ring, free: Sequence[geolog.KnownNode], rng: random.Random
    ) -> Mapping[int, str]:
        """The first node, for each slot."""
        return dict.fromkeys(ring.open_slots, free[0].node)


async def create(log: geolog.Log) -> StreamDescription:
    """Create the stream, on three nodes of the policy's choice."""
    return await log.create_stream(STREAM, policy="last_racks", ensemble_size=3, ack_quorum=2)


async def forbid(cluster: InProcessCluster, *regions: str) -> None:
    async with cluster.store.open_session(6.0) as metadata:
        switches = PlacementSwitches(frozenset(regions))
        await change_switches(metadata, "default", lambda _: switches)


async def test_a_stream_is_placed_as_its_own_policy_says_and_the_name_is_frozen() -> None:
    async with (
        open_in_process_cluster(NINE) as cluster,
        cluster.open_client("eu-west", placement=[LastRacks()]) as log,
    ):
        made = await create(log)
        async with log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(5))
        (segment,) = await log.list_segments(STREAM)
        described = await log.describe_stream(STREAM)

        assert made.policy == described.policy == "last_racks"
        assert segment.regions == ["us-east"] * 3, "the last by name, not the writer's own"
        assert segment.adherence == "strict"
        assert made.survives_region is False
        assert "not one of geolog's, so nothing is promised" in made.survives_region_why_not
        assert any(
            "would choose now, in us-east, does not survive that" in line
            for line in made.explanation
        )
        assert await values_of(log) == numbered(5)


async def test_a_process_without_the_policy_reads_but_neither_places_nor_fences() -> None:
    async with (
        open_in_process_cluster(NINE) as cluster,
        cluster.open_client("eu-west", placement=[LastRacks()]) as log,
        cluster.open_client("us-east", host="stranger") as stranger,
    ):
        await create(log)
        async with log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(3))
            with pytest.raises(
                geolog.UnknownPolicyError, match="does not know placement policy 'last_racks'"
            ):
                async with stranger.open_writer(STREAM):
                    pass
            await append_each(writer, numbered(3, start=3))  # It is still the owner.

        assert await values_of(stranger) == numbered(6)
        assert (await stranger.list_segments(STREAM))[0].adherence == "strict"
        assert (
            await judge_cluster(stranger.access, ask_reach=None, ledgers_max=None)
        ).is_healthy
        changed = await RegionSwitches(stranger.access).forbid("us-east")
        assert changed.streams_undecided == [STREAM]


async def test_a_stream_of_an_unknown_policy_is_not_created() -> None:
    async with (
        open_in_process_cluster(NINE) as cluster,
        cluster.open_client("eu-west", placement=[LastRacks()]) as log,
    ):
        for name, nearest in (("last_rack", "last_racks"), ("regoin_aware", "region_aware")):
            with pytest.raises(InvalidArgumentError, match=f"did you mean '{nearest}'"):
                await log.create_stream(STREAM, policy=name)
        with pytest.raises(
            InvalidArgumentError, match="needs policy 'region_aware', not 'last"
        ):
            await log.create_stream(STREAM, policy="last_racks", survive="1 region")

        assert await log.list_streams() == []


async def test_a_lost_member_is_replaced_by_the_policy(autojump_clock: MockClock) -> None:
    async with (
        open_in_process_cluster({"us-east": 4, "eu-west": 2}) as cluster,
        cluster.open_client("eu-west", placement=[LastRacks()]) as log,
    ):
        await create(log)
        async with log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(3))
            (before,) = await log.list_segments(STREAM)
            await cluster.kill(before.ensemble[1])
            await trio.sleep(15)
            await append_each(writer, numbered(3, start=3))
            after = (await log.list_segments(STREAM))[-1]

        assert set(after.ensemble) == {"us-east-1", "us-east-2", "us-east-3", "us-east-4"} - {
            before.ensemble[1]
        }
        assert await values_of(log) == numbered(6)


async def test_the_policy_gets_no_node_of_a_forbidden_region() -> None:
    async with (
        open_in_process_cluster(NINE) as cluster,
        cluster.open_client("eu-west", placement=[LastRacks()]) as log,
    ):
        await create(log)
        await forbid(cluster, "us-east")
        async with log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(3))
        await forbid(cluster, *NINE)
        with pytest.raises(NotEnoughNodesError, match="found nodes for 0 of 3 slots; 0 nodes"):
            async with log.open_writer(STREAM):
                pass

        assert (await log.list_segments(STREAM))[0].regions == ["eu-west"] * 3


async def test_a_policy_that_chooses_a_node_twice_places_nothing() -> None:
    async with (
        open_in_process_cluster(NINE) as cluster,
        cluster.open_client("eu-west", placement=[Twice()]) as log,
    ):
        with pytest.raises(geolog.PolicyFailedError, match=r"'twice' chose node .* twice"):
            await log.create_stream(STREAM, policy="twice")

        assert await log.list_streams() == []
