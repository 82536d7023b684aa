"""What a local cluster consists of, drawn before anything runs."""

from pathlib import Path

import pytest

from sim.cluster.plan import ClusterPlan, Shape, draw_plan
from sim.cluster.ports import free_ports
from topology.errors import InvalidArgumentError


def plan_of(shape: Shape) -> ClusterPlan:
    ports = list(range(20_000, 20_000 + shape.ports_count))
    return draw_plan(shape, cluster="demo", directory=Path("/d"), ports=ports)


def test_the_default_is_nine_nodes_on_nine_racks_and_a_zookeeper_server_a_region() -> None:
    plan = plan_of(Shape())

    assert len({node.location for node in plan.of_kind("storage")}) == 9
    assert [server.region for server in plan.of_kind("zookeeper")] == list(plan.regions)
    assert len(plan.zookeeper.split(",")) == 3


@pytest.mark.parametrize(
    ("regions", "voters"), [(1, 1), (2, 1), (3, 3), (4, 3), (5, 5), (7, 5)]
)
def test_the_voters_are_odd_in_number(regions: int, voters: int) -> None:
    assert Shape(regions=tuple(f"r{number}" for number in range(regions))).zookeepers == voters


def test_no_two_servers_share_an_address_a_directory_or_a_log() -> None:
    servers = plan_of(Shape()).servers

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
    assert len(plan_of(Shape()).named(target)) == count


def test_a_target_that_names_nothing_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="'mars' names no server: say a region"):
        plan_of(Shape()).named("mars")


@pytest.mark.parametrize("regions", [(), ("a", "a")])
def test_a_shape_has_each_region_once(regions: tuple[str, ...]) -> None:
    with pytest.raises(InvalidArgumentError, match="--regions"):
        Shape(regions=regions)


@pytest.mark.parametrize("region", ["A_!", "two words", "all", "zookeeper"])
def test_a_region_that_no_node_or_target_could_name_is_refused(region: str) -> None:
    with pytest.raises(InvalidArgumentError, match=region):
        Shape(regions=("a", region))


@pytest.mark.parametrize("base_port", [65_530, 99_999])
def test_ports_beyond_the_last_one_are_refused_with_the_highest_that_fits(
    base_port: int,
) -> None:
    with pytest.raises(InvalidArgumentError, match="the highest base port is 65518"):
        free_ports(18, base_port=base_port)
