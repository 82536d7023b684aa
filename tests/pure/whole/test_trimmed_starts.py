"""Starts that are trimmed during their search."""

import random
from collections.abc import Awaitable, Callable

import attrs
import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.client.reading.place_search import PlaceSearch
from geolog.client.reading.scan import PartitionScan
from geolog.ledger.ledger_metadata import LedgerMetadata, VersionedLedger
from geolog.protocol.ids import LedgerId
from tests.pure.whole.clusters import STREAM, World, open_world


@attrs.define
class LedgersTrimmedFirst:
    """Ledgers whose look-up waits until something else has happened."""

    ledgers: LedgerMetadata
    happens: Callable[[], Awaitable[object]] | None

    async def read(
        self, ledger: LedgerId, *, changed: trio.Event | None = None
    ) -> VersionedLedger:
        """The ledger at that time."""
        happens, self.happens = self.happens, None
        if happens is not None:
            await happens()
        return await self.ledgers.read(ledger, changed=changed)


@pytest.mark.parametrize("start", [geolog.AtSequence(1), geolog.AtTransaction(1)])
async def test_a_start_trimmed_during_the_search_is_searched_again(
    start: geolog.Bound, autojump_clock: MockClock
) -> None:
    async with open_world(segment_bytes=65536) as world:
        async with world.log.open_writer(STREAM) as writer:
            for number in range(12):
                await writer.append(
                    random.Random(number).randbytes(20_000), transaction_id=number
                )
                await trio.sleep(1)  # Let the next ledger get ready.
        scan = await scan_with_a_trim(world)
        await scan.refresh()

        begin = await PlaceSearch(scan).locate(start, None)

        assert begin.sequence == 10


async def scan_with_a_trim(world: World) -> PartitionScan:
    """A scan overtaken by a truncation."""

    async def trim() -> None:
        await world.log.truncate_stream(STREAM, before=geolog.AtSequence(10))

    record, [name] = await world.log._named(STREAM)  # noqa: SLF001
    scan = world.log._scan(record, name)  # noqa: SLF001
    scan._ledgers = LedgersTrimmedFirst(scan._ledgers, trim)  # type: ignore[assignment]  # noqa: SLF001
    return scan
