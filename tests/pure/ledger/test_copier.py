"""Copying between nodes, some of which lie, refuse, fail or stay silent."""

from collections.abc import Callable

import attrs
import pytest
from trio.testing import MockClock

from geolog.ledger.copying.copier import Copier, CopyProgress
from geolog.ledger.copying.fragment_copy import CopyConfig, CopyOutcome
from geolog.protocol.copying import final_extents
from geolog.protocol.ids import EntryId, Epoch
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState
from geolog.protocol.messages import (
    Add,
    AddRefused,
    Answer,
    EntryAnswer,
    Fence,
    Message,
    OpenLedger,
    Probe,
    ProbeAnswer,
    Read,
    ReadAnswer,
    Reason,
    Refused,
)
from tests.pure.ledger.fake_nodes import FakeNodes, Lie, entry_of, open_fake_nodes

COUNT = 10


def closed(nodes: FakeNodes) -> LedgerRecord:
    """The ledger with ten entries, after one takeover."""
    return attrs.evolve(
        nodes.ledger(), state=LedgerState.CLOSED, last_entry=EntryId(COUNT - 1), epoch=Epoch(2)
    )


def still_open(nodes: FakeNodes) -> LedgerRecord:
    """The ledger with ten entries in its first fragment, while its second is being written."""
    ledger = nodes.ledger()
    second = Fragment(EntryId(COUNT), ledger.fragments[0].ensemble)
    return attrs.evolve(ledger, fragments=(*ledger.fragments, second))


async def copy(
    nodes: FakeNodes, record: LedgerRecord, *targets: int, is_deep: bool = False
) -> CopyOutcome:
    copier = Copier(nodes.replicas, region="near", config=CopyConfig(batch_entries=4))
    return await copier.copy(record, final_extents(record)[0], targets, is_deep=is_deep)


def has_all(nodes: FakeNodes, node: int) -> bool:
    expected = {EntryId(entry): entry_of(entry).join() for entry in range(COUNT)}
    return nodes.nodes[node].entries == expected


def told(nodes: FakeNodes, node: int, kind: type[Message]) -> list[Message]:
    return [message for message in nodes.nodes[node].asked if isinstance(message, kind)]


async def test_a_closed_ledger_is_fenced_and_filled_as_recovery_does(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(COUNT, at=(0, 1))

        outcome = await copy(nodes, closed(nodes), 2)

        assert has_all(nodes, 2)
        assert (outcome.copies_stored, outcome.why_incomplete(2)) == (COUNT, None)
        assert len(told(nodes, 2, Fence)) == 1
        assert told(nodes, 2, OpenLedger) == []
        adds = [message for message in nodes.nodes[2].asked if isinstance(message, Add)]
        assert all((add.is_recovery, add.epoch, add.lac) == (True, 2, -1) for add in adds)


async def test_an_open_ledger_is_not_fenced_because_it_has_a_writer(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(COUNT, at=(0, 1))

        await copy(nodes, still_open(nodes), 2)

        assert has_all(nodes, 2)
        assert told(nodes, 2, Fence) == []
        adds = [message for message in nodes.nodes[2].asked if isinstance(message, Add)]
        assert all(
            (add.is_recovery, add.epoch, add.lac) == (False, 1, COUNT - 1) for add in adds
        )


async def test_nothing_is_sent_where_nothing_is_missing(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(COUNT)

        outcome = await copy(nodes, closed(nodes), 0, 1, 2, is_deep=True)

        assert outcome == CopyOutcome()
        assert all(told(nodes, node, kind) == [] for node in range(3) for kind in (Fence, Add))


async def test_progress_covers_all_fragments(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(COUNT, at=(0, 1))
        seen: list[CopyProgress] = []
        copier = Copier(
            nodes.replicas,
            region=None,
            config=CopyConfig(),
            on_progress=lambda progress: seen.append(attrs.evolve(progress)),
        )
        record = closed(nodes)

        for _ in range(2):
            await copier.copy(record, final_extents(record)[0], [2])

        size_bytes = sum(entry_of(entry).length_bytes for entry in range(COUNT))
        assert seen[-1] == CopyProgress(2 * COUNT, COUNT, size_bytes)


def entries_changed(change: Callable[[EntryAnswer], EntryAnswer]) -> Lie:
    """A node that hands out different copies from those it reports."""

    def lie(asked: Message, answers: list[Message]) -> list[Message]:
        return [
            attrs.evolve(one, entries=tuple(map(change, one.entries)))
            if isinstance(one, ReadAnswer)
            else one
            for one in answers
        ]

    return lie


def flipped(one: EntryAnswer) -> EntryAnswer:
    body = bytearray(one.body)
    body[len(body) // 2] ^= 1
    return EntryAnswer(one.answer, bytes(body))


SOURCE_LIES = {
    "damaged": entries_changed(lambda one: EntryAnswer(Answer.CORRUPT)),
    "not sure": entries_changed(lambda one: EntryAnswer(Answer.UNKNOWN)),
    "absent after all": entries_changed(lambda one: EntryAnswer(Answer.ABSENT)),
    "other bytes": entries_changed(flipped),
    "another entry": entries_changed(lambda one: EntryAnswer(one.answer, entry_of(8).join())),
    "another segment's": entries_changed(
        lambda one: EntryAnswer(one.answer, entry_of(4, segment=9).join())
    ),
    "silent when read": lambda asked, answers: [] if isinstance(asked, Read) else answers,
    "silent when asked": lambda asked, answers: [] if isinstance(asked, Probe) else answers,
    "no entries": lambda asked, answers: [
        attrs.evolve(one, entries=()) if isinstance(one, ReadAnswer) else one for one in answers
    ],
}


@pytest.mark.parametrize("lie", SOURCE_LIES.values(), ids=SOURCE_LIES.keys())
async def test_entries_not_intact_at_one_source_come_from_another(
    lie: Lie, autojump_clock: MockClock
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(COUNT, at=(0, 1))
        nodes.nodes[0].lie = lie

        outcome = await copy(nodes, closed(nodes), 2)

        assert has_all(nodes, 2)
        assert outcome.why_incomplete(2) is None


@pytest.mark.parametrize("lie", SOURCE_LIES.values(), ids=SOURCE_LIES.keys())
async def test_entries_without_an_intact_source_are_not_made_up(
    lie: Lie, autojump_clock: MockClock
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(COUNT, at=(0, 1))
        nodes.nodes[0].lie = nodes.nodes[1].lie = lie

        outcome = await copy(nodes, closed(nodes), 2)

        whole = {entry_of(entry).join() for entry in range(COUNT)}
        assert set(nodes.nodes[2].entries.values()) <= whole
        assert not has_all(nodes, 2)
        assert outcome.lost_count + outcome.unreachable_count > 0
        assert outcome.why_incomplete(2) is not None


def refusing(reason: Reason) -> Lie:
    """A node that refuses adds."""

    def lie(asked: Message, answers: list[Message]) -> list[Message]:
        if isinstance(asked, Add):
            return [AddRefused(asked.ordinal, reason, Epoch(9))]
        return answers

    return lie


def forgets(asked: Message, answers: list[Message]) -> list[Message]:
    """A node that confirms adds and does not store them."""
    return [
        attrs.evolve(one, answers=(Answer.ABSENT,) * len(one.answers))
        if isinstance(one, ProbeAnswer)
        else one
        for one in answers
    ]


TARGET_LIES = {
    "another owner": (refusing(Reason.FENCED), "the ledger was taken over"),
    "full": (refusing(Reason.READ_ONLY), "read-only"),
    "other bytes": (refusing(Reason.CONFLICT), "the node has other bytes there"),
    "deleted": (refusing(Reason.NO_SUCH_LEDGER), "the node has deleted the ledger"),
    "too busy": (refusing(Reason.BUSY), "busy"),
    "silent to adds": (
        lambda asked, answers: [] if isinstance(asked, Add) else answers,
        "no answer for",
    ),
    "silent to the fence": (
        lambda asked, answers: [] if isinstance(asked, Fence) else answers,
        "does not answer|no answer for",
    ),
    "forgetful": (forgets, "entries were copied there, but are still missing"),
}


@pytest.mark.parametrize(("lie", "why"), TARGET_LIES.values(), ids=TARGET_LIES.keys())
async def test_a_target_that_does_not_take_its_copies_is_not_reported_complete(
    lie: Lie, why: str, autojump_clock: MockClock
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(COUNT, at=(0,))
        nodes.nodes[2].lie = lie

        outcome = await copy(nodes, closed(nodes), 1, 2)

        complaint = outcome.why_incomplete(2)
        assert complaint is not None
        assert any(one in complaint for one in why.split("|")), complaint
        assert has_all(nodes, 1), "the other target is given its own"
        assert outcome.why_incomplete(1) is None


async def test_a_target_that_deleted_the_ledger_will_never_take_it(
    autojump_clock: MockClock,
) -> None:
    def has_deleted(asked: Message, answers: list[Message]) -> list[Message]:
        if isinstance(asked, Fence):
            return [Refused(asked.request, Reason.NO_SUCH_LEDGER, Epoch(0), "deleted here")]
        return answers

    async with open_fake_nodes() as nodes:
        nodes.store(COUNT, at=(0,))
        nodes.nodes[2].lie = has_deleted

        outcome = await copy(nodes, closed(nodes), 1, 2)

        assert outcome.never == {2}
        assert "deleted here" in (outcome.why_incomplete(2) or "")
        assert told(nodes, 2, Add) == []
        assert has_all(nodes, 1)


async def test_a_target_that_is_killed_only_loses_its_own_copies(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(COUNT, at=(0,))

        def dies(asked: Message, answers: list[Message]) -> list[Message]:
            if isinstance(asked, Add) and asked.entry == 5:
                nodes.network.kill("node-2")
                return []
            return answers

        nodes.nodes[2].lie = dies

        outcome = await copy(nodes, closed(nodes), 1, 2)

        assert outcome.why_incomplete(2) is not None
        assert outcome.why_incomplete(1) is None
        assert has_all(nodes, 1)
