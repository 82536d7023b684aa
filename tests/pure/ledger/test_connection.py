"""A connection and the pool that keeps it, against a node that misbehaves on purpose."""

import random
from collections.abc import Callable

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.ledger.nodes.connection import ConnectionConfig, NodeConnection, NodeRefusedError
from geolog.protocol.ids import NO_ENTRY, EntryId, Epoch, InstanceId
from geolog.protocol.messages import (
    Add,
    AddRefused,
    AddsSynced,
    Fence,
    Fenced,
    Hello,
    HelloAnswer,
    LedgerOpened,
    Message,
    OpenLedger,
    Reason,
    Refused,
)
from geolog.transport.seam import ConnectionFailedError
from geolog.wire.codec import encode
from sim.fakes.memory_transport import Latency
from tests.pure.ledger.fake_nodes import LEDGER, FakeNodes, entry_of, open_fake_nodes
from topology.errors import FencedError


@attrs.define(eq=False)
class Sink:
    """Records the outcomes of adds."""

    synced: list[int] = attrs.field(factory=list)
    received: list[int] = attrs.field(factory=list)
    refused: list[int] = attrs.field(factory=list)
    lost_count: int = 0
    lost: trio.Event = attrs.field(factory=trio.Event)

    def on_add_synced(self, slot: int, entry: EntryId) -> None:
        self.synced.append(entry)

    def on_add_received(self, slot: int, entry: EntryId) -> None:
        self.received.append(entry)

    def on_add_refused(self, slot: int, entry: EntryId, refused: AddRefused) -> None:
        self.refused.append(entry)

    def on_slot_lost(self, slot: int) -> None:
        self.lost_count += 1
        self.lost.set()


async def connected(nodes: FakeNodes, sink: Sink | None = None) -> NodeConnection:
    connection = await nodes.pool.link(nodes.nodes[0].instance).wait_connection()
    if sink is not None:
        connection.attach(sink, 0)
    return connection


def add(connection: NodeConnection, sink: Sink, entry: int, *, size_bytes: int = 10) -> None:
    connection.add_nowait(
        sink,
        0,
        ledger=LEDGER,
        entry=EntryId(entry),
        epoch=Epoch(1),
        lac=NO_ENTRY,
        is_recovery=False,
        encoded=entry_of(entry, value=random.Random(entry).randbytes(size_bytes)),
    )


def open_question(request: int) -> Message:
    return OpenLedger(request, LEDGER, Epoch(1), InstanceId("0" * 32))


def constant(latency_s: float) -> Latency:
    return lambda one, other: latency_s


async def settled() -> None:
    await trio.sleep(0.1)


async def test_one_answer_confirms_all_adds_up_to_it(autojump_clock: MockClock) -> None:
    def at_the_fifth(asked: Message, answers: list[Message]) -> list[Message]:
        if isinstance(asked, Add):
            return [AddsSynced(5)] if asked.ordinal == 5 else []
        return answers

    async with open_fake_nodes() as nodes:
        nodes.nodes[0].lie = at_the_fifth
        sink = Sink()
        connection = await connected(nodes, sink)
        for entry in range(7):
            add(connection, sink, entry)
        await settled()

        assert sink.synced == [0, 1, 2, 3, 4]


async def test_a_cumulative_answer_does_not_confirm_refused_adds(
    autojump_clock: MockClock,
) -> None:
    def refuse_even(asked: Message, answers: list[Message]) -> list[Message]:
        if not isinstance(asked, Add):
            return answers
        if asked.entry % 2 == 0:
            return [AddRefused(asked.ordinal, Reason.READ_ONLY, Epoch(1))]
        return [AddsSynced(asked.ordinal)] if asked.entry == 5 else []

    async with open_fake_nodes() as nodes:
        nodes.nodes[0].lie = refuse_even
        sink = Sink()
        connection = await connected(nodes, sink)
        for entry in range(8):
            add(connection, sink, entry)
        await settled()

        assert sink.refused == [0, 2, 4, 6]
        assert sink.synced == [1, 3, 5]


async def test_a_refusal_is_an_answer_that_ends_the_wait(autojump_clock: MockClock) -> None:
    def refuse(asked: Message, answers: list[Message]) -> list[Message]:
        if isinstance(asked, Add):
            return [AddRefused(asked.ordinal, Reason.READ_ONLY, Epoch(1))]
        return answers

    async with open_fake_nodes() as nodes:
        nodes.nodes[0].lie = refuse
        sink = Sink()
        connection = await connected(nodes, sink)
        add(connection, sink, 0)
        await trio.sleep(30)

        assert not connection.is_broken
        assert connection.oldest_open_s() is None


@pytest.mark.parametrize(
    "lie",
    [
        lambda add: [AddsSynced(add.ordinal + 1)],
        lambda add: [AddRefused(add.ordinal + 1, Reason.FENCED, Epoch(1))],
        lambda add: [AddRefused(0, Reason.FENCED, Epoch(1))],
        lambda add: [AddsSynced(1 << 60)],
    ],
    ids=["more than was sent", "a refusal of what was not sent", "of none", "far beyond"],
)
async def test_a_node_that_answers_adds_never_sent_is_disconnected(
    lie: Callable[[Add], list[Message]], autojump_clock: MockClock
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.nodes[0].lie = lambda asked, answers: (
            lie(asked) if isinstance(asked, Add) else answers
        )
        sink = Sink()
        connection = await connected(nodes, sink)
        add(connection, sink, 0)
        await settled()

        assert connection.is_broken
        assert (sink.synced, sink.refused, sink.lost_count) == ([], [], 1)


async def test_a_node_that_hangs_is_disconnected(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        nodes.nodes[0].lie = lambda asked, answers: [] if isinstance(asked, Add) else answers
        sink = Sink()
        connection = await connected(nodes, sink)
        started_s = trio.current_time()
        add(connection, sink, 0)
        await sink.lost.wait()

        assert 5 <= trio.current_time() - started_s <= 6
        assert "no answer for 5" in connection.broken_why


async def test_a_node_that_answers_slowly_but_steadily_is_kept(
    autojump_clock: MockClock,
) -> None:
    """On a slow disk the last add of a full window waits long, which proves no hang."""
    async with open_fake_nodes() as nodes:
        nodes.nodes[0].lie = lambda asked, answers: [] if isinstance(asked, Add) else answers
        sink = Sink()
        connection = await connected(nodes, sink)
        for entry in range(5):
            add(connection, sink, entry)
        for ordinal in range(1, 6):
            await trio.sleep(4)
            await nodes.nodes[0].streams[0].send(encode(AddsSynced(ordinal)))
        await settled()

        assert sink.synced == [0, 1, 2, 3, 4]
        assert not connection.is_broken


async def test_a_node_that_only_repeats_an_old_answer_hangs(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.nodes[0].lie = lambda asked, answers: (
            [AddsSynced(0)] if isinstance(asked, Add) else answers
        )
        sink = Sink()
        connection = await connected(nodes, sink)
        for entry in range(20):
            add(connection, sink, entry)
            await trio.sleep(0.5)

        assert sink.lost_count == 1


async def test_a_node_that_is_slow_but_steady_is_kept(autojump_clock: MockClock) -> None:
    """Each add finally waits seven seconds, but one is answered every half second."""
    async with open_fake_nodes() as nodes:
        sink = Sink()
        connection = await connected(nodes, sink)
        for entry in range(60):
            nodes.network.latency_s = constant(min(3.5, 0.1 * entry))
            add(connection, sink, entry)
            await trio.sleep(0.5)

        assert not connection.is_broken
        assert 40 <= len(sink.synced) <= 50


async def test_a_question_that_is_never_answered_ends_with_the_connection(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.nodes[0].lie = lambda asked, answers: answers if isinstance(asked, Hello) else []
        connection = await connected(nodes)
        with pytest.raises(ConnectionFailedError), trio.fail_after(6):
            await connection.ask(open_question, LedgerOpened)


async def test_a_node_that_never_reads_is_disconnected_when_too_much_waits(
    autojump_clock: MockClock,
) -> None:
    config = ConnectionConfig(unsent_bytes_max=4 << 20, answer_timeout_s=1e9)
    async with open_fake_nodes(config) as nodes:
        nodes.nodes[0].is_reading = False
        sink = Sink()
        connection = await connected(nodes, sink)
        sent_count = 0
        while not connection.is_broken:
            add(connection, sink, sent_count, size_bytes=1_000_000)
            sent_count += 1
            await settled()

        assert 5 <= sent_count <= 8  # The network's buffer, and four megabytes.
        assert "too slow" in connection.broken_why
        assert sink.lost_count == 1


async def test_a_connection_cut_off_within_a_frame_is_a_failure_not_an_answer(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.nodes[0].lie = lambda asked, answers: answers if isinstance(asked, Hello) else []
        connection = await connected(nodes)
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                with pytest.raises(ConnectionFailedError):
                    await connection.ask(open_question, LedgerOpened)

            nursery.start_soon(ask)
            await settled()
            stream = nodes.nodes[0].streams[-1]
            await stream.send([b"".join(encode(LedgerOpened(2)))[:-3]])
            stream.close()


async def test_garbage_ends_the_connection(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        connection = await connected(nodes)
        await nodes.nodes[0].streams[-1].send([bytes(range(256))])
        await settled()

        assert connection.is_broken


async def test_an_answer_of_another_kind_ends_the_connection(autojump_clock: MockClock) -> None:
    def confuse(asked: Message, answers: list[Message]) -> list[Message]:
        if isinstance(asked, OpenLedger):
            return [Fenced(asked.request, NO_ENTRY, NO_ENTRY)]
        return answers

    async with open_fake_nodes() as nodes:
        nodes.nodes[0].lie = confuse
        connection = await connected(nodes)
        with pytest.raises(ConnectionFailedError, match="an answer of the wrong kind"):
            await connection.ask(open_question, LedgerOpened)


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason != Reason.FENCED])
async def test_a_refusal_gives_its_reason_and_keeps_the_connection(
    reason: Reason, autojump_clock: MockClock
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.nodes[0].lie = lambda asked, answers: (
            [Refused(asked.request, reason, Epoch(1), "because")]
            if isinstance(asked, OpenLedger)
            else answers
        )
        connection = await connected(nodes)
        with pytest.raises(NodeRefusedError, match="because") as refused:
            await connection.ask(open_question, LedgerOpened)

        assert refused.value.reason is reason
        assert not connection.is_broken


async def test_a_fenced_refusal_raises_its_own_error(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        nodes.nodes[0].lie = lambda asked, answers: (
            [Refused(asked.request, Reason.FENCED, Epoch(9), "epoch 9")]
            if isinstance(asked, Fence)
            else answers
        )
        connection = await connected(nodes)
        with pytest.raises(FencedError, match="epoch 9"):
            await connection.ask(
                lambda request: Fence(request, LEDGER, Epoch(2), InstanceId("0" * 32)), Fenced
            )


async def test_a_replaced_node_never_comes_up_and_is_tried_less_and_less_often(
    autojump_clock: MockClock,
) -> None:
    def another(asked: Message, answers: list[Message]) -> list[Message]:
        if isinstance(asked, Hello):
            return [HelloAnswer(asked.request, 1, InstanceId("f" * 32), "/near/rack-1", 1)]
        return answers

    async with open_fake_nodes() as nodes:
        nodes.nodes[0].lie = another
        link = nodes.pool.link(nodes.nodes[0].instance)
        with pytest.raises(ConnectionFailedError, match="the node was replaced"):
            await link.wait_connection()
        link.subscribe(LinkUserThatFails())
        await trio.sleep(60)

        assert 20 <= nodes.nodes[0].connections_count <= 80


class LinkUserThatFails:
    """Uses a link that must never come up."""

    def on_link_up(self, instance: InstanceId, connection: NodeConnection) -> None:
        raise AssertionError("the link is up")

    def on_link_down(self, instance: InstanceId, why: str) -> None:
        return


async def test_a_pausing_link_fails_at_once(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        nodes.network.kill("node-0")
        link = nodes.pool.link(nodes.nodes[0].instance)
        with pytest.raises(ConnectionFailedError):
            await link.wait_connection()
        await trio.testing.wait_all_tasks_blocked()
        started_s = trio.current_time()
        with pytest.raises(ConnectionFailedError, match="refused"):
            await link.wait_connection()

        assert trio.current_time() == started_s
        assert nodes.pool.unreachable() == [link.instance]


async def test_a_node_that_accepts_but_stays_silent_is_disconnected(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.nodes[0].lie = lambda asked, answers: []
        with pytest.raises(ConnectionFailedError, match="did not identify itself within 2 s"):
            await connected(nodes)


async def test_an_unknown_instance_is_reported_as_replaced(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        with pytest.raises(ConnectionFailedError, match="it was replaced"):
            await nodes.pool.link(InstanceId("e" * 32)).wait_connection()
