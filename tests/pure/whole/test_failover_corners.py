"""Mirrors that begin later, cuts that were interrupted, homes that trimmed: nothing is lost.

Owners, mirrors and nodes are the real ones; network, disks and metadata are in memory.
"""

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog import EARLIEST, LATEST, AtSequence
from geolog.catalog import kept_rests
from geolog.catalog.kept_rests import KeptRests
from tests.pure.whole.mirroring import (
    HOME,
    STREAM,
    TARGET,
    Durable,
    entries_of,
    record_of,
    relayed,
    rows_of,
)
from tests.pure.whole.test_failover import (
    MARS,
    Site,
    append,
    numbered,
    open_site,
    push,
    relay,
    values,
)


async def add_west_later(site: Site) -> None:
    """Ten records, of which the mirror in the west, added then, is to begin with the last."""
    await site.east.update_stream(STREAM, relay_to=[MARS])
    await append(site.east, range(5))
    await append(site.east, range(5, 10))
    await site.east.update_stream(STREAM, relay_to=[MARS, TARGET], relay_from=LATEST)


async def test_a_mirror_that_begins_later_than_its_home_does_not_become_the_home_by_plan(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        await add_west_later(site)
        await relay(site.mars)
        with pytest.raises(geolog.ConflictError, match="would lack them for good"):
            await site.east.switch_over(STREAM, to=TARGET)


async def test_a_failover_prefers_a_mirror_that_has_the_older_records_too(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        await add_west_later(site)
        await relay(site.mars)
        await site.cluster.kill_region(HOME)
        plan = await site.west.plan_failover(STREAM)
        report = await site.west.failover(STREAM)
        found = await values(site.mars)

    lacking = {one.region: one.lacks_evicted for one in plan.candidates}
    assert (plan.to, lacking) == (MARS, {MARS: 0, TARGET: 5})
    assert report.home == MARS
    assert found == numbered(*range(10))


async def test_a_mirror_that_has_nothing_and_begins_later_does_not_become_the_home(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        await add_west_later(site)
        await site.cluster.kill_region(HOME)
        with pytest.raises(geolog.UnavailableError, match="has nothing yet"):
            await site.west.failover(STREAM, to=TARGET)
        await site.cluster.restart_region(HOME)
        found = await values(site.east)

    assert found == numbered(*range(10))


async def test_a_home_is_not_said_to_answer_if_only_metadata_knows_where_it_ends(
    autojump_clock: MockClock,
) -> None:
    """Its last segment is empty, so there is no last entry in it that a node could give."""
    async with open_site() as site:
        await append(site.east, range(5))
        await append(site.east, range(0))
        await relay(site.west)
        await site.cluster.kill_region(HOME)
        plan = await site.west.plan_failover(STREAM, to=TARGET)

    assert not plan.home_answers


async def test_exports_of_two_failovers_bring_every_record_once(
    autojump_clock: MockClock,
) -> None:
    """The second home begins before the first: its rest has lower sequences than the other."""
    async with open_site() as site:
        await append(site.east, range(10))
        await relay(site.west, 6)
        await relay(site.mars, 3)
        await site.cluster.kill_region(HOME)
        await site.cluster.kill_region(MARS)
        await site.west.failover(STREAM, to=TARGET)
        await append(site.west, range(20, 22))
        await site.cluster.restart_region(HOME)
        await relay(site.east)
        await site.cluster.kill_region(HOME)
        await site.cluster.kill_region(TARGET)
        await site.cluster.restart_region(MARS)
        await site.mars.failover(STREAM, to=MARS)
        await append(site.mars, range(30, 32))
        await site.cluster.restart_region(HOME)
        await relay(site.east)
        for one in await site.mars.list_divergences(STREAM):
            await site.mars.export_divergence(STREAM, one.name, into=STREAM)
        found = await values(site.mars)

    assert sorted(found) == sorted(numbered(*range(10), 20, 21, 30, 31))


async def test_a_long_export_can_be_repeated_though_its_first_batches_are_forgotten(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        await append(site.east, range(100))
        await relay(site.west, 4)
        await site.cluster.kill_region(HOME)
        await site.west.failover(STREAM, to=TARGET)
        await site.cluster.restart_region(HOME)
        await append(site.west, range(200, 201))
        await relay(site.east)
        (kept,) = await site.west.list_divergences(STREAM)
        counts = [
            await site.west.export_divergence(STREAM, kept.name, into=STREAM) for _ in range(2)
        ]
        found = await values(site.west)

    assert counts == [96, 96]
    assert sorted(found) == sorted(numbered(*range(100), 200))


async def test_a_new_home_keeps_what_a_mirror_needs_that_was_not_cut_yet(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        await append(site.east, range(10))
        await relay(site.mars)
        await relay(site.west, 4)
        await site.cluster.kill_region(HOME)
        await site.cluster.kill_region(MARS)
        await site.west.failover(STREAM, to=TARGET)
        await site.west.update_stream(STREAM, relay_to=[MARS])
        for number in range(20, 40, 4):
            await append(site.west, range(number, number + 4))
        await site.west.truncate_stream(STREAM, before=AtSequence(9))
        await site.cluster.restart_region(MARS)
        await relay(site.mars)
        found = await values(site.mars)

    assert found[-20:] == numbered(*range(20, 40))


async def test_a_home_that_trimmed_beyond_the_fork_keeps_what_it_has_readable(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        await site.east.update_stream(STREAM, relay_to=[TARGET], relay_evict_bytes=1)
        for number in range(0, 12, 2):
            await append(site.east, range(number, number + 2))
        await relay(site.west, 1)
        await site.east.truncate_stream(STREAM, before=AtSequence(6))
        first = (await rows_of(site.east, (await record_of(site.east)).log_in(HOME, 0)))[0]
        await site.cluster.kill_region(HOME)
        await site.west.failover(STREAM, to=TARGET)
        await append(site.west, range(30, 32))
        await site.cluster.restart_region(HOME)
        await relay(site.east)
        (kept,) = await site.west.list_divergences(STREAM)
        async with site.west.open_divergence(STREAM, kept.name) as reader:
            aside = [one.sequence async for one in reader]

    assert aside == list(range(first.first_sequence, 12))
    assert kept.records == len(aside)


async def test_a_cut_that_was_interrupted_before_another_failover_loses_nothing(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second fork is at the place of the first, so the rest goes under its name."""
    async with open_site() as site:
        for number in range(0, 12, 2):
            await append(site.east, range(number, number + 2))
        await relay(site.west, 1)
        await relay(site.mars, 1)
        await site.cluster.kill_region(HOME)
        await site.west.failover(STREAM, to=TARGET)
        await relay(site.mars)
        await site.cluster.restart_region(HOME)
        monkeypatch.setattr(kept_rests, "_ROWS_AT_ONCE_MAX", 2)
        step, calls = vars(KeptRests)["_step"], []

        async def crash_behind_the_first(rests: KeptRests, *args: object) -> None:
            calls.append(args)
            if len(calls) > 1:
                raise geolog.UnavailableError("crashed here")
            await step(rests, *args)

        monkeypatch.setattr(KeptRests, "_step", crash_behind_the_first)
        with pytest.raises(geolog.UnavailableError, match="crashed here"):
            await relay(site.east)
        monkeypatch.setattr(KeptRests, "_step", step)
        await site.cluster.kill_region(TARGET)
        await site.cluster.kill_region(HOME)
        await site.mars.failover(STREAM, to=MARS)
        await site.cluster.restart_region(HOME)
        await append(site.mars, range(30, 32))
        await relay(site.east)
        aside: list[bytes] = []
        for one in await site.mars.list_divergences(STREAM):
            async with site.mars.open_divergence(STREAM, one.name) as reader:
                aside += [record.value async for record in reader]
        found = await values(site.east)

    assert sorted(aside + found) == sorted(numbered(*range(12), 30, 31))


async def follow(log: geolog.Log) -> None:
    """Bring the mirror in the client's region to the home's end, and trim it as its home is."""
    await relay(log)
    record = await record_of(log)
    name = record.log_in(log.region, 0)
    async with log.partition_opener.open_mirror(record, name, Durable()):
        await trio.sleep(2)


async def test_older_records_that_a_new_home_never_got_are_told_and_stay_where_they_are(
    autojump_clock: MockClock,
) -> None:
    """West begins later and becomes the home; east and mars keep what only they have."""
    async with open_site() as site:
        await add_west_later(site)
        await relay(site.mars)
        plan = await site.east.plan_failover(STREAM, to=TARGET)
        report = await site.west.failover(STREAM, to=TARGET)
        await append(site.west, range(10, 12))
        await follow(site.east)
        await follow(site.mars)
        in_west = await values(site.west)
        with pytest.raises(geolog.ConflictError, match="the home never had records 0 to 4"):
            await site.west.resync_relay(STREAM, target=MARS)
        in_east, in_mars = await values(site.east), await values(site.mars)
        back = await site.east.failover(STREAM, to=HOME)
        at_home_again = await values(site.west)

    assert [one.older_records for one in plan.ranges] == [5]
    assert plan.at_risk.records == 5
    assert (report.is_nothing_lost, report.ranges[0].older_records) == (False, 5)
    assert report.at_risk.records == 5
    assert in_west == numbered(*range(5, 12))
    assert in_east == in_mars == numbered(*range(12))
    assert back.is_nothing_lost
    assert at_home_again == numbered(*range(12))


async def test_a_target_that_is_added_to_a_home_without_older_records_begins_as_late(
    autojump_clock: MockClock,
) -> None:
    """Else it would seem to have them, and the copies that are left could be thrown away."""
    async with open_site() as site:
        await add_west_later(site)
        await site.east.update_stream(STREAM, relay_to=[TARGET])
        await site.west.failover(STREAM, to=TARGET)
        await append(site.west, range(10, 12))
        await follow(site.east)
        await site.west.update_stream(STREAM, relay_to=[HOME, MARS])
        record = await record_of(site.mars)
        in_mars = record.log_in(MARS, 0)
        kept = (await entries_of(site.west, record.partition(0)))[5:]
        opener = site.mars.partition_opener
        async with opener.open_mirror(record, in_mars, Durable()) as mirror:
            await push(mirror, relayed(kept, behind=None))
            await trio.sleep(2)
        trim = await site.mars.access.partitions.trims.read(in_mars)
        async with site.mars.open_reader(STREAM, start=AtSequence(3)) as reader:
            first = await anext(reader.items())
        await site.mars.failover(STREAM, to=MARS)
        with pytest.raises(geolog.ConflictError, match="the home never had records 0 to 4"):
            await site.mars.resync_relay(STREAM, target=HOME)

    assert trim.first_sequence == 5
    assert isinstance(first, geolog.Gap)
    assert (first.from_sequence, first.to_sequence) == (3, 5)


async def test_older_records_that_a_new_home_never_got_go_once_it_is_trimmed_itself(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        await add_west_later(site)
        await relay(site.mars)
        await site.west.failover(STREAM, to=TARGET)
        await append(site.west, range(10, 12))
        for log in (site.east, site.mars):
            await relay(log)
        await site.west.truncate_stream(STREAM, before=AtSequence(3))
        await follow(site.east)
        before = await values(site.east)
        await site.west.truncate_stream(STREAM, before=AtSequence(8))
        await follow(site.east)
        after = await values(site.east)

    assert before == numbered(*range(3, 12))
    assert after == numbered(*range(8, 12))


async def test_older_records_that_a_new_home_never_got_are_truncated_where_they_are(
    autojump_clock: MockClock,
) -> None:
    """The new home begins with record 5; only a sequence names one that it does not have."""
    async with open_site() as site:
        await add_west_later(site)
        await relay(site.mars)
        await site.west.failover(STREAM, to=TARGET)
        await append(site.west, range(10, 12))
        for log in (site.east, site.mars):
            await relay(log)
        home = (await record_of(site.west)).partition(0)
        await site.west.truncate_stream(STREAM, before=EARLIEST)
        await follow(site.east)
        all_of_it = await values(site.east)
        first = await site.west.truncate_stream(STREAM, before=AtSequence(4))
        await follow(site.east)
        before = await values(site.east)
        await site.west.truncate_stream(STREAM, before=AtSequence(5))
        trim = await site.west.access.partitions.trims.read(home)
        await site.east.failover(STREAM, to=HOME)
        await follow(site.mars)
        in_east, in_mars = await values(site.east), await values(site.mars)

    assert all_of_it == numbered(*range(12))
    assert (first, before) == ({0: 5}, numbered(*range(4, 12)))
    assert (trim.first_sequence, trim.lacks_from) == (5, None)
    assert in_east == in_mars == numbered(*range(5, 12))


async def test_what_a_fork_left_behind_is_kept_aside_before_a_mirror_is_begun_again(
    autojump_clock: MockClock,
) -> None:
    """The lost home is back, and no relay has opened its mirror yet."""
    async with open_site() as site:
        await append(site.east, range(10))
        await relay(site.west, 4)
        await site.cluster.kill_region(HOME)
        await site.west.failover(STREAM, to=TARGET)
        await site.cluster.restart_region(HOME)
        with pytest.raises(geolog.ConflictError, match="that a failover left behind"):
            await site.west.resync_relay(STREAM, target=HOME)
        await relay(site.east)
        await site.west.resync_relay(STREAM, target=HOME)
        (kept,) = await site.west.list_divergences(STREAM)

    assert (kept.from_sequence, kept.to_sequence) == (4, 10)
