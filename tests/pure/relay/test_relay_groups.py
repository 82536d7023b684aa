"""Relay groups of two regions in one process: who coordinates, and what its end costs.

Members, bridges, mirrors, owners and nodes are the real ones; network, disks and metadata are
in memory.
"""

import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType

import attrs
import trio
from trio.testing import MockClock

from geolog.metadata.relays import RelayGroups, RelayGroupSeen, RelayMemberRecord
from geolog.transport.seam import Address
from relay.protocol.group_member import GroupRole
from relay.server.config import RelayConfig
from relay.server.relay import Relay, open_relay
from sim.fakes.memory_metadata import MemoryMetadata
from sim.in_process import InProcessCluster, open_in_process_cluster
from tests.pure.relay.test_bridges import wait_equal
from tests.pure.whole.clusters import append_each
from tests.pure.whole.mirroring import HOME, REGIONS, STREAM, TARGET, create

PORT = 7200


@attrs.define
class Member:
    """A member on its host, its session with the metadata store, and its end."""

    relay: Relay
    host: str
    metadata: MemoryMetadata
    ending: trio.Event = attrs.field(factory=trio.Event)
    ended: trio.Event = attrs.field(factory=trio.Event)

    async def leave(self) -> None:
        self.ending.set()
        await self.ended.wait()


async def run_member(
    cluster: InProcessCluster,
    region: str,
    number: int,
    settings: Mapping[str, int] = MappingProxyType({}),
    *,
    task_status: trio.TaskStatus[Member] = trio.TASK_STATUS_IGNORED,
) -> None:
    host = f"{region}-relay-{number}"
    async with cluster.store.open_session() as metadata:
        async with open_relay(
            RelayConfig(
                region=region,
                listen=Address(host, PORT),
                relay_id=host,
                **settings,  # type: ignore[arg-type]
            ),
            metadata=metadata,
            transport=cluster.network.transport(host),
            cluster="default",
            rng=random.Random(host),
            now_us=cluster.now_us,
        ) as relay:
            member = Member(relay, host, metadata)
            task_status.started(member)
            await member.ending.wait()
        member.ended.set()
    assert relay.bugs_count == 0


@asynccontextmanager
async def open_groups(
    cluster: InProcessCluster, *, count: int = 2
) -> AsyncIterator[dict[str, list[Member]]]:
    """Run `count` members at home and in the target, in their order of joining."""
    async with trio.open_nursery() as nursery:
        groups: dict[str, list[Member]] = {
            region: [
                await nursery.start(run_member, cluster, region, number)
                for number in range(count)
            ]
            for region in (HOME, TARGET)
        }
        yield groups
        for member in [*groups[HOME], *groups[TARGET]]:
            member.ending.set()


async def seen_when(
    cluster: InProcessCluster, region: str, *, epoch: int, members: int
) -> RelayGroupSeen:
    """A region's group, once it has this epoch and so many members."""
    async with cluster.store.open_session() as metadata:
        groups = RelayGroups(metadata, "default")
        with trio.fail_after(30):
            while True:
                changed = trio.Event()
                seen = await groups.look(region, changed=changed)
                is_epoch = seen.view is not None and seen.view.epoch == epoch
                if is_epoch and len(seen.members) == members:
                    return seen
                await changed.wait()


async def test_the_first_coordinates_and_the_second_stands_by(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        open_groups(cluster, count=3) as groups,
    ):
        await seen_when(cluster, HOME, epoch=1, members=3)
        await trio.sleep(1)
        roles = [member.relay.role for member in groups[HOME]]
        refused = [member.relay.ends is None for member in groups[HOME]]

    assert roles == [GroupRole.COORDINATOR, GroupRole.STANDBY, GroupRole.WAITING]
    assert refused == [False, True, True]


async def test_a_coordinator_that_leaves_is_succeeded_before_its_bridges_end(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_groups(cluster) as groups,
    ):
        await create(log)
        async with log.open_writer(STREAM) as writer:
            await append_each(writer, [b"%d" % number for number in range(20)])
            await wait_equal(log)
            began_s = trio.current_time()
            await groups[HOME][0].leave()
            left_s = trio.current_time() - began_s
            await append_each(writer, [b"%d" % number for number in range(20)])
        assert await wait_equal(log) >= 40
        seen = await seen_when(cluster, HOME, epoch=2, members=1)

    assert seen.view is not None
    assert seen.view.relay_id == f"{HOME}-relay-1"
    assert left_s < 1


async def test_a_coordinator_that_is_cut_off_is_succeeded_early_and_stops(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_groups(cluster) as groups,
    ):
        await create(log)
        async with log.open_writer(STREAM) as writer:
            await append_each(writer, [b"%d" % number for number in range(20)])
            await wait_equal(log)
            began_s = trio.current_time()
            cluster.network.darken(groups[HOME][0].host)  # It runs on, and nobody hears it.
            await append_each(writer, [b"%d" % number for number in range(20)])
            await seen_when(cluster, HOME, epoch=2, members=2)
            taken_over_s = trio.current_time() - began_s
            assert await wait_equal(log) >= 40
        with trio.fail_after(10):
            await seen_when(cluster, HOME, epoch=2, members=2)
        await trio.sleep(5)
        roles = [member.relay.role for member in groups[HOME]]

    assert taken_over_s < 3  # Its session with the metadata store lives on.
    assert roles == [GroupRole.STANDBY, GroupRole.COORDINATOR]


async def test_a_coordinator_that_is_deposed_while_it_leaves_ends_well(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_groups(cluster) as groups,
    ):
        await create(log)
        async with log.open_writer(STREAM) as writer:
            await append_each(writer, [b"%d" % number for number in range(20)])
            await wait_equal(log)
            cluster.network.darken(groups[TARGET][0].host)
            await append_each(writer, [b"%d" % number for number in range(20)])
            leaver = groups[HOME][0]
            leaver.ending.set()
            await trio.sleep(0.1)  # Its entries are not answered now, so it waits.
            assert leaver.relay.role is GroupRole.COORDINATOR
            leaver.metadata.expire()
            await leaver.ended.wait()
        assert await wait_equal(log) >= 40


async def test_a_target_whose_coordinator_is_lost_goes_on_with_the_next_one(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_groups(cluster) as groups,
    ):
        await create(log)
        async with log.open_writer(STREAM, writer_id="till") as writer:
            await append_each(writer, [b"%d" % number for number in range(20)])
            cluster.network.darken(groups[TARGET][0].host)
            await append_each(writer, [b"%d" % number for number in range(20)])
            await seen_when(cluster, TARGET, epoch=2, members=2)
            assert await wait_equal(log) >= 40


async def test_a_relay_that_starts_again_takes_the_place_of_its_old_membership(
    autojump_clock: MockClock,
) -> None:
    address = Address("one", PORT)
    record = RelayMemberRecord(relay_id="one", region=HOME, address=address)
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.store.open_session() as before,
        cluster.store.open_session() as now,
        cluster.store.open_session() as other,
    ):
        first = await RelayGroups(before, "default").join(record)
        second = await RelayGroups(other, "default").join(
            attrs.evolve(record, relay_id="other")
        )
        again = await RelayGroups(now, "default").join(record)
        seen = await RelayGroups(now, "default").look(HOME)

    assert first < second < again
    assert [one.number for one in seen.members] == [second, again]


async def test_a_lost_session_ends_the_epoch_and_the_member_joins_at_the_end(
    autojump_clock: MockClock,
) -> None:
    async with open_in_process_cluster(REGIONS) as cluster, open_groups(cluster) as groups:
        first, second = groups[HOME]
        await seen_when(cluster, HOME, epoch=1, members=2)
        first.metadata.expire()
        seen = await seen_when(cluster, HOME, epoch=2, members=2)
        await trio.sleep(1)

        assert [one.record.relay_id for one in seen.members] == [second.host, first.host]
        assert [first.relay.role, second.relay.role] == [
            GroupRole.STANDBY,
            GroupRole.COORDINATOR,
        ]
        assert first.relay.ends is None
