"""A ledger's writer against members that leave, come back, refuse and fall behind."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.ledger.nodes.connection import ConnectionConfig, NodeConnection
from geolog.ledger.writing.greeting import greet_members
from geolog.ledger.writing.ledger_writer import LedgerWriter
from geolog.protocol.ids import NO_ENTRY, EntryId, Epoch, InstanceId
from geolog.protocol.messages import (
    Add,
    AddRefused,
    AddsReceived,
    AddsSynced,
    Message,
    OpenLedger,
    PushLac,
    Reason,
    Refused,
)
from tests.pure.ledger.fake_nodes import FakeNodes, Lie, entry_of, open_fake_nodes
from topology.errors import NotEnoughNodesError


@attrs.define(eq=False)
class Listener:
    """Records every call."""

    lacs: list[int] = attrs.field(factory=list)
    received: list[int] = attrs.field(factory=list)
    fenced: list[str] = attrs.field(factory=list)
    stuck: list[int] = attrs.field(factory=list)

    def on_lac(self, lac: EntryId) -> None:
        self.lacs.append(lac)

    def on_received(self, through: EntryId) -> None:
        self.received.append(through)

    def on_fenced(self, writer: LedgerWriter, why: str) -> None:
        self.fenced.append(why)

    def on_stuck(self, entry: EntryId, why: str) -> None:
        self.stuck.append(entry)


@asynccontextmanager
async def a_writer(
    nodes: FakeNodes,
    listener: Listener,
    *,
    wants_received: bool = False,
    known_over: dict[InstanceId, NodeConnection] | None = None,
) -> AsyncIterator[LedgerWriter]:
    async with trio.open_nursery() as nursery:
        record = nodes.ledger()
        writer = LedgerWriter(
            nodes.pool,
            record,
            listener,
            nursery=nursery,
            lac=NO_ENTRY,
            wants_received=wants_received,
            known_over=known_over,
        )
        await writer.open(patience_s=1.0)
        yield writer
        writer.close()
        nursery.cancel_scope.cancel()


def add(writer: LedgerWriter, count: int = 1, *, size_bytes: int = 10) -> None:
    for _ in range(count):
        entry = writer.entry_next
        writer.add_nowait(entry_of(entry, value=random.Random(entry).randbytes(size_bytes)))


def refusing(reason: Reason, epoch: int = 1) -> Lie:
    """Refuses every add."""
    return lambda asked, answers: (
        [AddRefused(asked.ordinal, reason, Epoch(epoch))] if isinstance(asked, Add) else answers
    )


async def test_the_lac_moves_when_an_ack_set_has_synced(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        listener = Listener()
        async with a_writer(nodes, listener) as writer:
            add(writer, 3)
            await trio.sleep(0.1)

            assert writer.lac == 2
            assert listener.lacs[-1] == 2
            assert writer.lac == writer.entry_next - 1


async def test_members_that_were_greeted_before_there_was_a_writer_are_not_asked_again(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        away = nodes.nodes[2]
        away.lie = lambda asked, answers: [] if isinstance(asked, OpenLedger) else answers
        record = nodes.ledger()
        greeted = await greet_members(
            nodes.replicas.within(1.0), record, record.fragments[-1].ensemble
        )
        away.lie = lambda asked, answers: answers
        async with a_writer(nodes, Listener(), known_over=greeted) as writer:
            add(writer)
            await trio.sleep(0.1)

            assert writer.lac == 0
            assert not writer.instances_missing()
        opened = [
            sum(isinstance(one, OpenLedger) for one in node.asked) for node in nodes.nodes
        ]
        assert opened == [1, 1, 2]


async def test_adds_carry_no_lac_that_an_ack_set_has_not_synced(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        for node in nodes.nodes[1:]:
            node.lie = lambda asked, answers: [] if isinstance(asked, Add) else answers
        async with a_writer(nodes, Listener()) as writer:
            for _ in range(3):
                add(writer)
                await trio.sleep(0.1)

            sent = [one for one in nodes.nodes[0].asked if isinstance(one, Add | PushLac)]
            assert [one.lac for one in sent] == [-1, -1, -1]


async def test_an_idle_writer_pushes_its_lac(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        async with a_writer(nodes, Listener()) as writer:
            add(writer)
            await trio.sleep(0.1)

        pushed = [one for one in nodes.nodes[0].asked if isinstance(one, PushLac)]
        assert [one.lac for one in pushed] == [0]
        assert [node.lac for node in nodes.nodes] == [0, 0, 0]


async def test_a_member_that_breaks_during_a_lac_push_harms_no_other(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        listener = Listener()
        async with a_writer(nodes, listener) as writer:
            add(writer)
            while not listener.lacs:
                await trio.lowlevel.checkpoint()
            nodes.network.reset("client", "node-0")
            writer.push_lac_nowait()

            assert [node.lac for node in nodes.nodes[1:]] == [-1, -1]
            await trio.testing.wait_all_tasks_blocked()
            assert [node.lac for node in nodes.nodes[1:]] == [0, 0]


async def test_a_writer_that_goes_idle_pushes_its_lac_without_a_timer(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes, a_writer(nodes, Listener()) as writer:
        add(writer)
        add(writer)

        started_s = trio.current_time()
        while [node.lac for node in nodes.nodes] != [1, 1, 1]:
            await trio.lowlevel.checkpoint()
        assert trio.current_time() == started_s


async def test_a_member_that_comes_back_is_sent_exactly_the_unacknowledged_entries(
    autojump_clock: MockClock,
) -> None:
    def silent(asked: Message, answers: list[Message]) -> list[Message]:
        return [] if isinstance(asked, Add) else answers

    async with open_fake_nodes() as nodes:
        listener = Listener()
        async with a_writer(nodes, listener) as writer:
            add(writer, 3)  # All members have them.
            await trio.sleep(0.1)
            for node in nodes.nodes[:2]:
                node.lie = silent
            add(writer, 2)
            await trio.sleep(0.1)
            assert writer.lac == 2
            nodes.nodes[0].asked.clear()
            nodes.nodes[0].lie = lambda asked, answers: answers
            nodes.network.reset("client", "node-0")
            await trio.sleep(1)

            assert nodes.nodes[0].adds() == [3, 4]
            assert writer.lac == 4


async def test_a_stale_answer_of_an_old_connection_does_not_count(
    autojump_clock: MockClock,
) -> None:
    """Ordinals start over with each connection."""

    def first_of_each(asked: Message, answers: list[Message]) -> list[Message]:
        if isinstance(asked, Add):
            return [AddsSynced(1)] if asked.ordinal == 1 else []
        return answers

    async with open_fake_nodes() as nodes:
        listener = Listener()
        async with a_writer(nodes, listener) as writer:
            for node in nodes.nodes[:2]:
                node.lie = first_of_each
            add(writer, 3)
            await trio.sleep(0.1)
            assert writer.lac == 0
            nodes.network.reset("client", "node-0")
            await trio.sleep(1)

            assert writer.lac == 1  # Entry 1 was the first on the new connection.


async def test_a_member_that_refuses_for_a_while_rejoins_later(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        listener = Listener()
        async with a_writer(nodes, listener) as writer:
            nodes.nodes[0].lie = refusing(Reason.READ_ONLY)
            add(writer)
            await trio.sleep(0.1)
            assert writer.lac == 0
            assert writer.instances_missing()
            nodes.nodes[0].lie = lambda asked, answers: answers
            await trio.sleep(5)
            assert not writer.instances_missing()
            add(writer)
            await trio.sleep(0.1)

        assert EntryId(1) in nodes.nodes[0].entries
        assert not listener.fenced


async def test_too_many_refusals_leave_the_writer_stuck(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        listener = Listener()
        async with a_writer(nodes, listener) as writer:
            for node in nodes.nodes[:2]:
                node.lie = refusing(Reason.READ_ONLY)
            add(writer)
            await trio.sleep(0.1)

            assert writer.is_stuck()
            assert listener.stuck == [0]
            assert not writer.can_go_on()


async def test_one_fence_ends_the_writer_and_nothing_counts_afterwards(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        listener = Listener()
        async with a_writer(nodes, listener) as writer:
            nodes.nodes[2].lie = refusing(Reason.FENCED, epoch=2)
            nodes.network.latency_s = lambda one, other: 0.0 if "node-2" in (one, other) else 1
            add(writer)
            await trio.sleep(5)

            assert writer.is_over
            assert len(listener.fenced) == 1
            assert listener.lacs == []
            assert writer.lac < writer.entry_next - 1


async def test_a_fence_below_the_writers_epoch_is_an_ordinary_refusal(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        listener = Listener()
        async with a_writer(nodes, listener) as writer:
            nodes.nodes[2].lie = refusing(Reason.FENCED, epoch=0)
            add(writer)
            await trio.sleep(0.1)

            assert not writer.is_over
            assert writer.lac == 0


async def test_a_member_that_never_reads_is_dropped_and_the_writer_goes_on(
    autojump_clock: MockClock,
) -> None:
    config = ConnectionConfig(unsent_bytes_max=4 << 20)
    async with open_fake_nodes(config) as nodes:
        listener = Listener()
        async with a_writer(nodes, listener) as writer:
            nodes.nodes[0].is_reading = False
            for _ in range(12):
                add(writer, size_bytes=1_000_000)
                await trio.sleep(0.01)
            assert writer.lac == 11
            assert nodes.nodes[0].connections_count == 1
            await trio.sleep(6)

            assert nodes.nodes[0].connections_count > 1


async def test_entries_held_back_from_a_slow_member_are_sent_if_still_needed(
    autojump_clock: MockClock,
) -> None:
    def silent(asked: Message, answers: list[Message]) -> list[Message]:
        return [] if isinstance(asked, Add) else answers

    config = ConnectionConfig(unsent_bytes_max=4 << 20)
    async with open_fake_nodes(config) as nodes:
        listener = Listener()
        async with a_writer(nodes, listener) as writer:
            nodes.network.cut("client", "node-0")
            nodes.nodes[1].lie = silent
            add(writer, 12, size_bytes=1_000_000)
            await trio.sleep(1)
            assert writer.lac == -1
            nodes.network.mend("client", "node-0")
            await trio.sleep(1)

            assert nodes.nodes[0].adds() == list(range(12))
            assert writer.lac == 11


async def test_a_ledger_opens_without_a_member_that_is_away(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        nodes.network.kill("node-0")
        async with a_writer(nodes, Listener()) as writer:
            add(writer)
            await trio.sleep(0.1)

            assert writer.lac == 0


async def test_an_open_that_too_few_members_confirm_fails_with_each_reason(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.network.kill("node-0")
        nodes.nodes[1].lie = lambda asked, answers: (
            [Refused(asked.request, Reason.READ_ONLY, Epoch(0), "disk full")]
            if isinstance(asked, OpenLedger)
            else answers
        )
        record = nodes.ledger()
        writer = LedgerWriter(
            nodes.pool,
            record,
            Listener(),
            nursery=nodes.nursery,
            lac=NO_ENTRY,
        )
        with pytest.raises(NotEnoughNodesError, match=r"node-0 .*node-1 .*disk full"):
            await writer.open(patience_s=1.0)

        assert writer.is_over


# Entries in memory.


async def test_entries_in_memory_of_an_ack_set_are_reported_without_moving_the_lac(
    autojump_clock: MockClock,
) -> None:
    def received(asked: Message, answers: list[Message]) -> list[Message]:
        return [AddsReceived(asked.ordinal)] if isinstance(asked, Add) else answers

    async with open_fake_nodes() as nodes:
        listener = Listener()
        async with a_writer(nodes, listener, wants_received=True) as writer:
            for node in nodes.nodes[1:]:
                node.lie = received
            nodes.nodes[0].lie = lambda asked, answers: (
                [] if isinstance(asked, Add) else answers
            )
            add(writer, 3)
            await trio.sleep(0.1)

            assert listener.received[-1] == 2
            assert writer.lac == -1
            assert all(
                one.wants_received for one in nodes.nodes[1].asked if isinstance(one, Add)
            )


async def test_acknowledged_entries_count_as_received(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        listener = Listener()
        async with a_writer(nodes, listener, wants_received=True) as writer:
            add(writer, 3)
            await trio.sleep(0.1)

            assert listener.received[-1] == listener.lacs[-1] == 2
            assert listener.received == sorted(set(listener.received))


async def test_received_entries_are_reported_only_on_request(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        listener = Listener()
        async with a_writer(nodes, listener) as writer:
            add(writer, 3)
            await trio.sleep(0.1)

            assert listener.received == []


# Copies.


async def test_copies_in_flight_are_waited_for_after_the_end(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes, a_writer(nodes, Listener()) as writer:
        nodes.network.latency_s = lambda one, other: 0.5 if "node-2" in (one, other) else 0
        add(writer, 3)
        await trio.sleep(0.1)
        writer.stop()
        last = writer.lac
        assert [one.slot for one in writer.copies_missing(last)] == [2]
        with trio.fail_after(1.5):
            await writer.wait_copies(last, patience_s=10)

        assert last == 2
        assert writer.copies_missing(last) == []


async def test_copies_of_a_member_that_is_away_are_not_waited_for(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes, a_writer(nodes, Listener()) as writer:
        nodes.network.vanish("node-2")
        await trio.sleep(0.1)
        add(writer, 3)
        await trio.sleep(0.1)
        writer.stop()
        with trio.fail_after(0.1):
            await writer.wait_copies(writer.lac, patience_s=10)

        assert [one.slot for one in writer.copies_missing(writer.lac)] == [2]
