"""Leases of many owners in one process: few writes renew them, and one lost home is alone."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.catalog.partition_owners import PartitionOwners
from geolog.catalog.stream_homes import StreamHomes
from geolog.metadata.documents import seal_document
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import SessionState
from geolog.partition.home_lease import HomeLease, LeaseTerms, sleepless_clocks
from geolog.partition.lease_renewals import LeaseRenewals
from geolog.partition.shown_owners import open_shown_owners
from geolog.protocol.home_record import HomeRecord
from geolog.protocol.stream_state import PartitionName, StreamName
from sim.fakes.forwarded_metadata import ForwardedMetadata
from sim.fakes.memory_metadata import MemoryMetadata, MemoryStore, open_memory_store
from topology.errors import FencedError, GeologError, UnavailableError

PATHS = ClusterPaths("default")
LENGTH_S = 4.0
STREAMS_COUNT = 300
T = TypeVar("T")


@attrs.define(eq=False)
class HeardMetadata(ForwardedMetadata[MemoryMetadata]):
    """Metadata that notes its writes of several operations, each of which takes a while."""

    multis: list[str] = attrs.field(factory=list)

    async def _forward(self, request: str, send: Callable[[], Awaitable[T]]) -> T:
        if request.count("check"):
            self.multis.append(request)
            await trio.sleep(0.05)
        return await send()


@attrs.define(eq=False)
class Listener:
    """The owner of a stream, as far as its lease concerns it."""

    renewed: int = 0
    why: GeologError | None = None

    def on_lease(self) -> None:
        self.renewed += 1

    def on_lease_lost(self, why: GeologError) -> None:
        self.why = why


@attrs.frozen
class Site:
    """A process that owns many streams which stop, and another client of metadata."""

    store: MemoryStore
    metadata: HeardMetadata
    terms: LeaseTerms
    leases: list[HomeLease]
    listeners: list[Listener]

    async def move_home(self, number: int) -> None:
        """Have another region become the home of one stream."""
        lease = self.leases[number]
        path = PATHS.home(lease.name.stream, lease.name.life)
        stored = await self.metadata.behind.find(path)
        assert stored is not None
        moved = seal_document(HomeRecord(region="mars", home_epoch=2))
        await self.metadata.behind.put(path, moved, stored.version)


@asynccontextmanager
async def open_site(count: int = STREAMS_COUNT) -> AsyncIterator[Site]:
    async with open_memory_store() as store, store.open_session(6.0) as session:
        metadata = HeardMetadata(session)
        owners = PartitionOwners(metadata, PATHS)
        async with (
            open_shown_owners(metadata, PATHS, owners, random.Random(0)) as shown,
            trio.open_nursery() as nursery,
        ):
            await shown.be_present()
            renewals = LeaseRenewals(metadata, StreamHomes(metadata, PATHS), shown)
            terms = LeaseTerms(metadata=metadata, renewals=renewals, clocks=sleepless_clocks)
            leases, listeners = [], []
            for number in range(count):
                name = PartitionName(StreamName.parse(f"shop/s{number}"), 0, "a-life")
                path = PATHS.home(name.stream, name.life)
                await metadata.ensure_path(path.rpartition("/")[0])
                await metadata.create(
                    path, seal_document(HomeRecord(region="earth", home_epoch=1))
                )
                lease, listener = HomeLease(name, 1, LENGTH_S, terms), Listener()
                lease.listeners.append(listener)
                leases.append(lease)
                listeners.append(listener)
            async with trio.open_nursery() as opening:
                for lease in leases:
                    opening.start_soon(lease.begin)
            for lease in leases:
                nursery.start_soon(lease.run)
            metadata.multis.clear()
            yield Site(store, metadata, terms, leases, listeners)
            nursery.cancel_scope.cancel()


async def test_hundreds_of_leases_are_renewed_by_few_writes(autojump_clock: MockClock) -> None:
    async with open_site() as site:
        before = [one.renewed for one in site.listeners]
        await trio.sleep(LENGTH_S * 2)
        gained = [one.renewed - was for one, was in zip(site.listeners, before, strict=True)]
        left_s = [lease.left_s() for lease in site.leases]

        assert min(left_s) > LENGTH_S / 2
        assert min(gained) >= 6
        assert len(site.metadata.multis) <= 2 * max(gained)


async def test_a_home_that_has_moved_ends_its_own_lease_and_no_other(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        await site.move_home(77)
        await trio.sleep(LENGTH_S)
        ended = [number for number, one in enumerate(site.listeners) if one.why is not None]

        assert ended == [77]
        assert isinstance(site.listeners[77].why, FencedError)
        assert min(one.left_s() for one in site.leases if one is not site.leases[77]) > 0


async def test_a_process_that_is_cut_off_has_no_lease_left_and_renews_them_all_later(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        site.metadata.behind.cut_off()
        await trio.sleep(LENGTH_S)
        left_s = [lease.left_s() for lease in site.leases]
        site.metadata.behind.restore()
        await trio.sleep(1)

        assert max(left_s) == 0
        assert min(lease.left_s() for lease in site.leases) > 0


async def test_a_lost_session_ends_every_lease_for_good(autojump_clock: MockClock) -> None:
    async with open_site(count=3) as site:
        site.metadata.behind.expire()
        await trio.sleep(LENGTH_S)

        assert site.metadata.session_state is not SessionState.LOST
        assert [lease.left_s() for lease in site.leases] == [0, 0, 0]
        assert all(isinstance(one.why, UnavailableError) for one in site.listeners)


async def test_an_owner_that_is_stopped_while_it_renews_leaves_the_others_their_turn(
    autojump_clock: MockClock,
) -> None:
    async with open_site(count=2) as site:
        first, second = site.leases
        async with trio.open_nursery() as nursery:
            leading = trio.CancelScope()

            async def lead() -> None:
                with leading:
                    await site.terms.renewals.renew(first)

            nursery.start_soon(lead)
            await trio.sleep(0.01)
            nursery.start_soon(site.terms.renewals.renew, second)
            await trio.sleep(0.01)
            leading.cancel()
            with trio.fail_after(1):
                await site.terms.renewals.renew(second)

        assert second.left_s() > LENGTH_S * 0.9


@pytest.mark.parametrize("count", [1, 2, 5])
async def test_a_write_that_fails_is_halved_until_the_moved_home_is_alone(
    count: int, autojump_clock: MockClock
) -> None:
    async with open_site(count=8) as site:
        for number in range(count):
            await site.move_home(number)
        await trio.sleep(LENGTH_S)
        ended = [number for number, one in enumerate(site.listeners) if one.why is not None]

        assert ended == list(range(count))
