"""Trims and forks: a ledger that both concern, and positions behind both."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog import AtDlsn, AtSequence, Gap, Record
from geolog.catalog.partition_metadata import PartitionMetadata
from geolog.ledger.ledger_metadata import LedgerMetadata
from geolog.protocol.ids import Sequence
from sim.fakes.forwarded_metadata import ForwardedMetadata
from sim.fakes.memory_metadata import MemoryMetadata
from tests.pure.whole.mirroring import HOME, STREAM, TARGET, record_of
from tests.pure.whole.test_failover import append, items_from, open_site, relay

T = TypeVar("T")


@attrs.define(eq=False)
class HeldMetadata(ForwardedMetadata[MemoryMetadata]):
    """Metadata of a process that is paused just before it deletes something."""

    deletes: trio.Event = attrs.field(factory=trio.Event)
    goes_on: trio.Event = attrs.field(factory=trio.Event)

    async def _forward(self, request: str, send: Callable[[], Awaitable[T]]) -> T:
        if "delete" in request and "/ledgers/" in request:
            self.deletes.set()
            await self.goes_on.wait()
        return await send()


async def test_a_trim_that_was_paused_before_a_fork_leaves_the_ledger_of_what_is_kept_aside(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site, site.cluster.store.open_session(6.0) as session:
        await append(site.east, range(10))
        for one in (10, 11):
            await append(site.east, range(one, one + 1))
        await relay(site.west, 4)
        held = HeldMetadata(session)
        paths = site.east.access.paths
        paused = PartitionMetadata(held, paths, LedgerMetadata(held, paths))
        name = (await record_of(site.east)).log_in(HOME, 0)
        async with trio.open_nursery() as nursery:
            await paused.trims.move(name, Sequence(10), now_us=0)
            nursery.start_soon(paused.trims.drop_trimmed, name)
            with trio.fail_after(60):
                await held.deletes.wait()
            await site.cluster.kill_region(HOME)
            await site.west.failover(STREAM, to=TARGET)
            await append(site.west, range(20, 22))
            await site.cluster.restart_region(HOME)
            await relay(site.east)
            held.goes_on.set()
        (kept,) = await site.east.list_divergences(STREAM)
        async with site.east.open_divergence(STREAM, kept.name) as reader:
            left = [one async for one in reader]

    assert [one.value for one in left] == [b"%d" % number for number in range(4, 12)]


@pytest.mark.parametrize("is_discarded", [False, True])
async def test_a_dead_position_whose_successors_are_trimmed_is_told_as_diverged_and_trimmed(
    autojump_clock: MockClock, *, is_discarded: bool
) -> None:
    """A reader, a cursor and one that follows; what was kept aside is there or discarded."""
    async with open_site() as site:
        await append(site.east, range(10))
        async with site.east.open_reader(STREAM, cursor="c") as cursor:
            before = [one async for one in cursor]
        await relay(site.west, 4)
        async with site.east.open_reader(STREAM, follow=True) as reader:
            items = reader.items()
            for _ in range(10):
                await anext(items)
            await site.cluster.kill_region(HOME)
            await site.west.failover(STREAM, to=TARGET)
            await append(site.west, range(20, 26))
            await site.cluster.restart_region(HOME)
            await relay(site.mars)
            await relay(site.east)
            if is_discarded:
                (kept,) = await site.east.list_divergences(STREAM)
                await site.east.discard_divergence(STREAM, kept.name)
            firsts = await site.west.truncate_stream(STREAM, before=AtSequence(7))
            by_sequence = await items_from(site.west, AtSequence(8, 1))
            by_dlsn = await items_from(site.west, AtDlsn(before[8].dlsn))
            below = await items_from(site.west, AtSequence(2, 1))
            below_by_dlsn = await items_from(site.west, AtDlsn(before[2].dlsn))
            async with site.west.open_reader(STREAM, cursor="c") as cursor:
                by_cursor = [one async for one in cursor.items()]
            with trio.fail_after(60):
                followed = [await anext(items)]
                while _told(followed[-1]) != (b"25", 9):
                    followed.append(await anext(items))

    left = [(b"23", 7), (b"24", 8), (b"25", 9)]
    trimmed = ("trimmed", 4, 7)
    assert firsts == {0: 7}
    assert [_told(one) for one in by_sequence] == [("diverged", 4, 8), trimmed, *left]
    assert [_told(one) for one in by_dlsn] == [("diverged", None, 4), trimmed, *left]
    assert [_told(one) for one in by_cursor] == [("diverged", 4, 10), trimmed, *left]
    # Its mirror may still have what is trimmed at home; none of it is left out silently.
    assert _told(followed[0]) == ("diverged", 4, 10)
    whole = [(b"%d" % (16 + number), number) for number in range(4, 10)]
    assert [_told(one) for one in followed[1:]] in ([trimmed, *left], whole)
    assert [_told(one) for one in below] == [("trimmed", 2, 7), *left]
    assert [_told(one) for one in below_by_dlsn] == [("trimmed", 2, 7), *left]


def _told(item: Record | Gap) -> tuple[object, ...]:
    if isinstance(item, Gap):
        return item.reason.value, item.from_sequence, item.to_sequence
    return item.value, item.sequence
