"""Judging a cluster, and counting the regions it can lose, against trying every loss."""

import itertools
from collections import Counter
from collections.abc import Sequence

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.admin.health import ClusterState, judge
from geolog.admin.placement.placement_health import LedgersJudged, LedgerTally
from geolog.admin.rooms import StreamState
from geolog.catalog.descriptions import HealthReport, HealthState
from geolog.metadata.nodes import NodeRecord, NodeState
from geolog.metadata.replaced_nodes import ReplacedNode
from geolog.protocol.fragment_placement import NodesSeen
from geolog.protocol.ids import EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState, Member
from geolog.transport.seam import Address
from topology.location import Location
from topology.membership import KnownNode as ClusterMember
from topology.membership import Membership, MembershipConfig
from topology.membership import NodeUse as ClusterNodeState
from topology.placement import arrange_regions
from topology.quorum import Durability, QuorumConfig
from topology.stream_policy import DEFAULT_LOCATION, PlacementTerms, PolicyKind

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
        stream="s/t#0",
    )


def closed_ledger(
    members: list[NodeRecord], quorum: QuorumConfig = THREE, ledger: int = 1
) -> LedgerRecord:
    return attrs.evolve(
        open_ledger(members, quorum),
        ledger=LedgerId(ledger),
        state=LedgerState.CLOSED,
        last_entry=EntryId(9),
    )


def tallied(
    known: Sequence[NodeRecord],
    live: Sequence[NodeRecord],
    records: Sequence[LedgerRecord],
    *,
    survive: str = "",
    gone: Sequence[NodeRecord] = (),
    doubt_below: dict[InstanceId, LedgerId] | None = None,
    queued: Sequence[LedgerId] = (),
) -> LedgersJudged:
    """The tally of these ledgers of stream s/t, while the `live` nodes answer."""
    members = [
        ClusterMember(
            node=one.instance,
            location=one.location,
            state=ClusterNodeState.WRITABLE if one in live else ClusterNodeState.DOWN,
        )
        for one in [*known, *gone]
    ]
    tally = LedgerTally(
        NodesSeen(
            Membership.of(MembershipConfig(default_location=DEFAULT_LOCATION), members),
            frozenset(one.instance for one in gone),
        ),
        {"s/t": survive},
        up={one.instance for one in live},
        doubt_below=doubt_below,
        queued=queued,
    )
    for record in records:
        tally.add(record)
    return tally.total()


def judged(
    known: list[NodeRecord],
    live: list[NodeRecord],
    *streams: StreamState,
    metadata_spare: int | None = None,
    metadata_away: Sequence[str] = (),
    ledgers: LedgersJudged | None = None,
    unmoved: Sequence[ReplacedNode] = (),
    doubt_below: dict[InstanceId, LedgerId] | None = None,
    queued_count: int = 0,
) -> HealthReport:
    cluster = ClusterState(
        known=known,
        live=live,
        metadata_spare=metadata_spare,
        metadata_away=metadata_away,
        unmoved=unmoved,
        doubt_below=doubt_below or {},
        queued_count=queued_count,
    )
    return judge(cluster, streams, ledgers or LedgersJudged())


def test_a_cluster_without_a_node_is_not_healthy() -> None:
    report = judged([], [])

    assert report.reasons == ["no storage node has joined a cluster of this name"]
    assert not report.is_healthy


def test_three_regions_of_three_are_healthy_and_can_lose_one() -> None:
    nodes = nodes_of("aaabbbccc")
    stream = StreamState("s/t", THREE, open_ledger([nodes[0], nodes[3], nodes[6]]))
    report = judged(nodes, nodes, stream)

    assert report.is_healthy
    assert report.reasons == []
    assert report.regions_spare == 1
    assert report.regions == {"a": 3, "b": 3, "c": 3}


def test_a_stream_counts_once_whatever_partitions_and_mirrors_it_has() -> None:
    nodes = nodes_of("aaabbbccc")
    ledger = open_ledger([nodes[0], nodes[3], nodes[6]])
    names = ["s/s", "s/t#0", "s/t#1", "s/t#0, its mirror in b"]
    report = judged(nodes, nodes, *(StreamState(name, THREE, ledger) for name in names))

    assert report.streams == 2


def test_with_one_of_three_regions_down_none_is_spare_and_each_node_is_a_reason() -> None:
    nodes = nodes_of("aaabbbccc")
    stream = StreamState("s/t", THREE, open_ledger([nodes[0], nodes[3], nodes[6]]))
    report = judged(nodes, nodes[3:], stream)

    assert not report.is_healthy
    assert report.regions_spare == 0
    assert len(report.reasons) == 3
    assert all("is down" in reason for reason in report.reasons)


def test_a_ledger_without_an_ack_set_is_a_reason() -> None:
    nodes = nodes_of("aaabbbccc")
    stream = StreamState("s/t", THREE, open_ledger([nodes[0], nodes[3], nodes[6]]))
    report = judged(nodes, [node for node in nodes if node not in (nodes[0], nodes[3])], stream)

    assert any("ledger 1 has too few members up" in reason for reason in report.reasons)
    assert report.regions_spare == 0


@pytest.mark.parametrize("fails_over", ["s/t", ""])
def test_a_stream_whose_home_is_away_can_be_failed_over_if_it_has_mirrors(
    fails_over: str,
) -> None:
    nodes = nodes_of("aaabbbccc")
    terms = PlacementTerms(policy=PolicyKind.RACK_AWARE, region="a")
    quorum = QuorumConfig(ensemble_size=3, write_quorum=3, ack_quorum=2)
    stream = StreamState("s/t", quorum, open_ledger(nodes[:3], quorum), terms, "", fails_over)
    lost = judged(nodes, nodes[3:], stream).reasons
    weak = judged(nodes, nodes[2:], stream).reasons

    way_out = "if a is lost, see `geolog relay failover s/t --dry-run`"
    assert [way_out in one for one in lost if one.startswith("stream s/t:")] == [
        bool(fails_over)
    ] * 2
    assert not any(way_out in one for one in weak)


def test_a_soft_ledger_is_a_reason() -> None:
    nodes = nodes_of("aabbcc")
    stream = StreamState("s/t", THREE, open_ledger([nodes[0], nodes[1], nodes[2]]))
    report = judged(nodes, nodes, stream)

    assert not report.is_healthy
    assert any("would not survive" in reason for reason in report.reasons)
    assert report.regions_spare == 0


def test_an_open_ledger_that_breaks_the_promise_is_a_reason() -> None:
    nodes = nodes_of("aaaabbbbccccddddeeee")
    quorum = QuorumConfig(ensemble_size=10, write_quorum=10, ack_quorum=6, min_regions=3)
    even = [nodes[at] for at in (0, 1, 4, 5, 8, 9, 12, 13, 16, 17)]
    odd = [*even[:-1], nodes[2]]

    kept = judged(
        nodes, nodes, StreamState("s/t", quorum, open_ledger(even, quorum), survive="2 regions")
    )
    broken = judged(
        nodes, nodes, StreamState("s/t", quorum, open_ledger(odd, quorum), survive="2 regions")
    )

    assert kept.is_healthy
    assert broken.reasons == [
        "stream s/t: ledger 1 does not keep its promise '2 regions': without region a and"
        " region b no ack set is left: its writer will move to a better ledger by itself; if"
        " no writer runs, run `geolog ledger recover 1`, then `geolog placement repair`"
    ]


def test_the_reason_says_if_a_better_ledger_is_undecided() -> None:
    nodes = nodes_of("a" * 11 + "b" * 10 + "c" * 8 + "def" + "g" * 20)
    quorum = QuorumConfig(ensemble_size=15, write_quorum=10, ack_quorum=7, min_regions=5)
    counts = Counter(one.location.region for one in nodes)
    piles = {
        name: iter([one for one in nodes if one.location.region == name]) for name in counts
    }
    ring = [next(piles[region]) for region in arrange_regions(quorum, counts) or ()]

    report = judged(nodes, nodes, StreamState("s/t", quorum, open_ledger(ring, quorum)))

    assert "is undecided: the search for it was cut off" in "".join(report.reasons)


def test_the_reason_says_if_a_new_ledger_is_undecided() -> None:
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


def test_a_full_node_is_a_reason_and_gets_no_new_ledger() -> None:
    nodes = nodes_of("aBc")
    report = judged(nodes, nodes, StreamState("s/t", THREE, None))

    assert [reason for reason in report.reasons if "readonly" in reason]
    assert any("no new ledger can be placed" in reason for reason in report.reasons)


def test_metadata_servers_bound_the_regions_spare() -> None:
    nodes = nodes_of("aabbccddee")

    assert judged(nodes, nodes, metadata_spare=0).regions_spare == 0
    assert judged(nodes, nodes, metadata_spare=1).regions_spare == 1


def test_a_metadata_server_that_is_away_degrades() -> None:
    nodes = nodes_of("aabbcc")
    report = judged(nodes, nodes, metadata_spare=0, metadata_away=["c:2181 does not answer"])

    assert (report.state, report.regions_spare) == (HealthState.DEGRADED, 0)
    assert report.reasons == [
        "a ZooKeeper server is away (c:2181 does not answer): start it; until then ZooKeeper"
        " can lose 0 more"
    ]


def test_without_streams_all_regions_but_one_can_be_lost() -> None:
    nodes = nodes_of("aabbcc")

    assert judged(nodes, nodes).regions_spare == 2


def may_go(
    lost: tuple[str, ...], nodes: list[NodeRecord], ledger: LedgerRecord, quorum: QuorumConfig
) -> bool:
    """Naively: the ledger, and some ring of the remaining nodes, has ack sets everywhere."""
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
def test_regions_spare_agree_with_trying_every_loss(census: str, quorum: QuorumConfig) -> None:
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


def test_closed_fragments_that_can_be_improved_are_a_reason_with_a_remedy() -> None:
    nodes = nodes_of("aabbcc")
    ledgers = tallied(nodes, nodes, [closed_ledger([nodes[0], nodes[1], nodes[2]])])
    report = judged(nodes, nodes, ledgers=ledgers)

    assert (report.state, report.is_healthy) == (HealthState.DEGRADED, False)
    assert report.reasons == [
        "stream s/t might not survive the next loss: 1 fragment, in ledger 1: losing region a"
        " or b leaves no ack set; `geolog placement repair` can fix 1"
    ]
    assert report.regions_spare == 0
    assert (
        report.regions_spare_set_by
        == "stream s/t: without region a ledger 1 has no ack set left"
    )


def test_a_closed_ledger_that_breaks_the_promise_of_an_idle_stream_is_a_reason() -> None:
    nodes = nodes_of("aabb")  # No region is there to make it better with.
    records = [closed_ledger([nodes[0], nodes[1], nodes[2]])]
    promised = tallied(nodes, nodes, records, survive="1 region")
    unpromised = tallied(nodes, nodes, records)

    assert "start nodes in other regions" in judged(nodes, nodes, ledgers=promised).reasons[0]
    assert judged(nodes, nodes, ledgers=unpromised).is_healthy


def test_a_node_that_is_down_weakens_closed_ledgers_of_the_stream() -> None:
    nodes = nodes_of("aabbcc")
    records = [closed_ledger([nodes[0], nodes[2], nodes[4]])]
    live = [nodes[0], nodes[1], nodes[3], nodes[4], nodes[5]]
    ledgers = tallied(nodes, live, records, survive="1 region")
    report = judged(nodes, live, ledgers=ledgers)

    assert report.state is HealthState.DEGRADED
    assert report.reasons[1] == (
        "stream s/t might not survive the next loss: 1 fragment, in ledger 1: without region a"
        " no ack set is left, while b-2 is down; start the nodes that are down"
    )


def test_entries_without_a_live_copy_make_a_cluster_unhealthy() -> None:
    nodes = nodes_of("aaabbbccc")
    live = [nodes[1], nodes[2], nodes[4], nodes[5], nodes[7], nodes[8]]
    ledgers = tallied(nodes, live, [closed_ledger([nodes[0], nodes[3], nodes[6]])])
    report = judged(nodes, live, ledgers=ledgers)

    assert report.state is HealthState.UNHEALTHY
    assert (
        "ledger 1, have no copy on a node that is up: start a-0, b-3, c-6" in report.reasons[0]
    )


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (
            "s/t#0@eu-west",
            "stream s/t: its mirror in eu-west has lost records: entries of 1 fragment, in"
            " ledger 1, were on no other disk than those of a-0, b-3, c-6, which were given up;"
            " run `geolog relay resync s/t --target eu-west`: its home sends them again",
        ),
        (
            "s/t#0",
            "stream s/t has lost records: entries of 1 fragment, in ledger 1, were on no other"
            " disk than those of a-0, b-3, c-6, which were given up; have the data of such a"
            " disk recovered, or accept the loss",
        ),
    ],
    ids=["mirror", "home"],
)
def test_entries_whose_every_disk_was_given_up_are_lost(log: str, reason: str) -> None:
    nodes = nodes_of("aaabbbccc")
    gone = [nodes[0], nodes[3], nodes[6]]
    rest = [one for one in nodes if one not in gone]
    ledger = attrs.evolve(closed_ledger(gone), stream=log)
    report = judged(rest, rest, ledgers=tallied(rest, rest, [ledger], gone=gone))

    assert report.reasons[0] == reason
    assert not any("start a-0" in one for one in report.reasons)


def test_a_fragment_that_fails_its_policy_is_a_reason() -> None:
    nodes = nodes_of("aabbcc")
    ledgers = tallied(nodes[2:], nodes[2:], [closed_ledger(nodes[:3])], gone=nodes[:2])
    report = judged(nodes[2:], nodes[2:], ledgers=ledgers)

    assert report.state is HealthState.UNHEALTHY
    assert "placement show STREAM --problems" in report.reasons[0]


def test_soft_fragments_that_cannot_be_improved_are_only_counted() -> None:
    nodes = nodes_of("aabb")
    ledgers = tallied(nodes, nodes, [closed_ledger([nodes[0], nodes[1], nodes[2]])] * 7)
    report = judged(nodes, nodes, ledgers=ledgers)

    assert report.is_healthy
    assert report.placement.soft == 7


def test_a_promise_without_room_for_a_new_ledger_is_a_reason() -> None:
    nodes = nodes_of("aabbcc")
    six = QuorumConfig(ensemble_size=6, write_quorum=6, ack_quorum=4, min_regions=2)
    report = judged(nodes, nodes, StreamState("s/t", six, None, survive="1 region"))

    assert report.state is HealthState.DEGRADED
    assert report.reasons[0].startswith("stream s/t cannot lose region a: no new ledger could")


def test_a_node_in_doubt_is_a_reason_with_its_ledgers_and_a_remedy() -> None:
    nodes = nodes_of("aabbcc")
    below = {nodes[0].instance: LedgerId(3)}
    records = [closed_ledger([nodes[0], nodes[2], nodes[4]], ledger=one) for one in (1, 2, 3)]
    ledgers = tallied(nodes, nodes, records, doubt_below=below)
    report = judged(nodes, nodes, ledgers=ledgers, doubt_below=below)

    assert (report.state, report.nodes_in_doubt) == (HealthState.DEGRADED, {"a-0": 2})
    assert report.reasons == [
        "node a-0 (/a/rack-1) is in doubt: damage to its journal may have taken copies of 2"
        " ledgers; `geolog ledger repair --queue` restores them and settles the doubt"
    ]


def test_queued_ledgers_are_listed_by_stream() -> None:
    nodes = nodes_of("aabbcc")
    queued = [LedgerId(2), LedgerId(9)]  # The second was not judged.
    records = [closed_ledger([nodes[0], nodes[2], nodes[4]], ledger=one) for one in (1, 2)]
    ledgers = tallied(nodes, nodes, records, queued=queued)
    report = judged(nodes, nodes, ledgers=ledgers, queued_count=2)

    assert (report.state, report.repair_queue) == (HealthState.DEGRADED, 2)
    assert [one.partition(" may lack")[0] for one in report.reasons] == [
        "stream s/t: 1 ledger (2)",
        "1 more ledger",
    ]
    assert all("`geolog ledger repair --queue`" in one for one in report.reasons)


def test_many_streams_with_the_same_problem_are_counted() -> None:
    streams = [StreamState(f"s/{number}", THREE, None) for number in range(13)]
    nodes = nodes_of("ab")
    report = judged(nodes, nodes, *streams)

    assert len(report.reasons) == 11
    assert report.reasons[-1] == "3 more streams with the same problem"


def test_a_disk_given_up_is_a_reason_until_no_ledger_names_it() -> None:
    nodes = nodes_of("aabbcc")
    records = [closed_ledger([nodes[0], nodes[2], nodes[4]], ledger=one) for one in (1, 2)]
    found = tallied(nodes[1:], nodes[1:], records, gone=nodes[:1])
    sampled = LedgersJudged()
    sampled.health.is_sample = True
    named = judged(nodes[1:], nodes[1:], ledgers=found, unmoved=[gone(nodes[0])])
    unseen = judged(nodes[1:], nodes[1:], ledgers=sampled, unmoved=[gone(nodes[0])])
    over = judged(nodes[1:], nodes[1:], unmoved=[gone(nodes[0])])

    assert "run `geolog node replace a-0` again" in named.reasons[0]
    assert "`geolog placement repair` can fix 2" in named.reasons[1]
    assert len(unseen.reasons) == 1
    assert over.is_healthy


# ---------------------------------------------------------------- the state, told naively


def naive_keeps(
    quorum: QuorumConfig, ring: Sequence[NodeRecord], left: Sequence[NodeRecord]
) -> bool:
    """Whether the remaining members are an ack set; write sets are whole ensembles."""
    there = [one for one in ring if one in left]
    regions = {one.location.region for one in there}
    return len(there) >= quorum.ack_quorum and len(regions) >= quorum.min_regions


def naive_state(
    nodes: list[NodeRecord],
    live: list[NodeRecord],
    ring: list[NodeRecord],
    quorum: QuorumConfig,
) -> HealthState:
    """The state of a cluster with one closed ledger, promised to survive losing a region."""

    def has_room(left: list[NodeRecord]) -> bool:
        return any(
            naive_keeps(quorum, each, each)
            for each in itertools.combinations(left, quorum.ensemble_size)
        )

    if not has_room(live) or not set(ring) & set(live):
        return HealthState.UNHEALTHY
    if len(live) < len(nodes):
        return HealthState.DEGRADED
    for lost in sorted({one.location.region for one in live}):
        left = [one for one in live if one.location.region != lost]
        gone_with_it = [one for one in ring if one.location.region == lost]
        if (
            not has_room(left)
            or not naive_keeps(quorum, ring, left)
            or naive_keeps(quorum, ring, gone_with_it)
        ):
            return HealthState.DEGRADED
    return HealthState.HEALTHY


@pytest.mark.parametrize("quorum", [one for one in QUORUMS if one.write_quorum > 1], ids=str)
@given(data=st.data())
def test_the_state_agrees_with_trying_every_loss(
    quorum: QuorumConfig, data: st.DataObject
) -> None:
    if quorum.write_quorum < quorum.ensemble_size:
        quorum = attrs.evolve(quorum, write_quorum=quorum.ensemble_size)
    census = data.draw(st.text("abcd", min_size=quorum.ensemble_size, max_size=6))
    nodes = nodes_of(census)
    live = [one for one in nodes if data.draw(st.integers(0, 5))]
    ring = data.draw(st.permutations(nodes))[: quorum.ensemble_size]
    if not naive_keeps(quorum, ring, ring):
        return  # No writer makes such an ensemble.
    records = [closed_ledger(ring, quorum)]
    ledgers = tallied(nodes, live, records, survive="1 region")
    stream = StreamState("s/t", quorum, records[0], survive="1 region")

    report = judged(nodes, live, stream, ledgers=ledgers)

    assert report.state is naive_state(nodes, live, ring, quorum), report.reasons
    if report.is_healthy:
        assert report.regions_spare >= 1
    assert report.is_healthy == (not report.reasons)
