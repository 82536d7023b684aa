"""Settings of a relay that cannot be are refused by name; the others bound its buffers."""

import pytest
import trio
from trio.testing import MockClock

from geolog.transport.seam import Address
from relay.server.config import RelayConfig
from sim.in_process import open_in_process_cluster
from tests.pure.relay.test_feeds import noise
from tests.pure.relay.test_relay_groups import PORT, run_member
from tests.pure.whole.clusters import append_each
from tests.pure.whole.mirroring import HOME, REGIONS, STREAM, create
from topology.errors import InvalidConfigError


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("window_bytes", 0),
        ("buffer_bytes", 0),
        ("buffer_entries", -1),
        ("buffer_age_s", 0.0),
        ("buffers_bytes", 0),
        ("redial_s", -0.5),
        ("link_bandwidth_bytes_per_s", -1),
    ],
)
def test_a_bound_that_leaves_nothing_is_refused(setting: str, value: float) -> None:
    with pytest.raises(InvalidConfigError, match=f"{setting} is {value}"):
        RelayConfig(region=HOME, listen=Address("relay", PORT), **{setting: value})  # type: ignore[arg-type]


async def test_a_relay_keeps_no_more_entries_than_it_was_told(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        trio.open_nursery() as nursery,
    ):
        await create(log)
        member = await nursery.start(run_member, cluster, HOME, 1, {"buffer_entries": 3})
        await trio.sleep(5)
        async with log.open_writer(STREAM) as writer:
            for _ in range(10):
                await append_each(writer, [noise(1_000)])
        await trio.sleep(5)

        [feed] = member.relay.feeds.by_name.values()
        assert len(feed.buffer) == 3
        nursery.cancel_scope.cancel()
