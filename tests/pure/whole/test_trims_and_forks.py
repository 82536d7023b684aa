"""A trim whose process was paused, and a fork that shares a ledger meanwhile."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import attrs
import trio
from trio.testing import MockClock

from geolog.catalog.partition_metadata import PartitionMetadata
from geolog.ledger.ledger_metadata import LedgerMetadata
from geolog.protocol.ids import Sequence
from sim.fakes.forwarded_metadata import ForwardedMetadata
from sim.fakes.memory_metadata import MemoryMetadata
from tests.pure.whole.mirroring import HOME, STREAM, TARGET, record_of
from tests.pure.whole.test_failover import append, open_site, relay

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
