"""Whole clusters under random kills, power losses and takeovers: what was answered is kept.

Small and quick: the simulator proper draws far more. Each seed is one history.
"""

import random

import attrs
import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.metadata.memory import MemoryMetadata
from sim.in_process import InProcessCluster, open_in_process_cluster

REGIONS = {"us-east": 2, "eu-west": 2, "ap-northeast": 2}
STREAM = "shop/orders"


@attrs.define
class History:
    """What appenders were answered: positions of what was OK, and what ended as refused."""

    acknowledged: dict[int, bytes] = attrs.field(factory=dict)
    refused: set[bytes] = attrs.field(factory=set)
    attempts: int = 0


async def append_for_a_while(
    cluster: InProcessCluster, history: History, name: str, region: str, rng: random.Random
) -> None:
    """Open writers one after the other, each until it fails or has done its share."""

    def on_session(metadata: MemoryMetadata) -> None:
        sessions.append(metadata)

    sessions: list[MemoryMetadata] = []
    async with cluster.open_client(region, host=name, on_session=on_session) as log:
        for turn in range(4):
            try:
                with trio.fail_after(60):
                    async with log.open_writer(STREAM) as writer:
                        for number in range(rng.randrange(5, 40)):
                            await append_one(writer, history, f"{name} {turn} {number}", rng)
                            if rng.random() < 0.05:
                                sessions[0].cut_off()
                            if rng.random() < 0.1:
                                sessions[0].restore()
            except (geolog.GeologError, trio.TooSlowError):
                sessions[0].restore()
                await trio.sleep(rng.random())


async def append_one(
    writer: geolog.Writer, history: History, text: str, rng: random.Random
) -> None:
    value = text.encode() + rng.randbytes(rng.choice((0, 100, 20_000)))
    history.attempts += 1
    try:
        receipt = await writer.append(value)
    except geolog.GeologError as error:
        if error.outcome == "refused":
            history.refused.add(value)
        raise
    assert receipt.sequence not in history.acknowledged, "one position for two records"
    history.acknowledged[receipt.sequence] = value
    await trio.sleep(rng.random() * 0.2)


async def break_things(
    cluster: InProcessCluster, rng: random.Random, quiet: trio.Event
) -> None:
    """Kill and start nodes at random, never more than one region's worth at a time."""
    while not quiet.is_set():
        await trio.sleep(rng.random() * 2)
        down = [node for node in cluster.nodes.values() if not node.is_running]
        if down and (len(down) > 1 or rng.random() < 0.6):
            await cluster.start(rng.choice(down).node_id)
            continue
        region = down[0].region if down else rng.choice(sorted(REGIONS))
        up = [node for node in cluster.nodes_of(region) if node.is_running]
        if up:
            await cluster.kill(rng.choice(up).node_id, power_loss=rng.random() < 0.5)


@pytest.mark.parametrize("seed", range(16))
async def test_every_answered_append_is_read_back_at_its_place(
    seed: int, autojump_clock: MockClock
) -> None:
    rng = random.Random(seed)
    history = History()
    async with open_in_process_cluster(REGIONS, seed=seed) as cluster:
        async with cluster.open_client("us-east") as log:
            await log.create_stream(STREAM, survive="1 region", segment_bytes=64 * 1024)
        async with trio.open_nursery() as breakers:
            quiet = trio.Event()
            breakers.start_soon(break_things, cluster, rng, quiet)
            async with trio.open_nursery() as appenders:
                for name, region in (("one", "us-east"), ("two", "eu-west")):
                    appenders.start_soon(
                        append_for_a_while, cluster, history, name, region, rng
                    )
            quiet.set()
        for node in cluster.nodes.values():
            if not node.is_running:
                await cluster.start(node.node_id)

        async with cluster.open_client("ap-northeast") as log:
            async with log.open_reader(STREAM) as reader:
                records = [record async for record in reader]
            report = await log.verify_stream(STREAM)

    values = {record.sequence: record.value for record in records}
    assert [record.sequence for record in records] == list(range(len(records)))
    assert {one: values.get(one) for one in history.acknowledged} == history.acknowledged
    assert not history.refused & set(values.values()), "a refused append is in the log"
    assert len(set(values.values())) == len(values), "an append is in the log twice"
    assert report.is_good, report.problems
    assert history.acknowledged, "nothing was appended"
