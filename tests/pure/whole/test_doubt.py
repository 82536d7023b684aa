"""A node that lost records to damage is repaired from its peers, and leaves doubt."""

import trio
from trio.testing import MockClock

from geolog.admin.doubt import DoubtReport, settle_doubts
from geolog.admin.node_description import describe_node
from geolog.admin.preflight import preflight
from geolog.admin.queue_repair import repair_queue
from geolog.admin.repair import LedgerRepairer
from geolog.catalog.descriptions import HealthState
from geolog.ledger.copying.copier import Copier
from geolog.ledger.copying.fragment_copy import CopyConfig
from geolog.ledger.recovery.ledger_recovery import recover_ledger
from geolog.metadata.repair_queue import RepairReason
from geolog.protocol.copying import final_extents, with_extent, with_member
from geolog.protocol.ids import EntryId, LedgerId
from geolog.protocol.ledger_state import Member
from regions.storage.protocol.records import DATA_OFFSET, file_id_of
from tests.pure.whole.clusters import (
    STREAM,
    World,
    append_each,
    numbered,
    open_world,
    values_of,
)


async def lose_a_journal_file(world: World, node_id: str) -> None:
    """Remove a node's oldest journal file, which held nearly all its records."""
    await world.cluster.kill(node_id)
    await world.cluster.start(node_id)  # It starts another file.
    await world.cluster.kill(node_id)
    disk = world.cluster.nodes[node_id].disk
    oldest = min(name for name in await disk.list() if file_id_of(name) is not None)
    await disk.remove(oldest)
    await disk.sync_directory()
    await world.cluster.start(node_id)
    await trio.sleep(5)  # Clients reconnect.


async def cut_a_journal_file(world: World, node_id: str) -> None:
    """Cut a file that a crash ended to nearly nothing; its table file still has all entries."""
    await world.cluster.kill(node_id)
    await world.cluster.start(node_id)  # It starts another file.
    await world.cluster.kill(node_id)
    disk = world.cluster.nodes[node_id].disk
    oldest = min(name for name in await disk.list() if file_id_of(name) is not None)
    disk.overwrite(oldest, disk.content(oldest)[: DATA_OFFSET + 1000])
    await world.cluster.start(node_id)
    await trio.sleep(5)  # Clients reconnect.


async def journal_of(world: World, node_id: str) -> tuple[str, bytes]:
    """The node's only journal file, and its bytes."""
    disk = world.cluster.nodes[node_id].disk
    (name,) = [name for name in await disk.list() if file_id_of(name) is not None]
    return name, disk.content(name).rstrip(b"\0")


async def damage(world: World, node_id: str, first: int) -> None:
    """Damage a hundred bytes of a node's file from this offset."""
    await trio.sleep(5)  # The journal marks how far it is synced.
    await world.cluster.kill(node_id)
    name, content = await journal_of(world, node_id)
    damaged = bytearray(content)
    for place in range(first, first + 100):
        damaged[place] ^= 0xFF
    world.cluster.nodes[node_id].disk.overwrite(name, bytes(damaged))
    await world.cluster.start(node_id)
    await trio.sleep(5)  # Clients reconnect.


async def is_in_doubt(world: World, node_id: str) -> bool:
    details = await describe_node(world.log.access, node_id)
    assert details.status is not None, details.why_silent
    return bool(details.status["is_any_in_doubt"])


async def settle(world: World) -> list[DoubtReport]:
    config = CopyConfig()
    copier = Copier(world.log.access.replicas, region=None, config=config)
    return await settle_doubts(world.log.access, copier, timeout_s=config.member_timeout_s)


async def test_a_node_that_lost_a_file_is_in_doubt_until_its_ledgers_are_repaired(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(30))
        (segment,) = await world.log.list_segments(STREAM)
        damaged = segment.ensemble[0]
        await lose_a_journal_file(world, damaged)
        assert await is_in_doubt(world, damaged)

        (too_early,) = await settle(world)
        repaired = await LedgerRepairer(world.log.access, CopyConfig()).repair(
            LedgerId(segment.ledger)
        )
        (settled,) = await settle(world)

        assert (too_early.node_id, too_early.is_settled) == (damaged, False)
        assert f"entries of ledger {segment.ledger}" in too_early.why_not
        assert repaired.is_complete
        assert settled == DoubtReport(node_id=damaged, is_settled=True)
        assert not await is_in_doubt(world, damaged)
        assert await settle(world) == []
        assert (await world.log.verify_stream(STREAM, full_copies=True)).is_good


async def test_a_node_in_doubt_is_not_counted_on_when_others_are_to_go(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(30))
        (segment,) = await world.log.list_segments(STREAM)
        damaged, *others = segment.ensemble
        before = await preflight(world.log.access, others)
        await lose_a_journal_file(world, damaged)

        doubtful = await preflight(world.log.access, others)
        one_goes = await preflight(world.log.access, others[:1])
        await repair_queue(world.log.access, CopyConfig())
        after = await preflight(world.log.access, others)

        assert before.is_safe
        assert [(one.ledger, one.risk) for one in doubtful.risks] == [(segment.ledger, "reads")]
        assert "entries of fragment 0 have no other copy now" in doubtful.risks[0].why
        assert one_goes.is_safe
        assert after.is_safe


async def test_the_repair_queue_takes_what_a_node_in_doubt_lacks_and_settles_it(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(30))
        (segment,) = await world.log.list_segments(STREAM)
        damaged = segment.ensemble[0]
        healthy = await world.log.health()
        await lose_a_journal_file(world, damaged)

        doubtful = await world.log.health()
        done = await repair_queue(world.log.access, CopyConfig())
        after = await world.log.health()

        assert healthy.is_healthy, healthy.reasons
        assert (doubtful.state, doubtful.nodes_in_doubt) == (HealthState.DEGRADED, {damaged: 1})
        assert f"node {damaged} " in doubtful.reasons[0]
        assert "`geolog ledger repair --queue`" in doubtful.reasons[0]
        assert [one.ledger for one in done.ledgers] == [segment.ledger]
        assert done.ledgers[0].copies_stored > 0
        assert done.doubts == [DoubtReport(node_id=damaged, is_settled=True)]
        assert after.is_healthy, after.reasons
        assert (await world.log.verify_stream(STREAM, full_copies=True)).is_good


async def test_the_repair_queue_restores_entries_cut_off_the_end_of_a_file(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(30))
        (segment,) = await world.log.list_segments(STREAM)
        damaged = segment.ensemble[0]
        await cut_a_journal_file(world, damaged)

        doubtful = await world.log.health()
        done = await repair_queue(world.log.access, CopyConfig())
        after = await world.log.health()

        assert doubtful.nodes_in_doubt == {damaged: 1}
        assert [one.copies_stored > 20 for one in done.ledgers] == [True]
        assert done.doubts == [DoubtReport(node_id=damaged, is_settled=True)]
        assert after.is_healthy, after.reasons
        assert (await world.log.verify_stream(STREAM, full_copies=True)).is_good


async def test_copies_that_verification_misses_are_repaired_from_the_queue(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(30))
        (segment,) = await world.log.list_segments(STREAM)
        await lose_a_journal_file(world, segment.ensemble[0])

        found = await world.log.verify_stream(STREAM)
        queued = [one.record for one in await world.log.access.repair_queue.list()]
        done = await repair_queue(world.log.access, CopyConfig())

        assert found.is_good
        assert found.under_replicated
        assert found.ledgers_queued == [segment.ledger]
        assert [(one.ledger, one.reasons) for one in queued] == [
            (segment.ledger, (RepairReason.COPIES_MISSING,))
        ]
        assert all(one.is_complete for one in done.ledgers)
        assert await world.log.access.repair_queue.list() == []
        assert (await world.log.verify_stream(STREAM, full_copies=True)).is_good


async def test_an_open_ledger_keeps_its_member_in_doubt(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(5))
            (segment,) = await world.log.list_segments(STREAM)
            damaged = segment.ensemble[0]
            await lose_a_journal_file(world, damaged)

            (report,) = await settle(world)

        assert not report.is_settled
        assert f"ledger {segment.ledger} is open, not closed" in report.why_not
        assert f"`geolog ledger recover {segment.ledger}`" in report.why_not
        assert await values_of(world.log) == numbered(5)


async def test_a_takeover_fences_again_a_member_that_lost_the_fence(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        access = world.log.access
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(5))
            (segment,) = await world.log.list_segments(STREAM)
            ledger = LedgerId(segment.ledger)
            _, before_fence = await journal_of(world, segment.ensemble[0])
            await recover_ledger(
                ledger,
                ledgers=access.ledgers,
                replicas=access.replicas,
                rng=access.rng,
                config=access.recovery,
            )
        gone = await give_a_slot_away(world, ledger)
        await damage(world, gone.node_id, len(before_fence))
        replicas = access.replicas.within(1)

        before = await replicas.probe(ledger, gone, EntryId(0), 1)
        (settled,) = await settle(world)
        after = await replicas.probe(ledger, gone, EntryId(0), 1)

        assert settled.is_settled
        assert (before.epoch_highest, before.is_fenced) == (1, False)
        assert (after.epoch_highest, after.is_fenced) == (2, True)


async def give_a_slot_away(world: World, ledger: LedgerId) -> Member:
    """A member that promised to refuse the old writer leaves a CLOSED ledger."""
    access = world.log.access
    read = await access.ledgers.read(ledger)
    (extent,) = final_extents(read.record)
    gone = extent.fragment.ensemble[0]
    new = next(
        Member(node.instance, node.node_id, node.location)
        for node in await access.pool.live_nodes()
        if extent.slot_of(node.instance) is None
    )
    changed = with_member(extent, gone.instance, new)
    outcome = await Copier(access.replicas, region=None, config=CopyConfig()).copy(
        read.record, changed, [0]
    )
    assert outcome.why_incomplete(0) is None
    await access.ledgers.replace(read, with_extent(read.record, changed))
    return gone
