"""Judging a cluster, and how many regions more it can lose: compared with trying them all."""

import itertools
from collections import Counter
from collections.abc import Sequence

import pytest

from geolog.client.streams.descriptions import HealthReport, PlacementHealth
from geolog.client.upkeep.health import ClusterState, StreamState, judge
from geolog.metadata.nodes import NodeRecord, NodeState
from geolog.metadata.replaced_nodes import ReplacedNode
from geolog.protocol.ids import EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState, Member
from geolog.transport.seam import Address
from topology.location import Location
from topology.placement import arrange_regions
from topology.quorum import Durability, QuorumConfig

THREE = QuorumConfig(ensemble_size=3, write_quorum=3, ack_quorum=2, min_regions=2)


def nodes_of(census: str) -> list[NodeRecord]:
    """`aabbc`: two nodes in a region a, two in b, one in c; upper case takes no entries."""
    return [
        NodeRecord(
            f"{letter.lower()}-{place}",
            InstanceId(f"{place:032d}"),
            Address(f"{letter.lower()}-{place}", 4000),
            Location.parse(f"/{letter.lower()}/rack-1"),
            NodeState.READ_ONLY if letter.isupper() else NodeState.WRITABLE,
        )
        for place, letter in enumerate(census)
    ]


def open_ledger(members: list[NodeRecord], quorum: QuorumConfig = THREE) -> LedgerRecord:
    ensemble = tuple(Member(one.instance, one.node_id, one.location) for one in members)
    return LedgerRecord(
        ledger=LedgerId(1),
        state=LedgerState.OPEN,
        epoch=Epoch(1),
        quorum=quorum,
        fragments=(Fragment(EntryId(0), ensemble),),
    )


def judged(
    known: list[NodeRecord],
    live: list[NodeRecord],
    *streams: StreamState,
    metadata_spare: int | None = None,
    placement: PlacementHealth | None = None,
    unmoved: Sequence[ReplacedNode] = (),
) -> HealthReport:
    cluster = ClusterState(
        known=known, live=live, metadata_spare=metadata_spare, unmoved=unmoved
    )
    return judge(cluster, streams, placement or PlacementHealth())


def test_a_cluster_without_a_node_is_not_healthy() -> None:
    report = judged([], [])

    assert report.reasons == ["no storage node has joined the cluster, or it has another name"]
    assert not report.is_healthy


def test_three_regions_of_three_are_healthy_and_can_lose_one() -> None:
    nodes = nodes_of("aaabbbccc")
    stream = StreamState("s/t", THREE, open_ledger([nodes[0], nodes[3], nodes[6]]))
    report = judged(nodes, nodes, stream)

    assert report.is_healthy
    assert report.reasons == []
    assert report.regions_spare == 1
    assert report.regions == {"a": 3, "b": 3, "c": 3}


def test_with_one_of_three_regions_down_none_is_spare_and_each_reason_is_told() -> None:
    nodes = nodes_of("aaabbbccc")
    stream = StreamState("s/t", THREE, open_ledger([nodes[0], nodes[3], nodes[6]]))
    report = judged(nodes, nodes[3:], stream)

    assert not report.is_healthy
    assert report.regions_spare == 0
    assert len(report.reasons) == 3
    assert all("is down" in reason for reason in report.reasons)


def test_a_ledger_without_an_ack_set_is_told() -> None:
    nodes = nodes_of("aaabbbccc")
    stream = StreamState("s/t", THREE, open_ledger([nodes[0], nodes[3], nodes[6]]))
    report = judged(nodes, [node for node in nodes if node not in (nodes[0], nodes[3])], stream)

    assert any("ledger 1 has no ack set up" in reason for reason in report.reasons)
    assert report.regions_spare == 0


def test_a_soft_ledger_is_told() -> None:
    nodes = nodes_of("aabbcc")
    stream = StreamState("s/t", THREE, open_ledger([nodes[0], nodes[1], nodes[2]]))
    report = judged(nodes, nodes, stream)

    assert not report.is_healthy
    assert any("would not survive" in reason for reason in report.reasons)
    assert report.regions_spare == 0


def test_an_open_ledger_that_does_not_keep_what_was_promised_is_told() -> None:
    nodes = nodes_of("aaabbbcccdddeee")
    quorum = QuorumConfig(ensemble_size=10, write_quorum=10, ack_quorum=6, min_regions=3)
    even = [nodes[at] for at in (0, 1, 3, 4, 6, 7, 9, 10, 12, 13)]
    odd = [*even[:-1], nodes[2]]

    kept = judged(
        nodes, nodes, StreamState("s/t", quorum, open_ledger(even, quorum), survive="2 regions")
    )
    broken = judged(
        nodes, nodes, StreamState("s/t", quorum, open_ledger(odd, quorum), survive="2 regions")
    )

    assert kept.is_healthy
    assert broken.reasons == [
        "stream s/t: ledger 1 does not survive '2 regions', as was promised: without region a"
        " and region b no ack set is left"
    ]


def test_that_a_better_ledger_is_undecided_is_told() -> None:
    nodes = nodes_of("a" * 11 + "b" * 10 + "c" * 8 + "def" + "g" * 20)
    quorum = QuorumConfig(ensemble_size=15, write_quorum=10, ack_quorum=7, min_regions=5)
    counts = Counter(one.location.region for one in nodes)
    piles = {
        name: iter([one for one in nodes if one.location.region == name]) for name in counts
    }
    ring = [next(piles[region]) for region in arrange_regions(quorum, counts) or ()]

    report = judged(nodes, nodes, StreamState("s/t", quorum, open_ledger(ring, quorum)))

    assert "is undecided: the search for it was cut off" in "".join(report.reasons)


def test_that_a_new_ledger_is_undecided_is_told() -> None:
    nodes = nodes_of("a" * 24 + "b" * 8 + "c" * 5 + "d" * 2)
    quorum = QuorumConfig(
        ensemble_size=23,
        write_quorum=7,
        ack_quorum=6,
        min_regions=3,
        durability=Durability.COUNT,
    )

    report = judged(nodes, nodes, StreamState("s/t", quorum, None))

    assert "whether a new ledger can be placed is undecided" in "".join(report.reasons)


def test_a_node_that_is_full_is_told_and_takes_no_new_ledger() -> None:
    nodes = nodes_of("aBc")
    report = judged(nodes, nodes, StreamState("s/t", THREE, None))

    assert [reason for reason in report.reasons if "readonly" in reason]
    assert any("no new ledger can be placed" in reason for reason in report.reasons)


def test_metadata_servers_bound_what_may_be_lost() -> None:
    nodes = nodes_of("aabbccddee")

    assert judged(nodes, nodes, metadata_spare=0).regions_spare == 0
    assert judged(nodes, nodes, metadata_spare=1).regions_spare == 1


def test_without_streams_all_regions_but_one_may_go() -> None:
    nodes = nodes_of("aabbcc")

    assert judged(nodes, nodes).regions_spare == 2


def may_go(
    lost: tuple[str, ...], nodes: list[NodeRecord], ledger: LedgerRecord, quorum: QuorumConfig
) -> bool:
    """Naively: some ring of the nodes that are left acks everywhere, and so does the ledger."""
    left = [node for node in nodes if node.location.region not in lost]
    held = {node.instance for node in left}
    members = ledger.fragments[0].ensemble
    mask = sum(1 << slot for slot, one in enumerate(members) if one.instance in held)
    if not ledger.fragments[0].rule(quorum).acks_all(mask):
        return False
    size = quorum.ensemble_size
    full = (1 << size) - 1
    return any(
        open_ledger(list(ring), quorum).fragments[0].rule(quorum).acks_all(full)
        for ring in itertools.permutations(left, size)
    )


QUORUMS = [
    THREE,
    QuorumConfig(ensemble_size=3, write_quorum=3, ack_quorum=2, min_regions=1),
    QuorumConfig(ensemble_size=3, write_quorum=2, ack_quorum=2, min_regions=2),
    QuorumConfig(ensemble_size=4, write_quorum=4, ack_quorum=3, min_regions=2),
    QuorumConfig(ensemble_size=2, write_quorum=2, ack_quorum=1, min_regions=1),
]


@pytest.mark.parametrize("quorum", QUORUMS, ids=str)
@pytest.mark.parametrize("census", ["abc", "aabbc", "aabbcc", "aaab", "abcd", "aabcd"])
def test_spare_regions_are_what_trying_every_loss_says(
    census: str, quorum: QuorumConfig
) -> None:
    nodes = nodes_of(census)
    regions = sorted(set(census))
    rings = [
        ring
        for ring in itertools.combinations(nodes, quorum.ensemble_size)
        if open_ledger(list(ring), quorum)
        .fragments[0]
        .rule(quorum)
        .acks_all((1 << quorum.ensemble_size) - 1)
    ]
    for ring in rings[:6]:
        ledger = open_ledger(list(ring), quorum)
        naive = 0
        while naive < len(regions) and all(
            may_go(lost, nodes, ledger, quorum)
            for lost in itertools.combinations(regions, naive + 1)
        ):
            naive += 1
        report = judged(nodes, nodes, StreamState("s/t", quorum, ledger))
        assert report.regions_spare == naive, [one.node_id for one in ring]


def gone(node: NodeRecord) -> ReplacedNode:
    """A node whose disk was given up."""
    return ReplacedNode(
        instance=node.instance,
        node_id=node.node_id,
        address=node.address,
        location=node.location,
    )


def test_closed_fragments_that_can_be_made_better_are_advice_with_the_next_step() -> None:
    nodes = nodes_of("aabbcc")
    placement = PlacementHealth(
        ledgers=7, strict=4, soft=3, repairable=3, streams={"s/t": 3}, streams_count=1
    )
    report = judged(nodes, nodes, placement=placement)

    assert report.is_healthy
    assert report.advice == [
        "fragments that do not adhere as they should, in all: soft 3; in s/t (3); `geolog"
        " placement repair` mends 3"
    ]


def test_a_fragment_that_fails_its_policy_is_a_reason() -> None:
    nodes = nodes_of("aabbcc")
    placement = PlacementHealth(ledgers=7, fail=1, streams={"s/t": 1}, streams_count=1)
    report = judged(nodes, nodes, placement=placement)

    assert not report.is_healthy
    assert "placement show STREAM --problems" in report.reasons[0]


def test_fragments_that_are_soft_where_no_better_can_be_had_are_counted_alone() -> None:
    nodes = nodes_of("aabb")
    report = judged(nodes, nodes, placement=PlacementHealth(ledgers=7, soft=7))

    assert report.is_healthy
    assert report.placement.soft == 7


def test_a_disk_that_was_given_up_is_told_until_no_ledger_names_it() -> None:
    nodes = nodes_of("aabbcc")
    found = PlacementHealth(
        ledgers=2, soft=2, disks_given_up=2, streams={"s/t": 2}, streams_count=1
    )
    named = judged(nodes[1:], nodes[1:], placement=found, unmoved=[gone(nodes[0])])
    sampled = judged(
        nodes[1:],
        nodes[1:],
        placement=PlacementHealth(is_sample=True),
        unmoved=[gone(nodes[0])],
    )
    over = judged(nodes[1:], nodes[1:], unmoved=[gone(nodes[0])])

    assert "`geolog node replace a-0` goes on" in named.reasons[0]
    assert "with a disk that was given up 2" in named.reasons[1]
    assert len(sampled.reasons) == 1
    assert over.is_healthy
