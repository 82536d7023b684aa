"""Recovery of a ledger whose writer is gone, from members that lie."""

import random

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.ledger.ledger_metadata import (
    LedgerMetadata,
    NoSuchLedgerError,
    VersionedLedger,
)
from geolog.ledger.recovery.ledger_recovery import RecoveryConfig, recover_ledger
from geolog.metadata.documents import seal_document
from geolog.metadata.paths import ClusterPaths
from geolog.protocol.ids import EntryId, Epoch
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from geolog.protocol.messages import (
    Add,
    AddRefused,
    AddsSynced,
    Answer,
    EntryAnswer,
    Fence,
    Hello,
    Message,
    Read,
    ReadAnswer,
    Reason,
    Refused,
)
from tests.pure.ledger.fake_nodes import (
    CLUSTER,
    LEDGER,
    FakeNode,
    FakeNodes,
    Lie,
    entry_of,
    open_fake_nodes,
)


async def stored(nodes: FakeNodes, record: LedgerRecord) -> LedgerMetadata:
    """The ledger's record in metadata, as its writer left it."""
    paths = ClusterPaths(CLUSTER)
    await nodes.metadata.ensure_path(paths.ledger_bucket(LEDGER))
    await nodes.metadata.create(paths.ledger(LEDGER), seal_document(record))
    return LedgerMetadata(nodes.metadata, paths)


async def recovered(nodes: FakeNodes, ledgers: LedgerMetadata) -> LedgerRecord:
    return await recover_ledger(
        LEDGER,
        ledgers=ledgers,
        replicas=nodes.replicas,
        rng=random.Random(1),
        config=RecoveryConfig(),
    )


async def test_one_copy_is_enough_to_keep_an_entry(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(3)
        nodes.store(5, at=(2,))
        nodes.nodes[0].lie = lambda asked, answers: [] if isinstance(asked, Read) else answers
        closed = await recovered(nodes, await stored(nodes, nodes.ledger()))

        assert (closed.state, closed.last_entry, closed.epoch) == (LedgerState.CLOSED, 4, 2)
        assert all(len(node.entries) == 5 for node in nodes.nodes[:2])


async def test_the_bytes_of_another_entry_are_not_a_copy(autojump_clock: MockClock) -> None:
    """Blocks that a node has mixed up must not be written everywhere."""

    def mixed_up(asked: Message, answers: list[Message]) -> list[Message]:
        return [
            attrs.evolve(
                one,
                entries=tuple(
                    EntryAnswer(Answer.HAVE, entry_of(9).join()) for _ in one.entries
                ),
            )
            if isinstance(one, ReadAnswer)
            else one
            for one in answers
        ]

    async with open_fake_nodes() as nodes:
        nodes.store(3)
        nodes.nodes[0].lie = mixed_up
        closed = await recovered(nodes, await stored(nodes, nodes.ledger()))

        assert closed.last_entry == 2
        assert nodes.nodes[1].entries[EntryId(2)] == entry_of(2).join()


@pytest.mark.parametrize("answer", [Answer.CORRUPT, Answer.UNKNOWN])
async def test_damage_and_doubt_are_not_absence(
    answer: Answer, autojump_clock: MockClock
) -> None:
    """Two of three cannot tell: the entry may be acknowledged, so nothing is closed."""

    def unsure(asked: Message, answers: list[Message]) -> list[Message]:
        return [
            attrs.evolve(one, entries=tuple(EntryAnswer(answer) for _ in one.entries))
            if isinstance(one, ReadAnswer)
            else one
            for one in answers
        ]

    async with open_fake_nodes() as nodes:
        for node in nodes.nodes[:2]:
            node.lie = unsure
        ledgers = await stored(nodes, nodes.ledger())
        with trio.move_on_after(30) as patience:
            await recovered(nodes, ledgers)
        assert patience.cancelled_caught
        for node in nodes.nodes[:2]:
            node.lie = lambda asked, answers: answers
        with trio.fail_after(30):
            closed = await recovered(nodes, ledgers)

        assert closed.last_entry == -1


async def test_silence_is_not_absence(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(2, at=(0, 1))
        for node in nodes.nodes[:2]:
            node.lie = lambda asked, answers: [] if isinstance(asked, Read | Fence) else answers
        ledgers = await stored(nodes, nodes.ledger())
        with trio.move_on_after(60) as patience:
            await recovered(nodes, ledgers)
        assert patience.cancelled_caught
        for node in nodes.nodes[:2]:
            node.lie = lambda asked, answers: answers
        with trio.fail_after(30):
            closed = await recovered(nodes, ledgers)

        assert closed.last_entry == 1


async def test_an_unanswered_read_is_not_absence(autojump_clock: MockClock) -> None:
    """All members confirm the fence, then those with the entries fall silent."""
    async with open_fake_nodes() as nodes:
        nodes.store(2, at=(0, 1))
        for node in nodes.nodes[:2]:
            node.lie = lambda asked, answers: [] if isinstance(asked, Read) else answers
        ledgers = await stored(nodes, nodes.ledger())
        with trio.move_on_after(60) as patience:
            await recovered(nodes, ledgers)
        assert patience.cancelled_caught
        for node in nodes.nodes[:2]:
            node.lie = lambda asked, answers: answers
        with trio.fail_after(30):
            closed = await recovered(nodes, ledgers)

        assert closed.last_entry == 1


async def test_every_read_fences_too(autojump_clock: MockClock) -> None:
    """A member that missed the fence must not take an entry it called absent."""
    async with open_fake_nodes() as nodes:
        nodes.store(40)
        closed = await recovered(nodes, await stored(nodes, nodes.ledger()))

        asked = [one for node in nodes.nodes for one in node.asked if isinstance(one, Read)]
        assert len(asked) >= 6
        assert {one.fence_epoch for one in asked} == {closed.epoch}


async def test_recovery_starts_above_the_highest_lac_that_a_member_knows(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(5)
        nodes.nodes[1].lac = nodes.nodes[2].lac = EntryId(2)
        closed = await recovered(nodes, await stored(nodes, nodes.ledger()))

        assert closed.last_entry == 4
        assert {entry for node in nodes.nodes for entry in node.adds()} == {3, 4}
        lacs = {one.lac for node in nodes.nodes for one in node.asked if isinstance(one, Add)}
        assert lacs == {2}  # Recovery does not move the LAC.


async def test_many_entries_in_flight_are_recovered_batch_by_batch(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(300, at=(0, 1))
        closed = await recovered(nodes, await stored(nodes, nodes.ledger()))

        assert closed.last_entry == 299
        assert all(len(node.entries) == 300 for node in nodes.nodes)
        lacs = {one.lac for node in nodes.nodes for one in node.asked if isinstance(one, Add)}
        assert lacs == {-1}  # Even after earlier batches have reached their ack sets.


async def test_members_behind_narrow_links_are_not_silent_however_long_a_batch_takes(
    autojump_clock: MockClock,
) -> None:
    """Each answer takes 0.4 s and has one entry, so a batch takes far more than 5 s."""
    async with open_fake_nodes() as nodes:
        nodes.store(40)
        nodes.network.latency_s = lambda sender, receiver: 0.2
        with trio.fail_after(60):
            closed = await recover_ledger(
                LEDGER,
                ledgers=await stored(nodes, nodes.ledger()),
                replicas=nodes.replicas,
                rng=random.Random(1),
                config=RecoveryConfig(batch_bytes=1),
            )

        assert closed.last_entry == 39


@pytest.mark.parametrize("kind", [Fence, Read, Add])
async def test_a_rivals_fence_makes_recovery_look_again_at_any_step(
    kind: type[Message], autojump_clock: MockClock
) -> None:
    """One member refuses the first try as fenced, but not the next epoch."""

    async with open_fake_nodes() as nodes:
        nodes.store(80, at=(0, 1))

        def fence_once(asked: Message, answers: list[Message]) -> list[Message]:
            if not isinstance(asked, kind) or is_told:
                return answers
            if isinstance(asked, Add):
                is_told.append(True)
                return [AddRefused(asked.ordinal, Reason.FENCED, asked.epoch)]
            if isinstance(asked, Fence | Read):
                is_told.append(True)
                return [Refused(asked.request, Reason.FENCED, Epoch(9), "a rival")]
            return answers

        is_told: list[bool] = []
        nodes.nodes[2].lie = fence_once
        with trio.fail_after(60):
            closed = await recovered(nodes, await stored(nodes, nodes.ledger()))

        assert is_told
        assert closed.last_entry == 79


@pytest.mark.parametrize("changes_count", [0, 1])
async def test_a_ledger_deleted_meanwhile_is_reported_as_gone(
    changes_count: int, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is deleted right before it is taken, or right before it is closed."""
    async with open_fake_nodes() as nodes:
        nodes.store(3)
        ledgers = await stored(nodes, nodes.ledger())
        before_deletion = iter(range(changes_count))

        async def replace(read: VersionedLedger, record: LedgerRecord) -> VersionedLedger:
            if next(before_deletion, None) is None:
                await ledgers.forget(read)
            return await LedgerMetadata.replace(ledgers, read, record)

        monkeypatch.setattr(ledgers, "replace", replace)
        with pytest.raises(NoSuchLedgerError, match="does not exist"):
            await recovered(nodes, ledgers)


# Replaced members.


def needing_all(nodes: FakeNodes) -> LedgerRecord:
    """All three copies are needed: without one member nothing can be rewritten."""
    record = nodes.ledger()
    return attrs.evolve(record, quorum=attrs.evolve(record.quorum, ack_quorum=3))


async def test_a_needed_member_that_is_gone_is_replaced_and_the_close_stores_it(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes(count=4) as nodes:
        nodes.store(5, at=(0, 1))
        nodes.nodes[0].lac = nodes.nodes[1].lac = EntryId(2)
        nodes.network.vanish("node-2")
        with trio.fail_after(10):
            closed = await recovered(nodes, await stored(nodes, needing_all(nodes)))

        first, second = closed.fragments
        assert (closed.state, closed.last_entry) == (LedgerState.CLOSED, 4)
        assert first == nodes.ledger().fragments[0]
        assert (second.first_entry, second.ensemble[2]) == (3, nodes.nodes[3].member)
        assert sorted(nodes.nodes[3].entries) == [3, 4]
        assert nodes.nodes[3].fence == closed.epoch


async def test_a_member_that_goes_during_a_recovery_is_replaced_from_there_on(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes(count=4) as nodes:
        nodes.store(80)

        def go_after_forty(asked: Message, answers: list[Message]) -> list[Message]:
            if isinstance(asked, Add) and asked.entry == 40:
                nodes.network.vanish("node-2")
            return answers

        nodes.nodes[2].lie = go_after_forty
        with trio.fail_after(10):
            closed = await recovered(nodes, await stored(nodes, needing_all(nodes)))

        assert closed.last_entry == 79
        for entry in range(80):
            for member in closed.fragment_of(EntryId(entry)).ensemble:
                holder = next(one for one in nodes.nodes if one.member == member)
                assert EntryId(entry) in holder.entries, f"{member.node_id} lacks {entry}"
        assert len(closed.fragments) == 2


async def test_a_member_that_only_greets_is_replaced_even_between_two_batches(
    autojump_clock: MockClock,
) -> None:
    """It leaves while nothing is in flight, and reconnects without the ledger."""
    async with open_fake_nodes(count=4) as nodes:
        nodes.store(40)
        gone: list[bool] = []

        async def answer_later(node: FakeNode, answers: list[Message]) -> None:
            await trio.sleep(0.5)
            for answer in answers:
                await node.send(answer)

        def slow_from_32(number: int) -> Lie:
            def lie(asked: Message, answers: list[Message]) -> list[Message]:
                if not isinstance(asked, Read) or asked.first < 32:
                    return answers
                nodes.nursery.start_soon(answer_later, nodes.nodes[number], answers)
                return []

            return lie

        def end_from_32(asked: Message, answers: list[Message]) -> list[Message]:
            if isinstance(asked, Read) and asked.first >= 32:
                gone.append(True)
            nonsense: list[Message] = [AddsSynced(1_000_000)]
            return nonsense if gone and not isinstance(asked, Hello) else answers

        nodes.nodes[0].lie, nodes.nodes[1].lie = slow_from_32(0), slow_from_32(1)
        nodes.nodes[2].lie = end_from_32
        with trio.fail_after(30):
            closed = await recovered(nodes, await stored(nodes, needing_all(nodes)))

        assert closed.last_entry == 39
        assert [one.first_entry for one in closed.fragments] == [0, 32]
        assert nodes.nodes[3].member in closed.fragments[1].ensemble


async def test_without_a_spare_node_recovery_waits_for_the_member(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(3, at=(0, 1))
        nodes.network.cut("client", "node-2")
        ledgers = await stored(nodes, needing_all(nodes))
        with trio.move_on_after(30) as patience:
            await recovered(nodes, ledgers)
        assert patience.cancelled_caught
        nodes.network.mend("client", "node-2")
        with trio.fail_after(30):
            closed = await recovered(nodes, ledgers)

        assert closed.last_entry == 2
        assert len(closed.fragments) == 1


async def test_only_old_members_can_prove_absence(autojump_clock: MockClock) -> None:
    """Other nodes lack the entry, which proves nothing: those that have it are silent."""
    async with open_fake_nodes(count=5) as nodes:
        nodes.store(2)
        nodes.store(3, at=(1, 2))
        for node in nodes.nodes[1:3]:
            node.lie = lambda asked, answers: [] if isinstance(asked, Read) else answers
        record = nodes.ledger()
        ledgers = await stored(nodes, record)
        with trio.move_on_after(30) as patience:
            await recovered(nodes, ledgers)
        assert patience.cancelled_caught
        for node in nodes.nodes:
            node.lie = lambda asked, answers: answers
        with trio.fail_after(30):
            closed = await recovered(nodes, ledgers)

        assert closed.last_entry == 2
