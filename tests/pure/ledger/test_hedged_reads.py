"""Reads that go to a further replica when the first is late."""

import random

import pytest
import trio
from trio.testing import MockClock

from geolog.ledger.nodes.node_pool import LinkUse
from geolog.ledger.reading.ledger_reader import LedgerReadConfig, LedgerReader
from geolog.ledger.reading.ledger_stream import LedgerStream
from geolog.ledger.replicas.hedging import ReadStatistics
from geolog.ledger.replicas.shadow_requests import ShadowRequests
from geolog.protocol.hedge_budget import WINDOW_S
from geolog.protocol.hedge_policy import (
    OFF,
    UNKNOWN_S,
    FixedPolicy,
    HedgeMoment,
    HedgePolicy,
    HedgeTerms,
    parse_hedge,
)
from geolog.protocol.ids import NO_EPOCH, EntryId, LedgerId
from geolog.protocol.messages import Cancel, HelloAnswer, Message, Read, Reason, Refused
from tests.pure.ledger.fake_nodes import LEDGER, FakeNodes, entry_of, open_fake_nodes
from tests.pure.ledger.test_ledger_stream import striped
from topology.errors import DataLostError
from topology.replica_ranking import DEMOTED_S_MIN

ENTRY_BYTES = entry_of(0).length_bytes
SILENCE_S = 1000.0


def a_reader(nodes: FakeNodes, hedge: HedgePolicy | str = "10ms") -> LedgerReader:
    policy = parse_hedge(hedge) if isinstance(hedge, str) else hedge
    return LedgerReader(
        nodes.replicas,
        rng=random.Random(1),
        config=LedgerReadConfig(batch_bytes=2 * ENTRY_BYTES + 10),
        record_now=nodes.record_now,
    ).hedged_by(policy)


async def region_read(nodes: FakeNodes, reader: LedgerReader, entry: int = 0) -> str:
    """`near` or `far`, whence a read of one entry is served, and `hedged` if it was."""
    (fetched,) = await reader.read(nodes.ledger(), EntryId(entry), EntryId(entry))
    assert fetched.decoded.header.entry == entry
    region = fetched.served_by.location.region
    # The two replicas of other regions are equal.
    return ("near" if region == "near" else "far") + " hedged" * fetched.is_hedged


def statistics(nodes: FakeNodes) -> ReadStatistics:
    return nodes.replicas.read_statistics()


def reads_at(nodes: FakeNodes, number: int) -> int:
    return sum(isinstance(asked, Read) for asked in nodes.nodes[number].asked)


async def assert_nothing_waits(nodes: FakeNodes) -> None:
    """Nothing of a question is left once it is over, but answers on their way."""
    for link in nodes.pool.links():
        if link.connection is not None:
            assert " 0 questions open" in repr(link.connection).replace("and 0", " 0")


async def test_a_late_replica_costs_a_reader_the_pause_only(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(1)
        nodes.nodes[0].delay_s = SILENCE_S
        started_s = trio.current_time()

        assert await region_read(nodes, a_reader(nodes)) == "far hedged"
        assert trio.current_time() - started_s == pytest.approx(0.010)
        assert statistics(nodes).hedged_count == {1: 1}
        assert statistics(nodes).won_count == 1
        await assert_nothing_waits(nodes)


@pytest.mark.parametrize("cancels_losers", [True, False])
async def test_a_loser_is_cancelled_if_the_policy_says_so(
    cancels_losers: bool,  # noqa: FBT001 - a parameter of the test
    autojump_clock: MockClock,
) -> None:
    terms = HedgeTerms(cancels_losers=cancels_losers)
    async with open_fake_nodes() as nodes:
        nodes.store(1)
        nodes.nodes[0].lie = lambda asked, answers: [] if isinstance(asked, Read) else answers
        await region_read(nodes, a_reader(nodes, FixedPolicy(0.010, "10ms", terms)))
        await trio.sleep(0.1)
        (link,) = [
            each for each in nodes.pool.links() if each.instance == nodes.nodes[0].instance
        ]

        assert link.connection is not None
        assert link.connection.abandoned_count == 1
        asked = [message for message in nodes.nodes[0].asked if isinstance(message, Cancel)]
        assert len(asked) == cancels_losers


async def test_an_answer_in_time_needs_no_further_replica(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(1)
        nodes.nodes[0].delay_s = 0.009

        assert await region_read(nodes, a_reader(nodes)) == "near"
        assert reads_at(nodes, 1) == reads_at(nodes, 2) == 0
        assert statistics(nodes).hedged_count == {}


async def test_the_overtaken_replica_still_wins_if_it_answers_first(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(1)
        nodes.nodes[0].delay_s, nodes.nodes[1].delay_s = 0.015, 0.020

        assert await region_read(nodes, a_reader(nodes)) == "near"
        assert reads_at(nodes, 1) == 1
        assert statistics(nodes).won_count == 0


async def test_a_replica_without_the_entry_does_not_end_a_question(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(1, at=(0,))
        nodes.nodes[0].delay_s = 0.5
        started_s = trio.current_time()

        assert await region_read(nodes, a_reader(nodes)) == "near"
        assert trio.current_time() - started_s == pytest.approx(0.5)
        assert reads_at(nodes, 1) == reads_at(nodes, 2) == 1


async def test_an_entry_is_lost_only_once_the_slowest_replica_says_so_too(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.nodes[0].delay_s = 0.5
        started_s = trio.current_time()

        with pytest.raises(DataLostError):
            await region_read(nodes, a_reader(nodes))
        assert trio.current_time() - started_s == pytest.approx(0.5)


async def test_a_damaged_copy_sends_the_next_request_at_once_and_is_reported(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(2)
        nodes.nodes[0].entries[EntryId(0)] = b"rot"
        reported = list[LedgerId]()
        reader = LedgerReader(
            nodes.replicas,
            rng=random.Random(1),
            config=LedgerReadConfig(),
            record_now=nodes.record_now,
            report_damaged=reported.append,
        )
        started_s = trio.current_time()

        assert await region_read(nodes, reader) == "far"
        assert await region_read(nodes, reader) == "far"
        assert trio.current_time() == started_s
        assert statistics(nodes).damaged_count == {"node-0": 2}
        assert statistics(nodes).hedged_count == {}, "a replacement is not an extra request"
        assert reported == [LEDGER], "once for each member and ledger"


async def test_a_replica_that_does_not_accept_connections_is_overtaken(
    autojump_clock: MockClock,
) -> None:
    def says_no_hello(_asked: Message, answers: list[Message]) -> list[Message]:
        return [one for one in answers if not isinstance(one, HelloAnswer)]

    async with open_fake_nodes() as nodes:
        nodes.store(1)
        nodes.nodes[0].lie = says_no_hello
        started_s = trio.current_time()

        assert await region_read(nodes, a_reader(nodes)) == "far hedged"
        assert trio.current_time() - started_s == pytest.approx(0.010)


async def test_without_hedging_a_silent_replica_costs_its_time_limit(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(1)
        nodes.nodes[0].delay_s = SILENCE_S
        reader = a_reader(nodes, OFF)
        started_s = trio.current_time()

        assert await region_read(nodes, reader) == "far"
        assert trio.current_time() - started_s == pytest.approx(reader.config.replica_timeout_s)
        assert statistics(nodes).failed_count == 1


async def test_a_silent_replica_that_was_overtaken_a_few_times_is_not_asked_first_any_more(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(10)
        nodes.nodes[0].delay_s = SILENCE_S
        reader = a_reader(nodes)
        for entry in range(3):
            await region_read(nodes, reader, entry)
        started_s = trio.current_time()

        assert await region_read(nodes, reader, 3) == "far"
        assert trio.current_time() == started_s


async def test_what_is_usual_for_a_route_decides_when_an_answer_is_late(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(30)
        nodes.nodes[0].delay_s = 0.004
        reader = a_reader(nodes, "auto")
        for entry in range(20):
            await region_read(nodes, reader, entry)
        await trio.sleep(3)  # Percentiles are computed again every few seconds.
        nodes.nodes[0].delay_s = SILENCE_S
        started_s = trio.current_time()
        served = await region_read(nodes, reader, 20)

        assert served == "far hedged"
        assert 0.004 <= trio.current_time() - started_s < 0.005 < UNKNOWN_S


async def test_without_budget_a_late_replica_is_waited_for(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(1)
        nodes.nodes[0].delay_s = 0.3
        reader = a_reader(nodes)
        for _ in range(50):
            for node in nodes.nodes:
                node.delay_s = 0.015  # Late, but the first to answer.
            await region_read(nodes, reader)
        asked = sum(reads_at(nodes, number) for number in range(3))
        known = statistics(nodes)

        assert known.asked_count == 50
        assert known.refused_count > 0
        assert sum(known.hedged_count.values()) == asked - 50 <= WINDOW_S


@pytest.mark.parametrize("silent", [(0,), (0, 1), (0, 2)])
async def test_many_reads_of_silent_replicas_go_on_once_these_are_demoted(
    silent: tuple[int, ...], autojump_clock: MockClock
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(1)
        for number in silent:
            nodes.nodes[number].delay_s = SILENCE_S
        reader, took_s = a_reader(nodes), list[float]()

        async def read() -> None:
            await region_read(nodes, reader)
            took_s.append(trio.current_time())

        async with trio.open_nursery() as nursery:
            for _ in range(10 * WINDOW_S):
                nursery.start_soon(read)

        assert statistics(nodes).refused_count > 0, "there are more reads than budget"
        assert max(took_s) < 1.0, "none of them waits for its time limit"


async def test_without_any_budget_silence_is_found_out_soon(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(1)
        reader = a_reader(nodes)
        for _ in range(2 * WINDOW_S):
            for node in nodes.nodes:
                node.delay_s = 0.015  # Late, so that they use the budget up.
            await region_read(nodes, reader)
        nodes.nodes[0].delay_s = SILENCE_S
        nodes.replicas.forgive(nodes.nodes[0].member)
        started_s = trio.current_time()

        assert (await region_read(nodes, reader)).startswith("far")
        assert trio.current_time() - started_s < 0.6


async def test_a_question_that_is_cancelled_leaves_nothing_behind(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(1)
        for node in nodes.nodes:
            node.delay_s = SILENCE_S
        with trio.move_on_after(0.1):
            await region_read(nodes, a_reader(nodes))

        assert statistics(nodes).hedged_count == {1: 1, 2: 1}
        await assert_nothing_waits(nodes)


# Streams.


async def all_of(stream: LedgerStream) -> list[str]:
    """The regions that the answers of a stream came from, in order."""
    found: list[str] = []
    with stream:
        while stream.entry_next <= stream.last:
            entries = await stream.read()
            first = entries[0]
            is_near = first.served_by.location.region == "near"
            found.append(("near" if is_near else "far") + " hedged" * first.is_hedged)
    return found


async def test_a_stream_that_does_not_begin_begins_at_another_replica(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(8)
        nodes.nodes[0].delay_s = 0.5
        stream = LedgerStream(a_reader(nodes), nodes.ledger(), EntryId(0), EntryId(3))

        assert (await all_of(stream))[0] == "far hedged"
        await assert_nothing_waits(nodes)


async def test_a_stream_that_falls_silent_goes_on_at_another_replica(
    autojump_clock: MockClock,
) -> None:
    def first_only(asked: Message, answers: list[Message]) -> list[Message]:
        return answers[:1] if isinstance(asked, Read) and asked.answers_max > 1 else answers

    async with open_fake_nodes() as nodes:
        nodes.store(8)
        nodes.nodes[0].lie = first_only
        stream = LedgerStream(a_reader(nodes), nodes.ledger(), EntryId(0), EntryId(7))
        started_s = trio.current_time()

        served = await all_of(stream)

        assert served[:2] == ["near", "far hedged"]
        assert trio.current_time() - started_s < 1.0, "no time limit of two seconds is paid"
        await assert_nothing_waits(nodes)


async def test_an_extra_request_of_a_stream_asks_for_one_answer(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(8)
        nodes.nodes[0].delay_s = 0.5
        with LedgerStream(a_reader(nodes), nodes.ledger(), EntryId(0), EntryId(7)) as stream:
            await stream.read()
        wanted = [
            one.answers_max
            for node in nodes.nodes[:2]
            for one in node.asked
            if isinstance(one, Read)
        ]

        assert wanted[0] > 1
        assert wanted[-1] == 1


async def test_a_silent_member_hardly_delays_entries_that_lie_on_different_members(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes(count=5) as nodes:
        for entry in range(20):
            for turn in range(3):
                nodes.nodes[(entry + turn) % 5].entries[EntryId(entry)] = entry_of(entry).join()
        for number in (0, 3):  # Members of the reader's region.
            nodes.nodes[number].delay_s = SILENCE_S
        record, started_s = striped(nodes), trio.current_time()
        next_entry = 0
        while next_entry < 20:
            found = await a_reader(nodes).read(record, EntryId(next_entry), EntryId(19))
            next_entry = found[-1].entry + 1

        assert trio.current_time() - started_s < 1.0, "no time limit of two seconds is paid"


# The tail.


@pytest.mark.parametrize(("hedge", "cost_s"), [("10ms", 0.25), ("off", 2.0)])
async def test_a_silent_member_hardly_delays_the_end_that_the_others_prove(
    hedge: str, cost_s: float, autojump_clock: MockClock
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(5)
        nodes.nodes[0].delay_s = SILENCE_S
        started_s = trio.current_time()
        view = await a_reader(nodes, hedge).probe_tail(nodes.ledger(), EntryId(2))

        assert view.end == 5
        assert trio.current_time() - started_s == pytest.approx(cost_s)


async def test_an_end_that_nothing_proves_is_waited_for(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(5)
        for node in nodes.nodes[:2]:
            node.delay_s = SILENCE_S
        started_s = trio.current_time()
        view = await a_reader(nodes).probe_tail(nodes.ledger(), EntryId(2))

        assert view.end is None
        assert trio.current_time() - started_s == pytest.approx(2.0)


@pytest.mark.parametrize("hedge", ["10ms", "off"])
async def test_the_nearest_lac_is_asked_for_elsewhere_when_it_is_late(
    hedge: str, autojump_clock: MockClock
) -> None:
    async with open_fake_nodes() as nodes:
        for node in nodes.nodes:
            node.lac = EntryId(7)
        nodes.nodes[0].delay_s = SILENCE_S
        started_s = trio.current_time()

        assert await a_reader(nodes, hedge).lac_nearby(nodes.ledger()) == 7
        took_s = trio.current_time() - started_s
        assert took_s == pytest.approx(2.0 if hedge == "off" else 0.010)


# Policies.


class Impatient:
    """A user's own policy: ask everybody at once, as far as the least pause allows."""

    name = "impatient"
    terms = HedgeTerms(is_budgeted=False, sla_s=0.002)

    def __init__(self) -> None:
        self.moments = list[HedgeMoment]()

    def pause_s(self, moment: HedgeMoment) -> float:
        self.moments.append(moment)
        return 0.0


async def test_a_policy_of_the_users_own_sets_the_pauses(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(1)
        policy = Impatient()
        for node in nodes.nodes:
            node.delay_s = 0.01
        await region_read(nodes, a_reader(nodes, policy))

        assert statistics(nodes).hedged_count == {1: 1, 2: 1}
        assert statistics(nodes).late_count == 1, "it took longer than its limit"
        assert [moment.asked_count for moment in policy.moments] == [1, 2]
        assert [route.is_remote for route in policy.moments[0].routes] == [False, True, True]


async def test_readers_of_one_process_share_the_counts_whatever_their_policies(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(1)
        for hedge in ("auto", "off", "sla:50ms"):
            await region_read(nodes, a_reader(nodes, hedge))

        assert statistics(nodes).asked_count == 3
        assert statistics(nodes).bytes_count == 3 * len(nodes.nodes[0].entries[EntryId(0)])


# Health.


@pytest.mark.parametrize(
    ("reason", "is_demoted"),
    [
        (Reason.BUSY, False),
        (Reason.NO_SUCH_LEDGER, False),
        (Reason.STOPPING, True),
        (Reason.WRONG_INSTANCE, True),
    ],
)
async def test_only_a_refusal_that_says_something_about_health_demotes_a_replica(
    reason: Reason,
    is_demoted: bool,  # noqa: FBT001 - a parameter of the test
    autojump_clock: MockClock,
) -> None:
    def refuses(asked: Message, answers: list[Message]) -> list[Message]:
        if not isinstance(asked, Read):
            return answers
        return [Refused(asked.request, reason, NO_EPOCH, "as the test wants it")]

    async with open_fake_nodes() as nodes:
        nodes.store(1)
        nodes.nodes[0].lie = refuses

        assert (await region_read(nodes, a_reader(nodes))).startswith("far")
        assert nodes.replicas.is_demoted(nodes.nodes[0].member) == is_demoted
        assert nodes.replicas.statistics().demotions_count["failed"] == is_demoted


async def test_a_silent_replica_that_was_well_is_not_asked_first_once_a_far_one_answered(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(20)
        nodes.nodes[0].delay_s = 0.001
        reader = a_reader(nodes)
        for entry in range(10):
            await region_read(nodes, reader, entry)
        nodes.nodes[0].delay_s = SILENCE_S
        for node in nodes.nodes[1:]:
            node.delay_s = 0.04

        assert await region_read(nodes, reader, 10) == "far hedged"
        asked_count = reads_at(nodes, 0)
        await region_read(nodes, reader, 11)
        assert reads_at(nodes, 0) == asked_count
        assert nodes.replicas.statistics().demotions_count["silent"] == 1


def cut_off(nodes: FakeNodes, number: int) -> None:
    """Silence a node, and let readers know."""
    nodes.nodes[number].delay_s = SILENCE_S
    nodes.replicas.note_failed(nodes.nodes[number].member)


@pytest.mark.parametrize("hedge", ["auto", "off"])
async def test_a_trial_of_a_silent_replica_costs_its_reader_nothing(
    hedge: str, autojump_clock: MockClock
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(1)
        reader = a_reader(nodes, hedge)
        cut_off(nodes, 0)
        nodes.nursery.start_soon(ShadowRequests(nodes.replicas).run)
        for _ in range(200):
            started_s = trio.current_time()
            assert (await region_read(nodes, reader)) == "far"
            assert trio.current_time() == started_s
            await trio.sleep(0.1)

        assert 2 <= statistics(nodes).extra_count["trial"] <= 5


async def test_one_good_answer_to_a_trial_forgives_although_another_was_first(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(1)
        reader = a_reader(nodes)
        nodes.replicas.note_failed(nodes.nodes[0].member)
        nodes.nodes[0].delay_s = 0.005
        nodes.nursery.start_soon(ShadowRequests(nodes.replicas).run)
        await trio.sleep(DEMOTED_S_MIN)

        assert await region_read(nodes, reader) == "far"
        await trio.sleep(0.01)
        assert not nodes.replicas.order.has_marked
        assert await region_read(nodes, reader) == "near"
        assert not nodes.replicas.left_trials
        await assert_nothing_waits(nodes)


async def test_a_trial_that_lacks_the_entry_does_not_speak_for_the_others(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(1, at=(1, 2))
        nodes.replicas.note_failed(nodes.nodes[0].member)
        for node in nodes.nodes[1:]:
            node.delay_s = 0.005
        await trio.sleep(DEMOTED_S_MIN)

        assert await region_read(nodes, a_reader(nodes)) == "far"
        assert statistics(nodes).extra_count["trial"] == 1


async def test_a_log_that_closes_drops_the_trials_that_were_left(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(1)
        cut_off(nodes, 0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ShadowRequests(nodes.replicas).run)
            await trio.sleep(DEMOTED_S_MIN)
            await region_read(nodes, a_reader(nodes))
            assert nodes.replicas.left_trials
            nursery.cancel_scope.cancel()

        assert not nodes.replicas.left_trials
        await assert_nothing_waits(nodes)


async def test_a_demotion_lets_all_questions_that_wait_go_further_at_once_and_free(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(1)
        reader, ended_s = a_reader(nodes), list[float]()
        nodes.nodes[0].delay_s = 0.001
        for _ in range(10):
            await region_read(nodes, reader)
        nodes.nodes[0].delay_s = SILENCE_S
        for _ in range(2 * WINDOW_S):  # No budget is left.
            nodes.replicas._means.hedging.record.take(  # noqa: SLF001 - uses the budget up.
                1, trio.current_time(), is_remote=False, is_budgeted=True
            )
        started_s = trio.current_time()

        async def read() -> None:
            await region_read(nodes, reader)
            ended_s.append(trio.current_time() - started_s)

        async with trio.open_nursery() as nursery:
            for _ in range(30):
                nursery.start_soon(read)

        extra = statistics(nodes).extra_count
        assert extra["silent"] == 1, "one question finds out that the replica hangs"
        assert extra["replacement"] >= 29
        assert max(ended_s) == pytest.approx(0.03), "the others would ask again after 70 ms"


async def test_reads_go_on_over_a_connection_to_another_region_that_is_up_already(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes(count=4) as nodes:
        nodes.store(1)
        await region_read(nodes, a_reader(nodes))
        await trio.sleep(0.1)
        connected = [
            nodes.pool.is_connected(node.instance, LinkUse.READING) for node in nodes.nodes
        ]

        assert connected[0]
        assert sum(connected[1:]) == 1, "to the best of the other regions"
