"""Readers of one process that follow one ledger."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.ledger.nodes.connection import ConnectionConfig
from geolog.ledger.reading.ledger_reader import FetchedEntry, LedgerReadConfig, LedgerReader
from geolog.ledger.reading.ledger_tail import LedgerTail, LedgerTails, TailConfig
from geolog.protocol.ids import EntryId, Epoch
from geolog.protocol.messages import Cancel, Follow, Message, Reason, Refused
from tests.pure.ledger.fake_nodes import LEDGER, FakeNodes, open_fake_nodes

TICKS_S = 2.5 * TailConfig().tick_s
"""After news, each tail has had its tick by then."""


@attrs.define(eq=False)
class Waiter:
    """A reader that takes everything, or nothing."""

    is_busy: bool = False
    got: list[FetchedEntry] = attrs.field(factory=list)
    passed_count: int = 0

    def on_entries(self, entries: list[FetchedEntry]) -> bool:
        if self.is_busy:
            return False
        self.got += entries
        return True

    def on_passed(self) -> None:
        self.passed_count += 1

    @property
    def numbers(self) -> list[int]:
        return [one.entry for one in self.got]


@attrs.define(eq=False)
class Followed:
    """Nodes with ten entries each, of which none is acknowledged, and the tails."""

    nodes: FakeNodes
    tails: LedgerTails

    def joined(self, count: int) -> LedgerTail:
        """The tail of the ledger, with this many readers."""
        return [self.tails.join(LEDGER) for _ in range(count)][-1]

    def wait(self, tail: LedgerTail, *waiters: Waiter, first: int = 0) -> None:
        for waiter in waiters:
            tail.wait_nowait(waiter, self.nodes.ledger(), EntryId(first))

    async def acknowledge(self, lac: int, *, at: tuple[int, ...] = (0, 1, 2)) -> None:
        """Tell nodes the LAC, and let tails hear of it."""
        for number in at:
            await self.nodes.nodes[number].acknowledge(lac)
        await trio.sleep(0.001)

    def asked(self, node: int | None = None) -> list[tuple[int, int]]:
        """First entries and counts of all follows, of all nodes or of one."""
        nodes = self.nodes.nodes if node is None else [self.nodes.nodes[node]]
        messages: list[Message] = [message for one in nodes for message in one.asked]
        return [(one.first, one.count_max) for one in messages if isinstance(one, Follow)]


@asynccontextmanager
async def open_tails(config: TailConfig | None = None) -> AsyncIterator[Followed]:
    connection = ConnectionConfig(answer_timeout_s=2.0)
    async with open_fake_nodes(connection) as nodes:
        nodes.store(10)
        reader = LedgerReader(
            nodes.replicas,
            rng=random.Random(1),
            config=LedgerReadConfig(),
            record_now=nodes.record_now,
        )
        yield Followed(nodes, LedgerTails(reader, config or TailConfig()))


async def test_all_that_wait_get_the_same_objects_by_one_request(
    autojump_clock: MockClock,
) -> None:
    async with open_tails() as it:
        waiters, tail = [Waiter() for _ in range(50)], it.joined(50)
        it.wait(tail, *waiters)
        await trio.sleep(0.01)
        await it.acknowledge(2)
        await it.acknowledge(5)

        assert [waiter.numbers for waiter in waiters] == [[0, 1, 2, 3, 4, 5]] * 50
        assert {id(one) for waiter in waiters for one in waiter.got} == {
            id(one) for one in waiters[0].got
        }
        assert it.asked() == [(0, 256), (3, 256), (6, 256)]
        assert it.tails.kept_bytes == 0, "no reader is busy"


async def test_an_idle_tail_asks_nobody_again(autojump_clock: MockClock) -> None:
    async with open_tails() as it:
        it.wait(it.joined(1), Waiter())
        await trio.sleep(TICKS_S)
        asked = it.asked()
        assert sorted(asked) == [(0, 0), (0, 0), (0, 256)], "one is followed, others watched"
        await trio.sleep(0.9 * TailConfig().wait_s)

        assert it.asked() == asked
        assert sum(node.connections_count for node in it.nodes.nodes) == 3, (
            "none counts as late"
        )


async def test_a_busy_reader_finds_what_it_missed(autojump_clock: MockClock) -> None:
    async with open_tails() as it:
        fast, busy, tail = Waiter(), Waiter(is_busy=True), it.joined(2)
        it.wait(tail, fast, busy)
        await trio.sleep(0.01)
        await it.acknowledge(2)
        await it.acknowledge(5)

        assert (fast.numbers, busy.numbers) == ([0, 1, 2, 3, 4, 5], [])
        assert tail.lac == 5
        assert tail.kept_from(EntryId(1)) == fast.got[1:]
        assert tail.kept_from(EntryId(6)) == []
        busy.is_busy = False
        it.wait(tail, busy, first=6)
        await it.acknowledge(6)
        assert busy.got == fast.got[-1:]
        assert it.tails.kept_bytes == 0, "all readers have it"


async def test_what_is_kept_for_busy_readers_is_bounded(autojump_clock: MockClock) -> None:
    async with open_tails(TailConfig(kept_bytes_max=100)) as it:
        fast, tail = Waiter(), it.joined(2)
        it.wait(tail, fast)
        await trio.sleep(0.01)
        await it.acknowledge(9)

        assert fast.numbers == list(range(10))
        assert 0 < it.tails.kept_bytes <= 100
        assert tail.kept_from(EntryId(0)) == []
        assert tail.kept_from(EntryId(9)) == fast.got[9:]
    async with open_tails(TailConfig(kept_bytes_max_all=100)) as it:
        tail = it.joined(2)
        it.wait(tail, Waiter())
        await trio.sleep(0.01)
        await it.acknowledge(9)

        assert it.tails.kept_bytes == 0
        assert tail.kept_from(EntryId(9)) == []


async def test_nothing_is_requested_while_no_reader_waits(autojump_clock: MockClock) -> None:
    async with open_tails() as it:
        busy, tail = Waiter(is_busy=True), it.joined(1)
        await trio.sleep(10)
        assert it.asked() == []
        it.wait(tail, busy)
        await trio.sleep(0.01)
        await it.acknowledge(2)
        await trio.sleep(10)

        assert it.asked() == [(0, 256)]


async def test_a_tail_ends_with_its_last_reader(autojump_clock: MockClock) -> None:
    async with open_tails() as it:
        waiter, tail = Waiter(), it.joined(2)
        it.wait(tail, waiter)
        await trio.sleep(TICKS_S)
        tail.leave()
        assert len(it.tails) == 1
        tail.discard(waiter)
        tail.leave()
        assert len(it.tails) == 0
        await trio.sleep(1)

        assert [len(node.follows) for node in it.nodes.nodes] == [0, 0, 0]
        cancels = [
            one for node in it.nodes.nodes for one in node.asked if isinstance(one, Cancel)
        ]
        assert len(cancels) == 3
        assert it.tails.join(LEDGER) is not tail


async def test_a_lac_that_only_another_member_hears_of_is_found_and_followed_there(
    autojump_clock: MockClock,
) -> None:
    async with open_tails() as it:
        waiter, tail = Waiter(), it.joined(1)
        it.wait(tail, waiter)
        await trio.sleep(10)
        await it.acknowledge(4, at=(1, 2))
        await trio.sleep(TICKS_S)
        assert (waiter.numbers, waiter.passed_count) == ([], 1)
        assert tail.lac == 4

        it.wait(tail, waiter, first=5)
        await trio.sleep(0.01)
        await it.acknowledge(6, at=(1, 2))
        assert waiter.numbers == [5, 6]


@pytest.mark.parametrize("how", ["killed", "silent", "busy"])
async def test_a_tail_goes_to_another_member_when_its_own_fails(
    how: str, autojump_clock: MockClock
) -> None:
    def refuse(asked: Message, answers: list[Message]) -> list[Message]:
        if isinstance(asked, Follow):
            return [Refused(asked.request, Reason.BUSY, Epoch(0), "")]
        return answers

    async with open_tails() as it:
        waiter, tail, nearest = Waiter(), it.joined(1), it.nodes.nodes[0]
        if how == "busy":
            nearest.lie = refuse
        it.wait(tail, waiter)
        await trio.sleep(0.01)
        if how == "killed":
            it.nodes.network.kill(nearest.address.host)
        await trio.sleep(TICKS_S)
        for lac in range(5):
            await it.acknowledge(lac, at=(1, 2))
            await trio.sleep(TICKS_S)
            if waiter.passed_count:
                waiter.passed_count = 0
                it.wait(tail, waiter, first=tail.lac + 1)

        assert tail.lac == 4
        assert waiter.numbers
        assert {one.served_by.location.region for one in waiter.got} <= {"far", "farther"}


async def test_a_fenced_member_is_not_asked_all_the_time(autojump_clock: MockClock) -> None:
    async with open_tails() as it:
        for node in it.nodes.nodes:
            node.fence = Epoch(2)
        it.wait(it.joined(1), Waiter())
        await trio.sleep(100 * TailConfig().tick_s)

        assert 10 < len(it.asked()) < 300


async def test_a_reader_that_is_further_than_the_tail_takes_it_along(
    autojump_clock: MockClock,
) -> None:
    async with open_tails() as it:
        behind, further, tail = Waiter(), Waiter(), it.joined(2)
        it.wait(tail, behind)
        await trio.sleep(0.01)
        it.wait(tail, further, first=5)
        await trio.sleep(0.01)
        await it.acknowledge(6)

        assert (behind.numbers, behind.passed_count) == ([], 1)
        assert further.numbers == [5, 6]


async def test_a_new_member_is_followed_when_the_record_says_so(
    autojump_clock: MockClock,
) -> None:
    async with open_tails() as it:
        waiter, tail, ledger = Waiter(), it.joined(1), it.nodes.ledger()
        it.wait(tail, waiter)
        await trio.sleep(TICKS_S)
        (fragment,) = ledger.fragments
        fewer = attrs.evolve(fragment, ensemble=fragment.ensemble[1:])
        tail.discard(waiter)
        tail.wait_nowait(waiter, attrs.evolve(ledger, fragments=(fewer,)), EntryId(0))
        await trio.sleep(TICKS_S)

        assert [bool(node.follows) for node in it.nodes.nodes] == [False, True, True]
        await it.acknowledge(3, at=(1, 2))
        assert waiter.numbers == [0, 1, 2, 3]
