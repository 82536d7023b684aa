"""Each law of what is said: facts that break it, facts that do not; and how they are heard."""

import pytest

import geolog
from geolog.protocol.ids import EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.messages import Answer
from sim.laws.law_05_absence import AbsenceIsTrue
from sim.laws.law_06_absent_stays import AbsentStays
from sim.laws.law_07_fence_outlives import FenceOutlives
from sim.laws.law_08_addressee import Addressee
from sim.laws.law_15_bytes_served import BytesServed
from sim.laws.seen import Looking
from sim.laws.wire import DoubtEnded, Fact, Mistaken, Promised, Said, Stored, Wire, WireLaw
from sim.world.history import History
from sim.world.process import Process
from sim.world.world import World
from tests.sim.calm import STREAM, do, in_a_calm_world

NODE, OTHER = InstanceId("aa"), InstanceId("bb")
LEDGER, ENTRY = LedgerId(7), EntryId(3)


def stored(taken_at: int, *, crc: int = 1, is_recovery: bool = False) -> Fact:
    return Stored(NODE, LEDGER, ENTRY, crc, is_recovery, taken_at, taken_at + 1)


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


def given(crc: int) -> Fact:
    return Said(OTHER, LEDGER, ENTRY, Answer.HAVE, 8, 9, body_crc=crc)


@pytest.mark.parametrize(
    ("law", "facts", "breaches_count"),
    [
        (AbsenceIsTrue(), [stored(1), absent(5)], 1),
        (AbsenceIsTrue(), [absent(1), stored(5)], 0),
        # The question was there before the add was answered: the answer was late.
        (AbsenceIsTrue(), [stored(4), absent(3)], 0),
        (AbsenceIsTrue(), [stored(1), DoubtEnded(NODE), absent(5)], 0),
        (AbsentStays(), [absent(1, to_recovery=True), stored(5)], 1),
        (AbsentStays(), [absent(1, to_recovery=True), stored(5, is_recovery=True)], 0),
        (AbsentStays(), [absent(1), stored(5)], 0),
        (AbsentStays(), [absent(4, to_recovery=True), stored(3)], 0),
        (Addressee(), [Mistaken(NODE, OTHER, "Read")], 1),
        (Addressee(), [stored(1)], 0),
        (BytesServed(), [stored(1, crc=5), given(6)], 1),
        (BytesServed(), [stored(1, crc=5), given(5)], 0),
        (BytesServed(), [given(6)], 0),
    ],
)
def test_a_law_of_what_is_said_is_broken_by_what_breaks_it(
    law: WireLaw, facts: list[Fact], breaches_count: int
) -> None:
    assert len(list(law.breaches(facts))) == breaches_count


def test_what_nodes_store_and_say_is_heard() -> None:
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

    stored = {(fact.ledger, fact.entry) for fact in facts if isinstance(fact, Stored)}
    told = [fact for fact in facts if isinstance(fact, Said)]
    assert len(stored) >= 3
    assert {(fact.ledger, fact.entry) for fact in told if fact.answer is Answer.HAVE} <= stored
    assert any(fact.body_crc is not None for fact in told)
    assert not any(isinstance(fact, Mistaken) for fact in facts)
    opened = {fact.ledger for fact in facts if isinstance(fact, Promised)}
    assert {ledger for ledger, _ in stored} <= opened


def test_a_fence_that_a_node_has_answered_and_does_not_know_is_told() -> None:
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


async def _append(_process: Process, log: geolog.Log) -> None:
    async with log.open_writer(STREAM) as writer:
        await writer.append(b"0")
