"""The plan of a local cluster, drawn before anything runs."""

from pathlib import Path

import pytest

from sim.processes.cluster.plan import ClusterPlan, ClusterShape, draw_plan
from sim.processes.cluster.ports import held_ports
from sim.processes.wan.profile import default_wan
from topology.errors import InvalidArgumentError, NotFoundError


def plan_of(shape: ClusterShape) -> ClusterPlan:
    ports = list(range(20_000, 20_000 + shape.ports_count))
    return draw_plan(shape, cluster="demo", directory=Path("/d"), ports=ports)


def test_the_default_is_nine_nodes_on_nine_racks_and_a_zookeeper_server_a_region() -> None:
    plan = plan_of(ClusterShape())

    assert len({node.location for node in plan.of_kind("storage")}) == 9
    assert [server.region for server in plan.of_kind("zookeeper")] == list(plan.regions)
    assert len(plan.zookeeper.split(",")) == 3


@pytest.mark.parametrize(
    ("regions", "voters"), [(1, 1), (2, 1), (3, 3), (4, 3), (5, 5), (7, 5)]
)
def test_the_voters_are_odd_in_number(regions: int, voters: int) -> None:
    assert (
        ClusterShape(regions=tuple(f"r{number}" for number in range(regions))).zookeepers
        == voters
    )


def test_no_two_servers_share_an_address_a_directory_or_a_log() -> None:
    servers = plan_of(ClusterShape()).servers

    for part in ("address", "data_dir", "log", "name"):
        assert len({getattr(server, part) for server in servers}) == len(servers)


@pytest.mark.parametrize(
    ("target", "count"),
    [
        ("us-east", 4),
        ("us-east-storage-1", 1),
        ("us-east/storage-1", 1),
        ("127.0.0.1:20000", 1),
        ("zookeeper", 3),
        ("storage", 9),
        ("all", 12),
    ],
)
def test_a_target_names_a_region_a_kind_or_a_server(target: str, count: int) -> None:
    assert len(plan_of(ClusterShape()).named(target)) == count


def test_proxies_are_servers_of_their_region() -> None:
    plan = plan_of(ClusterShape(proxies_per_region=2))

    assert len(plan.named("proxy")) == 6
    assert len(plan.named("us-east")) == 6
    assert [server.name for server in plan.named("us-east-proxy-2")] == ["us-east-proxy-2"]
    addresses = [one for server in plan.servers for one in (server.address, server.http) if one]
    assert len(set(addresses)) == len(addresses) == len(plan.servers) + 6


def test_a_target_that_names_nothing_is_refused() -> None:
    with pytest.raises(NotFoundError, match="unknown target 'mars': give a region"):
        plan_of(ClusterShape()).named("mars")


@pytest.mark.parametrize("regions", [(), ("a", "a")])
def test_a_shape_has_each_region_once(regions: tuple[str, ...]) -> None:
    with pytest.raises(InvalidArgumentError, match="--regions"):
        ClusterShape(regions=regions)


@pytest.mark.parametrize("region", ["A_!", "two words", "all", "zookeeper"])
def test_a_region_that_no_node_or_target_could_name_is_refused(region: str) -> None:
    with pytest.raises(InvalidArgumentError, match=region):
        ClusterShape(regions=("a", region))


@pytest.mark.parametrize("base_port", [65_530, 99_999])
def test_ports_beyond_the_last_one_are_refused_with_the_highest_that_fits(
    base_port: int,
) -> None:
    with (
        pytest.raises(InvalidArgumentError, match="the highest base port is 65518"),
        held_ports(18, base_port=base_port),
    ):
        pass


def far_apart(zookeeper_count: int | None = None) -> ClusterPlan:
    """A plan with an emulated WAN between its regions."""
    regions = ("us-east", "eu-west", "ap-northeast")
    wan = default_wan(regions)
    return plan_of(ClusterShape(regions=regions, wan=wan, zookeeper_count=zookeeper_count))


def test_with_a_wan_its_emulator_is_a_server_too_and_starts_first() -> None:
    plan = far_apart()

    assert plan.wan is not None
    assert plan.servers[0].kind == "wan"
    assert plan.named("wan") == plan.of_kind("wan")
    assert len(plan.named("us-east")) == 4


def test_with_a_wan_servers_of_one_kind_reach_others_through_its_gateway() -> None:
    plan = far_apart()

    for node in plan.of_kind("storage"):
        assert node.argv[node.argv.index("--gateway") + 1] == plan.gateway
    assert plan_of(ClusterShape()).gateway is None


def test_with_a_wan_no_port_is_used_twice() -> None:
    plan = far_apart(zookeeper_count=5)
    assert plan.wan is not None
    own = [plan.wan.gateway, *plan.wan.probes.values()]
    own += [forward.listen for forward in plan.wan.forwards]
    others = [server.address for server in plan.servers if server.kind != "wan"]

    assert len({*own, *others}) == len(own) + len(others)


def test_zookeeper_servers_of_one_region_reach_each_other_directly() -> None:
    plan = far_apart(zookeeper_count=5)
    assert plan.wan is not None

    # Numbers 1 and 4 stand in the first region, 2 and 5 in the second.
    assert peers_of_server(plan, 1)[4] == peers_of_server(plan, 4)[4]
    assert peers_of_server(plan, 1)[2] != peers_of_server(plan, 2)[2]
    assert all(forward.here != forward.there for forward in plan.wan.forwards)


def test_an_election_is_answered_by_the_way_that_leads_back() -> None:
    plan = far_apart()
    assert plan.wan is not None
    elections = {each.listen: each for each in plan.wan.forwards if each.answer_at is not None}

    for forward in elections.values():
        assert forward.answer_at is not None
        back = elections[forward.answer_at]
        assert (back.here, back.there) == (forward.there, forward.here)
        assert back.answer_at == forward.listen


def peers_of_server(plan: ClusterPlan, number: int) -> dict[int, str]:
    """Each voter as one server is told to reach it."""
    server = plan.of_kind("zookeeper")[number - 1]
    peers = server.argv[server.argv.index("--peers") + 1].split(",")
    return {int(peer.partition("=")[0]): peer for peer in peers}
