"""A named writer over several partitions, whose home is lost with a part of what it sent."""

import pytest
from trio.testing import MockClock

import geolog
from tests.pure.whole.mirroring import HOME, STREAM, TARGET
from tests.pure.whole.test_failover import append, numbered, open_site, relay, values

PARTITIONS = 3


async def test_a_named_writer_of_several_partitions_sends_again_what_a_fork_left_behind(
    autojump_clock: MockClock,
) -> None:
    """Of its records the new home has all, some or none, by partition; each is there once."""
    async with open_site(partitions=PARTITIONS) as site:

        async def send(writer: geolog.Writer, numbers: range) -> list[geolog.Receipt]:
            return [
                await writer.append(b"%d" % n, key=b"key %d" % (n % 16), seq=n) for n in numbers
            ]

        async with site.east.open_writer(STREAM, writer_id="w") as writer:
            before = await send(writer, range(21))
        used = {one.partition for one in before}
        for partition, count in enumerate((2, 4, None)):
            await relay(site.west, count, partition=partition)
        await site.cluster.kill_region(HOME)
        report = await site.west.failover(STREAM, to=TARGET)
        async with site.west.open_writer(STREAM, writer_id="w") as writer:
            again = await send(writer, range(30))
            repeated = await send(writer, range(30))
        found = [await values(site.west, partition=one) for one in range(PARTITIONS)]

    assert used == set(range(PARTITIONS))
    assert report.home_epoch == 2
    assert sorted(value for part in found for value in part) == sorted(numbered(*range(30)))
    assert [one.partition for one in again[:21]] == [one.partition for one in before]
    assert all(one.duplicate for one in repeated)
    assert [one.sequence for one in repeated] == [one.sequence for one in again]
    kept = [n for n, one in enumerate(again) if one.epoch == 1]
    assert all(again[n].sequence == before[n].sequence for n in kept)
    assert 0 < len(kept) < 21


@pytest.mark.parametrize("is_discarded", [False, True])
async def test_a_writer_goes_on_whatever_became_of_what_was_left_behind(
    autojump_clock: MockClock, *, is_discarded: bool
) -> None:
    async with open_site() as site:
        await append(site.east, range(6), writer_id="w")
        await relay(site.west, 3)
        await site.cluster.kill_region(HOME)
        await site.west.failover(STREAM, to=TARGET)
        await site.cluster.restart_region(HOME)
        await relay(site.east)
        if is_discarded:
            (kept,) = await site.west.list_divergences(STREAM)
            await site.west.discard_divergence(STREAM, kept.name)
        await append(site.west, range(2, 8), writer_id="w")
        await relay(site.east)
        found = await values(site.west), await values(site.east)

    assert found[0] == found[1] == numbered(*range(8))
