"""Keeping a ledger's ensemble while nodes refuse, fall silent and come back."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.ledger.ledger_metadata import LedgerMetadata, VersionedLedger
from geolog.ledger.writing.ensemble_keeper import FRAGMENTS_MAX, EnsembleKeeper
from geolog.ledger.writing.ledger_writer import LedgerWriter
from geolog.ledger.writing.replacement_finder import ReplacementFinder
from geolog.metadata.documents import seal_document
from geolog.metadata.paths import ClusterPaths
from geolog.protocol.ids import NO_ENTRY, Epoch
from geolog.protocol.messages import Add, AddsSynced, Message, OpenLedger, Reason, Refused
from tests.pure.ledger.fake_nodes import CLUSTER, LEDGER, FakeNodes, Lie, open_fake_nodes
from tests.pure.ledger.test_ledger_writer import Listener, add
from topology.errors import FencedError, NotEnoughNodesError, OutcomeUnknownError

PATHS = ClusterPaths(CLUSTER)


@attrs.frozen
class Kept:
    """An open ledger on the first three nodes, all of which must confirm."""

    nodes: FakeNodes
    ledgers: LedgerMetadata
    writer: LedgerWriter
    keeper: EnsembleKeeper
    listener: Listener

    def lose(self, *places: int) -> None:
        """Stop these nodes for good."""
        for place in places:
            self.nodes.network.vanish(self.nodes.nodes[place].node_id)

    async def members(self) -> list[list[int]]:
        """The nodes of each fragment, by number, according to metadata."""
        record = (await self.ledgers.read_latest(LEDGER)).record
        return [
            [int(member.node_id.removeprefix("node-")) for member in fragment.ensemble]
            for fragment in record.fragments
        ]


@asynccontextmanager
async def open_kept(
    count: int = 5, *, ack_quorum: int = 3, fragments_count: int = 1
) -> AsyncIterator[Kept]:
    async with open_fake_nodes(count=count) as nodes, trio.open_nursery() as nursery:
        ledgers = LedgerMetadata(nodes.metadata, PATHS)
        record = nodes.ledger()
        record = attrs.evolve(
            record,
            quorum=attrs.evolve(record.quorum, ack_quorum=ack_quorum),
            fragments=record.fragments * fragments_count,
        )
        await nodes.metadata.ensure_path(PATHS.ledger_bucket(LEDGER))
        await nodes.metadata.create(PATHS.ledger(LEDGER), seal_document(record))
        listener = Listener()
        writer = LedgerWriter(nodes.pool, record, listener, nursery=nursery, lac=NO_ENTRY)
        await writer.open(patience_s=1.0)
        keeper = EnsembleKeeper(
            VersionedLedger(record, 0),
            writer,
            ledgers=ledgers,
            finder=ReplacementFinder(
                nodes.replicas, region="near", rng=random.Random(1), patience_s=1.0
            ),
            add_timeout_s=2.0,
            member_away_s=10.0,
            patience_s=1.0,
        )
        yield Kept(nodes, ledgers, writer, keeper, listener)
        writer.close()
        nursery.cancel_scope.cancel()


def refusing_to_open(reason: Reason) -> Lie:
    return lambda asked, answers: (
        [Refused(asked.request, reason, Epoch(9), "no")]
        if isinstance(asked, OpenLedger)
        else answers
    )


async def test_nothing_is_done_while_all_is_well(autojump_clock: MockClock) -> None:
    async with open_kept() as kept:
        add(kept.writer, 3)
        await trio.sleep(1)

        assert not kept.keeper.is_due
        assert not await kept.keeper.keep()


async def test_a_new_member_is_sent_entries_in_flight_but_not_acknowledged_ones(
    autojump_clock: MockClock,
) -> None:
    async with open_kept(4) as kept:
        add(kept.writer, 3)
        await trio.sleep(0.1)
        kept.lose(2)
        await trio.sleep(0.1)
        add(kept.writer, 2)
        assert await kept.keeper.keep()
        await trio.sleep(0.1)

        assert await kept.members() == [[0, 1, 2], [0, 1, 3]]
        assert kept.nodes.nodes[3].adds() == [3, 4]
        assert kept.nodes.nodes[0].adds() == [0, 1, 2, 3, 4]  # Nothing was sent again.
        assert kept.writer.lac == 4


async def test_a_node_that_refuses_is_skipped(
    autojump_clock: MockClock,
) -> None:
    async with open_kept(6) as kept:
        for node in kept.nodes.nodes[3:5]:
            node.lie = refusing_to_open(Reason.READ_ONLY)
        kept.lose(0)
        await trio.sleep(0.1)
        add(kept.writer)
        assert await kept.keeper.keep()
        await trio.sleep(0.1)

        assert kept.writer.lac == 0
        assert await kept.members() == [[5, 1, 2]]


async def test_a_node_that_does_not_answer_is_skipped_after_a_while(
    autojump_clock: MockClock,
) -> None:
    def silent(asked: Message, answers: list[Message]) -> list[Message]:
        return [] if isinstance(asked, OpenLedger) else answers

    async with open_kept(5) as kept:
        kept.nodes.nodes[3].lie = silent
        kept.lose(0)
        await trio.sleep(0.1)
        add(kept.writer)
        with trio.fail_after(2):
            assert await kept.keeper.keep()
        await trio.sleep(0.1)

        assert kept.writer.lac == 0
        assert await kept.members() == [[4, 1, 2]]


async def test_without_a_spare_node_nothing_changes(autojump_clock: MockClock) -> None:
    async with open_kept(3) as kept:
        kept.lose(0)
        await trio.sleep(0.1)
        add(kept.writer)
        with pytest.raises(NotEnoughNodesError):
            await kept.keeper.keep()

        assert await kept.members() == [[0, 1, 2]]


async def test_a_ledger_with_very_many_fragments_gets_no_more(
    autojump_clock: MockClock,
) -> None:
    async with open_kept(4, fragments_count=FRAGMENTS_MAX) as kept:
        kept.lose(0)
        await trio.sleep(0.1)
        add(kept.writer)
        with pytest.raises(NotEnoughNodesError, match="100 fragments"):
            await kept.keeper.keep()


async def test_a_replacement_that_knows_a_fence_ends_it(autojump_clock: MockClock) -> None:
    async with open_kept(4) as kept:
        kept.nodes.nodes[3].lie = refusing_to_open(Reason.FENCED)
        kept.lose(0)
        await trio.sleep(0.1)
        add(kept.writer)
        with pytest.raises(FencedError):
            await kept.keeper.keep()


async def test_members_that_come_back_before_the_change_keep_their_slots(
    autojump_clock: MockClock,
) -> None:
    async with open_kept(4) as kept:
        kept.nodes.network.reset("client", "node-0")
        add(kept.writer)
        assert kept.keeper.is_urgent

        kept.nodes.network.latency_s = lambda one, other: 0.1 if "node-3" in (one, other) else 0
        assert not await kept.keeper.keep()
        await trio.sleep(0.1)

        assert kept.writer.lac == 0
        assert await kept.members() == [[0, 1, 2]]


async def test_late_answers_of_a_replaced_member_do_not_count(
    autojump_clock: MockClock,
) -> None:
    """It confirms its adds too late, over a connection that never broke."""
    held_back: list[Message] = []

    def late(asked: Message, answers: list[Message]) -> list[Message]:
        if isinstance(asked, Add):
            held_back.extend(answers)
            return []
        return answers

    async with open_kept(4) as kept:
        kept.nodes.nodes[0].lie = late
        kept.nodes.nodes[3].lie = late
        add(kept.writer)
        await trio.sleep(2.5)
        assert kept.keeper.is_urgent  # Late, although all are up.
        assert await kept.keeper.keep()
        # The old member answers at last; the new one has not.
        from_old = next(one for one in held_back if isinstance(one, AddsSynced))
        await kept.nodes.nodes[0].send(from_old)
        await trio.sleep(0.5)

        assert await kept.members() == [[3, 1, 2]]
        assert kept.writer.lac == NO_ENTRY
        await kept.nodes.nodes[3].send(from_old)
        await trio.sleep(0.5)
        assert kept.writer.lac == 0


async def test_members_that_stay_acknowledge_while_the_outcome_is_unknown(
    autojump_clock: MockClock,
) -> None:
    async with open_kept(4, ack_quorum=2) as kept:
        kept.lose(0)
        await trio.sleep(11)
        assert kept.keeper.is_due
        assert not kept.keeper.is_urgent
        kept.nodes.metadata.lose_next_answer()
        with pytest.raises(OutcomeUnknownError):
            await kept.keeper.keep()
        add(kept.writer, 3)
        await trio.sleep(0.1)

        assert kept.keeper.changes_count == 0
        assert kept.writer.lac == 2
        assert await kept.keeper.keep()
        assert kept.keeper.changes_count == 1
        assert await kept.members() == [[3, 1, 2]]


async def test_a_close_over_a_change_with_unknown_outcome_is_not_a_conflict(
    autojump_clock: MockClock,
) -> None:
    async with open_kept(4) as kept:
        kept.lose(0)
        await trio.sleep(0.1)
        add(kept.writer)
        kept.nodes.metadata.lose_next_answer()
        with pytest.raises(OutcomeUnknownError):
            await kept.keeper.keep()
        closing = kept.keeper.closing(kept.writer.lac)
        found = await kept.ledgers.read_latest(LEDGER)

        assert closing.judge(found.record).value == "try_again"
        assert closing.judge(kept.keeper.ledger.record).value == "try_again"
