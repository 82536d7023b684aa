"""A stream that evicts: a mirror that lacks too much goes on behind a gap, which is told."""

import random
from contextlib import suppress

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

import geolog
from geolog.client.reading.gone import TrimmedRun
from geolog.client.reading.read_range import Begin
from geolog.client.reading.walk import Chunk, open_walk
from geolog.ledger.ledger_metadata import NoSuchLedgerError
from geolog.partition.mirror_writer import EvictedError
from geolog.protocol.ids import Sequence
from geolog.protocol.stream_state import PartitionName, SequenceGap, TrimRecord
from sim.fakes.memory_metadata import MemoryMetadata
from sim.in_process import open_in_process_cluster
from tests.pure.relay.test_bridges import open_home, open_target, wait_equal
from tests.pure.whole.clusters import append_each, ended_by
from tests.pure.whole.distant_metadata import TRIP_S, open_distant_client
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
    open_mirror,
    record_of,
    relay,
    relayed,
    rows_of,
)
from topology.errors import NoSuchStreamError

_SEGMENT_BYTES = 64 << 10
_VALUE_BYTES = 30_000
"""Two of these fill a segment."""


@attrs.define
class Writing:
    """Writes values that cannot be compressed, one in each entry."""

    log: geolog.Log
    rng: random.Random = attrs.field(factory=lambda: random.Random(1))
    values: list[bytes] = attrs.field(factory=list)

    async def append(self, count: int) -> None:
        values = [self.rng.randbytes(_VALUE_BYTES) for _ in range(count)]
        async with self.log.open_writer(STREAM) as writer:
            for value in values:
                await append_each(writer, [value])
        self.values += values


@attrs.define
class Reading:
    """All that a reader which follows the stream in the target's region was given."""

    start: geolog.Bound = geolog.EARLIEST
    items: list[geolog.Record | geolog.Gap] = attrs.field(factory=list)
    given: trio.Event = attrs.field(factory=trio.Event)

    async def follow(self, log: geolog.Log) -> None:
        async with log.open_reader(STREAM, start=self.start, follow=True) as reader:
            async for item in reader.items():
                self.items.append(item)
                self.given.set()

    async def wait(self, sequence: int) -> None:
        with trio.fail_after(120):
            while not self.sequences or self.sequences[-1] < sequence:
                self.given = trio.Event()
                await self.given.wait()

    @property
    def gaps(self) -> list[geolog.Gap]:
        return [one for one in self.items if isinstance(one, geolog.Gap)]

    @property
    def sequences(self) -> list[int]:
        return [one.sequence for one in self.items if isinstance(one, geolog.Record)]


async def test_a_mirror_that_was_away_for_too_long_goes_on_behind_a_gap(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        cluster.open_client(TARGET) as there,
        trio.open_nursery() as nursery,
    ):
        await create(log, segment_bytes=_SEGMENT_BYTES, evict_bytes=4 * _VALUE_BYTES)
        writing, reading, late = Writing(log), Reading(), Reading(geolog.LATEST)
        async with open_home(cluster) as home:
            async with open_target(cluster):
                await writing.append(6)
                await wait_equal(log)
                nursery.start_soon(reading.follow, there)
                await reading.wait(5)
                nursery.start_soon(late.follow, there)
                await trio.sleep(5)
            await writing.append(20)
            await log.truncate_stream(STREAM, before=geolog.AtSequence(20))
            described = await log.describe_stream(STREAM)
            async with open_target(cluster, relay_epoch=2):
                await wait_equal_behind(log)
                await writing.append(2)
                await reading.wait(27)
                await late.wait(27)
                described_then = await log.describe_stream(STREAM)
                report = await log.verify_stream(STREAM)
            alarms = [alarm for bridge in home.served for alarm in bridge.alarms]
        nursery.cancel_scope.cancel()

    [gap] = reading.gaps
    assert (gap.reason, gap.from_sequence) == (geolog.GapReason.EVICTED, 6)
    first = gap.to_sequence
    # At most four values before the truncation were kept for the mirror.
    assert 14 <= first <= 20
    assert described.partition_list[0].first_sequence == first
    assert reading.sequences == [*range(6), *range(first, 28)]
    assert (late.gaps, late.sequences) == ([gap], [*range(first, 28)])
    assert [mirror.evicted for mirror in described.mirror_list] == [None]
    assert [mirror.evicted for mirror in described_then.mirror_list] == [f"6-{first - 1}"]
    assert report.is_good
    assert alarms == []


async def wait_equal_behind(log: geolog.Log) -> None:
    """Wait until the mirror ends as its home does, and equals it where both have entries."""
    with trio.fail_after(60):
        while True:
            with suppress(NoSuchLedgerError):  # A row was listed, and trimmed since.
                at_home = [one.data for one in await entries_of(log, await home_of(log))]
                mirrored = [one.data for one in await entries_of(log, await mirror_of(log))]
                both = min(len(mirrored), len(at_home))
                if both and mirrored[-both:] == at_home[-both:]:
                    return
            await trio.sleep(0.1)


async def test_a_mirror_that_is_paused_but_open_goes_on_behind_the_gap_as_well(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        cluster.open_client(TARGET) as there,
        open_home(cluster),
        open_target(cluster),
    ):
        await create(log, segment_bytes=_SEGMENT_BYTES, evict_bytes=_VALUE_BYTES)
        writing = Writing(log)
        await writing.append(6)
        await wait_equal(log)
        await log.pause_relay(STREAM)
        await trio.sleep(5)
        await writing.append(10)
        await log.truncate_stream(STREAM, before=geolog.AtSequence(12))
        await log.resume_relay(STREAM)
        await wait_equal_behind(log)
        async with there.open_reader(STREAM) as reader:
            items = [one async for one in reader.items()]
        async with there.open_reader(STREAM, start=geolog.AtSequence(2)) as reader:
            earlier = [one async for one in reader.items()]

    records = [one for one in items if isinstance(one, geolog.Record)]
    assert [one.value for one in records] == writing.values[records[0].sequence :]
    assert {one.origin for one in records} == {HOME}
    gaps = [one for one in earlier if isinstance(one, geolog.Gap)]
    begin = records[0].sequence
    assert [(one.reason.value, one.from_sequence, one.to_sequence) for one in gaps] == [
        ("trimmed", 2, 6),
        ("evicted", 6, begin),
    ]


async def test_an_empty_mirror_learns_of_a_gap_before_its_first_entry_is_written(
    autojump_clock: MockClock,
) -> None:
    """Its owner was far from metadata, and had not heard yet that the home evicted."""
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as home,
        open_distant_client(cluster, is_read_nearby=False, region=TARGET) as far,
    ):
        await create(home, segment_bytes=_SEGMENT_BYTES, evict_bytes=1)
        await Writing(home).append(10)
        record, name = await record_of(home), await mirror_of(home)
        with ended_by(EvictedError):
            async with far.log.partition_opener.open_mirror(record, name, Durable()) as mirror:
                await trio.sleep(5)
                await home.truncate_stream(STREAM, before=geolog.AtSequence(7))
                for entry in relayed(await entries_of(home, await home_of(home)), behind=None):
                    mirror.push(entry)
        rows = await rows_of(home, name)
        await relay(far.log)
        trim = await home.access.partitions.trims.read_latest(name)

    assert rows == []
    assert trim.gap == SequenceGap(Sequence(0), Sequence(6))  # A segment begins there.


async def test_a_mirror_may_end_while_it_learns_where_to_begin(
    autojump_clock: MockClock,
) -> None:
    """It had an entry to write, asked metadata for gaps, and its stream was deleted."""
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as home,
        open_distant_client(cluster, is_read_nearby=False, region=TARGET) as far,
    ):
        await create(home)
        await Writing(home).append(1)
        record, name = await record_of(home), await mirror_of(home)
        entries = relayed(await entries_of(home, await home_of(home)), behind=None)
        with ended_by(NoSuchStreamError):
            async with far.log.partition_opener.open_mirror(record, name, Durable()) as mirror:
                mirror.push(next(iter(entries)))
                await trio.sleep(TRIP_S / 2)
                mirror.end(NoSuchStreamError("shop/carts was deleted"))
                await trio.sleep(10 * TRIP_S)
        rows = await rows_of(home, name)

    assert rows == []


async def test_a_mirror_of_a_sealed_stream_that_evicted_all_is_sealed_as_well(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as home,
        cluster.open_client(TARGET) as log,
    ):
        await create(home, segment_bytes=_SEGMENT_BYTES, evict_bytes=1)
        await Writing(home).append(3)
        async with home.open_writer(STREAM):
            pass  # Opens a segment behind them.
        begun = await home.truncate_stream(STREAM, before=geolog.LATEST)
        await home.seal_stream(STREAM)
        async with open_home(cluster), open_target(cluster):
            with trio.fail_after(60):
                async with log.open_reader(STREAM, follow=True) as reader:
                    items = [one async for one in reader.items()]
                await wait_sealed(home, await mirror_of(home))

    assert begun == {0: 3}
    assert items == []


async def test_a_mirror_that_waits_for_the_end_of_a_sealed_home_goes_on_behind_a_gap(
    autojump_clock: MockClock,
) -> None:
    """The home evicts what the mirror lacks after the mirror has begun to wait for it."""
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        cluster.open_client(TARGET) as there,
        open_home(cluster),
        open_target(cluster),
    ):
        await create(log, segment_bytes=_SEGMENT_BYTES, evict_bytes=_VALUE_BYTES)
        writing = Writing(log)
        await writing.append(6)
        await wait_equal(log)
        await log.pause_relay(STREAM)
        await trio.sleep(5)
        await writing.append(10)
        await log.seal_stream(STREAM)
        await trio.sleep(5)
        await log.truncate_stream(STREAM, before=geolog.AtSequence(12))
        await log.resume_relay(STREAM)
        with trio.fail_after(60):
            await wait_sealed(log, await mirror_of(log))
        async with there.open_reader(STREAM) as reader:
            values = [one.value async for one in reader]

    assert values == writing.values[-len(values) :]
    assert 4 <= len(values) < 10


async def wait_sealed(log: geolog.Log, name: PartitionName) -> None:
    while True:
        if (await log.access.partitions.owners.read_latest(name)).record.is_sealed:
            return
        await trio.sleep(0.1)


async def test_a_read_whose_mirror_is_begun_again_meanwhile_ends_behind_the_gap(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as home,
        cluster.open_client(TARGET) as log,
    ):
        await create(home, segment_bytes=_SEGMENT_BYTES, evict_bytes=1)
        writing = Writing(home)
        await writing.append(5)
        await relay(log)
        scan = log._scan(await record_of(log), await mirror_of(log))  # noqa: SLF001
        async with open_walk(scan, Begin(), await scan.end()) as walk:
            first = await walk.next_chunk()
            await writing.append(10)
            await home.truncate_stream(STREAM, before=geolog.AtSequence(12))
            async with open_mirror(log):
                pass  # It begins again, and its relay sends it nothing yet.
            rest = [await walk.next_chunk() for _ in range(3)]
        trim = await home.access.partitions.trims.read_latest(await mirror_of(home))

    assert isinstance(first, Chunk)
    due = first.entries[-1].decoded.header.next_sequence
    assert 0 < due < 5
    assert rest == [
        TrimmedRun(due, 5),
        TrimmedRun(5, trim.evicted_before, is_evicted=True),
        None,
    ]


async def test_a_mirror_whose_open_row_ends_where_it_was_let_go_on_goes_on(
    autojump_clock: MockClock,
) -> None:
    """The next relay finds its last entry at home, to compare."""
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as home,
        open_target(cluster),
    ):
        await create(home, segment_bytes=_SEGMENT_BYTES, evict_bytes=1)
        writing = Writing(home)
        async with open_home(cluster):
            await writing.append(3)
            await wait_equal(home)
        [*_, open_row] = await rows_of(home, await mirror_of(home))
        for _ in range(2):
            await writing.append(2)  # Each opens a segment.
        begun = await home.truncate_stream(STREAM, before=geolog.AtSequence(4))
        async with open_home(cluster):
            await wait_equal_behind(home)
        trim = await home.access.partitions.trims.read_latest(await mirror_of(home))

    assert not open_row.is_completed
    assert begun == {0: 3}
    assert (trim.evicted_before, trim.gap) == (3, None)


async def test_nothing_is_skipped_by_a_mirror_that_has_it(autojump_clock: MockClock) -> None:
    """Its open ledger may have what the home believes to be missing."""
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as home,
        cluster.open_client(TARGET) as log,
        open_home(cluster),
    ):
        await create(home, segment_bytes=64 << 20, evict_bytes=1)
        writing = Writing(home)
        async with open_target(cluster):
            for _ in range(3):
                await writing.append(1)  # Each opens a segment.
            await wait_equal(home)
            await home.pause_relay(STREAM)
            await trio.sleep(5)
            [*_, open_row] = await rows_of(log, await mirror_of(log))
            await writing.append(2)
            begun = await home.truncate_stream(STREAM, before=geolog.AtSequence(4))
            await home.resume_relay(STREAM)
            await wait_equal_behind(home)
            trim = await log.access.partitions.trims.read_latest(await mirror_of(log))

    assert (open_row.first_sequence, open_row.is_completed) == (2, False)
    assert begun == {0: 3}
    assert (trim.evicted_before, trim.gap) == (3, None)


async def test_mirrors_within_the_bound_hold_the_home_and_lose_nothing(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as home,
        cluster.open_client(TARGET) as log,
    ):
        await create(home, segment_bytes=_SEGMENT_BYTES, evict_bytes=1 << 20)
        writing = Writing(home)
        await writing.append(10)
        held = await home.truncate_stream(STREAM, before=geolog.AtSequence(9))
        await relay(log)
        mirrored = await entries_of(log, await mirror_of(log))
        at_home = await entries_of(home, await home_of(home))
        freed = await home.truncate_stream(STREAM, before=geolog.AtSequence(8))
        trim = await log.access.partitions.trims.read_latest(await mirror_of(log))

    assert held == {0: 0}
    assert [one.data for one in mirrored] == [one.data for one in at_home]
    assert freed == {0: 8}
    assert (trim.evicted_before, trim.gap) == (0, None)


async def test_bounds_that_say_nothing_are_refused(autojump_clock: MockClock) -> None:
    async with open_in_process_cluster(REGIONS) as cluster, cluster.open_client(HOME) as log:
        with pytest.raises(geolog.InvalidArgumentError, match="must be positive, got 0"):
            await log.create_stream(STREAM, mode="regional", home=HOME, relay_evict_bytes=0)
        with pytest.raises(geolog.InvalidArgumentError, match="'global' is not relayed"):
            await log.create_stream(STREAM, mode="global", relay_evict_bytes=1)


_SEQUENCES = st.integers(0, 30).map(Sequence)


@given(st.tuples(_SEQUENCES, _SEQUENCES), st.tuples(_SEQUENCES, _SEQUENCES))
def test_each_sequence_that_is_gone_is_in_one_part_with_its_reason(
    run: tuple[Sequence, Sequence], gap: tuple[Sequence, Sequence]
) -> None:
    (first, end), (low, high) = sorted(run), sorted(gap)
    parts = TrimRecord(gap=SequenceGap(low, high)).parts_of(first, end)

    told = {
        sequence: is_evicted
        for begin, until, is_evicted in parts
        for sequence in range(begin, until)
    }
    assert told == {one: low <= one < high for one in range(first, end)}
    assert sum(until - begin for begin, until, _ in parts) == end - first


async def test_an_owner_that_hears_late_that_its_home_holds_all_evicts_nothing_more(
    autojump_clock: MockClock,
) -> None:
    sessions: list[MemoryMetadata] = []
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        cluster.open_client(HOME, host="late", on_session=sessions.append) as late,
    ):
        await create(log, segment_bytes=_SEGMENT_BYTES, evict_bytes=_VALUE_BYTES)
        await Writing(log).append(12)
        name = await home_of(late)
        sessions[0].lag()
        await log.update_stream(STREAM, relay_evict_bytes=None)
        begin = await late.partition_opener.upkeep.truncate(name, 12)

    assert begin == 0, "the mirror has nothing yet"
