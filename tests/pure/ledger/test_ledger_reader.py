"""Reading from replicas, some of which lie, fail or stay silent."""

import random
from collections.abc import Callable

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.ledger.reading.ledger_reader import (
    EntriesMovedError,
    LedgerReadConfig,
    LedgerReader,
    RecordNow,
)
from geolog.ledger.replicas.entry_check import check_place
from geolog.protocol.entry_numbering import EntryNumbering
from geolog.protocol.hedge_policy import OFF
from geolog.protocol.ids import EntryId, LedgerId, SegmentEntry
from geolog.protocol.ledger_state import Fragment, LedgerRecord
from geolog.protocol.messages import (
    Answer,
    EntryAnswer,
    Message,
    Probe,
    ProbeAnswer,
    Read,
    ReadAnswer,
)
from tests.pure.ledger.fake_nodes import SEGMENT, FakeNodes, Lie, entry_of, open_fake_nodes
from tests.pure.ledger.later_part import later_part
from topology.errors import DamagedBytesError, DataLostError, UnavailableError


def a_reader(
    nodes: FakeNodes, record_now: RecordNow | None = None, **config: int
) -> LedgerReader:
    return LedgerReader(
        nodes.replicas,
        rng=random.Random(1),
        config=LedgerReadConfig(**config),
        record_now=record_now or nodes.record_now,
    )


def with_entries(change: Callable[[EntryAnswer], EntryAnswer]) -> Lie:
    """A node that gives false answers for entries."""

    def lie(asked: Message, answers: list[Message]) -> list[Message]:
        return [
            attrs.evolve(one, entries=tuple(map(change, one.entries)))
            if isinstance(one, ReadAnswer)
            else one
            for one in answers
        ]

    return lie


def flipped(one: EntryAnswer) -> EntryAnswer:
    body = bytearray(one.body)
    body[len(body) // 2] ^= 1
    return EntryAnswer(one.answer, bytes(body))


LIES = {
    "damaged": with_entries(lambda one: EntryAnswer(Answer.CORRUPT)),
    "not sure": with_entries(lambda one: EntryAnswer(Answer.UNKNOWN)),
    "wrongly absent": with_entries(lambda one: EntryAnswer(Answer.ABSENT)),
    "other bytes": with_entries(flipped),
    "a single byte": with_entries(lambda one: EntryAnswer(Answer.HAVE, b"x")),
    "another entry": with_entries(lambda one: EntryAnswer(Answer.HAVE, entry_of(8).join())),
    "another segment's": with_entries(
        lambda one: EntryAnswer(Answer.HAVE, entry_of(4, segment=9).join())
    ),
    "silence": lambda asked, answers: [] if isinstance(asked, Read) else answers,
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
async def test_an_entry_not_intact_at_one_replica_is_read_from_another(
    lie: Lie, autojump_clock: MockClock
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(10)
        nodes.nodes[0].lie = lie
        with trio.fail_after(5):
            (fetched, *_) = await a_reader(nodes).read(nodes.ledger(), EntryId(4), EntryId(4))

        assert fetched.decoded.header.entry == 4
        assert fetched.served_by.location.region != "near"


async def test_only_the_nearest_is_asked_at_first(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(10)
        fetched = await a_reader(nodes).read(nodes.ledger(), EntryId(0), EntryId(9))

        assert [one.entry for one in fetched] == list(range(10))
        assert not any(isinstance(one, Read) for node in nodes.nodes[1:] for one in node.asked)


async def test_intact_entries_before_a_damaged_one_are_taken(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(10)
        nodes.nodes[0].entries[EntryId(3)] = b"rot"
        reader = a_reader(nodes)
        first = await reader.read(nodes.ledger(), EntryId(0), EntryId(9))
        second = await reader.read(nodes.ledger(), EntryId(3), EntryId(9))

        assert [one.entry for one in first] == [0, 1, 2]
        assert [one.entry for one in second] == list(range(3, 10))
        assert reader.damaged_count == 2


async def test_an_entry_that_no_replica_has_is_lost(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(3)
        with pytest.raises(DataLostError, match="entry 3 of ledger 7"):
            await a_reader(nodes).read(nodes.ledger(), EntryId(3), EntryId(3))


async def test_an_entry_absent_at_all_replicas_has_moved_if_the_record_changed(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes(count=4) as nodes:
        nodes.store(4, at=(3,))
        (fragment,) = nodes.ledger().fragments
        members = (nodes.nodes[3].member, *fragment.ensemble[1:])
        moved = attrs.evolve(nodes.ledger(), fragments=(Fragment(EntryId(0), members),))

        async def record_now(_ledger: LedgerId) -> LedgerRecord:
            return moved

        reader = a_reader(nodes, record_now)
        with pytest.raises(EntriesMovedError) as told:
            await reader.read(nodes.ledger(), EntryId(3), EntryId(3))
        assert told.value.ledger == moved
        assert (await reader.read_one(nodes.ledger(), EntryId(3))).entry == 3


async def test_an_entry_that_no_replica_has_is_not_lost_until_metadata_says_so(
    autojump_clock: MockClock,
) -> None:
    is_away = True

    async def record_now(_ledger: LedgerId) -> LedgerRecord:
        if is_away:
            raise UnavailableError("metadata is away")
        return nodes.ledger()

    async with open_fake_nodes() as nodes:
        nodes.store(3)
        reader = a_reader(nodes, record_now)
        with trio.move_on_after(60) as patience:
            await reader.read(nodes.ledger(), EntryId(3), EntryId(3))
        assert patience.cancelled_caught

        is_away = False
        with pytest.raises(DataLostError, match="entry 3 of ledger 7"):
            await reader.read(nodes.ledger(), EntryId(3), EntryId(3))


@pytest.mark.parametrize("name", ["damaged", "not sure", "other bytes", "silence"])
async def test_an_entry_absent_at_all_replicas_but_one_is_waited_for(
    name: str, autojump_clock: MockClock
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(4, at=(2,))
        nodes.nodes[2].lie = LIES[name]
        reader = a_reader(nodes)
        with trio.move_on_after(20) as patience:
            await reader.read(nodes.ledger(), EntryId(3), EntryId(3))
        assert patience.cancelled_caught
        nodes.nodes[2].lie = lambda asked, answers: answers
        with trio.fail_after(20):
            (fetched,) = await reader.read(nodes.ledger(), EntryId(3), EntryId(3))

        assert fetched.entry == 3


async def test_a_silent_replica_is_asked_last_for_a_while(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(10)
        nodes.nodes[0].lie = LIES["silence"]
        reader = a_reader(nodes).hedged_by(OFF)
        await reader.read(nodes.ledger(), EntryId(0), EntryId(0))
        started_s = trio.current_time()
        await reader.read(nodes.ledger(), EntryId(1), EntryId(1))

        assert trio.current_time() - started_s < 0.1


# The tail.


async def test_the_end_is_where_a_blocking_set_says_absent(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(5)
        nodes.store(6, at=(0, 1))
        nodes.store(7, at=(0,))
        view = await a_reader(nodes).probe_tail(nodes.ledger(), EntryId(-1))

        assert view.end == 6
        assert view.lac == -1
        assert not view.is_taken


async def test_with_too_many_silent_members_the_end_is_unknown(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(5)
        for node in nodes.nodes[:2]:
            node.lie = lambda asked, answers: [] if isinstance(asked, Probe) else answers
        view = await a_reader(nodes).probe_tail(nodes.ledger(), EntryId(-1))

        assert (view.end, view.silent_count) == (None, 2)


async def test_an_answer_for_too_few_entries_counts_as_silence(
    autojump_clock: MockClock,
) -> None:
    def cut_short(asked: Message, answers: list[Message]) -> list[Message]:
        return [
            attrs.evolve(one, answers=one.answers[:3]) if isinstance(one, ProbeAnswer) else one
            for one in answers
        ]

    async with open_fake_nodes() as nodes:
        nodes.store(5)
        nodes.nodes[0].lie = cut_short
        view = await a_reader(nodes).probe_tail(nodes.ledger(), EntryId(-1))

        assert (view.end, view.silent_count) == (5, 1)


async def test_an_end_beyond_one_request_is_reported_as_further_on(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(25)
        reader = a_reader(nodes, batch_entries=10)
        held_to = EntryId(-1)
        ends = []
        for _ in range(3):
            view = await reader.probe_tail(nodes.ledger(), held_to)
            ends.append(view.end)
            held_to = view.held_to

        assert ends == [None, None, 25]


async def test_the_lac_comes_from_the_nearest_or_from_all(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(5)
        nodes.nodes[0].lac = EntryId(1)
        nodes.nodes[2].lac = EntryId(4)
        reader = a_reader(nodes)

        assert await reader.lac_nearby(nodes.ledger()) == 1
        assert await reader.lac_anywhere(nodes.ledger()) == 4


@pytest.mark.parametrize(
    ("numbering", "entry"),
    [(EntryNumbering(SEGMENT), 7), (EntryNumbering(SEGMENT, SegmentEntry(7)), 0)],
    ids=["numbered like its segment", "from entry 7 of its segment"],
)
def test_an_entry_is_in_its_place_by_the_numbering_of_its_ledger(
    numbering: EntryNumbering, entry: int
) -> None:
    header = entry_of(7).header

    check_place(header, numbering, EntryId(entry))
    for other in {0, 1, 7, 14} - {entry}:
        with pytest.raises(DamagedBytesError, match=rf"got entry 7 of segment {SEGMENT}"):
            check_place(header, numbering, EntryId(other))
    with pytest.raises(DamagedBytesError, match=f"of segment {SEGMENT + 1}, got"):
        check_place(header, attrs.evolve(numbering, segment=SEGMENT + 1), EntryId(entry))


async def test_a_ledger_may_hold_entries_under_other_numbers_than_their_headers(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        reader, ledger = a_reader(nodes), later_part(nodes, 3)

        fetched = await reader.read(ledger, EntryId(0), EntryId(2))

        assert [one.entry for one in fetched] == [0, 1, 2]
        assert [one.decoded.header.entry for one in fetched] == [7, 8, 9]
        assert reader.damaged_count == 0
        with trio.move_on_after(1):
            await reader.read(nodes.ledger(), EntryId(0), EntryId(2))
        assert reader.damaged_count > 0, "by other numbers, these are the wrong entries"


async def test_readers_share_what_one_learned_of_a_silent_replica(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(10)
        nodes.nodes[0].lie = LIES["silence"]
        patient = a_reader(nodes).hedged_by(OFF)
        hasty = a_reader(nodes, replica_timeout_s=1).hedged_by(OFF)
        await hasty.read(nodes.ledger(), EntryId(0), EntryId(4))
        asked_count, started_s = len(nodes.nodes[0].asked), trio.current_time()

        fetched = await patient.read(nodes.ledger(), EntryId(5), EntryId(9))

        assert [one.entry for one in fetched] == list(range(5, 10))
        assert trio.current_time() == started_s, "the silent one is not asked first again"
        assert len(nodes.nodes[0].asked) == asked_count
