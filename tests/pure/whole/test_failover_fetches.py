"""A failover whose new home cannot get what it lacks: it stays, and says what would help.

Owners, mirrors and nodes are the real ones; network, disks and metadata are in memory.
"""

from functools import partial

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.partition.home_failover import FailoverReport
from sim.in_process import open_in_process_cluster
from tests.pure.relay.test_evictions import Writing
from tests.pure.whole import test_resync_and_moves as interrupting
from tests.pure.whole.mirroring import (
    HOME,
    REGIONS,
    STREAM,
    TARGET,
    create,
    home_of,
    mirror_of,
    open_mirror,
    record_of,
    rows_of,
)
from tests.pure.whole.mirroring import relay as relay_mirror
from tests.pure.whole.test_failover import (
    MARS,
    Site,
    append,
    numbered,
    open_site,
    relay,
    values,
)
from tests.pure.whole.test_resync_and_moves import STEPS_MAX, interrupted, tried


async def fail_over_while_mars_falls_silent(
    site: Site, confirmed: dict[int, int] | None = None
) -> FailoverReport:
    """Mars has what the west lacks, and its nodes are gone once that is to be fetched."""

    def tell(step: str) -> None:
        if step == f"fetching from {MARS}":
            for node in site.cluster.nodes_of(MARS):
                site.cluster.network.vanish(node.node_id)

    await append(site.east, range(10))
    await relay(site.west, 4)
    await relay(site.mars, 7)
    await site.cluster.kill_region(HOME)
    return await site.west.failover(STREAM, to=TARGET, progress=tell, confirmed=confirmed)


async def test_a_log_that_falls_silent_while_it_is_fetched_ends_the_failover(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        began_s = trio.current_time()
        with pytest.raises(geolog.UnavailableError) as given_up:
            await fail_over_while_mars_falls_silent(site)
        took_s = trio.current_time() - began_s
        before = await record_of(site.west)
        with pytest.raises(geolog.UnavailableError, match="is out of reach"):
            await site.west.failover(STREAM, to=MARS)
        report = await site.west.failover(STREAM, to=TARGET, without=[MARS])
        found = await values(site.west)

    assert "#0 would go on at sequence 4, before 7 (the log in mars could not be" in str(
        given_up.value
    )
    assert "--without mars" in str(given_up.value)
    assert took_s < 40
    assert (before.home, before.moving_to) == (HOME, "")
    assert (report.home, report.ranges[0].from_sequence) == (TARGET, 4)
    assert found == numbered(0, 1, 2, 3)


async def test_a_failover_goes_on_without_a_log_that_was_not_counted_on(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        report = await fail_over_while_mars_falls_silent(site, {0: 4})

    assert (report.home, report.ranges[0].from_sequence) == (TARGET, 4)
    assert MARS in report.out_of_reach


async def test_a_failover_that_would_lose_more_than_was_confirmed_changes_nothing(
    autojump_clock: MockClock,
) -> None:
    """Mars could be read when the failover was planned, and cannot be any more."""
    async with open_site() as site:
        await append(site.east, range(10))
        await relay(site.west, 4)
        await relay(site.mars, 7)
        await site.cluster.kill_region(HOME)
        plan = await site.west.plan_failover(STREAM, to=TARGET)
        without = await site.west.plan_failover(STREAM, to=TARGET, without=[MARS])
        await site.cluster.kill_region(MARS)
        with pytest.raises(geolog.UnavailableError, match=r"before 7, where it was confirmed"):
            await site.west.failover(STREAM, to=TARGET, confirmed=plan.goes_on_at)
        before = await record_of(site.west)
        report = await site.west.failover(
            STREAM, to=TARGET, confirmed=without.goes_on_at, without=[MARS]
        )

    assert (plan.goes_on_at, without.goes_on_at) == ({0: 7}, {0: 4})
    assert (before.home, before.moving_to) == (HOME, "")
    assert report.ranges[0].from_sequence == 4


@pytest.mark.parametrize(
    ("without", "why"), [("moon", "has no log in 'moon'"), (TARGET, "cannot be left out")]
)
async def test_regions_that_cannot_be_left_out_are_refused(
    without: str, why: str, autojump_clock: MockClock
) -> None:
    async with open_site() as site:
        plan = await site.west.plan_failover(STREAM, to=TARGET, without=[without])
        with pytest.raises(geolog.InvalidArgumentError, match=why):
            await site.west.failover(STREAM, to=TARGET, without=[without])

    assert plan.is_wrong
    assert why in str(plan.why_not)


async def test_a_mirror_behind_records_that_its_home_dropped_does_not_cut_the_others(
    autojump_clock: MockClock,
) -> None:
    """No relay has opened it since its home let it go on: no gap is noted yet."""
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as east,
        cluster.open_client(TARGET) as west,
    ):
        left = await dropped_in_front(east, west)
        plan = await west.plan_failover(STREAM, to=TARGET)
        with pytest.raises(geolog.UnavailableError, match="neither has what lies between"):
            await west.failover(STREAM, to=TARGET)
        record = await record_of(west)
        found = await interrupting.read(east)

    (candidate,) = plan.candidates
    assert candidate.lacks_evicted == 12 - len(left) - 2
    assert record.home == HOME
    assert found == left


@pytest.mark.parametrize("is_relay_first", [True, False], ids=["relay", "failover"])
async def test_a_relay_that_goes_on_behind_a_gap_drops_nothing_of_a_new_home(
    autojump_clock: MockClock,
    *,
    is_relay_first: bool,
) -> None:
    """The mirror ends with two records, and the home has dropped some that come next.

    The home answers, and the new one fetches all that is left: none of that is ever gone.
    """
    outcomes: set[str | None] = set()
    steps: list[int] = []
    for before in range(1, STEPS_MAX):
        async with (
            open_in_process_cluster(REGIONS) as cluster,
            cluster.open_client(HOME) as east,
            cluster.open_client(TARGET) as west,
            cluster.open_client(TARGET) as other,
        ):
            left = await dropped_in_front(east, west)

            async def go_on(log: geolog.Log = west) -> None:
                async with open_mirror(log):
                    pass

            move = partial(interrupting.fail_over, other)
            if is_relay_first:
                with interrupted(west, before, partial(tried, move)) as steps:
                    await tried(go_on)
            else:
                with interrupted(other, before, partial(tried, go_on)) as steps:
                    await tried(move)
            record = await record_of(east)
            home = east if record.home == HOME else west
            await interrupting.append(home, b"last")
            found = await interrupting.read(home)
        outcomes.add(record.home)
        assert [one for one in found if one != b"more"] == [*left, b"last"]
        if len(steps) < before:
            break

    assert len(steps) < before
    assert TARGET in outcomes


async def dropped_in_front(east: geolog.Log, west: geolog.Log) -> list[bytes]:
    """A home that has dropped what its mirror lacks, noted that, and keeps these records."""
    await create(east, segment_bytes=64 << 10)
    writing = Writing(east)
    await writing.append(2)
    await relay_mirror(west)
    await writing.append(10)
    trims, home = east.access.partitions.trims, await home_of(east)
    first = (await rows_of(east, home))[-2].first_sequence
    await trims.evict(await mirror_of(east), first, home=home, home_epoch=1)
    await trims.move(home, first, now_us=1)
    await trims.drop_trimmed(home)
    return writing.values[first:]
