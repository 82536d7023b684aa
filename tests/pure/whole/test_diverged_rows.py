"""Rows that were copied out of a home that was lost later, as exports have them."""

from trio.testing import MockClock

from tests.pure.whole.mirroring import HOME, STREAM, TARGET
from tests.pure.whole.test_failover import append, open_site, relay


async def test_records_of_a_dead_branch_are_told_by_sequence_and_segment(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        await append(site.east, range(10))
        async with site.east.open_reader(STREAM) as reader:
            exported = [(one.sequence, one.dlsn.segment) async for one in reader]
        await relay(site.west, 4)
        await site.cluster.kill_region(HOME)
        await site.west.failover(STREAM, to=TARGET)
        await append(site.west, range(100, 103))
        async with site.west.open_reader(STREAM) as reader:
            there = [(one.sequence, one.dlsn.segment) async for one in reader]
        (begin,) = (
            one.segment
            for one in await site.west.list_segments(STREAM)
            if one.first_sequence == 4
        )

    def is_diverged(place: tuple[int, int]) -> bool:
        return place[0] >= 4 and place[1] < begin

    assert [place for place in exported if is_diverged(place)] == exported[4:]
    assert [place for place in there if is_diverged(place)] == []
