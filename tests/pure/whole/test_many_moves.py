"""A home that has moved often: forks are stored apart, and a move that cannot fit is refused.

Owners, mirrors and nodes are the real ones; network, disks and metadata are in memory.
"""

from collections import Counter

import attrs
import pytest
from trio.testing import MockClock

import geolog
from geolog import LATEST, AtSequence
from geolog.catalog.home_steps import LARGE_FORK, HomeSteps
from geolog.metadata import rules
from geolog.metadata.documents import open_document, seal_document
from geolog.metadata.seam import Operation, Put
from geolog.protocol.home_record import Fork, ForksRecord, HomeRecord
from geolog.protocol.stream_state import StreamRecord
from sim.fakes import memory_metadata
from tests.pure.whole.mirroring import HOME, STREAM, TARGET, record_of
from tests.pure.whole.test_failover import MARS, append, numbered, open_site, relay, values
from topology.errors import DamagedBytesError, TooLargeError


def record_bytes(partitions: int, moves: int) -> int:
    forks = ((LARGE_FORK,) * moves,) * partitions
    return len(seal_document(HomeRecord(region=HOME, home_epoch=moves + 1, forks=forks)))


def fork(home_epoch: int) -> Fork:
    return attrs.evolve(LARGE_FORK, home_epoch=home_epoch)


def test_a_fork_takes_few_bytes_of_a_home_record() -> None:
    each = (record_bytes(100, 20) - record_bytes(100, 10)) / 1000
    record = HomeRecord(region=HOME, home_epoch=2, forks=((LARGE_FORK,), ()))

    assert each <= 55
    assert open_document(seal_document(record), HomeRecord, path="/x") == record


def test_forks_that_are_stored_apart_are_not_in_the_home_record() -> None:
    two = HomeRecord(region=HOME, home_epoch=3, forks=((fork(2), fork(3)), (fork(3),)))

    none_at_hand, apart = two.set_apart()
    moved = none_at_hand.moving(TARGET, mover="", move_id="").moved((fork(4), fork(4)))
    again, later = moved.set_apart()
    stored = open_document(seal_document(moved), HomeRecord, path="/x")

    assert none_at_hand.at_hand == ((), ())
    assert apart.forks == two.forks
    assert moved.forks == ((fork(2), fork(3), fork(4)), (fork(3), fork(4)))
    assert (stored.forks_apart, stored.forks) == ((3,), ((fork(4),), (fork(4),)))
    assert again.forks_apart == (3, 4)
    assert later.forks == ((fork(4),), (fork(4),))
    assert open_document(seal_document(later), ForksRecord, path="/x") == later


@attrs.frozen
class HomeRecordBefore:
    """The forks of a home record, as versions read them that know of none apart."""

    forks: tuple[tuple[Fork, ...], ...] = ()


def test_a_version_that_knows_of_no_forks_apart_reads_what_has_none_and_refuses_others() -> (
    None
):
    record = HomeRecord(region=HOME, home_epoch=2, forks=((fork(2),),))

    before = open_document(seal_document(record), HomeRecordBefore, path="/x")
    with pytest.raises(DamagedBytesError):
        open_document(seal_document(record.set_apart()[0]), HomeRecordBefore, path="/x")

    assert before.forks == record.forks


@pytest.mark.long
async def test_a_move_that_would_not_fit_into_metadata_is_refused_before_the_stream_is_closed(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is lowered: as if the stream had many more partitions."""
    async with open_site(partitions=2) as site:
        await append(site.east, range(1))
        monkeypatch.setattr(rules, "REQUEST_BYTES_MAX", 2_000)
        plan = await site.mars.plan_failover(STREAM, to=TARGET)
        with pytest.raises(TooLargeError, match="cannot move: with 2 partitions and 0 moves"):
            await site.mars.failover(STREAM, to=TARGET)
        switch = await site.mars.plan_switch_over(STREAM, to=TARGET)
        record = await record_of(site.mars)
        await append(site.east, range(100, 101))
        found = await values(site.east)

    assert plan.is_wrong
    assert "cannot move: with" in str(plan.why_not)
    assert "cannot move: with" in str(switch.why_not)
    assert (record.home, record.moving_to) == (HOME, "")
    assert len(found) == 2


def keep_few_at_hand(*logs: geolog.Log) -> None:
    """Have forks stored apart after two moves: as if the stream had many more partitions."""
    for log in logs:
        log.access.partitions.home_moves.forks_at_hand_max = 2


async def test_a_home_moves_as_often_as_it_likes(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers, mirrors that were away, and positions of old homes find all forks."""
    async with open_site(partitions=2) as site:
        keep_few_at_hand(site.east, site.west, site.mars)
        homes = [(site.east, HOME), (site.west, TARGET)]
        await append(site.east, range(1))
        await relay(site.mars)
        await site.cluster.kill_region(MARS)
        monkeypatch.setattr(rules, "REQUEST_BYTES_MAX", 5_000)
        for moved in range(1, 13):
            await site.west.failover(STREAM, to=homes[1][1], without=[MARS])
            homes.reverse()
            await append(homes[0][0], range(moved, moved + 1))
            for partition in range(2):
                await relay(homes[1][0], partition=partition)
        await site.cluster.restart_region(MARS)
        await relay(site.mars)
        async with site.cluster.open_client(MARS, host="new") as new:
            found = [await values(one) for one in (site.east, site.mars, new)]
            async with new.open_reader(STREAM) as reader:
                epochs = [one.epoch async for one in reader]
            record = await record_of(new)
            home = await new.access.partitions.homes.read_latest(record.name, record.life)
            children = await new.access.metadata.children(
                new.access.paths.home(record.name, record.life)
            )
            await new.delete_stream(STREAM)
            left = await new.access.metadata.find(
                new.access.paths.stream_life(record.name, record.life)
            )

    assert found == [numbered(*range(13))] * 3
    assert epochs == list(range(1, 14))
    assert home is not None
    assert [[one.home_epoch for one in each] for each in home.record.forks] == [
        list(range(2, 14)),
        list(range(2, 14)),
    ]
    assert len(children) > 3
    assert [int(one) for one in sorted(children)] == list(home.record.forks_apart)
    assert sum(map(len, home.record.at_hand)) <= 4
    assert left is None


async def test_a_log_that_missed_forks_that_are_stored_apart_is_cut_at_the_first(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        keep_few_at_hand(site.east, site.west, site.mars)
        await append(site.east, range(10))
        await relay(site.west, 4)
        await relay(site.mars, 4)
        await site.cluster.kill_region(HOME)
        homes = [(site.west, TARGET), (site.mars, MARS)]
        await site.mars.failover(STREAM, to=TARGET)
        for number in range(20, 26):
            await append(homes[0][0], range(number, number + 1))
            await relay(homes[1][0])
            homes.reverse()
            await site.mars.failover(STREAM, to=homes[0][1])
        await site.cluster.restart_region(HOME)
        await relay(site.east)
        (kept,) = await site.west.list_divergences(STREAM)
        async with site.east.open_reader(STREAM, start=AtSequence(6, 1)) as reader:
            first = await anext(reader.items())
        found = await values(site.east)

    assert found == numbered(*range(4), *range(20, 26))
    assert (kept.from_sequence, kept.to_sequence) == (4, 10)
    assert isinstance(first, geolog.Gap)
    assert first.reason is geolog.GapReason.DIVERGED


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
