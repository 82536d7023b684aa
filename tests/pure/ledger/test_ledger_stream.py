"""Streaming a ledger's entries from replicas, some of which lie, fail or stay silent."""

import random
from itertools import pairwise

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.ledger.reading.ledger_reader import LedgerReadConfig, LedgerReader
from geolog.ledger.reading.ledger_stream import LedgerStream
from geolog.ledger.replicas.shadow_requests import ShadowRequests
from geolog.protocol.ids import EntryId
from geolog.protocol.ledger_state import Fragment, LedgerRecord
from geolog.protocol.messages import Message, Read, ReadAnswer
from tests.pure.ledger.fake_nodes import FakeNodes, entry_of, open_fake_nodes
from tests.pure.ledger.test_ledger_reader import LIES
from topology.errors import DataLostError
from topology.quorum import QuorumConfig

ENTRY_BYTES = entry_of(0).length_bytes


def a_stream(nodes: FakeNodes, first: int, last: int, **config: int) -> LedgerStream:
    reader = LedgerReader(
        nodes.replicas,
        rng=random.Random(1),
        config=LedgerReadConfig(**config),
        record_now=nodes.record_now,
    )
    return LedgerStream(reader, nodes.ledger(), EntryId(first), EntryId(last))


async def all_of(stream: LedgerStream) -> list[int]:
    found: list[int] = []
    with stream, trio.fail_after(60):
        while stream.entry_next <= stream.last:
            found += [one.decoded.header.entry for one in await stream.read()]
    return found


def reads_at(nodes: FakeNodes, number: int) -> list[Read]:
    return [asked for asked in nodes.nodes[number].asked if isinstance(asked, Read)]


async def test_one_request_to_the_nearest_brings_many_answers(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(30)

        assert await all_of(a_stream(nodes, 3, 29, batch_bytes=8 * ENTRY_BYTES)) == list(
            range(3, 30)
        )
        assert len(reads_at(nodes, 0)) == 1
        assert not reads_at(nodes, 1) + reads_at(nodes, 2)


async def test_the_next_request_goes_out_before_the_last_answer_is_returned(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(30)
        with a_stream(nodes, 0, 29, batch_bytes=2 * ENTRY_BYTES + 10) as stream:
            for _ in range(4):  # As many answers as one request may have.
                await stream.read()
            await trio.testing.wait_all_tasks_blocked()

            assert [read.first for read in reads_at(nodes, 0)] == [0, stream.entry_next]


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
async def test_entries_not_intact_at_one_replica_come_from_another(
    lie: object, autojump_clock: MockClock
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(20)
        nodes.nodes[0].lie = lie  # type: ignore[assignment]  # One of them.

        assert await all_of(a_stream(nodes, 0, 19)) == list(range(20))


async def test_a_damaged_entry_costs_one_request_elsewhere(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(20)
        nodes.nodes[0].entries[EntryId(7)] = b"rot"

        assert await all_of(a_stream(nodes, 0, 19)) == list(range(20))
        assert len(reads_at(nodes, 1) + reads_at(nodes, 2)) <= 2


async def test_another_replica_takes_over_from_one_that_dies(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(30)
        with a_stream(nodes, 0, 29, batch_bytes=2 * ENTRY_BYTES + 10) as stream:
            given = [one.entry for one in await stream.read()]
            nodes.network.kill(nodes.nodes[0].address.host)

            assert given + await all_of(stream) == list(range(30))


async def test_an_answer_that_begins_at_another_entry_is_not_taken(
    autojump_clock: MockClock,
) -> None:
    def shifted(asked: Message, answers: list[Message]) -> list[Message]:
        return [
            attrs.evolve(one, first=EntryId(one.first + 1))
            if isinstance(one, ReadAnswer) and isinstance(asked, Read) and asked.answers_max > 1
            else one
            for one in answers
        ]

    async with open_fake_nodes() as nodes:
        nodes.store(10)
        for node in nodes.nodes:
            node.lie = shifted

        assert await all_of(a_stream(nodes, 0, 9)) == list(range(10))


async def test_a_replica_that_sends_too_many_answers_is_disconnected(
    autojump_clock: MockClock,
) -> None:
    def endless(asked: Message, answers: list[Message]) -> list[Message]:
        if not isinstance(asked, Read):
            return answers
        return [
            attrs.evolve(one, is_last=False)
            for one in answers * 9
            if isinstance(one, ReadAnswer)
        ]

    async with open_fake_nodes() as nodes:
        nodes.store(10)
        nodes.nodes[0].lie = endless

        assert await all_of(a_stream(nodes, 0, 9)) == list(range(10))
        assert nodes.nodes[0].connections_count >= 1


async def test_an_entry_that_no_replica_has_is_lost_and_those_before_it_are_returned(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(5)
        with a_stream(nodes, 0, 9) as stream:
            await stream.read()
            with pytest.raises(DataLostError, match="entry 5 of ledger 7"):
                await stream.read()


async def test_a_stream_continues_with_the_members_of_the_next_fragment(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes(count=6) as nodes:
        nodes.store(10, at=(0, 1, 2))
        nodes.store(20, at=(3, 4, 5))
        for number in (3, 4, 5):
            for entry in range(10):
                del nodes.nodes[number].entries[EntryId(entry)]
        later = Fragment(EntryId(10), tuple(node.member for node in nodes.nodes[3:]))
        record = attrs.evolve(nodes.ledger(), fragments=(*nodes.ledger().fragments, later))
        stream = a_stream(nodes, 0, 19)
        stream.record = record

        assert await all_of(stream) == list(range(20))
        assert [(read.first, read.count_max) for read in reads_at(nodes, 0)] == [(0, 10)]


def striped(nodes: FakeNodes) -> LedgerRecord:
    """Five members, with each entry at three of them."""
    quorum = QuorumConfig(ensemble_size=5, write_quorum=3, ack_quorum=2, min_regions=2)
    members = tuple(node.member for node in nodes.nodes)
    return attrs.evolve(
        nodes.ledger(), quorum=quorum, fragments=(Fragment(EntryId(0), members),)
    )


async def test_entries_spread_over_an_ensemble_are_requested_many_at_a_time(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes(count=5) as nodes:
        for entry in range(100):
            for turn in range(3):
                node = nodes.nodes[(entry + turn) % 5]
                node.entries[EntryId(entry)] = entry_of(entry).join()
        stream = a_stream(nodes, 0, 99)
        stream.record = striped(nodes)

        assert await all_of(stream) == list(range(100))
        assert sum(len(reads_at(nodes, number)) for number in range(5)) <= 3


async def test_a_long_stream_comes_back_to_the_nearest_replica_once_it_is_well(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(400)
        nodes.replicas.note_failed(nodes.ledger().fragments[-1].ensemble[0])
        served_by = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ShadowRequests(nodes.replicas).run)
            with a_stream(nodes, 0, 399, batch_bytes=2 * ENTRY_BYTES + 10) as stream:
                while stream.entry_next <= stream.last:
                    served_by.append((await stream.read())[-1].served_by.node_id)
                    await trio.sleep(0.05)  # Longer than the demotion, in all.
            nursery.cancel_scope.cancel()

    assert served_by[0] != "node-0"
    assert served_by[-1] == "node-0"
    changes = sum(one != other for one, other in pairwise(served_by))
    assert changes <= 2
