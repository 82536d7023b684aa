"""Replacing a node with a lost disk: its peers have all its copies."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from geolog.admin.ledger_description import describe_ledger
from geolog.admin.repair import LedgerRepairer
from geolog.admin.replacement import NodeReplacer, ReplaceReport
from geolog.ledger.copying.fragment_copy import CopyConfig
from geolog.metadata.nodes import NodeRecord, list_known_nodes
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.placement_switches import change_switches
from geolog.metadata.replaced_nodes import (
    NodeRunsError,
    UnknownNodeError,
    list_replaced_nodes,
    mark_replaced,
)
from geolog.protocol.ids import LedgerId
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from tests.pure.whole.clusters import (
    STREAM,
    World,
    append_each,
    open_world,
    values_of,
)
from topology.errors import InvalidArgumentError
from topology.switches import PlacementSwitches

SEGMENT_BYTES = 64 * 1024
SESSION_GONE_S = 10.0


def replacer_of(world: World, config: CopyConfig | None = None) -> NodeReplacer:
    return NodeReplacer(world.log.access, config or CopyConfig())


@asynccontextmanager
async def a_world_of_segments() -> AsyncIterator[tuple[World, list[bytes]]]:
    """Several closed segments on seven nodes, and their values."""
    regions = {"us-east": 3, "eu-west": 2, "ap-northeast": 2}
    async with open_world(regions=regions, segment_bytes=SEGMENT_BYTES) as world:
        rng = random.Random(1)
        values = [rng.randbytes(4000) for _ in range(60)]
        for start in range(0, 60, 20):
            async with world.log.open_writer(STREAM) as writer:
                await append_each(writer, values[start : start + 20])
        yield world, values


async def all_ledgers(world: World) -> list[LedgerRecord]:
    """All ledgers except those made ahead."""
    catalog = world.log.access.catalog
    return [
        record
        for bucket in await catalog.buckets()
        for record in await catalog.records_in(bucket)
        if record.state is not LedgerState.ALLOCATED
    ]


async def holders_of(world: World, instance: str) -> list[int]:
    """The ledgers with this instance in a fragment."""
    return [
        record.ledger
        for record in await all_ledgers(world)
        for fragment in record.fragments
        if instance in [member.instance for member in fragment.ensemble]
    ]


async def node_named(world: World, node_id: str) -> NodeRecord:
    known = await list_known_nodes(world.log.access.metadata, "default")
    return next(one for one in known if one.node_id == node_id)


async def busiest(world: World) -> NodeRecord:
    """The node that is a member of the most fragments."""
    known = await list_known_nodes(world.log.access.metadata, "default")
    counts = {one.node_id: len(await holders_of(world, one.instance)) for one in known}
    return max(known, key=lambda one: (counts[one.node_id], one.node_id))


async def lose(world: World, node: NodeRecord) -> None:
    """Kill a node with its disk, and let its session expire."""
    await world.cluster.kill(node.node_id)
    await trio.sleep(SESSION_GONE_S)


async def come_back_empty(world: World, node: NodeRecord) -> None:
    """Start an empty disk under the same node id and address once the old one is given up."""
    path = ClusterPaths("default").node_known(node.node_id)
    changed = trio.Event()
    while await world.log.access.metadata.find(path, changed=changed) is not None:
        await changed.wait()
        changed = trio.Event()
    await world.cluster.add_node(node.node_id, str(node.location))


async def replaced_by_itself(
    world: World,
    node: NodeRecord,
    config: CopyConfig | None = None,
    *,
    is_waiting: bool = False,
) -> ReplaceReport:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(come_back_empty, world, node)
        replacer = replacer_of(world, config)
        return await replacer.replace(node.node_id, is_waiting=is_waiting)


async def is_fully_copied(world: World) -> bool:
    return (await world.log.verify_stream(STREAM, full_copies=True)).is_good


async def read_with_each_region_down(world: World) -> list[list[bytes]]:
    """Read the values while one region after another is away."""
    found = []
    for region in ("us-east", "eu-west", "ap-northeast"):
        await world.cluster.kill_region(region)
        found.append(await values_of(world.log))
        await world.cluster.restart_region(region)
        await trio.sleep(SESSION_GONE_S)
    return found


async def test_an_empty_disk_at_the_same_address_takes_the_place_of_a_lost_one(
    autojump_clock: MockClock,
) -> None:
    async with a_world_of_segments() as (world, values):
        lost = await busiest(world)
        count = len(await holders_of(world, lost.instance))
        await lose(world, lost)

        report = await replaced_by_itself(world, lost)

        states = [
            one.state for one in await world.log.list_nodes() if one.node_id == lost.node_id
        ]
        assert states == ["writable"]
        successor = await node_named(world, lost.node_id)
        assert (report.is_complete, report.fragments_changed, report.ledgers) == (
            True,
            count,
            count,
        )
        assert (report.successor, report.successor_instance) == (
            lost.node_id,
            successor.instance,
        )
        assert await holders_of(world, lost.instance) == []
        assert len(await holders_of(world, successor.instance)) == count
        assert await is_fully_copied(world)
        assert await read_with_each_region_down(world) == [values] * 3


async def test_a_node_is_listed_once_with_its_past_disks_until_their_copies_are_moved(
    autojump_clock: MockClock,
) -> None:
    async with a_world_of_segments() as (world, _):
        lost = await busiest(world)
        await lose(world, lost)
        await mark_replaced(world.log.access.metadata, "default", lost.node_id)
        gone = [one for one in await world.log.list_nodes() if one.node_id == lost.node_id]
        await come_back_empty(world, lost)
        back = [one for one in await world.log.list_nodes() if one.node_id == lost.node_id]
        await replacer_of(world).replace(lost.node_id, is_waiting=False)
        moved = [one for one in await world.log.list_nodes() if one.node_id == lost.node_id]

        assert [(one.state, one.past_disks) for one in gone] == [("replaced", [lost.instance])]
        assert [(one.state, one.past_disks) for one in back] == [("writable", [lost.instance])]
        assert [(one.state, one.past_disks) for one in moved] == [("writable", [])]


async def test_another_node_takes_the_place_of_one_that_is_gone_for_good(
    autojump_clock: MockClock,
) -> None:
    async with a_world_of_segments() as (world, values):
        lost = await busiest(world)
        await lose(world, lost)
        await world.cluster.add_node("the-new-one", str(lost.location))

        report = await replacer_of(world).replace(lost.node_id, successor_id="the-new-one")

        known = await list_known_nodes(world.log.access.metadata, "default")
        assert report.is_complete
        assert report.warnings == []
        assert lost.node_id not in [one.node_id for one in known]
        assert await is_fully_copied(world)
        assert await values_of(world.log) == values


async def test_a_successor_in_a_forbidden_region_gives_a_warning(
    autojump_clock: MockClock,
) -> None:
    async with a_world_of_segments() as (world, _):
        lost = await busiest(world)
        await lose(world, lost)
        await world.cluster.add_node("the-new-one", str(lost.location))
        access, region = world.log.access, lost.location.region
        switches = PlacementSwitches(frozenset({region}))
        await change_switches(access.metadata, "default", lambda _: switches)

        report = await replacer_of(world).replace(lost.node_id, successor_id="the-new-one")

        assert report.is_complete
        (warning,) = report.warnings
        assert warning.startswith(
            f"node the-new-one is in {region}, where placement is forbidden; `geolog"
        )


async def test_a_writer_goes_on_while_a_node_is_replaced(autojump_clock: MockClock) -> None:
    async with a_world_of_segments() as (world, values):
        lost = await busiest(world)
        written = list(values)
        is_over = trio.Event()

        async def write(task_status: trio.TaskStatus[None]) -> None:
            async with world.log.open_writer(STREAM) as writer:
                task_status.started()
                while not is_over.is_set():
                    value = b"meanwhile %d" % len(written)
                    await writer.append(value)
                    written.append(value)
                    await trio.sleep(0.05)

        async with trio.open_nursery() as nursery:
            await nursery.start(write)
            await lose(world, lost)
            report = await replaced_by_itself(world, lost, is_waiting=True)
            is_over.set()

        assert len(written) > len(values) + 50
        assert report.is_complete
        assert await holders_of(world, lost.instance) == []
        assert await read_with_each_region_down(world) == [written] * 3


async def test_a_running_node_is_not_replaced(autojump_clock: MockClock) -> None:
    async with a_world_of_segments() as (world, _):
        node = await busiest(world)

        with pytest.raises(NodeRunsError, match=f"{node.node_id} is up at .* stop it first"):
            await replacer_of(world).replace(node.node_id)

        assert await node_named(world, node.node_id) == node
        assert await list_replaced_nodes(world.log.access.metadata, "default") == []


async def test_an_unknown_node_is_refused_with_the_nearest_name(
    autojump_clock: MockClock,
) -> None:
    async with a_world_of_segments() as (world, _):
        with pytest.raises(UnknownNodeError, match="did you mean 'us-east-1'"):
            await replacer_of(world).replace("us-eats-1")


@pytest.mark.parametrize(
    ("successor_id", "kind", "text"),
    [
        ("us-east-1", InvalidArgumentError, "cannot replace itself"),
        ("us-east-9", UnknownNodeError, "did you mean"),
        ("eu-west-1", InvalidArgumentError, "eu-west-1 is down"),
    ],
)
async def test_an_impossible_successor_changes_nothing(
    autojump_clock: MockClock, successor_id: str, kind: type[Exception], text: str
) -> None:
    async with a_world_of_segments() as (world, _):
        await lose(world, await node_named(world, "us-east-1"))
        await lose(world, await node_named(world, "eu-west-1"))

        with pytest.raises(kind, match=text):
            await replacer_of(world).replace("us-east-1", successor_id=successor_id)

        assert await list_replaced_nodes(world.log.access.metadata, "default") == []


async def test_an_interrupted_replacement_continues_where_it_stopped(
    autojump_clock: MockClock,
) -> None:
    async with a_world_of_segments() as (world, values):
        lost = await busiest(world)
        await lose(world, lost)
        with trio.move_on_after(8) as patience:
            await replaced_by_itself(world, lost, CopyConfig(rate_bytes_per_s=20_000))
        assert patience.cancelled_caught
        left = await holders_of(world, lost.instance)

        report = await replacer_of(world).replace(lost.node_id)

        assert len(left) > 0
        assert report.is_complete
        assert report.fragments_changed == len(left)
        assert await is_fully_copied(world)
        assert await values_of(world.log) == values


async def test_a_replacement_paused_for_longer_than_the_grace_keeps_its_copies(
    autojump_clock: MockClock,
) -> None:
    async with a_world_of_segments() as (world, values):
        lost = await busiest(world)
        await lose(world, lost)
        await world.cluster.add_node("new", str(lost.location))
        slow = replacer_of(world, CopyConfig(rate_bytes_per_s=20_000))
        with trio.move_on_after(6):
            await slow.replace(lost.node_id, successor_id="new")
        await trio.sleep(1000)  # The grace is 600 s.
        report = await replacer_of(world).replace(lost.node_id, successor_id="new")

        assert report.is_complete
        assert await is_fully_copied(world)
        assert [one.arriving for one in await all_ledgers(world) if one.arriving] == []
        assert await values_of(world.log) == values


async def test_two_concurrent_replacements_of_a_node_do_not_disturb_each_other(
    autojump_clock: MockClock,
) -> None:
    async with a_world_of_segments() as (world, values):
        lost = await busiest(world)
        await lose(world, lost)
        await world.cluster.add_node("new-1", str(lost.location))
        await world.cluster.add_node("new-2", str(lost.location))
        reports: list[ReplaceReport] = []

        async def replace(successor_id: str) -> None:
            replacer = replacer_of(world)
            reports.append(await replacer.replace(lost.node_id, successor_id=successor_id))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(replace, "new-1")
            nursery.start_soon(replace, "new-2")

        assert [report.is_complete for report in reports] == [True, True]
        assert [one.arriving for one in await all_ledgers(world) if one.arriving] == []
        assert await holders_of(world, lost.instance) == []
        assert await is_fully_copied(world)
        assert await values_of(world.log) == values


async def test_a_successor_that_dies_in_the_middle_leaves_every_record_true(
    autojump_clock: MockClock,
) -> None:
    async with a_world_of_segments() as (world, values):
        lost = await busiest(world)
        await lose(world, lost)
        reports: list[ReplaceReport] = []

        async def replace() -> None:
            config = CopyConfig(rate_bytes_per_s=20_000)
            reports.append(await replaced_by_itself(world, lost, config))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(replace)
            await trio.sleep(8)
            await world.cluster.kill(lost.node_id)
        (broken_off,) = reports
        assert await values_of(world.log) == values
        await world.cluster.start(lost.node_id)
        await trio.sleep(5)

        report = await replacer_of(world).replace(lost.node_id)

        assert not broken_off.is_complete
        assert all(one.may_pass for one in broken_off.remaining)
        assert report.is_complete
        assert await is_fully_copied(world)


async def test_a_second_lost_disk_is_replaced_along_with_the_first(
    autojump_clock: MockClock,
) -> None:
    async with a_world_of_segments() as (world, values):
        lost = await busiest(world)
        await lose(world, lost)
        with trio.move_on_after(8):
            await replaced_by_itself(world, lost, CopyConfig(rate_bytes_per_s=20_000))
        second = await node_named(world, lost.node_id)
        await lose(world, second)

        report = await replaced_by_itself(world, second)

        assert sorted(report.instances) == sorted([lost.instance, second.instance])
        assert report.is_complete
        assert await holders_of(world, second.instance) == []
        assert await is_fully_copied(world)
        assert await values_of(world.log) == values


async def test_the_open_ledger_is_left_to_its_writer_and_named(
    autojump_clock: MockClock,
) -> None:
    regions = {"us-east": 2, "eu-west": 2, "ap-northeast": 2}
    async with open_world(regions=regions) as world, world.log.open_writer(STREAM) as writer:
        await writer.append(b"one")
        (segment,) = await world.log.list_segments(STREAM)
        lost = await node_named(world, segment.ensemble[0])
        await world.cluster.kill(lost.node_id)
        await mark_when_gone(world, lost)
        await world.cluster.add_node(lost.node_id, str(lost.location))

        report = await replacer_of(world).replace(lost.node_id)

        still_there = await holders_of(world, lost.instance)
        assert [one.ledger for one in report.remaining] == still_there
        assert all(one.may_pass for one in report.remaining)
        assert await values_of(world.log) == [b"one"]


async def mark_when_gone(world: World, node: NodeRecord) -> None:
    while True:
        try:
            await mark_replaced(world.log.access.metadata, "default", node.node_id)
        except NodeRunsError:
            await trio.sleep(0.5)
        else:
            return


async def test_waiting_ends_when_the_open_ledger_is_closed(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        reports: list[ReplaceReport] = []

        async def replace(node: NodeRecord) -> None:
            replacer = replacer_of(world)
            reports.append(await replacer.replace(node.node_id, is_waiting=True))

        async with trio.open_nursery() as nursery, world.log.open_writer(STREAM) as writer:
            await writer.append(b"one")
            (segment,) = await world.log.list_segments(STREAM)
            lost = await node_named(world, segment.ensemble[0])
            await world.cluster.kill(lost.node_id)
            await mark_when_gone(world, lost)
            await world.cluster.add_node(lost.node_id, str(lost.location))
            nursery.start_soon(replace, lost)
            await trio.sleep(5)
            await writer.append(b"two")

        (report,) = reports
        assert report.is_complete
        assert await holders_of(world, lost.instance) == []
        assert await values_of(world.log) == [b"one", b"two"]


async def flip(world: World, node_id: str, value: bytes) -> None:
    """Flip a bit of the value on a node's disk, while the node is down."""
    await world.cluster.kill(node_id)
    disk = world.cluster.nodes[node_id].disk
    for name in await disk.list():
        content = bytearray(disk.content(name))
        place = content.find(value)
        if place >= 0:
            content[place] ^= 1
            disk.overwrite(name, bytes(content))
    await world.cluster.start(node_id)


async def test_a_rotten_copy_is_not_passed_on(autojump_clock: MockClock) -> None:
    async with a_world_of_segments() as (world, values):
        lost = await busiest(world)
        first_segment = (await world.log.list_segments(STREAM))[0]
        others = [one for one in first_segment.ensemble if one != lost.node_id]
        for node_id in others[:-1]:
            await flip(world, node_id, values[3])
        await lose(world, lost)

        report = await replaced_by_itself(world, lost)

        assert report.is_complete
        await lose(world, await node_named(world, others[-1]))
        assert await values_of(world.log) == values


async def test_a_slot_is_kept_while_an_entry_of_its_fragment_has_no_intact_copy(
    autojump_clock: MockClock,
) -> None:
    async with a_world_of_segments() as (world, values):
        lost = await busiest(world)
        first_segment = (await world.log.list_segments(STREAM))[0]
        for node_id in first_segment.ensemble:
            if node_id != lost.node_id:
                await flip(world, node_id, values[3])
        await lose(world, lost)

        report = await replaced_by_itself(world, lost)

        (remaining,) = report.remaining
        details = await describe_ledger(world.log.access, LedgerId(first_segment.ledger))
        repaired = await LedgerRepairer(world.log.access, CopyConfig()).repair(
            LedgerId(first_segment.ledger)
        )
        assert "replaced" in [one.state for one in details.members]
        assert any("node replace" in one.why for one in repaired.incomplete)
        assert (remaining.ledger, remaining.may_pass) == (first_segment.ledger, False)
        assert "1 entries have no intact copy" in remaining.why
        assert await holders_of(world, lost.instance) == [first_segment.ledger]


async def test_closed_fragments_of_the_open_ledger_are_moved_under_its_writer(
    autojump_clock: MockClock,
) -> None:
    regions = {"us-east": 3, "eu-west": 3, "ap-northeast": 3}
    async with open_world(regions=regions) as world, world.log.open_writer(STREAM) as writer:
        written = [b"%d" % number for number in range(40)]
        await append_each(writer, written[:10])
        (segment,) = await world.log.list_segments(STREAM)
        lost = await node_named(world, segment.ensemble[0])
        await world.cluster.kill(lost.node_id)
        for value in written[10:30]:
            await writer.append(value)
            await trio.sleep(1)

        report = await replaced_by_itself(world, lost)
        await append_each(writer, written[30:])

        (ledger,) = await all_ledgers(world)
        assert (report.is_complete, report.fragments_changed) == (True, 1)
        assert (ledger.state, len(ledger.fragments)) == (LedgerState.OPEN, 2)
        assert await holders_of(world, lost.instance) == []
        assert await values_of(world.log) == written


async def test_repair_moves_what_came_into_use_after_the_replacement(
    autojump_clock: MockClock,
) -> None:
    """A ledger made ahead with the old disk is left out by the replacement."""
    async with a_world_of_segments() as (world, values):
        lost = await busiest(world)
        await lose(world, lost)
        access = world.log.access
        await mark_replaced(access.metadata, access.cluster, lost.node_id)
        repairer = LedgerRepairer(access, CopyConfig())
        (before,) = {
            one.why
            for ledger in await holders_of(world, lost.instance)
            for one in (await repairer.repair(LedgerId(ledger))).incomplete
        }
        await come_back_empty(world, lost)
        await trio.sleep(SESSION_GONE_S)
        after = [
            await repairer.repair(LedgerId(ledger))
            for ledger in await holders_of(world, lost.instance)
        ]
        assert await holders_of(world, lost.instance) == []
        assert await is_fully_copied(world)
        assert await values_of(world.log) == values

    assert "its disk was given up" in before
    assert [one.incomplete for one in after] == [[]] * len(after)
