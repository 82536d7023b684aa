"""The links of relayed streams, as a client of the cluster sees them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.protocol.relay_report import LinkState, RelayEvent
from geolog.transport.seam import Address
from sim.in_process import InProcessCluster, open_in_process_cluster
from tests.pure.relay.test_bridges import address_of, open_home, open_target, wait_equal
from tests.pure.whole.clusters import append_each
from tests.pure.whole.mirroring import HOME, REGIONS, STREAM, TARGET, create


@asynccontextmanager
async def open_operator(
    cluster: InProcessCluster, *relays: Address
) -> AsyncIterator[geolog.Log]:
    async def find_relays(region: str) -> Sequence[Address]:
        return relays if region == HOME else ()

    async with cluster.open_client(HOME, host="operator", find_relays=find_relays) as log:
        yield log


async def test_without_relays_a_relayed_stream_is_down_and_the_reason_is_told(
    autojump_clock: MockClock,
) -> None:
    async with open_in_process_cluster(REGIONS) as cluster, open_operator(cluster) as log:
        assert await log.relay_status() == []
        await create(log)
        [found] = await log.relay_status(STREAM)
        health = await log.health()

    assert (found.home, found.target, found.state) == (HOME, TARGET, LinkState.DOWN)
    assert (found.lag_records, found.lag_s, found.coordinator) == (None, None, None)
    assert found.alarm == "no relay of us-east is up: start one with `geolog serve relay`"
    assert not health.is_healthy
    assert any("from us-east to eu-west, is down: no relay" in one for one in health.reasons)


async def test_a_relay_that_is_gone_is_named(autojump_clock: MockClock) -> None:
    gone = Address("gone", 9)
    async with open_in_process_cluster(REGIONS) as cluster, open_operator(cluster, gone) as log:
        await create(log)
        [found] = await log.relay_status()

    assert found.alarm is not None
    assert "relay gone:9 of us-east" in found.alarm


async def test_a_standing_link_is_live_and_the_cluster_healthy(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        open_operator(cluster, Address("gone", 9), address_of(1)) as log,
        open_home(cluster),
        open_target(cluster),
    ):
        await create(log)
        async with log.open_writer(STREAM) as writer:
            await append_each(writer, [b"one", b"two"])
        await wait_equal(log)
        await trio.sleep(5)
        [found] = await log.relay_status()
        reasons = (await log.health()).reasons

        assert (found.state, found.durable_records, found.lag_records) == (LinkState.LIVE, 2, 0)
        assert not any("relay" in one for one in reasons)
        with pytest.raises(geolog.NoSuchStreamError):
            await log.relay_status("shop/other")


async def test_relays_that_do_not_answer_do_not_delay_the_one_that_does(
    autojump_clock: MockClock,
) -> None:
    silent = [Address(f"silent-{number}", 9) for number in range(3)]
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        open_operator(cluster, *silent, address_of(1)) as log,
        open_home(cluster),
        open_target(cluster),
    ):
        for one in silent:
            await cluster.network.transport(one.host).listen(one)
            cluster.network.darken(one.host)
        await create(log)
        async with log.open_writer(STREAM) as writer:
            await append_each(writer, [b"one", b"two"])
        await wait_equal(log)
        began_s = trio.current_time()
        [found] = await log.relay_status()
        took_s = trio.current_time() - began_s

    assert found.coordinator is not None
    assert took_s < 1


async def test_health_names_a_link_that_is_down_and_what_it_puts_at_risk(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        open_operator(cluster, address_of(1)) as log,
        open_home(cluster),
    ):
        await create(log)
        async with log.open_writer(STREAM) as writer:
            await append_each(writer, [b"one", b"two"])
        await trio.sleep(10)
        reasons = (await log.health()).reasons

    [reason] = [one for one in reasons if "relay" in one]
    assert reason.startswith("the relay of stream shop/carts#0 from us-east to eu-west, which")
    assert "lacks up to 2 records" in reason


async def test_events_are_told_in_order_and_go_on_with_a_successor(
    autojump_clock: MockClock,
) -> None:
    heard: list[RelayEvent] = []
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        open_operator(cluster, address_of(1), address_of(2)) as log,
        trio.open_nursery() as nursery,
    ):
        await create(log)
        async with open_home(cluster, 1):
            async with open_target(cluster):
                await trio.sleep(5)

                async def listen() -> None:
                    async with log.relay_events(follow=True) as events:
                        async for event in events:
                            heard.append(event)  # noqa: PERF401 - Others look meanwhile.

                nursery.start_soon(listen)
                await trio.sleep(1)
                assert [one.after for one in heard] == ["live"]
            await trio.sleep(6)
            assert [one.after for one in heard] == ["live", "down"]
            async with log.relay_events() as events:
                assert [one.after async for one in events] == ["live", "down"]
        async with open_home(cluster, 2), open_target(cluster, 2, home_epoch=2):
            await trio.sleep(8)
        assert [(one.relay_epoch, one.after) for one in heard] == [
            (1, "live"),
            (1, "down"),
            (2, "live"),
        ]
        nursery.cancel_scope.cancel()
