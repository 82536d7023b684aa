"""A small world in which nothing happens but what a test does to it."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

import geolog
from sim.scheduling import run_seeded
from sim.world.options import Hazards, Knobs, Links, Options, Shape
from sim.world.process import Process
from sim.world.trace import Trace
from sim.world.world import World, open_world
from topology.quorum import QuorumConfig

T = TypeVar("T")

_NODES_READY_S = 5.0

STREAM = "shop/orders"
REGIONS = ("us-east", "eu-west", "ap-northeast")

CALM = Options(
    shape=Shape(
        nodes_by_region=tuple((region, 1) for region in REGIONS),
        quorum=QuorumConfig(ensemble_size=3, write_quorum=3, ack_quorum=2, min_regions=2),
        writers_count=1,
        readers_count=1,
    ),
    knobs=Knobs(
        session_timeout_s=6.0,
        segment_bytes=64 << 10,
        journal_file_bytes=1 << 20,
        value_bytes_max=20,
        pipelined_max=1,
        pause_s_max=0.2,
        appends_per_tenure=10,
        rest_s_max=0.5,
    ),
    links=Links(
        latency_s_within=0.0005,
        latency_s_across=0.01,
        jitter=0.0,
        stall_chance=0.0,
        sync_s=0.002,
    ),
    hazards=Hazards(chaos_s=1.0, duration_s_max=1.0, strikes_per_s=()),
)


def in_a_calm_world(story: Callable[[World], Awaitable[T]], trace: Trace | None = None) -> T:
    """Run a story in a world whose nodes are up."""

    async def run() -> T:
        async with open_world(CALM, 0, trace or Trace()) as world:
            await do(world, _found)
            return await story(world)

    return run_seeded(run, seed=0)


async def _found(_process: Process, log: geolog.Log) -> None:
    await trio.sleep(_NODES_READY_S)
    await log.create_stream(
        STREAM, ensemble_size=3, write_quorum=3, ack_quorum=2, min_regions=2
    )


async def do(
    world: World, main: Callable[[Process, geolog.Log], Awaitable[None]], host: str = "client"
) -> Process:
    """Have a client process do something, and wait until it has ended."""
    process = world.start_client(host, REGIONS[0], main, is_restarted=False)
    await process.ended.wait()
    assert process.error is None, process.error
    return process
