"""Catch-up from several replicas at a time, once one of them limits the reader."""

import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from geolog.ledger.reading.ledger_reader import LedgerReadConfig, LedgerReader
from geolog.ledger.reading.ledger_stream import LedgerStream
from geolog.protocol.hedge_policy import HedgePolicy, parse_hedge
from geolog.protocol.ids import EntryId
from geolog.protocol.messages import Message, Read, ReadAnswer
from geolog.protocol.read_window import ANSWERS_MAX
from tests.pure.ledger.fake_nodes import FakeNodes, entry_of, open_fake_nodes

ENTRIES_COUNT = 1000
PER_ANSWER = 2
ANSWERS_COUNT = ENTRIES_COUNT // PER_ANSWER
ANSWER_S = 0.020
"""How long a slow node takes to read one answer."""


@asynccontextmanager
async def open_slow_nodes(*, near_count: int = 2) -> AsyncIterator[FakeNodes]:
    """Three nodes, of which so many are in the reader's region, that read slowly."""
    regions = ("near",) * near_count + ("far",) * (3 - near_count)
    async with open_fake_nodes(regions=regions) as nodes:
        nodes.store(ENTRIES_COUNT)
        for node in nodes.nodes:
            node.answer_s = ANSWER_S
        yield nodes


async def catch_up(
    nodes: FakeNodes, *, each_s: float = 0.0, hedge: HedgePolicy | str = "off"
) -> tuple[float, Counter[str]]:
    """Read all entries, taking `each_s` for an answer; the time, and who served the answers."""
    reader = LedgerReader(
        nodes.replicas,
        rng=random.Random(1),
        config=LedgerReadConfig(batch_bytes=PER_ANSWER * entry_of(999).length_bytes),
        record_now=nodes.record_now,
    ).hedged_by(parse_hedge(hedge) if isinstance(hedge, str) else hedge)
    started_s = trio.current_time()
    found: list[int] = []
    served = Counter[str]()
    last = EntryId(ENTRIES_COUNT - 1)
    with LedgerStream(reader, nodes.ledger(), EntryId(0), last) as stream:
        while stream.entry_next <= last:
            entries = await stream.read()
            found += [one.decoded.header.entry for one in entries]
            served[entries[0].served_by.node_id] += 1
            await trio.sleep(each_s)
    assert found == list(range(ENTRIES_COUNT))
    return trio.current_time() - started_s, served


def reads_at(nodes: FakeNodes, number: int) -> list[Read]:
    return [asked for asked in nodes.nodes[number].asked if isinstance(asked, Read)]


@pytest.mark.parametrize(("near_count", "times_faster"), [(1, 1.0), (2, 1.7), (3, 2.3)])
async def test_slow_replicas_of_the_nearest_region_are_read_together(
    near_count: int, times_faster: float, autojump_clock: MockClock
) -> None:
    async with open_slow_nodes(near_count=near_count) as nodes:
        took_s, served = await catch_up(nodes)

        assert len(served) == near_count
        assert took_s < ANSWERS_COUNT * ANSWER_S / times_faster * 1.1
        if near_count == 1:
            assert not reads_at(nodes, 1) + reads_at(nodes, 2), "farther ones are not asked"


async def test_one_replica_is_asked_while_it_is_faster_than_its_reader(
    autojump_clock: MockClock,
) -> None:
    async with open_slow_nodes() as nodes:
        took_s, served = await catch_up(nodes, each_s=2 * ANSWER_S)

        assert len(served) == 1
        assert took_s < ANSWERS_COUNT * 2 * ANSWER_S * 1.02
        asked = reads_at(nodes, 0) + reads_at(nodes, 1)
        assert len(asked) < ANSWERS_COUNT / 4


async def test_no_entry_is_requested_twice_of_replicas_that_are_equally_fast(
    autojump_clock: MockClock,
) -> None:
    async with open_slow_nodes() as nodes:
        await catch_up(nodes)
        sent = [answer_count(read) for number in (0, 1) for read in reads_at(nodes, number)]

    assert sum(sent) < 1.02 * ENTRIES_COUNT


def answer_count(read: Read) -> int:
    """Entries that the answers to a read had."""
    left = min(read.count_max, ENTRIES_COUNT - read.first)
    return min(left, read.answers_max * PER_ANSWER)


@pytest.mark.parametrize("slower", [2, 5, 20])
async def test_a_replica_that_is_behind_holds_up_the_others_for_a_short_time_only(
    slower: int, autojump_clock: MockClock
) -> None:
    async with open_slow_nodes() as nodes, trio.open_nursery() as nursery:
        fast, slow = nodes.nodes[:2]

        async def slow_down() -> None:
            await trio.sleep(4 * ANSWER_S)
            nonlocal fast, slow
            if slow.asked:  # The reader began with it.
                fast, slow = slow, fast
            slow.answer_s *= slower

        nursery.start_soon(slow_down)
        took_s, served = await catch_up(nodes)

        assert took_s < 1.15 * ANSWERS_COUNT * ANSWER_S
        assert served[fast.node_id] > served[slow.node_id]


async def test_a_reader_that_began_with_the_slower_replica_goes_on_with_the_faster(
    autojump_clock: MockClock,
) -> None:
    async with open_slow_nodes() as nodes:
        nodes.nodes[0].answer_s = 10 * ANSWER_S
        took_s, served = await catch_up(nodes)

        assert took_s < 2 * ANSWERS_COUNT * ANSWER_S
        assert served["node-1"] > 0.9 * ANSWERS_COUNT


async def test_a_stripe_whose_replica_falls_silent_is_read_elsewhere(
    autojump_clock: MockClock,
) -> None:
    async with open_slow_nodes() as nodes:

        def silent_from_500(asked: Message, answers: list[Message]) -> list[Message]:
            is_late = isinstance(asked, Read) and asked.first >= 500
            return [one for one in answers if not (is_late and isinstance(one, ReadAnswer))]

        nodes.nodes[1].lie = silent_from_500
        took_s, served = await catch_up(nodes, hedge="25ms")

        assert served["node-1"] > 100
        assert took_s < ANSWERS_COUNT * ANSWER_S, "no worse than one replica alone"


async def test_a_stripe_whose_replica_dies_is_read_elsewhere(autojump_clock: MockClock) -> None:
    async with open_slow_nodes() as nodes, trio.open_nursery() as nursery:

        async def kill() -> None:
            await trio.sleep(2.0)
            nodes.network.kill(nodes.nodes[1].address.host)

        nursery.start_soon(kill)
        took_s, served = await catch_up(nodes, hedge="25ms")

        assert served["node-1"] > 10
        assert took_s < 1.1 * ANSWERS_COUNT * ANSWER_S


async def test_answers_under_way_are_bounded_over_all_replicas(
    autojump_clock: MockClock,
) -> None:
    async with open_slow_nodes(near_count=3) as nodes:
        for node in nodes.nodes:
            node.delay_s = 0.5  # Far away: windows grow.
        await catch_up(nodes)

        asked = [read for number in range(3) for read in reads_at(nodes, number)]
        assert max(read.answers_max for read in asked) <= ANSWERS_MAX
        striped = [read for read in asked if read.count_max < ENTRIES_COUNT / 2]
        assert striped
        assert max(read.answers_max for read in striped) <= ANSWERS_MAX // 2


async def test_entries_that_all_replicas_lack_but_one_at_a_time_are_read_one_by_one(
    autojump_clock: MockClock,
) -> None:
    async with open_slow_nodes(near_count=3) as nodes:
        for number, node in enumerate(nodes.nodes):
            for entry in range(100 + number, ENTRIES_COUNT, 50):
                node.entries[EntryId(entry)] = b"rot"
        _, served = await catch_up(nodes)

        assert len(served) == 3
