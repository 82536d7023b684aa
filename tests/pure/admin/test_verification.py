"""Verification finds each kind of defect, whether nodes have it or only report it."""

import random

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.admin.extents import Extent
from geolog.admin.verification import LatestLedger, StreamVerifier, VerifyReport
from geolog.ledger.reading.ledger_reader import LedgerReadConfig, LedgerReader
from geolog.metadata.repair_queue import RepairReason
from geolog.metadata.seam import Freshness
from geolog.protocol.ids import EntryId, Epoch, InstanceId, LedgerId, Sequence
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState, Member
from geolog.protocol.messages import Answer, EntryAnswer, Message, Probe, Read, ReadAnswer
from geolog.protocol.stream_state import PartitionName, SegmentRecord, StreamName
from tests.pure.ledger.fake_nodes import SEGMENT, FakeNodes, entry_of, open_fake_nodes
from tests.pure.ledger.later_part import LaterSegment, later_part
from topology.location import Location

AWAY = Member(InstanceId("f" * 32), "away", Location.parse("/far/rack-9"))


async def verified(
    nodes: FakeNodes,
    count: int = 10,
    *,
    record: LedgerRecord | None = None,
    kind: type[SegmentRecord] = SegmentRecord,
    due: int = 0,
    full_copies: bool = False,
    latest: LatestLedger | None = None,
    queued: list[tuple[LedgerId, RepairReason]] | None = None,
) -> VerifyReport:
    """Verify the ledger from entry 0, which should have sequence `due`."""
    reader = LedgerReader(
        nodes.replicas,
        rng=random.Random(1),
        config=LedgerReadConfig(),
        record_now=nodes.record_now,
    )
    queue = [] if queued is None else queued

    async def enqueue(ledger: LedgerId, why: RepairReason) -> None:
        queue.append((ledger, why))

    verifier = StreamVerifier(
        "a/b",
        reader,
        latest=latest or unchanged,
        enqueue=enqueue,
        full_copies=full_copies,
        progress=None,
    )
    ledger = record or nodes.ledger()
    segment = kind(
        segment=SEGMENT,
        ledger=ledger.ledger,
        home_epoch=1,
        first_sequence=Sequence(0),
        owner_epoch=Epoch(1),
        activated_us=0,
    )
    name = PartitionName(StreamName.parse("a/b"))
    await verifier.verify_ledgers([Extent(name, segment, ledger, EntryId(count - 1), due)])
    return verifier.report


async def unchanged(known: LedgerRecord, _freshness: Freshness) -> LedgerRecord | None:
    return known


async def gone(_known: LedgerRecord, _freshness: Freshness) -> LedgerRecord | None:
    return None


async def test_entries_trimmed_meanwhile_are_not_lost(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(3)
        report = await verified(nodes, 200, full_copies=True, latest=gone)

    assert report.is_good


async def test_copies_that_moved_meanwhile_are_found_at_their_new_nodes(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(10)
        there = nodes.ledger()
        (fragment,) = there.fragments
        elsewhere = attrs.evolve(
            there,
            fragments=(attrs.evolve(fragment, ensemble=(*fragment.ensemble[:-1], AWAY)),),
        )

        async def latest(_known: LedgerRecord, _freshness: Freshness) -> LedgerRecord | None:
            return there

        report = await verified(nodes, 10, record=elsewhere, full_copies=True, latest=latest)

    assert report.is_good
    assert report.copies_good == 30


async def test_whole_copies_are_good(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(200)
        report = await verified(nodes, 200, full_copies=True)

    assert report.is_good
    assert (report.entries, report.records, report.copies_good) == (200, 200, 600)
    assert report.problems == []


@pytest.mark.parametrize(("kind", "gaps"), [(LaterSegment, 0), (SegmentRecord, 3)])
async def test_the_segments_numbering_says_which_entry_belongs_where(
    kind: type[SegmentRecord], gaps: int, autojump_clock: MockClock
) -> None:
    async with open_fake_nodes() as nodes:
        report = await verified(nodes, 3, record=later_part(nodes, 3), kind=kind, due=7)

    assert (report.gaps, report.copies_good) == (gaps, 9)


async def test_a_defect_is_reported_at_its_place_in_the_segment(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        record = later_part(nodes, 3)
        nodes.nodes[0].entries[EntryId(2)] = entry_of(0).join()
        report = await verified(nodes, 3, record=record, kind=LaterSegment, due=7)

    assert any(f"segment {SEGMENT} entry 9: " in one for one in report.problems)


def test_missing_copies_are_a_reason_if_full_copies_are_required() -> None:
    assert VerifyReport("a/b", under_replicated=7).reasons == []
    (reason,) = VerifyReport("a/b", under_replicated=7, full_copies=True).reasons
    assert "7 entries" in reason


async def test_an_answer_in_parts_is_read_to_its_end(autojump_clock: MockClock) -> None:
    def in_parts(asked: Message, answers: list[Message]) -> list[Message]:
        return [
            attrs.evolve(one, entries=one.entries[:3]) if isinstance(one, ReadAnswer) else one
            for one in answers
        ]

    async with open_fake_nodes() as nodes:
        nodes.store(20)
        nodes.nodes[1].lie = in_parts
        report = await verified(nodes, 20, full_copies=True)

    assert report.is_good


async def test_a_thousand_entries_far_away_are_read_in_few_round_trips(
    autojump_clock: MockClock,
) -> None:
    trip_s = 0.1
    async with open_fake_nodes() as nodes:
        nodes.network.latency_s = lambda _from_host, _to_host: trip_s / 2
        nodes.store(1000)
        begin_s = trio.current_time()
        report = await verified(nodes, 1000, full_copies=True)
        trips = (trio.current_time() - begin_s) / trip_s

    assert report.copies_good == 3000
    assert trips < 8, "connecting included"


@pytest.mark.parametrize("is_told", [True, False], ids=["the node says so", "it does not"])
async def test_a_damaged_copy_is_found(is_told: bool, autojump_clock: MockClock) -> None:  # noqa: FBT001 - pytest gives it.
    async with open_fake_nodes() as nodes:
        nodes.store(10)
        if is_told:
            nodes.nodes[1].lie = lambda asked, answers: [
                attrs.evolve(one, entries=(EntryAnswer(Answer.CORRUPT), *one.entries[1:]))
                if isinstance(one, ReadAnswer)
                else one
                for one in answers
            ]
        else:
            body = bytearray(nodes.nodes[1].entries[EntryId(0)])
            body[-1] ^= 1
            nodes.nodes[1].entries[EntryId(0)] = bytes(body)
        report = await verified(nodes)

    assert not report.is_good
    assert (report.damaged, report.copies_good) == (1, 29)
    assert report.problems == [f"a/b#0 segment {SEGMENT} entry 0: 1 copy is damaged at node-1"]


async def test_a_missing_copy_counts_only_if_full_copies_are_required(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(10, at=(0, 1))
        nodes.store(9, at=(2,))
        lenient = await verified(nodes)
        strict = await verified(nodes, full_copies=True)

    assert lenient.is_good
    assert lenient.under_replicated == strict.under_replicated == 1
    assert not strict.is_good


async def test_a_node_that_is_away_has_no_good_copies(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(10)
        nodes.nodes[0].lie = lambda asked, answers: (
            [] if isinstance(asked, Read | Probe) else answers
        )
        report = await verified(nodes)

    assert report.is_good
    assert (report.under_replicated, report.copies_good) == (10, 20)


async def test_an_entry_without_an_ack_set_is_found(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(9)
        nodes.store(10, at=(2,))
        report = await verified(nodes)

    assert not report.is_good
    assert report.without_ack_set == 1
    assert report.problems[0].endswith(
        "entry 9: 1 copy is good, too few for an ack set: missing at node-0, node-1"
    )


async def test_a_member_that_is_late_once_is_asked_again(autojump_clock: MockClock) -> None:
    """A busy node is no silent one."""
    left = [1]

    def late_once(asked: Message, answers: list[Message]) -> list[Message]:
        return [] if isinstance(asked, Read) and left and left.pop() else answers

    async with open_fake_nodes() as nodes:
        nodes.store(2)
        nodes.nodes[0].lie = late_once
        report = await verified(nodes, 2)

    assert left == []
    assert report.silent_nodes == []
    assert (report.is_good, report.copies_good) == (True, report.copies_expected)


async def test_silent_members_are_named_if_their_copies_are_needed(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(2)
        for node in nodes.nodes[:2]:
            node.lie = lambda asked, answers: [] if isinstance(asked, Read) else answers
        report = await verified(nodes, 2)

    assert report.silent_nodes == ["node-0", "node-1"]
    assert report.problems[0].endswith("too few for an ack set: node-0, node-1 did not answer")
    assert report.reasons[-1] == (
        "node-0, node-1 did not answer: start the nodes that are down, then verify again"
    )


async def test_ledgers_with_missing_or_damaged_copies_are_queued_for_repair(
    autojump_clock: MockClock,
) -> None:
    queued: list[tuple[LedgerId, RepairReason]] = []
    async with open_fake_nodes() as nodes:
        nodes.store(10, at=(0, 1))
        nodes.store(9, at=(2,))
        body = bytearray(nodes.nodes[1].entries[EntryId(3)])
        body[-1] ^= 1
        nodes.nodes[1].entries[EntryId(3)] = bytes(body)
        closed = attrs.evolve(nodes.ledger(), state=LedgerState.CLOSED, last_entry=EntryId(9))
        report = await verified(nodes, record=closed, queued=queued)

    assert report.ledgers_queued == [closed.ledger]
    assert queued == [
        (closed.ledger, RepairReason.DAMAGED),
        (closed.ledger, RepairReason.COPIES_MISSING),
    ]
    assert "run `geolog ledger repair --queue`" in report.reasons[-1]


async def test_copies_missing_from_an_open_ledger_are_left_to_its_writer(
    autojump_clock: MockClock,
) -> None:
    queued: list[tuple[LedgerId, RepairReason]] = []
    async with open_fake_nodes() as nodes:
        nodes.store(10, at=(0, 1))
        report = await verified(nodes, queued=queued)

    assert report.under_replicated == 10
    assert queued == []


async def test_intact_copies_that_differ_are_found(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(10)
        nodes.nodes[2].entries[EntryId(4)] = entry_of(4, value=b"other").join()
        report = await verified(nodes)

    assert not report.is_good
    assert (report.unequal, report.damaged) == (1, 0)


async def test_an_entry_that_belongs_elsewhere_is_a_gap(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(10)
        for node in nodes.nodes:
            node.entries[EntryId(4)] = entry_of(5).join()
        report = await verified(nodes)

    assert not report.is_good
    assert report.gaps >= 1


async def test_only_so_many_problems_are_described(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        report = await verified(nodes, 300)

    assert report.without_ack_set == 300
    assert len(report.problems) == 100


async def test_each_entry_is_judged_by_its_own_fragment(autojump_clock: MockClock) -> None:
    """Two members were replaced in the middle of one request."""
    async with open_fake_nodes(count=5) as nodes:
        nodes.store(6, at=(0, 1, 2))
        nodes.store(10, at=(2, 3, 4))
        for node in nodes.nodes[3:]:
            node.entries = {one: body for one, body in node.entries.items() if one >= 6}
        members = [nodes.nodes[place].member for place in (3, 4, 2)]
        record = nodes.ledger().with_fragment(Fragment(EntryId(6), tuple(members)))
        report = await verified(nodes, 10, record=record, full_copies=True)

    assert report.is_good, report.problems
    assert report.copies_good == 30
