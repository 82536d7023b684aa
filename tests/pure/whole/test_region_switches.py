"""Regions can be forbidden and allowed whatever happens to streams meanwhile."""

import trio
from trio.testing import MockClock

from geolog.admin.placement.region_switches import RegionSwitches
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.metadata.replaced_nodes import mark_replaced
from geolog.protocol.stream_state import StreamName
from tests.pure.whole.clusters import open_world

NAME = "shop/carts"
_SESSION_GONE_S = 10.0


async def test_a_region_can_be_forbidden_while_a_stream_is_being_deleted(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await world.log.create_stream(NAME, survive="1 region")
        access = world.log.access
        await StreamCatalog(access.metadata, access.paths).begin_delete(StreamName.parse(NAME))

        change = await RegionSwitches(access).forbid("eu-west")

        assert change.placement == "forbidden"
        assert NAME not in [*change.streams_without_place, *change.streams_less_safe]


async def test_a_region_whose_last_disk_was_given_up_still_exists(
    autojump_clock: MockClock,
) -> None:
    regions = {"us-east": 2, "eu-west": 2, "ap-northeast": 1}
    async with open_world(regions=regions) as world:
        access = world.log.access
        await world.cluster.kill("ap-northeast-1")
        await trio.sleep(_SESSION_GONE_S)
        await mark_replaced(access.metadata, "default", "ap-northeast-1")

        change = await RegionSwitches(access).forbid("ap-northeast")

        assert change.placement == "forbidden"
