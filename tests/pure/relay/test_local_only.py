"""Local-only records stay in their region: mirrors get placeholders, which count as equal.

Owners, relays, mirrors and nodes are the real ones; network, disks and metadata are in memory.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog import Gap, GapReason, Record
from geolog.partition.batch_sink import SentBatch
from geolog.partition.partition_writer import PartitionWriter
from geolog.protocol.batch_seqs import BatchSeqs
from geolog.protocol.ids import DLSN
from geolog.protocol.owner_answers import Placed, Repeated
from geolog.protocol.writer_standing import WriterFence
from geolog.wire.batch import seal_batch
from geolog.wire.batch_terms import BatchTerms
from geolog.wire.entry import WriterStamp, decode_entry
from sim.in_process import open_in_process_cluster
from tests.pure.proxy.proxies import open_proxy
from tests.pure.relay.test_relay_groups import open_groups
from tests.pure.whole.mirroring import (
    HOME,
    REGIONS,
    STREAM,
    TARGET,
    Durable,
    create,
    entries_of,
    home_of,
    mirror_of,
    record_of,
    relay,
)

SECRET = b"must stay here"


async def items_in(
    log: geolog.Log, start: geolog.Bound = geolog.EARLIEST, stop: geolog.Bound | None = None
) -> list[Record | Gap]:
    async with log.open_reader(STREAM, start=start, stop=stop) as reader:
        return [one async for one in reader.items()]


def in_short(items: Sequence[Record | Gap]) -> list[bytes | tuple[int | None, int]]:
    """The values of records, and the ends of gaps that are local-only."""
    found: list[bytes | tuple[int | None, int]] = []
    for one in items:
        if isinstance(one, Gap):
            assert one.reason is GapReason.LOCAL_ONLY
            found.append((one.from_sequence, one.to_sequence))
        else:
            found.append(one.value)
    return found


async def append_some(log: geolog.Log) -> None:
    """Records 0 to 7, of which 1, 3, 4 and 7 are local-only."""
    async with log.open_writer(STREAM) as writer:
        for number in range(8):
            is_local = number in (1, 3, 4, 7)
            value = SECRET if is_local else b"%d" % number
            writer.append_nowait(value, key=b"%d" % number, local_only=is_local)


async def wait_mirrored(log: geolog.Log, region: str = TARGET) -> None:
    """Wait until the mirror has all of its home's entries, or placeholders of them."""
    at_home = await entries_of(log, await home_of(log))
    mirror = (await record_of(log)).log_in(region, 0)
    with trio.fail_after(60):
        while True:
            mirrored = await entries_of(log, mirror)
            for one, other in zip(mirrored, at_home, strict=False):
                assert one.mark == other.mark
                assert decode_entry(one.data).is_same_as(decode_entry(other.data))
            if len(mirrored) == len(at_home):
                return
            await trio.sleep(0.1)


async def assert_nothing_left(log: geolog.Log) -> None:
    """The mirror has no local-only batch."""
    mirrored = await entries_of(log, await mirror_of(log))
    assert mirrored
    assert not any(SECRET in one.data for one in mirrored)


async def test_a_mirror_has_placeholders_and_its_readers_get_gaps(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        open_groups(cluster),
        cluster.open_client(HOME) as east,
        cluster.open_client(TARGET) as west,
    ):
        await create(east)
        await append_some(east)
        await wait_mirrored(east)
        await assert_nothing_left(east)
        at_home = await items_in(east)
        mirrored = await items_in(west)
        bounded = await items_in(west, geolog.AtSequence(4), geolog.AtSequence(6))
        from_gap = await items_in(west, geolog.LastRecords(1))
        by_time = await items_in(west, geolog.AtTime(at_home[0].timestamp_us))  # type: ignore[union-attr]
        async with west.open_reader(STREAM) as reader:
            iterated = [one.value async for one in reader]
        async with west.open_reader(STREAM) as reader:
            batched = [value async for one in reader.batches() for value in one.values()]
        report = await east.verify_stream(STREAM)

    whole = [b"0", SECRET, b"2", SECRET, SECRET, b"5", b"6", SECRET]
    assert in_short(at_home) == whole
    assert [one.is_local_only for one in at_home if isinstance(one, Record)] == [
        value == SECRET for value in whole
    ]
    assert in_short(mirrored) == [b"0", (1, 2), b"2", (3, 5), b"5", b"6", (7, 8)]
    assert in_short(bounded) == [(4, 5), b"5"]
    assert in_short(from_gap) == [(7, 8)]
    assert in_short(by_time) == in_short(mirrored)
    assert iterated == batched == [b"0", b"2", b"5", b"6"]
    assert (report.is_good, report.mirrors_unequal) == (True, 0), report.reasons
    assert report.mirrored > 0


@asynccontextmanager
async def open_owner(log: geolog.Log) -> AsyncIterator[PartitionWriter]:
    """The owner of the stream's only partition, in this process."""
    async with log.partition_opener.open(
        await record_of(log), 0, wants_received=False
    ) as owned:
        (owner,) = owned.in_order
        yield owner


def append_sealed(
    owner: PartitionWriter, value: bytes, seq: int | None, *, is_local_only: bool
) -> SentBatch:
    stamp = None if seq is None else WriterStamp(b"till", 1, BatchSeqs(seq, 1), 1)
    terms = BatchTerms(writer=stamp, is_local_only=is_local_only)
    return owner.append(seal_batch([value], created_us=1), terms)


async def test_local_only_batches_share_entries_only_with_each_other(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
    ):
        await create(log)
        async with open_owner(log) as owner:
            for number in range(60):
                append_sealed(owner, b"v", None, is_local_only=number // 20 == 1)
            await owner.wait_idle()
        found = [one for one in await items_in(log) if isinstance(one, Record)]
        by_entry: dict[int, set[bool]] = {}
        for record in found:
            by_entry.setdefault(record.dlsn.entry, set()).add(record.is_local_only)

    assert [one.is_local_only for one in found] == [n // 20 == 1 for n in range(60)]
    assert all(len(kinds) == 1 for kinds in by_entry.values())
    assert len(by_entry) < 10


async def test_a_new_home_has_gaps_and_the_old_one_still_has_the_records(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        open_groups(cluster),
        cluster.open_client(HOME) as east,
        cluster.open_client(TARGET) as west,
    ):
        await create(east)
        await append_some(east)
        plan = await west.plan_switch_over(STREAM, to=TARGET)
        moved = await west.switch_over(STREAM, to=TARGET)
        async with west.open_writer(STREAM) as writer:
            await writer.append(b"8")
            await writer.append(b"of the west", local_only=True)
            await writer.append(b"10")
        await wait_mirrored(east, HOME)
        in_west, in_east = await items_in(west), await items_in(east)
        report = await east.verify_stream(STREAM)
        back = await west.switch_over(STREAM, to=HOME)

    assert (plan.local_only, moved.local_only, back.local_only) == (4, 4, 1)
    last = [b"8", b"of the west", b"10"]
    assert in_short(in_west) == [b"0", (1, 2), b"2", (3, 5), b"5", b"6", (7, 8), *last]
    whole = [b"0", SECRET, b"2", SECRET, SECRET, b"5", b"6", SECRET]
    assert in_short(in_east) == [*whole, b"8", (9, 10), b"10"]
    assert (report.is_good, report.mirrors_unequal) == (True, 0), report.reasons


async def test_what_a_move_would_leave_behind_is_counted_across_segments_and_owners(
    autojump_clock: MockClock,
) -> None:
    """Also if the last owner died, and in the segment that is still written."""
    value = b"x" * 20_000
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        open_groups(cluster),
        cluster.open_client(HOME) as east,
        cluster.open_client(TARGET) as west,
    ):
        await create(east, segment_bytes=64 * 1024, partitions=2)
        for _ in range(3):
            async with east.open_writer(STREAM, writer_id="till") as writer:
                for number in range(10):
                    key = b"%d" % number
                    await writer.append(value, key=key, local_only=number % 2 == 0)
        async with east.open_writer(STREAM) as writer:
            await writer.append(value, local_only=True)
            open_plan = await west.plan_switch_over(STREAM, to=TARGET)
            least = await west.plan_switch_over(STREAM, to=TARGET, counts_open=False)
            await writer.append(value, local_only=True)
        closed_plan = await west.plan_switch_over(STREAM, to=TARGET, counts_open=False)
        moved = await west.switch_over(STREAM, to=TARGET)

    assert open_plan.local_only == 16
    assert 0 < least.local_only <= 15
    assert closed_plan.local_only == moved.local_only == 17


async def test_a_batch_sent_again_in_the_new_home_is_compared_by_checksum(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        open_groups(cluster),
        cluster.open_client(HOME) as east,
        cluster.open_client(TARGET) as west,
    ):
        await create(east)
        async with open_owner(east) as owner:
            await owner.hello(b"till", WriterFence(1, 7))
            first = append_sealed(owner, SECRET, 0, is_local_only=True)
            await first.done.wait()
        await west.switch_over(STREAM, to=TARGET)
        async with open_owner(west) as owner:
            same = append_sealed(owner, SECRET, 0, is_local_only=True)
            other = append_sealed(owner, b"other", 0, is_local_only=True)
            assert isinstance(first.answer, Placed)
            assert isinstance(same.answer, Repeated)
            assert isinstance(other.answer, Repeated)
            found = await same.answer.records.answer(0)
            with pytest.raises(geolog.ForgottenSeqError, match="local-only") as raised:
                await other.answer.records.answer(0)
        async with west.open_writer(STREAM, writer_id="till") as writer:
            with pytest.raises(geolog.ForgottenSeqError, match="local-only"):
                await writer.append(SECRET, seq=0, local_only=True)
            receipt = await writer.append(b"next", seq=1)

    assert found.dlsn == DLSN(first.answer.segment, first.answer.entry, 0)
    assert found.sequence == 0
    assert raised.value.outcome == "duplicate"
    assert receipt.sequence == 1


async def test_only_records_of_a_regional_stream_can_be_local_only(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
    ):
        await create(log)
        await log.create_stream("shop/everywhere")
        async with log.open_writer("shop/everywhere") as writer:
            with pytest.raises(geolog.InvalidArgumentError, match="is global"):
                await writer.append(b"v", local_only=True)
            await writer.append(b"v")
        async with log.open_writer(STREAM) as writer:
            with pytest.raises(geolog.InvalidArgumentError, match="transaction id, 5"):
                await writer.append(b"v", local_only=True, transaction_id=5)


async def test_a_reader_abroad_gets_gaps_at_home_too_and_a_proxy_takes_local_only_records(
    autojump_clock: MockClock,
) -> None:
    """There is no relay, so the mirror is empty, and readers of its region read at home."""
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        open_proxy(cluster, "east", HOME),
        cluster.open_client(HOME, host="writer", via="proxy") as east,
        cluster.open_client(TARGET) as west,
        cluster.open_client(None) as anywhere,
    ):
        await create(east)
        await append_some(east)
        in_east, in_west, in_some = [await items_in(one) for one in (east, west, anywhere)]
        async with west.open_reader(STREAM, cursor="c") as reader:
            by_cursor = [one async for one in reader.items()]
        async with west.open_reader(STREAM, cursor="c") as reader:
            again = [one async for one in reader.items()]
        _, spans = await west.spans_between(STREAM, start=geolog.AtSequence(3))

    whole = [b"0", SECRET, b"2", SECRET, SECRET, b"5", b"6", SECRET]
    assert in_short(in_east) == in_short(in_some) == whole
    assert in_short(in_west) == [b"0", (1, 2), b"2", (3, 5), b"5", b"6", (7, 8)]
    assert in_short(by_cursor) == in_short(in_west)
    assert again == []
    assert [(one.first, one.end) for one in spans] == [(3, 8)]


async def test_a_failover_brings_no_local_only_records_from_the_old_home(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as east,
        cluster.open_client(TARGET) as west,
    ):
        await create(east)
        await append_some(east)
        report = await west.failover(STREAM, to=TARGET)
        await assert_nothing_left(east)
        in_west = await items_in(west)

    assert report.is_nothing_lost
    assert in_short(in_west) == [b"0", (1, 2), b"2", (3, 5), b"5", b"6", (7, 8)]


async def test_an_export_of_what_a_failover_left_behind_leaves_local_only_records_out(
    autojump_clock: MockClock,
) -> None:
    left_counts: list[int] = []
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        open_proxy(cluster, "west", TARGET),
        cluster.open_client(HOME, host="exporter", via="proxy") as east,
        cluster.open_client(TARGET) as west,
        cluster.open_client(HOME) as first,
    ):
        await create(first)
        await append_some(first)
        await relay(west, count=1)
        await cluster.kill_region(HOME)
        await west.failover(STREAM, to=TARGET)
        await cluster.restart_region(HOME)
        async with east.partition_opener.open_mirror(
            await record_of(east), (await record_of(east)).log_in(HOME, 0), Durable()
        ):
            pass  # It is cut, and the rest is kept aside.
        (kept,) = await east.list_divergences(STREAM)
        async with east.open_divergence(STREAM, kept.name) as reader:
            in_east = in_short([one async for one in reader.items()])
        async with west.open_divergence(STREAM, kept.name) as reader:
            in_west = in_short([one async for one in reader.items()])
        count = await east.export_divergence(
            STREAM, kept.name, into=STREAM, left_out=left_counts.append
        )
        again = await west.export_divergence(
            STREAM, kept.name, into=STREAM, left_out=left_counts.append
        )
        exported = in_short(await items_in(west))

    assert in_east == [SECRET, b"2", SECRET, SECRET, b"5", b"6", SECRET]
    assert in_west == [(1, 2), b"2", (3, 5), b"5", b"6", (7, 8)]
    assert (count, again) == (3, 3)
    assert left_counts.count(4) == 2
    assert exported == [b"0", b"2", b"5", b"6"]
