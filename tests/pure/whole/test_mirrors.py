"""A mirror becomes its home's log byte for byte, however often its owner changes."""

import random
from collections import Counter

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.partition.mirror_entry import MirrorEntry
from geolog.protocol.mirror_course import MirrorDivergedError, NotBehindError
from geolog.wire.entry import EntryKind, decode_entry, encode_entry
from sim.in_process import InProcessCluster, open_in_process_cluster
from tests.pure.whole.clusters import append_each, ended_by, numbered
from tests.pure.whole.mirroring import (
    HOME,
    REGIONS,
    STREAM,
    TARGET,
    Durable,
    StoredEntry,
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
from tests.pure.wire.samples import batch_of_values, entry_of

_ROLLING_BYTES = 64 * 1024


async def write_home(log: geolog.Log, rng: random.Random, *, owners_count: int) -> None:
    """Write with several owners: full and empty segments, snapshots, named writers."""
    for owner in range(owners_count):
        writer_id = rng.choice([None, "till", "shop"])
        async with log.open_writer(STREAM, writer_id=writer_id) as writer:
            if owner % 3 == 1:
                continue  # Its segment stays empty, but for the fence of a session.
            for _ in range(rng.randrange(1, 4)):
                count = rng.choice([1, 3, 12])
                values = [rng.randbytes(rng.choice([10, 9_000])) for _ in range(count)]
                await append_each(writer, values)


async def check_equal(log: geolog.Log) -> None:
    """The mirror has the home's entries; its rows are consistent with them."""
    at_home = await entries_of(log, await home_of(log))
    mirrored = await entries_of(log, await mirror_of(log))
    assert [one.mark for one in mirrored] == [one.mark for one in at_home]
    assert [one.data for one in mirrored] == [one.data for one in at_home]
    rows = await rows_of(log, await mirror_of(log))
    assert [row.row for row in rows] == list(range(1, len(rows) + 1))
    at_homes = {row.segment: row for row in await rows_of(log, await home_of(log))}
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        begin = at_homes[row.segment]
        if row.first_entry == 0:
            assert row.first_sequence == begin.first_sequence
            assert row.size_bytes_before == begin.size_bytes_before
            assert row.append_time_us_before == begin.append_time_us_before
            assert row.transaction_id_before == begin.transaction_id_before
        if following is not None:
            assert row.last_sequence == following.first_sequence - 1
            assert row.size_bytes_through == following.size_bytes_before


@pytest.mark.long
async def test_a_mirror_equals_its_home_after_takeovers_at_any_place(
    autojump_clock: MockClock,
) -> None:
    sometimes: Counter[str] = Counter()
    for seed in range(6):
        rng = random.Random(seed)
        async with open_in_process_cluster(REGIONS, seed=seed) as cluster:
            async with cluster.open_client(HOME) as log:
                await create(log, segment_bytes=_ROLLING_BYTES)
                await write_home(log, rng, owners_count=6)
            await relay_with_takeovers(cluster, rng, sometimes)
            async with cluster.open_client(TARGET) as log:
                await check_equal(log)
                note_rows(
                    sometimes, [r.segment for r in await rows_of(log, await mirror_of(log))]
                )
                for one in await entries_of(log, await home_of(log)):
                    sometimes[decode_entry(one.data).header.kind.name] += 1
                home_rows = await rows_of(log, await home_of(log))
                sometimes["empty at home"] += any(row.last_entry == -1 for row in home_rows)

    assert set(sometimes) >= {
        "left in good order",
        "taken over while it wrote",
        "taken over in mid-segment",
        "empty at home",
        EntryKind.CONTROL.name,
    }


def note_rows(sometimes: Counter[str], segments: list[int]) -> None:
    sometimes["taken over in mid-segment"] += len(segments) > len(set(segments))


async def relay_with_takeovers(
    cluster: InProcessCluster, rng: random.Random, sometimes: Counter[str]
) -> None:
    """Relay the whole log, one owner after another; some are fenced while they write."""
    for process in range(100):
        async with cluster.open_client(TARGET, host=f"relay-{process}") as log:
            entries = await entries_of(log, await home_of(log))
            if process % 2 == 0 and process < len(entries):
                with ended_by(geolog.FencedError):
                    await push_until_fenced(cluster, log, entries, rng.randrange(1, 8))
                sometimes["taken over while it wrote"] += 1
                continue
            heard = Durable()
            async with open_mirror(log, heard) as mirror:
                left = relayed(entries, behind=mirror.watermark)
                for entry in left[: rng.randrange(1, 8)]:
                    mirror.push(entry)
                    mirror.push(entry)  # A repeat, while the first is on its way.
                await mirror.wait_durable()
            if not left:
                return
            assert heard.marks == sorted(heard.marks)
            assert heard.marks[-1] == mirror.watermark
            sometimes["left in good order"] += 1
    raise AssertionError("the mirror never reached its home's end")


async def push_until_fenced(
    cluster: InProcessCluster, log: geolog.Log, entries: list[StoredEntry], count: int
) -> None:
    heard = Durable()
    async with open_mirror(log, heard) as mirror:
        left = relayed(entries, behind=mirror.watermark)
        for entry in left[:count]:
            mirror.push(entry)
        with trio.move_on_after(0.01):
            await heard.moved.wait()
        async with (
            cluster.open_client(TARGET, host="thief") as other,
            open_mirror(other) as thief,
        ):
            found = thief.watermark
        for entry in left[count:] or left[-1:]:
            mirror.push(entry)
        await trio.sleep(1)
        if mirror.failure is None:  # It was idle, and had nothing left to write.
            raise geolog.FencedError(f"{mirror} has not noticed yet")
        assert not heard.marks or (found is not None and heard.marks[-1] <= found)


async def test_the_watermark_is_rebuilt_from_the_mirror_alone(
    autojump_clock: MockClock,
) -> None:
    async with open_in_process_cluster(REGIONS) as cluster:
        async with cluster.open_client(HOME) as log:
            await create(log)
            for _ in range(2):
                async with log.open_writer(STREAM) as writer:
                    await append_each(writer, numbered(3))
        await cluster.kill_region(HOME)
        await cluster.restart_region(HOME)
        async with cluster.open_client(TARGET) as log:
            entries = await entries_of(log, await home_of(log))
            for count in range(len(entries)):
                async with open_mirror(log) as mirror:
                    assert mirror.watermark == (entries[count - 1].mark if count else None)
                    mirror.push(relayed(entries, behind=mirror.watermark)[0])
            await cluster.kill_region(HOME)
            async with open_mirror(log) as mirror:
                last = mirror.watermark

    assert last == entries[-1].mark


async def test_a_mirror_goes_on_in_other_ledgers_while_its_nodes_fail(
    autojump_clock: MockClock,
) -> None:
    async with open_in_process_cluster(REGIONS) as cluster:
        async with cluster.open_client(HOME) as log:
            await create(log)
            async with log.open_writer(STREAM) as writer:
                for value in numbered(12):
                    await writer.append(value)
        async with cluster.open_client(TARGET) as log:
            entries = relayed(await entries_of(log, await home_of(log)), behind=None)
            killed = ""
            async with open_mirror(log) as mirror:
                for number, entry in enumerate(entries):
                    mirror.push(entry)
                    if number % 4 == 1:
                        await mirror.wait_durable()
                        (row,) = (await rows_of(log, mirror.name))[-1:]
                        ledger = (await log.access.ledgers.read(row.ledger)).record
                        killed = ledger.fragments[-1].ensemble[0].node_id
                        await cluster.kill(killed)
                    if number % 4 == 3:
                        await mirror.wait_durable()
                        await cluster.start(killed)
            await check_equal(log)


async def test_the_mirror_refuses_what_does_not_follow_and_stops_at_what_differs(
    autojump_clock: MockClock,
) -> None:
    async with open_in_process_cluster(REGIONS) as cluster:
        async with cluster.open_client(HOME) as log:
            await create(log)
            async with log.open_writer(STREAM) as writer:
                for value in numbered(4):
                    await writer.append(value)
        async with cluster.open_client(TARGET) as log:
            stored = await entries_of(log, await home_of(log))
            first, second, third, _ = relayed(stored, behind=None)
            with ended_by(MirrorDivergedError):
                async with open_mirror(log) as mirror:
                    with pytest.raises(NotBehindError):
                        mirror.push(second)
                    mirror.push(first)
                    with pytest.raises(NotBehindError):
                        mirror.push(third)
                    mirror.push(second)
                    await mirror.wait_durable()
                    mirror.push(first)
                    statistics = mirror.statistics()
                    changed = forged(stored[1].data)
                    with pytest.raises(MirrorDivergedError):
                        mirror.push(MirrorEntry.of(changed, previous=stored[0].mark))
                    with pytest.raises(MirrorDivergedError):
                        mirror.push(third)
            async with open_mirror(log) as mirror:
                assert mirror.watermark == stored[1].mark
            kept = await entries_of(log, await mirror_of(log))

    assert (statistics.taken_count, statistics.repeats_count) == (2, 1)
    assert statistics.refused_count == 2
    assert [one.data for one in kept] == [stored[0].data, stored[1].data]


def forged(data: bytes) -> bytes:
    """An entry in the same place of the log, with another record."""
    header = decode_entry(data).header
    return encode_entry(
        [batch_of_values(b"forged")],
        home_epoch=header.home_epoch,
        segment=header.segment,
        entry=header.entry,
        first_sequence=header.first_sequence,
        append_time_us=header.append_time_us,
    ).join()


async def test_damaged_bytes_never_reach_the_mirror() -> None:
    data = entry_of(batch_of_values(b"v" * 20), entry=0).join()
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1
        with pytest.raises(geolog.DamagedBytesError):
            MirrorEntry.of(bytes(damaged), previous=None)


async def test_a_mirror_is_owned_in_its_own_region_alone(autojump_clock: MockClock) -> None:
    async with open_in_process_cluster(REGIONS) as cluster, cluster.open_client(HOME) as log:
        await create(log)
        record, name = await record_of(log), await mirror_of(log)
        with ended_by(geolog.InvalidArgumentError) as ended:
            async with log.partition_opener.open_mirror(record, name, Durable()):
                pass

    assert "is written in eu-west; this process is in us-east" in str(ended.error)


async def test_a_mirror_ends_with_its_target_and_with_its_stream(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as home,
        cluster.open_client(TARGET) as log,
    ):
        await create(home)
        async with home.open_writer(STREAM) as writer:
            await append_each(writer, numbered(3))
        for ends in (home.update_stream(STREAM, relay_to=[]), home.delete_stream(STREAM)):
            entries = relayed(await entries_of(log, await home_of(log)), behind=None)
            with ended_by(geolog.NoSuchStreamError):
                async with open_mirror(log) as mirror:
                    mirror.push(entries[0])
                    await mirror.wait_durable()
                    ledgers = [row.ledger for row in await rows_of(log, mirror.name)]
                    await ends
                    mirror.push(entries[1])
                    with trio.fail_after(10):
                        await mirror.wait_failed()
            for ledger in ledgers:
                with pytest.raises(geolog.GeologError, match="does not exist"):
                    await log.access.ledgers.read_latest(ledger)
            if await home.list_streams():
                await home.update_stream(STREAM, relay_to=[TARGET])


async def test_a_mirror_whose_owner_died_as_it_sealed_it_is_closed_by_the_next(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as home,
        cluster.open_client(TARGET, host="dying") as dying,
        cluster.open_client(TARGET) as log,
    ):
        await create(home)
        async with home.open_writer(STREAM) as writer:
            await append_each(writer, numbered(3))
        entries = relayed(await entries_of(log, await home_of(log)), behind=None)
        name = await mirror_of(log)
        with ended_by(geolog.SealedError):
            async with open_mirror(dying) as mirror:
                for entry in entries:
                    mirror.push(entry)
                await mirror.wait_durable()
                await log.access.partitions.owners.seal(name)
                mirror.end(geolog.SealedError("the process dies"))
        left = await rows_of(log, name)
        end = await log.partition_opener.end_sealed_mirror(name)
        again = await log.partition_opener.end_sealed_mirror(name)
        closed = await rows_of(log, name)

    assert [row.is_completed for row in left] == [False]
    assert [row.is_completed for row in closed] == [True]
    assert end == again == entries[-1].mark


async def test_trims_follow_the_home(autojump_clock: MockClock) -> None:
    rng = random.Random(1)
    async with open_in_process_cluster(REGIONS) as cluster, cluster.open_client(HOME) as home:
        await create(home, segment_bytes=_ROLLING_BYTES)
        async with home.open_writer(STREAM) as writer:
            for _ in range(12):
                await append_each(writer, [rng.randbytes(30_000)])
        async with cluster.open_client(TARGET) as log:
            await relay(log)
            before = await rows_of(log, await mirror_of(log))
            await home.truncate_stream(STREAM, before=geolog.AtSequence(8))
            first = (await log.access.partitions.trims.read(await home_of(log))).first_sequence
            async with open_mirror(log) as mirror:
                await mirror.follow_trim(first)
                watermark = mirror.watermark
            after = await rows_of(log, await mirror_of(log))
            async with open_mirror(log) as mirror:
                again = mirror.watermark

    assert len(before) > len(after) >= 1
    assert after == before[-len(after) :]
    assert again == watermark


async def test_the_home_keeps_what_a_mirror_may_lack(autojump_clock: MockClock) -> None:
    async with open_in_process_cluster(REGIONS) as cluster, cluster.open_client(HOME) as home:
        await create(home)
        async with home.open_writer(STREAM) as writer:
            for value in numbered(10):
                await writer.append(value)
        async with cluster.open_client(TARGET) as log:
            begun = await home.truncate_stream(STREAM, before=geolog.AtSequence(7))
            await relay(log, count=4)
            held = await home.truncate_stream(STREAM, before=geolog.AtSequence(7))
            async with open_mirror(log) as mirror:
                entries = relayed(await entries_of(log, await home_of(log)), behind=None)
                for entry in entries[4:6]:
                    mirror.push(entry)
                await mirror.wait_durable()
                still = await home.truncate_stream(STREAM, before=geolog.AtSequence(7))
            await relay(log)
            freed = await home.truncate_stream(STREAM, before=geolog.AtSequence(7))

    assert (begun, held, still, freed) == ({0: 0}, {0: 3}, {0: 3}, {0: 7})


async def test_verification_compares_a_mirror_with_its_home(autojump_clock: MockClock) -> None:
    async with open_in_process_cluster(REGIONS) as cluster, cluster.open_client(HOME) as home:
        await create(home)
        async with home.open_writer(STREAM) as writer:
            for value in numbered(5):
                await writer.append(value)
        async with cluster.open_client(TARGET) as log:
            nothing_yet = await home.verify_stream(STREAM)
            await relay(log, count=3)
            good = await home.verify_stream(STREAM)
            stored = await entries_of(log, await home_of(log))
            async with open_mirror(log) as mirror:
                changed = forged(stored[3].data)
                mirror.push(MirrorEntry.of(changed, previous=stored[2].mark))
            bad = await home.verify_stream(STREAM)

    assert nothing_yet.is_good
    assert (good.is_good, good.mirrored, good.entries) == (True, 3, 8)
    assert not bad.is_good
    assert (bad.mirrored, bad.mirrors_unequal) == (4, 1)
    assert bad.mirror_problems == [
        "shop/carts#0@eu-west segment 1 entry 3: it differs from the home's"
    ]
