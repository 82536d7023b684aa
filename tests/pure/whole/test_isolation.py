"""The home of a stream is cut off from metadata, and was told to stop then.

Owners, mirrors and nodes are the real ones; network, disks and metadata are in memory.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from random import Random
from typing import Literal

import attrs
import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.metadata.server_ticks import DEFAULT_TICK_S
from geolog.protocol.stream_state import StreamName
from sim.fakes.memory_metadata import MemoryMetadata
from sim.in_process import InProcessCluster, open_in_process_cluster
from tests.pure.proxy.proxies import open_proxy
from tests.pure.whole.mirroring import HOME, REGIONS, STREAM, TARGET, record_of, relay

SESSION_S = 6.0
LEASE_S = SESSION_S * 2 / 3
SEGMENT_BYTES = 65536


@attrs.frozen
class Site:
    """A stream that stops, its writer at home, and a client elsewhere."""

    cluster: InProcessCluster
    home: geolog.Log
    far: geolog.Log
    session: MemoryMetadata
    """That of the client at home."""


@asynccontextmanager
async def open_site(
    session_s: float = SESSION_S, on_isolation: Literal["continue", "stop"] = "stop"
) -> AsyncIterator[Site]:
    sessions: list[MemoryMetadata] = []
    async with (
        open_in_process_cluster(REGIONS, session_timeout_s=session_s) as cluster,
        cluster.open_client(HOME, on_session=sessions.append) as home,
        cluster.open_client(TARGET) as far,
    ):
        await far.create_stream(
            STREAM,
            mode="regional",
            home=HOME,
            relay_to=[TARGET],
            on_isolation=on_isolation,
            segment_bytes=SEGMENT_BYTES,
        )
        yield Site(cluster, home, far, sessions[0])


async def append_for_ever(writer: geolog.Writer, answered_s: list[float]) -> None:
    """Append until it fails; note when each append was answered."""
    while True:
        await writer.append(b"at home")
        answered_s.append(trio.current_time())
        await trio.sleep(0.1)


async def test_appends_are_answered_as_long_as_metadata_renews_the_lease(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        async with site.home.open_writer(STREAM) as writer:
            receipts = []
            for number in range(10):
                receipts.append(await writer.append(b"%d" % number))
                await trio.sleep(LEASE_S / 2)
        described = await site.far.describe_stream(STREAM)

    assert [one.sequence for one in receipts] == list(range(10))
    assert all(one.valid_until_s is not None for one in receipts)
    assert described.on_isolation == "stop"


async def test_a_home_that_is_cut_off_answers_until_its_lease_ends_and_then_refuses(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site, site.home.open_writer(STREAM) as writer:
        await writer.append(b"0")
        cut_s = trio.current_time()
        site.session.cut_off()
        answered_s: list[float] = []
        with pytest.raises(geolog.UnavailableError, match="cut off from metadata"):
            await append_for_ever(writer, answered_s)
        site.session.restore()
        again = await append_in_the_end(writer)

    assert 0 < max(answered_s) - cut_s <= LEASE_S
    assert again.sequence == len(answered_s) + 1


async def append_in_the_end(writer: geolog.Writer) -> geolog.Receipt:
    """Append once the home takes appends again."""
    with trio.fail_after(30):
        while True:
            try:
                return await writer.append(b"again")
            except geolog.UnavailableError:
                await trio.sleep(0.1)


async def test_an_append_that_is_durable_after_the_lease_is_answered_once_it_is_renewed(
    autojump_clock: MockClock,
) -> None:
    """The nodes are cut off for longer than the lease, and the append is on its way."""
    async with open_site() as site, site.home.open_writer(STREAM) as writer:
        await writer.append(b"0")
        site.session.cut_off()
        for node in site.cluster.nodes_of(HOME):
            site.cluster.network.cut("client-in-us-east", node.node_id)
        pending = writer.append_nowait(b"1")
        await trio.sleep(LEASE_S)
        for node in site.cluster.nodes_of(HOME):
            site.cluster.network.mend("client-in-us-east", node.node_id)
        await trio.sleep(0.5)
        was_answered = pending.is_done
        site.session.restore()
        with trio.fail_after(30):
            receipt = await pending.wait()

    assert not was_answered
    assert receipt.sequence == 1


async def test_a_failover_begins_the_new_home_once_every_lease_is_over(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        answered_s: list[float] = []

        async def write() -> None:
            with suppress(geolog.GeologError):
                async with site.home.open_writer(STREAM) as writer:
                    await append_for_ever(writer, answered_s)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await trio.sleep(1)
            await relay(site.far, count=3)
            site.session.cut_off()
            for node in site.cluster.nodes_of(HOME):
                site.cluster.network.cut("client-in-eu-west", node.node_id)
            report = await site.far.failover(STREAM, to=TARGET)
            flipped_s = trio.current_time()
            async with site.far.open_writer(STREAM) as writer:
                await writer.append(b"in the new home")
            site.session.restore()
        record = await record_of(site.far)

    assert (record.home, report.is_nothing_lost) == (TARGET, False)
    assert max(answered_s) < flipped_s


@asynccontextmanager
async def cut_off_and_writing(site: Site) -> AsyncIterator[list[float]]:
    """The home is cut off from metadata and from the target; its writer goes on.

    Yields the times of its answers.
    """
    answered_s: list[float] = []

    async def write() -> None:
        with suppress(geolog.GeologError):
            async with site.home.open_writer(STREAM) as writer:
                await append_for_ever(writer, answered_s)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        await trio.sleep(1)
        await relay(site.far, count=3)
        site.session.cut_off()
        for node in site.cluster.nodes_of(HOME):
            site.cluster.network.cut("client-in-eu-west", node.node_id)
        yield answered_s
        nursery.cancel_scope.cancel(reason="the test is over")


async def set_lease(log: geolog.Log, length_s: float | None) -> None:
    """Set the length, as a client with a shorter session time-out would."""
    catalog = StreamCatalog(log.access.metadata, log.access.paths)
    changed = partial(attrs.evolve, isolation_lease_s=length_s)
    await catalog.change(StreamName.parse(STREAM), changed)


@pytest.mark.parametrize("length_s", [1.0, None])
async def test_a_failover_waits_for_the_lease_of_an_owner_that_missed_a_shorter_one(
    length_s: float | None, autojump_clock: MockClock
) -> None:
    """The owner keeps the lease of its opening, which outlives the search for the home."""
    async with open_site(session_s=24.0) as site, cut_off_and_writing(site) as answered_s:
        cut_s = trio.current_time()
        await set_lease(site.far, length_s)
        report = await site.far.failover(STREAM, to=TARGET)
        flipped_s = trio.current_time()
        await trio.sleep(30)

    assert not report.is_nothing_lost
    assert report.may_answer_on == ()
    assert cut_s + 8 < max(answered_s) < flipped_s <= cut_s + 17


async def shorten_the_lease(site: Site) -> geolog.Receipt:
    """Append, and have the owner leave for a lease of a second; the receipt of the append."""
    with suppress(geolog.UnavailableError):
        async with site.home.open_writer(STREAM) as writer:
            receipt = await writer.append(b"0")
            await set_lease(site.far, 1.0)
            await trio.sleep(1)
    return receipt


async def test_a_failover_waits_for_the_last_answers_of_an_owner_that_left(
    autojump_clock: MockClock,
) -> None:
    """A client that was paused may take the answer as long as it says."""
    async with open_site(session_s=24.0) as site:
        last_of_longer = await shorten_the_lease(site)
        async with cut_off_and_writing(site):
            await site.far.failover(STREAM, to=TARGET)
            flipped_s = trio.current_time()

    assert last_of_longer.valid_until_s is not None
    assert last_of_longer.valid_until_s < flipped_s < last_of_longer.valid_until_s + 4


async def test_a_shorter_lease_counts_once_the_owner_has_outlived_the_longer_one(
    autojump_clock: MockClock,
) -> None:
    """It notes that with its next segment."""
    async with open_site(session_s=24.0) as site:
        await shorten_the_lease(site)
        async with site.home.open_writer(STREAM) as writer:
            await writer.append(b"1")
            await trio.sleep(17)
            for _ in range(3):
                await writer.append(Random(0).randbytes(SEGMENT_BYTES))
                await trio.sleep(1)
        async with cut_off_and_writing(site) as answered_s:
            cut_s = trio.current_time()
            await site.far.failover(STREAM, to=TARGET)
            flipped_s = trio.current_time()
            await trio.sleep(30)

    assert max(answered_s) < flipped_s < cut_s + 10


async def test_a_failover_tells_that_an_owner_may_not_know_that_it_is_to_stop(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_site(on_isolation="continue") as site,
        cut_off_and_writing(site) as answered_s,
    ):
        await site.far.update_stream(STREAM, on_isolation="stop")
        report = await site.far.failover(STREAM, to=TARGET)
        flipped_s = trio.current_time()
        await trio.sleep(10)

    assert report.may_answer_on == (0,)
    assert max(answered_s) > flipped_s, "it goes on, and this is told"


@pytest.mark.parametrize("setting_s", [LEASE_S, 1.0, None])
async def test_a_failover_with_less_time_than_a_lease_is_refused_at_once(
    setting_s: float | None, autojump_clock: MockClock
) -> None:
    """An owner may hold a longer lease than the setting says now."""
    async with open_site() as site, cut_off_and_writing(site):
        await set_lease(site.far, setting_s)
        asked_s = trio.current_time()
        told = r"a lease of 4 s, .* given 3 s: give it more than 4.08 s \(--within\)"
        with pytest.raises(geolog.InvalidArgumentError, match=told):
            await site.far.failover(STREAM, to=TARGET, timeout_s=3)
        refused_s = trio.current_time()
        record = await record_of(site.far)

    assert refused_s - asked_s < 2
    assert (record.home, record.moving_to) == (HOME, "")


async def test_a_failover_that_waits_for_leases_says_so(autojump_clock: MockClock) -> None:
    steps: list[str] = []
    async with open_site() as site, cut_off_and_writing(site):
        await set_lease(site.far, 8.0)
        await site.far.failover(STREAM, to=TARGET, progress=steps.append)

    (waiting,) = [one for one in steps if one.startswith("waiting ")]
    assert 0 < float(waiting.split()[1]) <= 8.2
    assert waiting.endswith("until leases in us-east are over")
    assert steps[-1] == "making eu-west the home"


async def test_a_plan_of_a_failover_does_not_fence_a_home_that_is_only_cut_off(
    autojump_clock: MockClock,
) -> None:
    """Its session has ended, and no node knows that its last record is acknowledged."""
    async with (
        open_site(on_isolation="continue") as site,
        site.home.open_writer(STREAM) as writer,
    ):
        await writer.append(b"0")
        await relay(site.far)
        site.session.cut_off()
        await writer.append(b"1")
        for node in site.cluster.nodes_of(HOME):
            site.cluster.network.cut("client-in-us-east", node.node_id)
        await trio.sleep(2 * SESSION_S)
        plan = await site.far.plan_failover(STREAM)
        moving = await site.far.plan_switch_over(STREAM, to=TARGET)
        for node in site.cluster.nodes_of(HOME):
            site.cluster.network.mend("client-in-us-east", node.node_id)
        receipt = await writer.append(b"2")

    assert receipt.sequence == 2
    assert moving.local_only == 0
    assert (plan.home_answers, plan.home_partitions_reached) == (False, 1)
    assert plan.may_answer_on == (0,), "a home without a lease goes on"
    assert plan.at_risk.records is None


async def test_a_plan_does_not_count_on_a_home_of_which_one_node_is_left(
    autojump_clock: MockClock,
) -> None:
    """It has the records, but too few nodes answer to end the log there."""
    async with (
        open_site(on_isolation="continue") as site,
        site.home.open_writer(STREAM) as writer,
    ):
        await writer.append(b"0")
        await relay(site.far)
        for number in range(1, 4):
            await writer.append(b"%d" % number)
            await trio.sleep(0.1)
        site.session.cut_off()
        for node in site.cluster.nodes_of(HOME)[1:]:
            await site.cluster.kill(node.node_id)
        await trio.sleep(2 * SESSION_S)
        plan = await site.far.plan_failover(STREAM)
        report = await site.far.failover(STREAM, confirmed=plan.goes_on_at)

    assert (plan.home_partitions_reached, plan.goes_on_at) == (0, {0: 1})
    assert report.home == TARGET


async def test_a_plan_of_a_failover_tells_how_long_it_will_wait_for_leases(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site, cut_off_and_writing(site):
        plan = await site.far.plan_failover(STREAM)

    assert LEASE_S < plan.lease_wait_s < 1.1 * LEASE_S
    assert plan.may_answer_on == ()


async def test_an_owner_whose_session_was_lost_takes_the_stream_over_again(
    autojump_clock: MockClock,
) -> None:
    sessions: list[MemoryMetadata] = []
    async with (
        open_site() as site,
        open_proxy(site.cluster, "east", HOME, on_session=sessions.append),
        site.cluster.open_client(HOME, host="app", via="proxy") as app,
        app.open_writer(STREAM, writer_id="w") as writer,
    ):
        first = await writer.append(b"0", seq=0)
        sessions[0].expire()
        with trio.fail_after(60):
            second = await writer.append(b"1", seq=1)
            repeated = await writer.append(b"1", seq=1)

    assert (first.sequence, second.sequence) == (0, 1)
    assert first.valid_until_s is not None
    assert (repeated.sequence, repeated.duplicate) == (1, True)
    assert repeated.valid_until_s is not None


async def test_a_global_stream_cannot_be_told_to_stop(autojump_clock: MockClock) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
    ):
        with pytest.raises(geolog.InvalidArgumentError, match="is for regional streams"):
            await log.create_stream("shop/global", min_regions=1, on_isolation="stop")


async def test_a_lease_leaves_two_ticks_of_the_session_time_out(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS, session_timeout_s=SESSION_S) as cluster,
        cluster.open_client(HOME, host="fine", tick_s=0.5) as fine,
        cluster.open_client(HOME, host="coarse", tick_s=2.0) as coarse,
        cluster.open_client(HOME, host="silent", tick_s=None) as silent,
    ):

        async def lease_of(log: geolog.Log, name: str) -> float | None:
            await log.create_stream(
                name,
                mode="regional",
                home=HOME,
                relay_to=[TARGET],
                on_isolation="stop",
                if_not_exists=True,
            )
            return (await record_of(log, name)).isolation_lease_s

        assert await lease_of(silent, "shop/unknown") == SESSION_S - 2 * DEFAULT_TICK_S
        assert await lease_of(fine, "shop/fine") == LEASE_S
        assert await lease_of(silent, "shop/noted") == LEASE_S
        assert await lease_of(coarse, "shop/coarse") == SESSION_S - 2 * 2.0
        assert await lease_of(coarse, "shop/fine") == LEASE_S, "nobody asked for its length"


async def test_a_session_too_short_for_a_lease_is_refused(autojump_clock: MockClock) -> None:
    async with (
        open_in_process_cluster(REGIONS, session_timeout_s=SESSION_S) as cluster,
        cluster.open_client(HOME, tick_s=2.5) as log,
    ):
        with pytest.raises(geolog.InvalidArgumentError, match=r"tick is 2\.5 s.* at most 2 s"):
            await log.create_stream(
                STREAM, mode="regional", home=HOME, relay_to=[TARGET], on_isolation="stop"
            )


async def test_a_repeat_is_not_answered_outside_of_the_lease_either(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site, site.home.open_writer(STREAM, writer_id="w") as writer:
        await writer.append(b"0", seq=0)
        site.session.cut_off()
        await trio.sleep(LEASE_S + 0.1)
        with pytest.raises(geolog.OutcomeUnknownError, match="lease had ended"):
            await writer.append(b"0", seq=0)
        site.session.restore()
        again = await repeated_in_the_end(writer)

    assert again.sequence == 0
    assert again.valid_until_s is not None


async def repeated_in_the_end(writer: geolog.Writer) -> geolog.Receipt:
    """Send the first record again until its outcome is known."""
    with trio.fail_after(30):
        while True:
            try:
                return await writer.append(b"0", seq=0)
            except geolog.OutcomeUnknownError:
                await trio.sleep(0.1)
