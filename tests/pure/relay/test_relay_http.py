"""The HTTP port of a relay, and the coverage that a standby tells."""

import random
import re
from contextlib import AsyncExitStack
from pathlib import Path

import trio
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MockClock

from geolog.transport.seam import Address
from relay.protocol.group_member import GroupRole
from relay.server.config import RelayConfig
from relay.server.relay import Relay, open_relay
from sim.in_process import InProcessCluster, open_in_process_cluster
from tests.pure.proxy.http_client import HttpClient
from tests.pure.relay.test_bridges import wait_equal
from tests.pure.whole.clusters import append_each
from tests.pure.whole.mirroring import HOME, REGIONS, STREAM, TARGET, create

PAGE = Path(__file__).parents[3] / "docs" / "RELAY.md"


async def open_member(
    stack: AsyncExitStack, cluster: InProcessCluster, region: str, number: int
) -> Relay:
    host = f"{region}-{number}"
    metadata = await stack.enter_async_context(cluster.store.open_session())
    return await stack.enter_async_context(
        open_relay(
            RelayConfig(
                region=region,
                listen=Address(host, 7200),
                http=Address(host, 7201),
                relay_id=host,
            ),
            metadata=metadata,
            transport=cluster.network.transport(host),
            cluster="default",
            rng=random.Random(host),
            now_us=cluster.now_us,
        )
    )


Samples = dict[tuple[str, str], float]


async def samples_of(cluster: InProcessCluster, host: str) -> Samples:
    """The samples of geolog's own metrics, by name and target or state."""
    text = await get(cluster, host, "/metrics")
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            told = [one.labels.get(label, "") for label in ("state", "role", "target")]
            if one.name.startswith("geolog_"):
                found[one.name, next(filter(None, told), "")] = one.value
    return found


async def get(cluster: InProcessCluster, host: str, path: str) -> str:
    transport = cluster.network.transport("prometheus")
    stream = await transport.connect(Address(host, 7201))
    answer = await HttpClient(stream).ask("GET", path)
    stream.close()
    assert answer.status == 200
    return answer.body.decode()


async def test_a_coordinator_and_its_standby_tell_of_links_and_buffers(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        AsyncExitStack() as stack,
    ):
        first = await open_member(stack, cluster, HOME, 1)
        second = await open_member(stack, cluster, HOME, 2)
        await open_member(stack, cluster, TARGET, 1)
        await create(log)
        async with log.open_writer(STREAM, writer_id="till") as writer:
            await append_each(writer, [b"%d" % number for number in range(20)])
            await wait_equal(log)
        await trio.sleep(5)
        [status] = await log.relay_status(STREAM)
        coordinator = await samples_of(cluster, f"{HOME}-1")
        standby = await samples_of(cluster, f"{HOME}-2")
        ready = await get(cluster, f"{HOME}-2", "/readyz")
        roles = first.role, second.role

    assert roles == (GroupRole.COORDINATOR, GroupRole.STANDBY)
    assert (status.is_covered, status.standby_is_covered) == (True, True)
    assert status.standby == f"{HOME}-2"
    assert coordinator["geolog_relay_info", "coordinator"] == 1
    assert coordinator["geolog_relay_state", "live"] == 1
    assert coordinator["geolog_relay_state", "down"] == 0
    assert coordinator["geolog_relay_durable_records", TARGET] == 20
    assert coordinator["geolog_relay_lag_records", TARGET] == 0
    assert coordinator["geolog_relay_has_alarm", TARGET] == 0
    assert standby["geolog_relay_info", "standby"] == 1
    assert ("geolog_relay_buffer_begin", "") in standby
    assert not any(name == "geolog_relay_state" for name, _ in standby)
    assert ready == "standby\n"
    described = set(re.findall(r"geolog_relay_\w+", PAGE.read_text(encoding="utf-8")))
    assert {name for name, _ in coordinator} | {name for name, _ in standby} == described


async def test_the_coverage_of_a_standby_that_is_away_is_not_known(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        AsyncExitStack() as stack,
    ):
        await open_member(stack, cluster, HOME, 1)
        await open_member(stack, cluster, HOME, 2)
        await open_member(stack, cluster, TARGET, 1)
        await create(log)
        await trio.sleep(5)
        cluster.network.darken(f"{HOME}-2")
        began_s = trio.current_time()
        [status] = await log.relay_status(STREAM)
        took_s = trio.current_time() - began_s

    assert (status.coordinator, status.standby_is_covered) == (f"{HOME}-1", None)
    assert took_s < 1
