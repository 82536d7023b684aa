"""Readers with an old record of a ledger, whose members were replaced since."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.client.log import LogConfig
from geolog.ledger.ledger_metadata import LedgerMetadata, VersionedLedger
from geolog.metadata.seam import Freshness
from geolog.partition.tail import TailFinder
from geolog.protocol.ids import EntryId, LedgerId
from sim.fakes.memory_metadata import MemoryMetadata
from sim.in_process import InProcessCluster, open_in_process_cluster
from tests.pure.whole.clusters import STREAM, append_each, numbered, partition_of


class LateAnswer(LedgerMetadata):
    """Reads a ledger, and returns the first answer only when `go_on` is set."""

    def __init__(
        self, ledgers: LedgerMetadata, was_read: trio.Event, go_on: trio.Event
    ) -> None:
        self.__dict__.update(ledgers.__dict__)
        self._was_read = was_read
        self._go_on = go_on

    async def read(
        self,
        ledger: LedgerId,
        *,
        changed: trio.Event | None = None,
        freshness: Freshness = Freshness.NEARBY,
    ) -> VersionedLedger:
        found = await super().read(ledger, changed=changed, freshness=freshness)
        if not self._was_read.is_set():
            self._was_read.set()
            await self._go_on.wait()
        return found


@attrs.frozen
class Place:
    """One region of six nodes, three copies, two of them needed; and the writer."""

    cluster: InProcessCluster
    log: geolog.Log
    writer: geolog.Writer

    async def members(self) -> list[str]:
        return (await self.log.list_segments(STREAM))[-1].ensemble

    async def replace_all_members(self, first: int) -> None:
        """Kill each member of the open ledger while the writer appends from this number."""
        for victim in await self.members():
            await self.cluster.kill(victim)
            await append_each(self.writer, numbered(5, first))
            first += 5
            while victim in await self.members():  # noqa: ASYNC110 - metadata says it.
                await trio.sleep(1)


@asynccontextmanager
async def open_place() -> AsyncIterator[Place]:
    async with (
        open_in_process_cluster({"us-east": 6}) as cluster,
        cluster.open_client("us-east", host="client") as log,
    ):
        await log.create_stream(
            STREAM, ensemble_size=3, write_quorum=3, ack_quorum=2, min_regions=1
        )
        async with log.open_writer(STREAM) as writer:
            yield Place(cluster, log, writer)


async def test_the_end_is_not_taken_from_members_replaced_meanwhile(
    autojump_clock: MockClock,
) -> None:
    async with open_place() as place:
        await append_each(place.writer, numbered(5))
        access = place.log.access
        was_read, go_on = trio.Event(), trio.Event()
        finder = TailFinder(
            partitions=access.partitions,
            ledgers=LateAnswer(access.ledgers, was_read, go_on),
            reader=access.reader,
            replicas=access.replicas,
            rng=access.rng,
            recovery=access.recovery,
        )
        found = []

        async def find() -> None:
            found.append(await finder.end_of(await partition_of(place.log)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(find)
            await was_read.wait()
            old = await place.members()
            await place.replace_all_members(5)
            for victim in old:  # They are back, without the entries written since.
                await place.cluster.start(victim)
            await trio.sleep(3)
            go_on.set()

        assert not set(old) & set(await place.members())
        assert found[0].sequence == 20


@pytest.mark.parametrize("follow", [True, False])
async def test_a_reader_finds_entries_on_members_that_replaced_those_it_knows(
    autojump_clock: MockClock,
    follow: bool,  # noqa: FBT001 - both ways to read
) -> None:
    async with open_place() as place:
        await append_each(place.writer, numbered(5))
        async with place.cluster.open_client(
            "us-east", host="reader", config=LogConfig()
        ) as reading:
            if not follow:
                await append_each(place.writer, numbered(3, 5))
            async with reading.open_reader(STREAM, follow=follow) as reader:
                values = [(await anext(reader)).value for _ in range(5)]
                await place.replace_all_members(5 if follow else 8)
                with trio.fail_after(30):
                    values += [(await anext(reader)).value for _ in range(3)]

        assert values == numbered(8)


async def test_a_follower_without_metadata_does_not_report_moved_entries_as_lost(
    autojump_clock: MockClock,
) -> None:
    """All members that it knows lack an entry, which is on the current members."""
    sessions: list[MemoryMetadata] = []
    async with (
        open_in_process_cluster({"us": 1, "eu": 2, "ap": 2}) as cluster,
        cluster.open_client("us", host="writer") as log,
        cluster.open_client("us", host="reader", on_session=sessions.append) as reading,
    ):
        await log.create_stream(
            STREAM, ensemble_size=3, write_quorum=3, ack_quorum=2, min_regions=2
        )
        async with log.open_writer(STREAM) as writer:
            await writer.append(b"0")
            (segment,) = await log.list_segments(STREAM)
            (near,) = [one for one in segment.ensemble if one.startswith("us")]
            others = [one for one in segment.ensemble if one != near]
            async with reading.open_reader(STREAM, follow=True) as reader:
                assert (await anext(reader)).value == b"0"
                sessions[0].cut_off()
                for node in others:
                    await cluster.kill(node)
                await writer.append(b"1")
                cluster.network.reset("writer", near)
                cluster.network.cut("writer", near)
                await writer.append(b"2")
                cluster.network.mend("writer", near)
                for node in others:
                    await cluster.start(node)

                assert (await anext(reader)).value == b"1"
                with trio.move_on_after(20) as patience:
                    await anext(reader)
                assert patience.cancelled_caught
                sessions[0].restore()
                with trio.fail_after(10):
                    assert (await anext(reader)).value == b"2"


async def test_the_last_entry_is_found_after_it_moved(
    autojump_clock: MockClock,
) -> None:
    async with open_place() as place:
        await append_each(place.writer, numbered(5))
        access = place.log.access
        (segment,) = await place.log.list_segments(STREAM)
        old = (await access.ledgers.read(LedgerId(segment.ledger))).record
        await place.replace_all_members(5)
        for victim in segment.ensemble:  # They are back, without the entries written since.
            await place.cluster.start(victim)

        found = await access.reader.read_one(old, EntryId(19))

        assert found.decoded.header.next_sequence == 20
