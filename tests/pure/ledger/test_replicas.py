"""The door to replicas: time limits, whom to ask next, and what a failure teaches."""

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.ledger.nodes.connection import NodeConnection
from geolog.ledger.replicas.open_request import Request
from geolog.ledger.replicas.replica_order import KEPT_MAX, SilentMemberError
from geolog.ledger.replicas.replicas import (
    SOON_SHARE,
    Replicas,
)
from geolog.ledger.replicas.speculative_question import Given
from geolog.protocol.hedge_policy import OFF
from geolog.protocol.ids import EntryId, InstanceId
from geolog.protocol.ledger_state import Fragment, Member
from geolog.protocol.messages import Follow, Message, Probe, ProbeAnswer, Read, ReadAnswer
from geolog.protocol.speculation import AnswerWorth
from tests.pure.ledger.fake_nodes import LEDGER, FakeNodes, open_fake_nodes
from topology.errors import UnavailableError
from topology.replica_ranking import REPLICAS_MAX

TIMEOUT_S = 2.0


def replicas_of(nodes: FakeNodes) -> Replicas:
    return nodes.replicas.within(TIMEOUT_S)


def silent(_asked: Message, _answers: list[Message]) -> list[Message]:
    """A node that never answers, not even when a connection is opened."""
    return []


def mute_to_questions(asked: Message, answers: list[Message]) -> list[Message]:
    """A node that leaves probes and follows unanswered."""
    return [] if isinstance(asked, Probe | Follow) else answers


def with_one_less(_asked: Message, answers: list[Message]) -> list[Message]:
    """A node that answers a probe for one entry less than requested."""
    return [
        attrs.evolve(one, answers=one.answers[:-1]) if isinstance(one, ProbeAnswer) else one
        for one in answers
    ]


def member_of(nodes: FakeNodes, slot: int) -> Member:
    return nodes.ledger().fragments[-1].ensemble[slot]


async def test_the_limit_covers_the_wait_for_a_connection(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        nodes.nodes[0].lie = silent
        replicas = nodes.replicas.within(0.5)
        started_s = trio.current_time()

        with pytest.raises(SilentMemberError, match=r"no answer within 0\.5 s"):
            await replicas.probe(LEDGER, member_of(nodes, 0), EntryId(0), 1)

        assert trio.current_time() - started_s == pytest.approx(0.5)


def first_entry(replicas: Replicas) -> Request[ReadAnswer, str]:
    """The question for entry 0, to which the answer is the node that has it."""

    def judge(member: Member, answer: ReadAnswer, _is_hedged: bool) -> str | AnswerWorth:  # noqa: FBT001 - A callback.
        return member.node_id if answer.entries[0].body else AnswerWorth.NEGATIVE

    return replicas.read_request(LEDGER, EntryId(0), 1, bytes_max=100, judge=judge)


async def test_members_are_asked_in_turn_until_one_has_a_good_answer(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(1, at=(1,))
        fragment = nodes.ledger().fragments[-1]
        replicas = replicas_of(nodes)

        given = await replicas.first_of(fragment, [0, 1, 2], first_entry(replicas))

        assert isinstance(given, Given)
        assert given.good == "node-1"
        assert not given.is_hedged, "the first had answered"
        assert nodes.nodes[0].asked, "the nearest comes first"
        assert sum(isinstance(one, Read) for one in nodes.nodes[1].asked) == 1


async def test_a_member_that_fails_is_asked_last_until_it_is_forgiven(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.nodes[0].lie = mute_to_questions
        fragment = nodes.ledger().fragments[-1]
        replicas = replicas_of(nodes).hedged_by(OFF)

        before = replicas.in_order(fragment, [0, 1, 2])
        assert await replicas.lac(LEDGER, fragment, [0, 1, 2]) == -1
        after = replicas.in_order(fragment, [0, 1, 2])
        replicas.forgive(fragment.ensemble[0])

        assert (before[0], after[-1]) == (0, 0)
        assert replicas.in_order(fragment, [0, 1, 2])[0] == 0


async def test_members_asked_at_once_answer_by_slot_and_silence_is_no_answer(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.nodes[0].lie = mute_to_questions
        fragment = nodes.ledger().fragments[-1]
        replicas = replicas_of(nodes)

        async def lac(member: Member) -> EntryId:
            return (await replicas.probe(LEDGER, member, EntryId(0), 0)).lac

        started_s = trio.current_time()
        soon = await replicas.all_of(fragment, range(3), lac, is_soon=True)
        soon_s = trio.current_time() - started_s
        patient = await replicas.all_of(fragment, range(3), lac)

        assert sorted(soon) == sorted(patient) == [1, 2]
        assert soon_s == pytest.approx(SOON_SHARE * TIMEOUT_S)
        assert trio.current_time() - started_s == pytest.approx(soon_s + TIMEOUT_S)
        assert replicas.in_order(fragment, range(3))[0] == 0, "asked at once, none is put last"


async def test_a_probe_that_answers_for_too_few_entries_is_no_answer(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.nodes[0].lie = with_one_less

        with pytest.raises(UnavailableError, match="answered for 2 of 3 entries"):
            await replicas_of(nodes).probe(LEDGER, member_of(nodes, 0), EntryId(0), 3)


async def test_a_node_is_reached_once_it_was_greeted(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        instance = nodes.nodes[0].instance
        greeted = list[NodeConnection]()

        async def greet(connection: NodeConnection) -> None:
            greeted.append(connection)

        async def never(_connection: NodeConnection) -> None:
            await trio.sleep_forever()

        assert [await replicas_of(nodes).reach(instance, greet)] == greeted
        with pytest.raises(SilentMemberError):
            await replicas_of(nodes).reach(instance, never)


async def test_copies_with_other_limits_share_what_each_learns(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        fragment = nodes.ledger().fragments[-1]
        one, other = nodes.replicas.within(1.0), nodes.replicas.within(5.0)
        before = other.in_order(fragment, range(3))

        one.note_failed(fragment.ensemble[0])
        while_slow = other.in_order(fragment, range(3))
        other.forgive(fragment.ensemble[0])

        assert (before[0], while_slow[-1]) == (0, 0)
        assert one.in_order(fragment, range(3))[0] == 0
        assert one.statistics() == other.statistics() == nodes.replicas.statistics()


async def test_what_is_known_of_nodes_is_bounded(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(1)
        replicas = nodes.replicas
        location = member_of(nodes, 0).location
        for number in range(max(REPLICAS_MAX, KEPT_MAX) + 10):
            gone = Member(InstanceId(f"{number:032x}"), f"gone-{number}", location)
            replicas.in_order(Fragment(EntryId(0), (gone,)), [0])
            if number < REPLICAS_MAX + 10:
                replicas.note_failed(gone)
        known = replicas.statistics()

        assert known.demoted_count == REPLICAS_MAX
        assert 0 < known.orders_count <= KEPT_MAX
