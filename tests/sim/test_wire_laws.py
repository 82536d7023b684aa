"""Each wire law, with facts that break it and facts that do not; and how facts are heard."""

import attrs
import pytest

import geolog
from geolog.protocol.ids import EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.messages import Answer, Reason
from sim.laws.state.law_05_absence import AbsenceIsTrue
from sim.laws.state.law_06_absent_stays import AbsentStays
from sim.laws.state.law_07_fence_outlives import FenceOutlives
from sim.laws.state.law_07_fenced_takes_no_adds import FencedTakesNoAdds
from sim.laws.state.law_07_full_node_fences import FullNodeFences
from sim.laws.state.law_08_addressee import Addressee
from sim.laws.state.law_12_lac_on_disk import LacOnDisk
from sim.laws.state.law_15_bytes_served import BytesServed
from sim.laws.state.seen import Looking, StateLaw
from sim.laws.state.wire import (
    AddReceived,
    DoubtEnded,
    EntryStored,
    Fact,
    FenceRefused,
    Mistaken,
    Promised,
    Said,
    Wire,
    WireLaw,
)
from sim.world.history import History
from sim.world.process import Process
from sim.world.world import World
from tests.sim.calm import STREAM, do, in_a_calm_world

NODE, OTHER = InstanceId("aa"), InstanceId("bb")
LEDGER, ENTRY = LedgerId(7), EntryId(3)


def stored(taken_at: int, *, crc: int = 1, is_recovery: bool = False) -> Fact:
    return EntryStored(NODE, LEDGER, ENTRY, crc, is_recovery, taken_at, taken_at + 1)


def absent(asked_at: int, *, to_recovery: bool = False) -> Fact:
    return Said(
        NODE,
        LEDGER,
        ENTRY,
        Answer.ABSENT,
        asked_at,
        asked_at + 1,
        is_to_recovery=to_recovery,
    )


def had(asked_at: int, *, body_crc: int | None = None) -> Fact:
    """An answer HAVE: of a probe, or of a read if there is a checksum."""
    return Said(NODE, LEDGER, ENTRY, Answer.HAVE, asked_at, asked_at + 1, body_crc=body_crc)


def given(crc: int) -> Fact:
    return Said(OTHER, LEDGER, ENTRY, Answer.HAVE, 8, 9, body_crc=crc)


@pytest.mark.parametrize(
    ("law", "facts", "breaches_count"),
    [
        (AbsenceIsTrue(), [stored(1), absent(5)], 1),
        (AbsenceIsTrue(), [absent(1), stored(5)], 0),
        # The question came before the add was answered: its answer was late.
        (AbsenceIsTrue(), [stored(4), absent(3)], 0),
        (AbsenceIsTrue(), [stored(1), DoubtEnded(NODE), absent(5)], 0),
        (AbsenceIsTrue(), [stored(1), DoubtEnded(NODE), had(3), absent(5)], 1),
        # An entry that was read may still be on its way to the disk.
        (AbsenceIsTrue(), [had(3, body_crc=1), absent(5)], 0),
        (AbsentStays(), [absent(1, to_recovery=True), stored(5)], 1),
        (AbsentStays(), [absent(1, to_recovery=True), stored(5, is_recovery=True)], 0),
        (AbsentStays(), [absent(1), stored(5)], 0),
        (AbsentStays(), [absent(4, to_recovery=True), stored(3)], 0),
        (FullNodeFences(), [FenceRefused(NODE, LEDGER, Reason.READ_ONLY)], 1),
        (FullNodeFences(), [FenceRefused(NODE, LEDGER, Reason.FENCED)], 0),
        (Addressee(), [Mistaken(NODE, OTHER, "Read")], 1),
        (Addressee(), [stored(1)], 0),
        (BytesServed(), [stored(1, crc=5), given(6)], 1),
        (BytesServed(), [stored(1, crc=5), given(5)], 0),
        (BytesServed(), [given(6)], 0),
    ],
)
def test_each_wire_law_reports_facts_that_break_it(
    law: WireLaw, facts: list[Fact], breaches_count: int
) -> None:
    assert len(list(law.breaches(facts))) == breaches_count


def test_the_wire_hears_requests_and_answers() -> None:
    async def append_and_read(_process: Process, log: geolog.Log) -> None:
        async with log.open_writer(STREAM) as writer:
            for number in range(3):
                await writer.append(b"%d" % number)
        async with log.open_reader(STREAM) as reader:
            assert len([record async for record in reader]) == 3

    async def story(world: World) -> list[Fact]:
        wire = Wire(world)
        await do(world, append_and_read)
        return wire.take()

    facts = in_a_calm_world(story)

    stored = {(fact.ledger, fact.entry) for fact in facts if isinstance(fact, EntryStored)}
    told = [fact for fact in facts if isinstance(fact, Said)]
    assert len(stored) >= 3
    assert {(fact.ledger, fact.entry) for fact in told if fact.answer is Answer.HAVE} <= stored
    assert any(fact.body_crc is not None for fact in told)
    assert not any(isinstance(fact, Mistaken) for fact in facts)
    opened = {fact.ledger for fact in facts if isinstance(fact, Promised)}
    assert {ledger for ledger, _ in stored} <= opened


def test_a_node_that_forgot_a_fence_it_answered_is_reported() -> None:
    async def story(world: World) -> list[str]:
        law, looking = FenceOutlives(), Looking(world, History())
        await do(world, _append)
        [instance, *_] = looking.look().stores
        [ledger, *_] = looking.look().ledgers
        kept = [Promised(instance, ledger, Epoch(1), is_fenced=False)]
        lost = [Promised(instance, ledger, Epoch(1), is_fenced=True)]
        assert list(law.breaches(looking.look(kept))) == []
        return list(law.breaches(looking.look(lost)))

    [breach] = in_a_calm_world(story)

    assert "had ledger 1 at epoch 1, fenced True; now epoch 1, fenced False" in breach


_AT, _GONE = LedgerId(1), LedgerId(99)
"""A ledger in metadata, and one that is gone from it."""


def received(lac: int, *, is_recovery: bool = False) -> Fact:
    return AddReceived(NODE, _AT, ENTRY, EntryId(lac), is_recovery)


def kept(ledger: LedgerId = _AT, *, taken_at: int = 5, is_recovery: bool = False) -> Fact:
    return EntryStored(NODE, ledger, ENTRY, 1, is_recovery, taken_at, taken_at + 1)


def fenced(ledger: LedgerId = _AT, *, at: int = 3) -> Fact:
    return Promised(NODE, ledger, Epoch(2), is_fenced=True, at=at)


_HELD_AGAINST_THE_WORLD: list[tuple[StateLaw, list[Fact], int]] = [
    (LacOnDisk(), [received(1), kept()], 1),
    # It was there before, and nobody knows which of the adds was journaled.
    (LacOnDisk(), [received(-1), received(1), kept()], 0),
    (LacOnDisk(), [received(1), received(1, is_recovery=True), kept()], 0),
    # Not answered: it may not have reached the disk.
    (LacOnDisk(), [received(1)], 0),
    (FencedTakesNoAdds(), [fenced(), kept()], 1),
    (FencedTakesNoAdds(), [fenced(), DoubtEnded(NODE), kept()], 1),
    (FencedTakesNoAdds(), [fenced(), kept(is_recovery=True)], 0),
    (FencedTakesNoAdds(), [fenced(at=6), kept(taken_at=5)], 0),
    # Nobody could fence it again before doubt ended: it had been deleted.
    (FencedTakesNoAdds(), [fenced(_GONE), DoubtEnded(NODE), kept(_GONE)], 0),
    (FencedTakesNoAdds(), [fenced(_GONE), kept(_GONE)], 1),
]


def test_answers_are_compared_with_nodes_and_metadata() -> None:
    async def story(world: World) -> list[int]:
        await do(world, _append)
        now = Looking(world, History()).look()
        node = min(now.stores)
        return [
            len(list(law.breaches(attrs.evolve(now, said=[_by(node, fact) for fact in facts]))))
            for law, facts, _ in _HELD_AGAINST_THE_WORLD
        ]

    assert in_a_calm_world(story) == [count for _, _, count in _HELD_AGAINST_THE_WORLD]


def _by(node: InstanceId, fact: Fact) -> Fact:
    return attrs.evolve(fact, instance=node)


async def _append(_process: Process, log: geolog.Log) -> None:
    async with log.open_writer(STREAM) as writer:
        await writer.append(b"0")
