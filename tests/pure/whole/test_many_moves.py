"""A home that has moved often: its record grows, and a move that no longer fits is refused.

Owners, mirrors and nodes are the real ones; network, disks and metadata are in memory.
"""

import pytest
from trio.testing import MockClock

import geolog
from geolog.catalog.home_moves import _LARGE_FORK
from geolog.metadata import rules
from geolog.metadata.documents import open_document, seal_document
from geolog.protocol.home_record import HomeRecord
from tests.pure.whole.mirroring import HOME, STREAM, TARGET, record_of
from tests.pure.whole.test_failover import append, open_site, relay, values


def record_bytes(partitions: int, moves: int) -> int:
    forks = ((_LARGE_FORK,) * moves,) * partitions
    return len(seal_document(HomeRecord(region=HOME, home_epoch=moves + 1, forks=forks)))


def test_a_fork_takes_few_bytes_of_a_home_record() -> None:
    each = (record_bytes(100, 20) - record_bytes(100, 10)) / 1000
    record = HomeRecord(region=HOME, home_epoch=2, forks=((_LARGE_FORK,), ()))

    assert each <= 50
    assert open_document(seal_document(record), HomeRecord, path="/x") == record


async def test_a_move_that_would_not_fit_into_metadata_is_refused_before_the_stream_is_closed(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is lowered: as if the stream had many more partitions."""
    async with open_site(partitions=2) as site:
        homes = [(site.east, HOME), (site.west, TARGET)]
        moved, refused = 0, geolog.GeologError()
        monkeypatch.setattr(rules, "REQUEST_BYTES_MAX", 5_000)
        while True:
            await append(homes[0][0], range(moved, moved + 1))
            plan = await site.mars.plan_failover(STREAM, to=homes[1][1])
            try:
                await site.mars.failover(STREAM, to=homes[1][1])
            except geolog.GeologError as error:
                refused = error
                break
            homes.reverse()
            moved += 1
            for log in (site.east, site.west, site.mars):
                if log is not homes[0][0]:
                    for partition in range(2):
                        await relay(log, partition=partition)
        switch = await site.mars.plan_switch_over(STREAM, to=homes[1][1])
        record = await record_of(site.mars)
        await append(homes[0][0], range(100, 101))
        found = await values(homes[0][0])

    assert moved > 3
    assert "cannot move again: with 2 partitions and" in str(refused)
    assert plan.is_wrong
    assert "cannot move again" in str(plan.why_not)
    assert "cannot move again" in str(switch.why_not)
    assert (record.home, record.moving_to) == (homes[0][1], "")
    assert len(found) == moved + 2
