"""The availability table of a ledger with E 3, W 3, A 2 on four nodes, one of them lost.

Where other systems' tables say that recovery may be possible, ours always is: one intact copy
is enough to write an entry again, so a copy and an absence do not contradict each other.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

import geolog
from sim.in_process import InProcessCluster, open_in_process_cluster

STREAM = "shop/orders"


@asynccontextmanager
async def nodes(count: int) -> AsyncIterator[tuple[InProcessCluster, geolog.Log]]:
    async with (
        open_in_process_cluster({"eu-west": count}) as cluster,
        cluster.open_client("eu-west") as log,
    ):
        yield cluster, log


async def make_stream(log: geolog.Log, name: str = STREAM) -> None:
    await log.create_stream(name, ensemble_size=3, write_quorum=3, ack_quorum=2)


async def lose_a_member(cluster: InProcessCluster, log: geolog.Log) -> None:
    """Kill one member of the open ledger for good."""
    await cluster.kill((await log.list_segments(STREAM))[-1].ensemble[0])


async def values_of(log: geolog.Log) -> list[bytes]:
    async with log.open_reader(STREAM) as reader:
        return [record.value async for record in reader]


async def test_a_ledger_can_be_created(autojump_clock: MockClock) -> None:
    async with nodes(4) as (cluster, log):
        await cluster.kill("eu-west-1")
        await trio.sleep(10)  # Its session expires: three nodes are left.
        await make_stream(log)

        async with log.open_writer(STREAM) as writer:
            await writer.append(b"one")

        assert await values_of(log) == [b"one"]


async def test_an_open_handle_appends_and_reads(autojump_clock: MockClock) -> None:
    async with nodes(4) as (cluster, log):
        await make_stream(log)
        async with log.open_writer(STREAM) as writer:
            await writer.append(b"one")
            await lose_a_member(cluster, log)
            await writer.append(b"two")

            assert await values_of(log) == [b"one", b"two"]


async def test_two_lost_members_are_replaced_and_the_ledger_goes_on(
    autojump_clock: MockClock,
) -> None:
    async with nodes(5) as (cluster, log):
        await make_stream(log)
        async with log.open_writer(STREAM) as writer:
            await writer.append(b"one")
            ensemble = (await log.list_segments(STREAM))[-1].ensemble
            await cluster.kill(ensemble[0])
            await cluster.kill(ensemble[1])
            await trio.sleep(10)
            await writer.append(b"two")  # Three nodes are left, enough for the ensemble.

        (segment,) = await log.list_segments(STREAM)

        assert await values_of(log) == [b"one", b"two"]
    assert segment.last_sequence == 1
    assert not set(segment.ensemble) & set(ensemble[:2])


async def test_the_writer_closes_its_ledger(autojump_clock: MockClock) -> None:
    async with nodes(4) as (cluster, log):
        await make_stream(log)
        async with log.open_writer(STREAM) as writer:
            await writer.append(b"one")
            await lose_a_member(cluster, log)

        (segment,) = await log.list_segments(STREAM)

    assert (segment.state, segment.last_sequence) == ("closed", 0)


async def test_another_client_fences_recovers_and_closes_the_ledger(
    autojump_clock: MockClock,
) -> None:
    async with nodes(4) as (cluster, log):
        await make_stream(log)

        async def be_taken_over() -> None:
            async with log.open_writer(STREAM) as writer:
                await writer.append(b"one")
                await lose_a_member(cluster, log)
                await append_as_another(cluster, b"two")
                await writer.append(b"never")

        with pytest.raises(geolog.GeologError):
            await be_taken_over()

        assert await values_of(log) == [b"one", b"two"]


async def append_as_another(cluster: InProcessCluster, value: bytes) -> None:
    """Take the stream over in another process, and append."""
    async with (
        cluster.open_client("eu-west", host="another") as log,
        log.open_writer(STREAM) as writer,
    ):
        await writer.append(value)


async def test_recovery_needs_only_one_copy_of_an_unacknowledged_entry(
    autojump_clock: MockClock,
) -> None:
    async with nodes(4) as (cluster, log):
        await make_stream(log)

        async def die_with_one_copy_out() -> None:
            async with (
                cluster.open_client("eu-west", host="first") as first,
                first.open_writer(STREAM) as writer,
            ):
                await writer.append(b"one")
                for member in (await log.list_segments(STREAM))[-1].ensemble[1:]:
                    cluster.network.cut("first", member)
                pending = writer.append_nowait(b"two")  # Reaches only the first member.
                await trio.sleep(0.5)
                assert not pending.is_done
                raise ConnectionAbortedError

        with pytest.raises(ConnectionAbortedError):
            await die_with_one_copy_out()
        await cluster.kill((await log.list_segments(STREAM))[-1].ensemble[2])

        await append_as_another(cluster, b"three")

        assert await values_of(log) == [b"one", b"two", b"three"]
