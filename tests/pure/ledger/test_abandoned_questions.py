"""Questions that their askers give up: cancelled, and forgotten only when the node answers."""

from collections import defaultdict
from collections.abc import Callable

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from geolog.ledger.nodes.connection import (
    ConnectionConfig,
    NodeConnection,
    NodeRefusedError,
    StandingQuestion,
)
from geolog.protocol.ids import NO_ENTRY, NO_EPOCH, EntryId, Epoch, InstanceId
from geolog.protocol.messages import (
    Answer,
    Cancel,
    EntryAnswer,
    Fence,
    Fenced,
    Follow,
    Hello,
    LedgerOpened,
    Message,
    OpenLedger,
    Probe,
    Read,
    ReadAnswer,
    Reason,
    Refused,
)
from tests.pure.ledger.fake_nodes import LEDGER, FakeNode, FakeNodes, open_fake_nodes
from topology.errors import InvalidArgumentError

HERE = InstanceId("0" * 32)


def only_hello(asked: Message, answers: list[Message]) -> list[Message]:
    return answers if isinstance(asked, Hello) else []


def reading(request: int) -> Message:
    return Read(request, LEDGER, EntryId(0), 1, 1000, 4, NO_EPOCH, HERE)


def answer_of(
    request: int, entry: int = 0, *, is_last: bool = True, body: bytes = b""
) -> ReadAnswer:
    found = (EntryAnswer(Answer.HAVE, body),) if body else ()
    return ReadAnswer(request, NO_ENTRY, EntryId(entry), found, is_last=is_last)


def refusal(request: int) -> Refused:
    return Refused(request, Reason.CANCELLED, NO_EPOCH, "cancelled")


async def connected(nodes: FakeNodes) -> tuple[NodeConnection, FakeNode]:
    node = nodes.nodes[0]
    node.lie = only_hello
    return await nodes.pool.link(node.instance).wait_connection(), node


def cancels(node: FakeNode) -> list[int]:
    return [message.request for message in node.asked if isinstance(message, Cancel)]


async def give_up(connection: NodeConnection) -> None:
    """Ask, and leave before there is an answer."""
    with trio.move_on_after(0.1):
        await connection.ask(reading, ReadAnswer)


async def settled() -> None:
    await trio.sleep(0.1)


@pytest.mark.parametrize(
    ("make", "is_cancelled"),
    [
        (reading, True),
        (lambda request: Follow(request, LEDGER, EntryId(0), 1, 9, 900, HERE), True),
        (lambda request: Probe(request, LEDGER, EntryId(0), 1, HERE), True),
        (lambda request: Fence(request, LEDGER, Epoch(2), HERE), False),
        (lambda request: OpenLedger(request, LEDGER, Epoch(2), HERE), False),
    ],
    ids=["read", "follow", "probe", "fence", "open"],
)
async def test_an_abandoned_read_follow_or_probe_is_cancelled(
    make: Callable[[int], Message], *, is_cancelled: bool, autojump_clock: MockClock
) -> None:
    async with open_fake_nodes() as nodes:
        connection, node = await connected(nodes)
        with trio.move_on_after(0.1):
            await connection.ask(make, ReadAnswer)
        await settled()

        assert cancels(node) == [2] * is_cancelled
        assert connection.abandoned_count == 1


async def test_an_answered_question_is_not_cancelled(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        connection, node = await connected(nodes)
        with connection.asking(reading, answers_max=2):
            await node.send(answer_of(2, is_last=False))
            await node.send(answer_of(2))
            await settled()
        await settled()

        assert cancels(node) == []
        assert connection.is_idle


async def test_a_question_left_between_its_answers_drops_those_that_still_come(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        connection, node = await connected(nodes)
        with connection.asking(reading, answers_max=3) as question:
            await node.send(answer_of(2, 0, is_last=False))
            await question.answer(ReadAnswer)
        await node.send(answer_of(2, 1, is_last=False))
        await settled()
        assert (connection.abandoned_count, connection.is_idle) == (1, False)
        await node.send(refusal(2))
        await settled()

        assert (connection.abandoned_count, connection.is_idle) == (0, True)
        assert not connection.is_broken


async def test_a_late_answer_reaches_no_later_question(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        connection, node = await connected(nodes)
        await give_up(connection)
        with connection.asking(reading) as later:
            await node.send(answer_of(2, 7))
            await node.send(answer_of(3, 8))

            assert (await later.answer(ReadAnswer)).first == 8


async def test_a_second_last_answer_ends_the_connection(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        connection, node = await connected(nodes)
        await give_up(connection)
        await node.send(answer_of(2))
        await node.send(refusal(2))
        await settled()

        assert "answered request 2, which is not open" in connection.broken_why


async def test_a_node_that_never_ends_a_cancelled_request_is_disconnected(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        connection, node = await connected(nodes)
        started_s = trio.current_time()
        await give_up(connection)
        assert connection.oldest_open_s() == pytest.approx(started_s + 0.1)
        node.lie = lambda asked, answers: answers  # It answers everything else.
        while not connection.is_broken:
            await connection.ask(
                lambda request: OpenLedger(request, LEDGER, Epoch(1), HERE), LedgerOpened
            )
            await trio.sleep(0.5)

        assert 5 <= trio.current_time() - started_s <= 7
        assert "no answer for 5" in connection.broken_why
        assert connection.abandoned_count == 0


async def test_a_cancelled_request_whose_answers_still_come_is_no_hang(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        connection, node = await connected(nodes)
        with connection.asking(reading, answers_max=4):
            await settled()
        for entry in range(3):
            await trio.sleep(4)
            await node.send(answer_of(2, entry, is_last=False))
        await trio.sleep(4)
        await node.send(refusal(2))
        await settled()

        assert not connection.is_broken
        assert connection.is_idle


async def test_a_node_that_streams_more_than_was_asked_to_an_abandoned_question(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        connection, node = await connected(nodes)
        with connection.asking(reading, answers_max=2):
            await settled()
        for entry in range(3):
            await node.send(answer_of(2, entry, is_last=False))
        await settled()

        assert connection.is_broken


async def test_tombstones_are_bounded(autojump_clock: MockClock) -> None:
    config = ConnectionConfig(abandoned_max=3, answer_timeout_s=1e9)
    async with open_fake_nodes(config) as nodes:
        connection, _ = await connected(nodes)
        for _ in range(3):
            await give_up(connection)
        assert (connection.abandoned_count, connection.is_broken) == (3, False)
        await give_up(connection)

        assert "3 abandoned requests are unanswered" in connection.broken_why


async def test_a_question_that_cannot_be_sent_leaves_nothing(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        connection, _ = await connected(nodes)
        with pytest.raises(InvalidArgumentError, match="cannot send"):
            await connection.ask(
                lambda request: Fence(request, LEDGER, Epoch(-1), HERE), Fenced
            )

        assert connection.is_idle


# Histories.

numbers = st.integers(0, 9)
steps = st.one_of(
    st.tuples(st.just("ask"), st.integers(1, 3)),
    st.tuples(st.just("ask"), st.integers(1, 3)),
    st.tuples(st.just("stand"), st.just(1)),
    st.tuples(st.just("leave"), numbers),
    st.tuples(st.just("answer"), numbers),
    st.tuples(st.just("answer"), numbers),
    st.tuples(st.just("end"), numbers),
    st.tuples(st.just("refuse"), numbers),
)


@attrs.define
class NaiveNode:
    """Every request that was sent, with the answers left, and what its asker must have got."""

    left: dict[int, int] = attrs.field(factory=dict)
    present: set[int] = attrs.field(factory=set)
    standing: set[int] = attrs.field(factory=set)
    """Those of them that are standing questions."""
    wanted: dict[int, list[int]] = attrs.field(factory=lambda: defaultdict(list))
    serial: int = 0

    def answer(self, number: int, *, is_last: bool) -> ReadAnswer:
        """The next answer, different from all others."""
        self.serial += 1
        is_last = is_last or number in self.standing
        if number in self.present:
            self.wanted[number].append(self.serial)
        self.left[number] -= 1
        is_last = is_last or not self.left[number]
        if is_last:
            self.end(number)
        return answer_of(number, self.serial, is_last=is_last)

    def end(self, number: int) -> None:
        del self.left[number]
        self.present.discard(number)

    def pick(self, drawn: int) -> int | None:
        """One of the requests without a last answer, given up or not."""
        unanswered = sorted(self.left)
        return unanswered[drawn % len(unanswered)] if unanswered else None


@attrs.frozen(eq=False)
class Stander:
    """Takes the answer to a standing question."""

    got: list[int]

    def on_answer(self, message: Message) -> None:
        if isinstance(message, ReadAnswer):
            self.got.append(message.first)

    def on_end(self) -> None:
        raise AssertionError("the connection has ended")


@given(st.lists(steps, max_size=40))
def test_every_answer_reaches_its_own_question_or_nobody(
    history: list[tuple[str, int]],
) -> None:
    naive = NaiveNode()
    got: dict[int, list[int]] = defaultdict(list)
    scopes: dict[int, trio.CancelScope] = {}
    standing: dict[int, StandingQuestion] = {}

    async def ask(connection: NodeConnection, number: int, answers_max: int) -> None:
        with (
            trio.CancelScope() as scopes[number],
            connection.asking(reading, answers_max=answers_max) as question,
        ):
            while not question.is_answered or len(got[number]) < question.answers_count:
                try:
                    answer = await question.answer(ReadAnswer)
                except NodeRefusedError:
                    return
                got[number].append(answer.first)

    async def live() -> None:
        async with open_fake_nodes() as nodes, trio.open_nursery() as nursery:
            connection, node = await connected(nodes)
            for what, drawn in history:
                number = naive.pick(drawn)
                match what:
                    case "ask":
                        asked = 2 + len(scopes) + len(standing)  # The hello is the first.
                        naive.left[asked] = drawn
                        naive.present.add(asked)
                        nursery.start_soon(ask, connection, asked, drawn)
                    case "stand":
                        asked = 2 + len(scopes) + len(standing)
                        naive.left[asked] = 1
                        naive.present.add(asked)
                        naive.standing.add(asked)
                        question = connection.ask_nowait(reading, Stander(got[asked]))
                        assert question is not None
                        standing[asked] = question
                    case "leave" if number in naive.present:
                        naive.present.discard(number)
                        if number in standing:
                            standing[number].cancel()
                        else:
                            scopes[number].cancel()
                    case "answer" | "end" if number is not None:
                        await node.send(naive.answer(number, is_last=what == "end"))
                    case "refuse" if number is not None:
                        naive.end(number)
                        await node.send(refusal(number))
                await trio.testing.wait_all_tasks_blocked()
                await trio.sleep(0.001)
                gone = {number for number in naive.left if number not in naive.present}
                assert connection.abandoned_count == len(gone)
                assert connection.is_idle == (not naive.left)
            for number in list(naive.left):
                await node.send(naive.answer(number, is_last=True))
            await settled()
            assert connection.is_idle
            assert not connection.is_broken

    trio.run(live, clock=MockClock(autojump_threshold=0))

    assert {number: firsts for number, firsts in got.items() if firsts} == naive.wanted
