"""Missing or rotten copies come back from members that have intact ones."""

import itertools
import random

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.admin.repair import LedgerRepairer, RepairReport
from geolog.ledger.copying.fragment_copy import CopyConfig
from geolog.ledger.copying.rate_limit import RateLimit
from geolog.ledger.ledger_metadata import NoSuchLedgerError, VersionedLedger
from geolog.metadata.repair_queue import RepairReason
from geolog.protocol.ids import LedgerId
from tests.pure.whole.clusters import STREAM, World, append_each, open_world, values_of
from topology.errors import InvalidArgumentError


def repairer_of(world: World, config: CopyConfig | None = None) -> LedgerRepairer:
    return LedgerRepairer(world.log.access, config or CopyConfig())


async def written(world: World, *, count: int = 20, size_bytes: int = 1000) -> list[bytes]:
    """Values that are stored as they are, in one segment that is closed."""
    rng = random.Random(1)
    values = [rng.randbytes(size_bytes) for _ in range(count)]
    async with world.log.open_writer(STREAM) as writer:
        await append_each(writer, values)
    return values


async def ledger_of(world: World) -> tuple[LedgerId, list[str]]:
    (segment,) = await world.log.list_segments(STREAM)
    return LedgerId(segment.ledger), segment.ensemble


async def written_without_one(world: World) -> tuple[LedgerId, str]:
    """A ledger of which one member, up again, has only the first entries."""
    async with world.log.open_writer(STREAM) as writer:
        await append_each(writer, [b"a", b"b"])
        ledger, ensemble = await ledger_of(world)
        await world.cluster.kill(ensemble[0])
        await append_each(writer, [b"%d" % number for number in range(20)])
    await world.cluster.start(ensemble[0])
    await trio.sleep(5)
    return ledger, ensemble[0]


async def flip(world: World, node_id: str, value: bytes) -> None:
    """Flip a bit of the value on a node's disk."""
    disk = world.cluster.nodes[node_id].disk
    for name in await disk.list():
        content = bytearray(disk.content(name))
        place = content.find(value)
        if place >= 0:
            content[place] ^= 1
            disk.overwrite(name, bytes(content))
            return
    raise AssertionError(f"the value is not on the disk of {node_id}")


async def rot(world: World, node_id: str, value: bytes) -> None:
    """Flip a bit under a node that is down; it notices when the value is next read."""
    await world.cluster.kill(node_id)
    await flip(world, node_id, value)
    await world.cluster.start(node_id)


async def is_fully_copied(world: World) -> bool:
    return (await world.log.verify_stream(STREAM, full_copies=True)).is_good


async def test_a_member_that_was_away_gets_its_missing_copies(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        ledger, _ = await written_without_one(world)
        assert not await is_fully_copied(world)

        report = await repairer_of(world).repair(ledger)

        assert report.is_complete
        assert report.copies_stored > 0
        assert await is_fully_copied(world)


async def test_a_second_repair_finds_nothing_to_copy(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        ledger, _ = await written_without_one(world)
        await repairer_of(world).repair(ledger)

        report = await repairer_of(world).repair(ledger)

        assert (report.is_complete, report.copies_stored) == (True, 0)


async def test_rot_known_to_a_node_is_repaired(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        values = await written(world)
        ledger, ensemble = await ledger_of(world)
        await rot(world, ensemble[0], values[7])
        await rot(world, ensemble[1], values[8])
        await world.log.verify_stream(STREAM)  # It reads all copies, so the nodes notice.

        report = await repairer_of(world).repair(ledger)

        assert (report.is_complete, report.damaged, report.copies_stored) == (True, 2, 2)
        assert await is_fully_copied(world)


async def test_a_deep_repair_finds_unnoticed_rot(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        values = await written(world)
        ledger, ensemble = await ledger_of(world)
        await rot(world, ensemble[0], values[7])

        shallow = await repairer_of(world).repair(ledger)
        deep = await repairer_of(world).repair(ledger, is_deep=True)

        assert (shallow.damaged, shallow.copies_stored) == (0, 0)
        assert (deep.is_complete, deep.damaged, deep.copies_stored) == (True, 1, 1)
        assert await is_fully_copied(world)


async def test_rot_that_its_node_forgot_stays_queued_until_repaired(
    autojump_clock: MockClock,
) -> None:
    """Verification queued it; when its turn comes, no node knows of the rot."""
    async with open_world() as world:
        values = await written(world)
        ledger, ensemble = await ledger_of(world)
        await rot(world, ensemble[0], values[7])
        queue = world.log.access.repair_queue
        await queue.enqueue(ledger, RepairReason.COPIES_MISSING)
        await queue.enqueue(ledger, RepairReason.DAMAGED)

        (first,) = await repairer_of(world).repair_queued()
        await trio.sleep(5)  # The node that had to read it has queued it again.
        (second,) = await repairer_of(world).repair_queued()

        assert (first.damaged, first.copies_stored) == (1, 1)
        assert (second.damaged, second.is_in_queue) == (0, False)
        assert await is_fully_copied(world)


async def test_a_rotten_source_is_skipped_and_repaired_too(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        values = await written(world)
        ledger, ensemble = await ledger_of(world)
        await rot(world, ensemble[-1], values[7])
        await world.log.verify_stream(STREAM)
        for node_id in ensemble[:-2]:
            await rot(world, node_id, values[7])

        report = await repairer_of(world).repair(ledger)

        assert report.is_complete
        assert await is_fully_copied(world)


async def test_an_entry_that_rotted_everywhere_is_reported_not_invented(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        values = await written(world)
        ledger, ensemble = await ledger_of(world)
        for node_id in ensemble:
            await rot(world, node_id, values[7])
        await rot(world, ensemble[0], values[8])

        report = await repairer_of(world).repair(ledger, is_deep=True)

        assert (report.lost_count, report.lost) == (1, [7])
        assert not report.is_complete
        assert report.copies_stored == 1, "what can be repaired is"
        assert (await world.log.verify_stream(STREAM)).damaged == len(ensemble)


@pytest.mark.parametrize("changes_count", [2, 3])
async def test_no_entry_is_reported_lost_from_an_outdated_ledger_record(
    changes_count: int, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_world() as world:
        values = await written(world)
        ledger, ensemble = await ledger_of(world)
        for node_id in ensemble:
            await rot(world, node_id, values[7])
        ledgers = world.log.access.ledgers
        read_certain = ledgers.read_certain
        reads = itertools.count(1)

        async def read_changed(ledger: LedgerId) -> VersionedLedger:
            version = 100 + min(next(reads), changes_count)
            return attrs.evolve(await read_certain(ledger), version=version)

        monkeypatch.setattr(ledgers, "read_certain", read_changed)
        report = await repairer_of(world).repair(ledger, is_deep=True)

        assert not report.is_complete
        is_still_changed = changes_count == 3  # Even after the last attempt.
        assert report.is_moving == is_still_changed
        assert (report.lost_count, report.lost) == ((0, []) if is_still_changed else (1, [7]))


async def test_a_member_that_is_down_keeps_the_ledger_in_the_queue(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        ledger, away = await written_without_one(world)
        queue = world.log.access.repair_queue
        await queue.enqueue(ledger, RepairReason.COPIES_MISSING)
        await world.cluster.kill(away)
        await trio.sleep(10)

        (before,) = await repairer_of(world).repair_queued()
        await world.cluster.start(away)
        await trio.sleep(5)
        (after,) = await repairer_of(world).repair_queued()

        assert [(one.node_id, one.why) for one in before.incomplete] == [(away, "it is down")]
        assert before.is_in_queue
        assert (after.is_complete, after.is_in_queue) == (True, False)
        assert await queue.list() == []


async def test_a_ledger_whose_record_is_damaged_does_not_hold_up_the_queue(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await written(world)
        ledger, _ = await ledger_of(world)
        access = world.log.access
        for one in (ledger, LedgerId(99)):
            await access.repair_queue.enqueue(one, RepairReason.RECOVERED)
        path = access.paths.ledger(ledger)
        stored = await access.metadata.find(path)
        assert stored is not None
        await access.metadata.put(path, stored.data[:-3], stored.version)

        damaged, deleted = await repairer_of(world).repair_queued()

        assert (damaged.state, damaged.is_complete, damaged.is_in_queue) == (
            "unreadable",
            False,
            True,
        )
        assert path in damaged.unreadable_why
        assert (deleted.state, deleted.is_in_queue) == ("deleted", False)


async def test_copies_made_before_another_changed_the_ledger_are_reported_too(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_world() as world:
        ledger, lacking = await written_without_one(world)
        _, ensemble = await ledger_of(world)
        await world.cluster.kill(next(one for one in ensemble if one != lacking))
        await trio.sleep(10)
        ledgers = world.log.access.ledgers
        read_latest = ledgers.read_latest
        versions = itertools.count(100)

        async def read_changed(ledger: LedgerId) -> VersionedLedger:
            return attrs.evolve(await read_latest(ledger), version=next(versions))

        monkeypatch.setattr(ledgers, "read_latest", read_changed)
        report = await repairer_of(world).repair(ledger)

        assert not report.is_complete
        assert report.copies_stored > 0
        assert report.bytes_stored > 0


async def test_a_deleted_ledger_leaves_the_queue(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        await world.log.access.repair_queue.enqueue(LedgerId(99), RepairReason.DAMAGED)

        reports = await repairer_of(world).repair_queued()

        assert reports == [
            RepairReport(ledger=99, stream="", state="deleted", is_complete=True)
        ]
        assert await world.log.access.repair_queue.list() == []


async def test_an_unknown_ledger_is_an_error(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        with pytest.raises(NoSuchLedgerError):
            await repairer_of(world).repair(LedgerId(99))


async def test_the_writer_of_an_open_ledger_is_not_disturbed(autojump_clock: MockClock) -> None:
    async with open_world() as world, world.log.open_writer(STREAM) as writer:
        await writer.append(b"before")
        ledger, _ = await ledger_of(world)

        report = await repairer_of(world).repair(ledger, is_deep=True)
        await writer.append(b"after")

        assert (report.state, report.is_complete) == ("open", False)
        assert await values_of(world.log) == [b"before", b"after"]


async def test_copying_keeps_to_its_rate(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM) as writer:
            await writer.append(b"first")
            ledger, ensemble = await ledger_of(world)
            await world.cluster.kill(ensemble[0])
            rng = random.Random(1)
            await append_each(writer, [rng.randbytes(10_000) for _ in range(40)])
        await world.cluster.start(ensemble[0])
        await trio.sleep(5)

        started_s = trio.current_time()
        report = await repairer_of(world, CopyConfig(rate_bytes_per_s=20_000)).repair(ledger)

        assert report.is_complete
        took_s = trio.current_time() - started_s
        assert took_s == pytest.approx(report.bytes_stored / 20_000, rel=0.1)


def test_a_rate_of_zero_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="must be positive"):
        RateLimit(0)


async def test_a_closed_fragment_is_repaired_at_a_member_of_the_open_one(
    autojump_clock: MockClock,
) -> None:
    regions = {"us-east": 3, "eu-west": 3, "ap-northeast": 3}
    async with open_world(regions=regions) as world, world.log.open_writer(STREAM) as writer:
        await writer.append(b"with all")
        ledger, (stays, leaves, *_) = await ledger_of(world)
        await world.cluster.kill(stays)
        await append_each(writer, [b"without one", b"again"])
        await world.cluster.start(stays)
        await trio.sleep(3)
        await world.cluster.kill(leaves)
        for number in range(20):
            await writer.append(b"%d" % number)
            await trio.sleep(1)
        record = (await world.log.access.ledgers.read(ledger)).record
        assert stays in [member.node_id for member in record.fragments[-1].ensemble]

        report = await repairer_of(world).repair(ledger)
        await writer.append(b"after")

        assert len(record.fragments) == 2
        assert report.copies_stored == 2
        assert [one.node_id for one in report.incomplete] == [leaves]
        assert (
            await world.log.access.ledgers.read(ledger)
        ).record.fragments == record.fragments
