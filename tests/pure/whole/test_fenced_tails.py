"""Metadata requests of a read while members of the last ledger are fenced."""

import attrs
import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.client.log import LogConfig
from geolog.client.reading.scan import ReaderConfig
from geolog.ledger.ledger_metadata import LedgerMetadata, VersionedLedger
from geolog.ledger.reading.ledger_reader import LedgerReader
from geolog.metadata.seam import Freshness
from geolog.partition.tail import TailFinder
from geolog.protocol.ids import EntryId, LedgerId
from geolog.protocol.ledger_state import LedgerRecord
from geolog.protocol.tail_view import TailView
from tests.pure.whole.clusters import (
    STREAM,
    World,
    append_each,
    numbered,
    open_world,
    partition_of,
    values_of,
)


class FencedMembers(LedgerReader):
    """A reader whose members say that they have 5 entries and are fenced."""

    def __init__(self, reader: LedgerReader, lac: EntryId) -> None:
        self.__dict__.update(reader.__dict__)
        self._lac_told = lac

    async def probe_tail(self, record: LedgerRecord, above: EntryId) -> TailView:
        view = await super().probe_tail(record, above)
        return attrs.evolve(view, lac=self._lac_told, end=EntryId(5), is_taken=True)


class CountedLedgers(LedgerMetadata):
    """Records the requested freshness of each ledger read."""

    def __init__(self, ledgers: LedgerMetadata) -> None:
        self.__dict__.update(ledgers.__dict__)
        self.asked: list[Freshness] = []

    async def read(
        self,
        ledger: LedgerId,
        *,
        changed: trio.Event | None = None,
        freshness: Freshness = Freshness.NEARBY,
    ) -> VersionedLedger:
        self.asked.append(freshness)
        return await super().read(ledger, changed=changed, freshness=freshness)


def finder_of(world: World, ledgers: LedgerMetadata, lac: EntryId) -> TailFinder:
    access = world.log.access
    return TailFinder(
        partitions=access.partitions,
        ledgers=ledgers,
        reader=FencedMembers(access.reader, lac),
        replicas=access.replicas,
        rng=access.rng,
        recovery=access.recovery,
    )


async def test_another_clients_recovery_is_checked_from_time_to_time(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, world.log.open_writer(STREAM) as writer:
        await append_each(writer, numbered(5))
        (segment,) = await world.log.list_segments(STREAM)
        ledgers = CountedLedgers(world.log.access.ledgers)
        read = await ledgers.read_latest(LedgerId(segment.ledger))
        await ledgers.replace(read, read.record.taken_over())
        finder = finder_of(world, ledgers, EntryId(2))
        name = await partition_of(world.log)
        ledgers.asked.clear()

        with trio.move_on_after(1.0) as patience:
            await finder.end_of(name)

        assert patience.cancelled_caught
        assert 5 <= ledgers.asked.count(Freshness.LATEST) <= 10
        assert ledgers.asked.count(Freshness.CERTAIN) == 1, "when the end was found"


async def test_a_fence_unknown_to_metadata_costs_few_writes_and_is_reported(
    autojump_clock: MockClock,
) -> None:
    """For example after metadata was restored from an older copy."""
    async with open_world() as world, world.log.open_writer(STREAM) as writer:
        await append_each(writer, numbered(5))
        (segment,) = await world.log.list_segments(STREAM)
        ledgers = CountedLedgers(world.log.access.ledgers)
        finder = finder_of(world, ledgers, EntryId(4))
        name = await partition_of(world.log)

        with trio.move_on_after(30.0) as patience:
            await finder.end_of(name)

        assert patience.cancelled_caught
        assert ledgers.asked.count(Freshness.CERTAIN) < 150
        why = finder.why_not_found(name)
        assert f"ledger {segment.ledger} is fenced" in why
        assert "older copy" in why


async def test_a_read_that_finds_no_end_says_what_contradicts_metadata(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = LogConfig(reader=ReaderConfig(end_timeout_s=5.0))
    async with (
        open_world(config=config) as world,
        world.log.open_writer(STREAM) as writer,
    ):
        await append_each(writer, numbered(5))
        probe_tail = world.log.access.reader.probe_tail

        async def probe_fenced(record: LedgerRecord, above: EntryId) -> TailView:
            return attrs.evolve(await probe_tail(record, above), is_taken=True)

        monkeypatch.setattr(world.log.access.reader, "probe_tail", probe_fenced)
        with pytest.raises(geolog.UnavailableError, match="metadata says that the ledger is"):
            await values_of(world.log)
