"""Regions are forbidden and allowed whatever becomes of streams meanwhile."""

from trio.testing import MockClock

from geolog.client.placement.region_switches import RegionSwitches
from geolog.client.streams.stream_catalog import StreamCatalog
from geolog.protocol.stream_state import StreamName
from tests.pure.whole.clusters import open_world

NAME = "shop/carts"


async def test_a_region_is_forbidden_while_a_stream_is_being_deleted(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await world.log.create_stream(NAME, survive="1 region")
        access = world.log.access
        await StreamCatalog(access.metadata, access.paths).begin_delete(StreamName.parse(NAME))

        change = await RegionSwitches(access).forbid("eu-west")

        assert change.placement == "forbidden"
        assert NAME not in [*change.streams_without_place, *change.streams_less_safe]
