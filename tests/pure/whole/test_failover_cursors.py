"""One cursor is read in two regions, and the home of its stream is lost."""

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog import Gap, Record
from geolog.catalog.cursors import CursorHeldError, CursorLostError
from tests.pure.whole.clusters import ended_by
from tests.pure.whole.mirroring import HOME, STREAM, TARGET
from tests.pure.whole.test_failover import Site, append, open_site, relay

CURSOR = "bills"


async def fail_over_behind(site: Site, count: int) -> None:
    """The home is lost when its mirror has that many records, and goes on there."""
    await relay(site.west, count)
    await site.cluster.kill_region(HOME)
    await site.west.failover(STREAM, to=TARGET)
    await append(site.west, range(20, 23))


async def come_back(site: Site) -> None:
    """The lost region is back, as a mirror that has all of the new home."""
    await site.cluster.restart_region(HOME)
    await relay(site.east)


def words_of(item: Record | Gap) -> tuple[object, ...]:
    if isinstance(item, Gap):
        return item.reason.value, item.from_sequence, item.to_sequence
    return item.value, item.sequence, item.epoch


NEW = [(b"20", 4, 2), (b"21", 5, 2), (b"22", 6, 2)]


async def test_a_cursor_held_where_the_home_was_lost_is_not_lost_to_another_region(
    autojump_clock: MockClock,
) -> None:
    """Its reader keeps it over the failover, and no reader elsewhere gets it by itself."""
    async with open_site() as site:
        await append(site.east, range(10))
        async with site.east.open_reader(STREAM, cursor=CURSOR, follow=True) as holder:
            items = holder.items()
            seen = [words_of(await anext(items)) for _ in range(7)]
            await holder.commit()
            await fail_over_behind(site, 4)
            with pytest.raises(CursorHeldError):
                async with site.west.open_reader(STREAM, cursor=CURSOR):
                    pass
            await come_back(site)
            with trio.fail_after(60):
                rest = [words_of(await anext(items)) for _ in range(7)]

    assert seen == [(b"%d" % number, number, 1) for number in range(7)]
    # It still gives the records that it had read ahead in the lost home, before the gap.
    assert rest == [(b"%d" % n, n, 1) for n in (7, 8, 9)] + [("diverged", 4, 10), *NEW]


async def test_a_cursor_taken_in_the_new_home_ends_its_reader_in_the_lost_one(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        await append(site.east, range(10))
        with ended_by(CursorLostError):
            async with site.east.open_reader(STREAM, cursor=CURSOR, follow=True) as holder:
                items = holder.items()
                for _ in range(7):
                    await anext(items)
                await holder.commit()
                await fail_over_behind(site, 4)
                async with site.west.open_reader(STREAM, cursor=CURSOR, take=True) as reader:
                    taken = [words_of(one) async for one in reader.items()]
                await come_back(site)
                with trio.move_on_after(60):
                    async for _ in items:
                        pass
        position = (await site.west.describe_cursor(STREAM, CURSOR)).partition_list[0]
        async with site.west.open_reader(STREAM, cursor=CURSOR) as reader:
            again = [one async for one in reader]

    assert taken == [("diverged", 4, 7), *NEW]
    assert (position.sequence, position.lag_records) == (7, 0)
    assert again == []


async def test_a_cursor_shared_by_two_regions_gives_every_record_of_the_new_home_to_one_of_them(
    autojump_clock: MockClock,
) -> None:
    async with open_site(partitions=2) as site:
        for number in (0, 1):
            await append(site.east, range(10), partition=number)
        given: list[Record | Gap] = []

        all_given = trio.Event()

        async def share(log: geolog.Log) -> None:
            async with log.open_reader(
                STREAM, cursor=CURSOR, shared=True, follow=True
            ) as reader:
                async for item in reader.items():
                    given.append(item)
                    if has_all():
                        all_given.set()

        def has_all() -> bool:
            values = {(one.partition, one.value) for one in given if isinstance(one, Record)}
            return {(part, b"%d" % n) for part in (0, 1) for n in range(20, 23)} <= values

        async with trio.open_nursery() as nursery:
            nursery.start_soon(share, site.east)
            nursery.start_soon(share, site.west)
            await trio.sleep(5)
            for number in (0, 1):
                await relay(site.west, 4, partition=number)
            await site.cluster.kill_region(HOME)
            await site.west.failover(STREAM, to=TARGET)
            for number in (0, 1):
                await append(site.west, range(20, 23), partition=number)
            await site.cluster.restart_region(HOME)
            for number in (0, 1):
                await relay(site.east, partition=number)
            with trio.move_on_after(60):
                await all_given.wait()
            nursery.cancel_scope.cancel()
        described = await site.west.describe_cursor(STREAM, CURSOR)

    assert has_all()
    assert all((one.sequence or 0) >= 4 for one in described.partition_list)
