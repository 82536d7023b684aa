"""A home that has moved often: its record grows, and a move that no longer fits is refused.

Owners, mirrors and nodes are the real ones; network, disks and metadata are in memory.
"""

from collections import Counter

import pytest
from trio.testing import MockClock

import geolog
from geolog import LATEST, AtSequence
from geolog.catalog.home_steps import LARGE_FORK, HomeSteps
from geolog.metadata import rules
from geolog.metadata.documents import open_document, seal_document
from geolog.metadata.seam import Operation, Put
from geolog.protocol.home_record import HomeRecord
from geolog.protocol.stream_state import StreamRecord
from sim.fakes import memory_metadata
from tests.pure.whole.mirroring import HOME, STREAM, TARGET, record_of
from tests.pure.whole.test_failover import MARS, append, open_site, relay, values


def record_bytes(partitions: int, moves: int) -> int:
    forks = ((LARGE_FORK,) * moves,) * partitions
    return len(seal_document(HomeRecord(region=HOME, home_epoch=moves + 1, forks=forks)))


def test_a_fork_takes_few_bytes_of_a_home_record() -> None:
    each = (record_bytes(100, 20) - record_bytes(100, 10)) / 1000
    record = HomeRecord(region=HOME, home_epoch=2, forks=((LARGE_FORK,), ()))

    assert each <= 55
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


async def test_the_step_of_a_move_takes_no_more_than_was_reckoned_before(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the new home begins later, or has not heard of a truncation."""
    reckoned: list[Operation] = []
    flips: list[tuple[list[Operation], list[Operation]]] = []
    home = ""
    largest, check = HomeSteps.largest, rules.check_operations

    def reckon(
        steps: HomeSteps, stream: StreamRecord, record: HomeRecord, who: str
    ) -> list[Operation]:
        reckoned[:] = largest(steps, stream, record, who)
        return list(reckoned)

    def do(operations: list[Operation]) -> None:
        check(operations)
        is_of_home = any(isinstance(one, Put) and one.path == home for one in operations)
        if is_of_home and len(operations) > 3:  # It does more than mark the stream.
            flips.append((operations, list(reckoned)))

    monkeypatch.setattr(HomeSteps, "largest", reckon)
    monkeypatch.setattr(memory_metadata, "check_operations", do)
    async with open_site(partitions=3) as site:
        await site.east.update_stream(STREAM, relay_to=[MARS])
        for partition in range(3):
            await append(site.east, range(5), partition=partition)
            await append(site.east, range(5, 10), partition=partition)
            await relay(site.mars, partition=partition)
        await site.east.update_stream(STREAM, relay_to=[MARS, TARGET], relay_from=LATEST)
        record = await record_of(site.east)
        home = site.east.access.paths.home(record.name, record.life)
        await site.west.failover(STREAM, to=TARGET)
        for partition in range(3):
            await append(site.west, range(10, 12), partition=partition)
            for log in (site.east, site.mars):
                await relay(log, partition=partition)
            await site.west.truncate_stream(f"{STREAM}#{partition}", before=AtSequence(7))
        await site.mars.switch_over(STREAM, to=MARS)
        found = await values(site.mars)

    assert len(flips) == 2
    for done, expected in flips:
        assert Counter(map(type, done)) == Counter(map(type, expected))
        assert rules.request_bytes(done) <= rules.request_bytes(expected)
    assert found == [b"%d" % one for one in range(7, 12)]
