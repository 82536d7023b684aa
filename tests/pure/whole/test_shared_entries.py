"""Batches of many writers that share entries: their answers, their records, their state."""

import random
from collections import Counter

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.partition.batch_sink import SentBatch
from geolog.partition.partition_writer import PartitionWriter
from geolog.protocol.batch_seqs import BatchSeqs
from geolog.protocol.owner_answers import Placed, Repeated
from geolog.protocol.waiting_parts import ENTRIES_AT_ONCE
from geolog.protocol.writer_standing import WriterFence
from geolog.wire.batch import seal_batch
from geolog.wire.batch_terms import BatchTerms
from geolog.wire.entry import WriterStamp
from tests.pure.whole.clusters import (
    STREAM,
    append_each,
    numbered,
    open_world,
    records_of,
    values_of,
)
from tests.pure.whole.test_writer_fences import open_owner


def terms_of(writer: int, seq: int, count: int = 1) -> BatchTerms:
    """Terms of a named writer's batch, in the first session of that writer."""
    return BatchTerms(writer=WriterStamp(b"till-%d" % writer, 1, BatchSeqs(seq, count), 1))


async def begin_sessions(owner: PartitionWriter, count: int) -> None:
    """Begin the first session of this many writers."""
    for writer in range(count):
        await owner.hello(b"till-%d" % writer, WriterFence(1, 1 + writer))


def send_all(owner: PartitionWriter, values: list[bytes], *, per_batch: int) -> list[SentBatch]:
    """Append the values in batches, one after another, in one turn."""
    return [
        owner.append(seal_batch(values[at : at + per_batch], created_us=1))
        for at in range(0, len(values), per_batch)
    ]


async def places_of(sent: list[SentBatch]) -> list[Placed]:
    """The places of batches, once they are answered."""
    places = []
    for one in sent:
        await one.done.wait()
        assert isinstance(one.answer, Placed), one.answer
        places.append(one.answer)
    return places


async def test_batches_of_one_turn_share_an_entry_and_each_is_told_its_own_place(
    autojump_clock: MockClock,
) -> None:
    values = numbered(120)
    async with open_world() as world:
        async with open_owner(world.log) as owner:
            places = await places_of(send_all(owner, values, per_batch=2))
        records = await records_of(world.log)

    assert [record.value for record in records] == values
    for batch, place in enumerate(places):
        first = records[2 * batch]
        assert first.dlsn == geolog.DLSN(place.segment, place.entry, place.slot)
        assert first.sequence == place.first_sequence == 2 * batch
    assert len({place.entry for place in places}) == ENTRIES_AT_ONCE + 1
    assert [place.slot for place in places[ENTRIES_AT_ONCE:]] == list(range(0, 112, 2))


async def test_a_batch_alone_leaves_at_once(autojump_clock: MockClock) -> None:
    async with open_world() as world, open_owner(world.log) as owner:
        for count in range(1, 10):
            sent = owner.append(seal_batch([b"alone"], created_us=1))
            assert repr(owner).count(" 1 sent, 0 waiting"), repr(owner)
            await places_of([sent])
            assert owner.sequence_next == count


@pytest.mark.parametrize("slot", [0, 1, 50, 111])
async def test_a_read_may_begin_and_end_within_a_shared_entry(
    slot: int, autojump_clock: MockClock
) -> None:
    values = numbered(120)
    async with open_world() as world:
        async with open_owner(world.log) as owner:
            places = await places_of(send_all(owner, values, per_batch=2))
        last = places[-1]
        assert last.slot == 110
        middle = geolog.AtDlsn(geolog.DLSN(last.segment, last.entry, slot))

        assert await values_of(world.log, start=middle) == values[8 + slot :]
        assert await values_of(world.log, stop=middle) == values[: 8 + slot]


async def test_a_fence_stays_an_entry_of_its_own(autojump_clock: MockClock) -> None:
    async with open_world() as world, open_owner(world.log) as owner:
        async with trio.open_nursery() as nursery:
            before = send_all(owner, numbered(20), per_batch=1)
            nursery.start_soon(owner.hello, b"till-7", WriterFence(1, 77))
        behind = send_all(owner, numbered(20, start=20), per_batch=1)
        places = await places_of([*before, *behind])

        entries = sorted({place.entry for place in places})
        assert entries != list(range(len(entries))), "the fence took a number between them"
        assert await values_of(world.log) == numbered(40)


async def test_the_next_owner_finds_the_state_that_the_last_one_had(
    autojump_clock: MockClock,
) -> None:
    """Append times, transaction ids, and the slots of all remembered batches."""
    rng = random.Random(7)
    async with open_world() as world:
        async with open_owner(world.log) as owner:
            await begin_sessions(owner, 5)
            seqs, sent = [0] * 5, []
            for number in range(200):
                count, writer = rng.randint(1, 3), rng.randrange(5)
                ids = [number] * count if rng.random() < 0.2 else None
                batch = seal_batch([b"v"] * count, created_us=1, transaction_ids=ids)
                terms = BatchTerms(
                    writer=terms_of(writer, seqs[writer], count).writer,
                    transaction_first=number if ids else None,
                    transaction_last=number if ids else None,
                )
                seqs[writer] += count
                sent.append(owner.append(batch, terms))
                if rng.random() < 0.1:
                    await trio.sleep(rng.uniform(0, 0.01))
            places = await places_of(sent)
            assert len({place.entry for place in places}) < len(places)
            state = owner.acknowledged
        async with open_owner(world.log) as owner:
            assert owner.acknowledged == state


async def test_a_repeat_is_found_in_the_middle_of_a_shared_entry(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, open_owner(world.log) as owner:
        await begin_sessions(owner, 1)
        batches = [seal_batch([b"%d" % seq], created_us=1) for seq in range(20)]
        sent = [owner.append(one, terms_of(0, seq)) for seq, one in enumerate(batches)]
        places = await places_of(sent)
        assert places[-1].slot > 0
        for seq, place in enumerate(places):
            again = owner.append(batches[seq], terms_of(0, seq))
            assert isinstance(again.answer, Repeated)
            first = await again.answer.records.answer(0)
            assert first.dlsn == geolog.DLSN(place.segment, place.entry, place.slot)
            assert first.sequence == place.first_sequence


async def test_shared_entries_survive_a_change_of_members(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        async with open_owner(world.log) as owner:
            await places_of(send_all(owner, [b"before"], per_batch=1))
            for node_id in (await world.log.list_segments(STREAM))[-1].ensemble[:2]:
                world.cluster.network.cut("client", node_id)
            sent = send_all(owner, numbered(60), per_batch=1)
            await trio.sleep(0.1)
            sent += send_all(owner, numbered(40, start=60), per_batch=1)
            places = await places_of(sent)
        records = await records_of(world.log)

    assert [record.value for record in records] == [b"before", *numbered(100)]
    dlsns = [geolog.DLSN(place.segment, place.entry, place.slot) for place in places]
    assert [record.dlsn for record in records[1:]] == dlsns
    entries = Counter(place.entry for place in places)
    assert list(entries.values()) == [*[1] * ENTRIES_AT_ONCE, 60 - ENTRIES_AT_ONCE, 40]


async def test_batches_that_wait_for_a_roll_share_entries(autojump_clock: MockClock) -> None:
    rng = random.Random(1)
    values = [rng.randbytes(2000) for _ in range(300)]
    async with open_world(segment_bytes=64 * 1024) as world:
        async with open_owner(world.log) as owner:
            before = await places_of(send_all(owner, values[:20], per_batch=1))
            await trio.sleep(1)  # The next ledger is made ahead.
            waiting = send_all(owner, values[20:], per_batch=1)
            places = [*before, *await places_of(waiting)]
        records = await records_of(world.log)

    assert [record.value for record in records] == values
    dlsns = [geolog.DLSN(place.segment, place.entry, place.slot) for place in places]
    assert [record.dlsn for record in records] == dlsns
    assert places[-1].segment > 1
    assert len({(place.segment, place.entry) for place in places[20:]}) < 20


async def test_records_of_one_writer_take_one_entry_each_batch(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM) as writer:
            receipts = await append_each(writer, numbered(50))
        records = await records_of(world.log)

    assert [record.dlsn for record in records] == [receipt.dlsn for receipt in receipts]
