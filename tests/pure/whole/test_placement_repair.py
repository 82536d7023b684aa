"""Placement of fragments is judged, and brought back to the stream's policy."""

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio
from trio.testing import MockClock

from geolog.admin.placement.placement_description import FragmentPlacement, PlacementLook
from geolog.admin.placement.placement_moves import FragmentMove, PlacementRepairReport
from geolog.admin.placement.placement_repair import PlacementRepairer
from geolog.catalog.descriptions import HealthState
from geolog.ledger.copying.fragment_copy import CopyConfig
from geolog.ledger.ledger_metadata import LedgerMetadata, VersionedLedger
from geolog.metadata.nodes import list_known_nodes
from geolog.metadata.placement_switches import change_switches
from geolog.metadata.replaced_nodes import mark_replaced
from geolog.protocol.ids import LedgerId
from geolog.protocol.ledger_state import LedgerRecord
from geolog.protocol.placement_plan import RepairAims
from sim.fakes.memory_metadata import MemoryMetadata
from sim.in_process import open_in_process_cluster
from tests.pure.whole.clusters import STREAM, World, append_each, open_world, values_of
from topology.switches import PlacementSwitches

SEGMENT_BYTES = 64 * 1024
SESSION_GONE_S = 10.0
GARBAGE_GONE_S = 800.0
REGIONS = {"us-east": 3, "eu-west": 3, "ap-northeast": 3}


@asynccontextmanager
async def a_world_written_without(
    region: str | None,
) -> AsyncIterator[tuple[World, list[bytes]]]:
    """Closed segments in three regions, written while one of them was away."""
    async with open_world(regions=REGIONS, segment_bytes=SEGMENT_BYTES) as world:
        if region is not None:
            await world.cluster.kill_region(region)
            await trio.sleep(SESSION_GONE_S)
        rng = random.Random(1)
        values = [rng.randbytes(4000) for _ in range(40)]
        for start in (0, 20):
            async with world.log.open_writer(STREAM) as writer:
                await append_each(writer, values[start : start + 20])
        if region is not None:
            await world.cluster.restart_region(region)
            await trio.sleep(SESSION_GONE_S)
        yield world, values


async def seen(world: World) -> list[FragmentPlacement]:
    look = await PlacementLook.begin(world.log.access, STREAM)
    found = []
    while (fragments := await look.next_fragments()) is not None:
        found += fragments
    return found


async def adherences(world: World) -> set[str]:
    return {one.adherence for one in await seen(world) if one.entries != 0}


@attrs.frozen
class Repaired:
    moves: list[FragmentMove]
    report: PlacementRepairReport


async def repaired(
    world: World, *, target: str | None = STREAM, is_dry_run: bool = False, **aims: bool
) -> Repaired:
    moves: list[FragmentMove] = []
    repairer = PlacementRepairer(
        world.log.access,
        CopyConfig(),
        aims=RepairAims(**aims),
        is_dry_run=is_dry_run,
        on_move=moves.append,
    )
    return Repaired(moves, await repairer.run(target))


async def is_fully_copied(world: World) -> bool:
    return (await world.log.verify_stream(STREAM, full_copies=True)).is_good


async def test_well_placed_fragments_are_strict_and_do_not_move(
    autojump_clock: MockClock,
) -> None:
    async with a_world_written_without(None) as (world, _):
        assert await adherences(world) == {"strict"}
        outcome = await repaired(world)
        assert outcome.moves == []
        assert outcome.report.is_complete
        assert outcome.report.bytes_stored == 0


async def test_fragments_written_without_a_region_return_to_three_regions(
    autojump_clock: MockClock,
) -> None:
    async with a_world_written_without("ap-northeast") as (world, values):
        assert await adherences(world) == {"soft"}
        assert all(one.is_repairable for one in await seen(world) if one.entries)

        told = await repaired(world, is_dry_run=True)
        assert await adherences(world) == {"soft"}
        outcome = await repaired(world)

        assert await adherences(world) == {"strict"}
        assert outcome.moves == told.moves
        assert all(len(move.slots) == 2 for move in outcome.moves)
        assert outcome.report.is_complete
        assert outcome.report.copies_stored >= 2 * 40
        assert await is_fully_copied(world)
        await world.cluster.kill_region("us-east")
        assert await values_of(world.log) == values


@asynccontextmanager
async def a_promised_world_without(region: str) -> AsyncIterator[World]:
    """Four regions, one lost, and a stream that should survive a region and a node."""
    regions = {"us-east": 3, "eu-west": 3, "ap-northeast": 3, "sa-east": 3}
    sessions: list[MemoryMetadata] = []
    async with (
        open_in_process_cluster(regions) as cluster,
        cluster.open_client("us-east", on_session=sessions.append) as log,
    ):
        await log.create_stream(STREAM, survive="1 region and 1 node")
        await cluster.kill_region(region)
        await trio.sleep(SESSION_GONE_S)
        yield World(cluster, log, sessions[0])


async def test_fragments_that_break_the_promise_are_repaired_to_keep_it(
    autojump_clock: MockClock,
) -> None:
    async with a_promised_world_without("eu-west") as world:
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, [b"one", b"two"])
        await world.cluster.restart_region("eu-west")
        await trio.sleep(SESSION_GONE_S)

        before = await seen(world)
        outcome = await repaired(world)
        after = await seen(world)

        assert {one.adherence for one in before + after} == {"strict"}
        assert [one.keeps_promise for one in before] == [False]
        assert all(one.is_repairable for one in before)
        assert outcome.report.is_complete
        assert [one.keeps_promise for one in after] == [True]
        assert (await world.log.health(every_ledger=True)).placement.promises_broken == 0
        assert await is_fully_copied(world)


async def test_a_writer_leaves_an_ensemble_that_breaks_the_promise(
    autojump_clock: MockClock,
) -> None:
    async with (
        a_promised_world_without("eu-west") as world,
        world.log.open_writer(STREAM) as writer,
    ):
        await append_each(writer, [b"one"])
        (without,) = await seen(world)
        await world.cluster.restart_region("eu-west")
        await trio.sleep(60)
        await append_each(writer, [b"two"])
        *_, with_all = await seen(world)
        await trio.sleep(600)
        segments = await world.log.list_segments(STREAM)

    assert (without.adherence, without.keeps_promise) == ("strict", False)
    assert (with_all.adherence, with_all.keeps_promise) == ("strict", True)
    assert len(segments) == 2


async def test_an_interrupted_repair_continues_where_it_stopped(
    autojump_clock: MockClock,
) -> None:
    async with a_world_written_without("ap-northeast") as (world, _):
        wanted = sum(2 * one.entries for one in await seen(world) if one.entries)
        scope = trio.CancelScope()
        cut_off = PlacementRepairer(
            world.log.access,
            CopyConfig(rate_bytes_per_s=50e3),
            aims=RepairAims(),
            on_move=lambda _: None,
            on_progress=lambda told: scope.cancel() if told.copied.copies_stored > 9 else None,
        )
        with scope:
            await cut_off.run(STREAM)

        outcome = await repaired(world)

        assert scope.cancelled_caught
        # Copies in progress at the interruption may be stored twice.
        assert 9 < wanted - outcome.report.copies_stored <= cut_off.report.copies_stored + 8
        assert await adherences(world) == {"strict"}


async def test_two_concurrent_repairs_end_like_one(autojump_clock: MockClock) -> None:
    async with a_world_written_without("ap-northeast") as (world, _):
        outcomes: list[Repaired] = []

        async def repair() -> None:
            outcomes.append(await repaired(world))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(repair)
            nursery.start_soon(repair)

        assert all(one.report.is_complete for one in outcomes)
        assert await adherences(world) == {"strict"}
        assert await is_fully_copied(world)


async def test_a_given_up_disk_is_found_and_its_slots_go_to_others(
    autojump_clock: MockClock,
) -> None:
    async with a_world_written_without(None) as (world, values):
        lost = next(one for one in await seen(world) if one.entries).members[0].node_id
        await world.cluster.kill(lost)
        await trio.sleep(SESSION_GONE_S)
        down = [one for one in await seen(world) if one.copies_missing]
        await mark_replaced(world.log.access.metadata, "default", lost)
        given_up = [one for one in await seen(world) if one.why]
        before = await world.log.health(), await states_of(world, lost)

        outcome = await repaired(world, target=None)
        after = await world.log.health(), await states_of(world, lost)

        assert down
        assert {(one.adherence, one.adherence_now) for one in down} == {("strict", "soft")}
        assert all(f"the disk of {lost} was given up" in one.why for one in given_up)
        assert len(outcome.moves) == len(given_up) == len(down)
        assert outcome.report.is_complete
        assert not [one for one in await seen(world) if one.why]
        assert f"run `geolog node replace {lost}` again" in before[0].reasons[0]
        assert (before[0].placement.disks_given_up, before[1]) == (len(down), ["replaced"])
        (room,) = after[0].reasons  # Eight nodes are too few for six in two regions.
        assert "no new ledger could be placed then" in room
        assert after[1] == []
        assert await is_fully_copied(world)
        assert await values_of(world.log) == values


async def states_of(world: World, node_id: str) -> list[str]:
    """The nodes with this id, as in `node ls`."""
    return [one.state for one in await world.log.list_nodes() if one.node_id == node_id]


async def test_fragments_written_without_a_region_degrade_the_cluster_until_repaired(
    autojump_clock: MockClock,
) -> None:
    async with a_world_written_without("ap-northeast") as (world, _):
        before = await world.log.health()
        await repaired(world)
        after = await world.log.health(every_ledger=True)

        count = before.placement.soft
        assert before.state is HealthState.DEGRADED
        assert count
        assert any(
            f"`geolog placement repair` can fix {count}" in one for one in before.reasons
        )
        assert before.placement.streams == {STREAM: count}
        assert after.placement.soft == 0
        assert not any("placement repair" in one for one in after.reasons)


async def test_a_region_that_does_not_come_back_is_replaced_as_far_as_possible(
    autojump_clock: MockClock,
) -> None:
    async with a_world_written_without(None) as (world, values):
        await world.cluster.kill_region("eu-west")
        await trio.sleep(SESSION_GONE_S)

        untouched = await repaired(world)
        outcome = await repaired(world, replaces_down=True)

        assert untouched.moves == []
        assert untouched.report.is_complete
        assert outcome.moves
        assert {move.after for move in outcome.moves} == {"soft"}
        assert not outcome.report.is_complete  # Two regions cannot hold more.
        assert all("strict" in one.why for one in outcome.report.remaining)
        assert {one.adherence for one in outcome.report.remaining} == {"soft"}
        assert {one.copies_missing for one in await seen(world) if one.entries} == {0}
        assert await is_fully_copied(world)
        assert await values_of(world.log) == values


async def test_fragments_in_a_forbidden_region_move_on_request(
    autojump_clock: MockClock,
) -> None:
    regions = {**REGIONS, "sa-east": 3}
    async with open_world(regions=regions, segment_bytes=SEGMENT_BYTES) as world:
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, [b"%d" % number for number in range(10)])
        await change_switches(
            world.log.access.metadata,
            "default",
            lambda switches: switches.forbidding("sa-east", frozenset(regions)),
        )

        stays = await repaired(world)
        leaves = await repaired(world, leaves_forbidden=True)
        [one] = [one for one in await seen(world) if one.entries]

        assert stays.moves == []
        assert len(leaves.moves) == 1
        assert leaves.report.is_complete
        assert one.adherence == "strict"
        assert "sa-east" not in {member.region for member in one.members}
        assert await is_fully_copied(world)


async def test_an_open_fragment_is_left_to_its_writer(
    autojump_clock: MockClock,
) -> None:
    async with open_world(regions=REGIONS) as world, world.log.open_writer(STREAM) as writer:
        await append_each(writer, [b"one"])
        [open_] = await seen(world)
        lost = open_.members[0].node_id
        await world.cluster.kill(lost)
        await trio.sleep(SESSION_GONE_S)
        await mark_replaced(world.log.access.metadata, "default", lost)
        await writer.append(b"two")

        outcome = await repaired(world)

        assert open_.last_entry is None
        if outcome.report.remaining_count:
            assert all(one.may_pass for one in outcome.report.remaining)
        assert await values_of(world.log) == [b"one", b"two"]


async def test_a_ledger_record_changed_by_others_meanwhile_is_read_again(
    autojump_clock: MockClock,
) -> None:
    async with a_world_written_without("ap-northeast") as (world, _):
        access = world.log.access
        conflicting = _ChangedOnce(access.ledgers)
        spoiled = attrs.evolve(access, ledgers=conflicting)
        moves: list[FragmentMove] = []
        repairer = PlacementRepairer(
            spoiled, CopyConfig(), aims=RepairAims(), on_move=moves.append
        )

        await repairer.run(STREAM)

        assert conflicting.changed
        assert moves
        assert await adherences(world) == {"strict"}


class _ChangedOnce(LedgerMetadata):
    """Let another client write the ledger's record just before its first change."""

    def __init__(self, real: LedgerMetadata) -> None:
        super().__init__(real._metadata, real._paths)  # noqa: SLF001 - It stands in for it.
        self.changed = False

    async def replace(self, read: VersionedLedger, record: LedgerRecord) -> VersionedLedger:
        if not self.changed:
            self.changed = True
            await super().replace(read, read.record)
        return await super().replace(read, record)


async def test_a_node_that_let_a_ledger_go_takes_it_again_if_there_is_no_other(
    autojump_clock: MockClock,
) -> None:
    async with a_world_of_four_nodes() as (world, values):
        left, other, _ = [member.region for member in (await seen(world))[0].members]
        await forbid(world, {left})
        await repaired(world, leaves_forbidden=True)
        await trio.sleep(GARBAGE_GONE_S)
        let_go_count = await ledgers_let_go(world)
        await forbid(world, {other})
        outcome = await repaired(world, leaves_forbidden=True)

        assert let_go_count == 1
        [move] = outcome.moves
        assert [(one.from_region, one.to_region) for one in move.slots] == [(other, left)]
        assert outcome.report.is_complete
        await trio.sleep(GARBAGE_GONE_S)
        assert await is_fully_copied(world)
        assert await values_of(world.log) == values


@asynccontextmanager
async def a_world_in_which_one_lacks_copies() -> AsyncIterator[tuple[World, str]]:
    """Two nodes in eu-west, one in each other region; the member in us-east was away."""
    regions = {"us-east": 1, "eu-west": 2, "ap-northeast": 1}
    sessions: list[MemoryMetadata] = []
    async with (
        open_in_process_cluster(regions, seed=1) as cluster,
        cluster.open_client("us-east", host="client", on_session=sessions.append) as log,
    ):
        await log.create_stream(
            STREAM, ensemble_size=3, write_quorum=3, ack_quorum=2, min_regions=2
        )
        async with log.open_writer(STREAM) as writer:
            await append_each(writer, [b"all have it"])
            await cluster.kill("us-east-1")
            await append_each(writer, [b"us-east-1 lacks it"] * 10)
        yield World(cluster, log, sessions[0]), "us-east-1"


async def test_a_member_that_leaves_its_region_waits_for_one_that_lacks_copies(
    autojump_clock: MockClock,
) -> None:
    async with a_world_in_which_one_lacks_copies() as (world, lacking):
        await forbid(world, {"ap-northeast"})
        outcome = await repaired(world, leaves_forbidden=True)

        assert outcome.moves == []
        [remaining] = outcome.report.remaining
        assert lacking in remaining.why
        assert "too few regions" in remaining.why
        assert remaining.may_pass


async def test_a_staying_member_gets_its_missing_copies_before_another_leaves_the_region(
    autojump_clock: MockClock,
) -> None:
    async with a_world_in_which_one_lacks_copies() as (world, lacking):
        await world.cluster.start(lacking)
        await trio.sleep(SESSION_GONE_S)
        await forbid(world, {"ap-northeast"})
        outcome = await repaired(world, leaves_forbidden=True)

        [move] = outcome.moves
        assert [(one.from_region, one.to_region) for one in move.slots] == [
            ("ap-northeast", "eu-west")
        ]
        assert await is_fully_copied(world)


@asynccontextmanager
async def a_world_of_four_nodes() -> AsyncIterator[tuple[World, list[bytes]]]:
    """One node per region, three of which have a closed segment."""
    regions = {"us-east": 1, "eu-west": 1, "ap-northeast": 1, "sa-east": 1}
    sessions: list[MemoryMetadata] = []
    async with (
        open_in_process_cluster(regions, seed=1) as cluster,
        cluster.open_client("us-east", host="client", on_session=sessions.append) as log,
    ):
        await log.create_stream(
            STREAM, ensemble_size=3, write_quorum=3, ack_quorum=2, min_regions=2
        )
        values = [b"%d" % number for number in range(20)]
        async with log.open_writer(STREAM) as writer:
            await append_each(writer, values)
        yield World(cluster, log, sessions[0]), values


async def ledgers_let_go(world: World) -> int:
    """How many ledgers the nodes have let go in total."""
    access = world.log.access
    replicas = access.replicas.within(5.0)
    nodes = await list_known_nodes(access.metadata, "default")
    statuses = [json.loads(await replicas.status(node.instance)) for node in nodes]
    return sum(status["garbage"]["ledgers_let_go"] for status in statuses)


async def forbid(world: World, regions: set[str]) -> None:
    """Forbid placement in exactly these regions."""
    metadata = world.log.access.metadata
    await change_switches(metadata, "default", lambda _: PlacementSwitches(frozenset(regions)))


async def test_the_next_repair_withdraws_the_note_of_an_abandoned_replacement(
    autojump_clock: MockClock,
) -> None:
    async with a_world_written_without(None) as (world, _):
        access = world.log.access
        [first, *_] = [one for one in await seen(world) if one.entries]
        members = {member.node_id for member in first.members}
        known = await list_known_nodes(access.metadata, "default")
        stranger = next(one for one in known if one.node_id not in members)
        read = await access.ledgers.read_latest(LedgerId(first.ledger))
        announced = read.record.with_arriving([stranger.instance])
        await access.ledgers.replace(read, announced)

        told = await repaired(world, is_dry_run=True)
        held = (await access.ledgers.read_latest(LedgerId(first.ledger))).record
        await world.cluster.kill(first.members[0].node_id)
        await trio.sleep(SESSION_GONE_S)
        perhaps_wanted = await repaired(world)
        await world.cluster.start(first.members[0].node_id)
        await trio.sleep(SESSION_GONE_S)
        outcome = await repaired(world)

        assert told.report.arrivals_cleared == 0
        assert perhaps_wanted.report.arrivals_cleared == 0
        assert held == announced
        assert outcome.report.arrivals_cleared == 1
        assert (await access.ledgers.read_latest(LedgerId(first.ledger))).record == read.record
