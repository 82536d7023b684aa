"""Reads of several answers, and other requests during a read."""

import json
from collections.abc import AsyncIterator

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.protocol.messages import (
    AddsSynced,
    Answer,
    Fenced,
    Message,
    ReadAnswer,
    Reason,
    Refused,
)
from regions.storage.config import StorageConfig
from sim.fakes.memory_disk import DiskFaults, MemoryDisk
from tests.pure.storage.nodes import BareClient, World, a_config, a_world

ENTRY_BYTES = 10_000
UNCACHED = attrs.evolve(a_config(), tail_cache_bytes_max=1)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with a_world() as world:
        yield world


def bodies(count: int) -> list[bytes]:
    return [bytes([number]) * ENTRY_BYTES for number in range(count)]


async def answers_of(client: BareClient) -> list[ReadAnswer]:
    """Answers up to the last one of a streamed read."""
    answers = [await client.receive_one(ReadAnswer)]
    while not answers[-1].is_last:
        answers.append(await client.receive_one(ReadAnswer))
    return answers


def entries_of(answers: list[ReadAnswer]) -> list[bytes]:
    return [bytes(entry.body) for answer in answers for entry in answer.entries]


@pytest.mark.parametrize("config", [a_config(), UNCACHED], ids=["cached", "from disk"])
async def test_a_streamed_read_returns_entry_after_entry_and_marks_the_last_answer(
    autojump_clock: MockClock, world: World, config: StorageConfig
) -> None:
    async with world.node(config) as node, world.client(node) as client:
        await client.store(*bodies(10))
        await client.send(client.reading(0, 10, bytes_max=3 * ENTRY_BYTES, answers_max=100))

        answers = await answers_of(client)

        assert entries_of(answers) == bodies(10)
        assert [(answer.first, len(answer.entries)) for answer in answers] == [
            (0, 3),
            (3, 3),
            (6, 3),
            (9, 1),
        ]


async def test_a_streamed_read_ends_with_as_many_answers_as_were_asked_for(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node() as node, world.client(node) as client:
        await client.store(*bodies(10))
        await client.send(client.reading(0, 10, bytes_max=ENTRY_BYTES, answers_max=4))

        assert entries_of(await answers_of(client)) == bodies(4)
        assert (await client.read(0, 1)).is_last


async def test_a_streamed_read_of_the_highest_possible_entries_ends(
    autojump_clock: MockClock, world: World
) -> None:
    highest = (1 << 63) - 1
    async with world.node() as node, world.client(node) as client:
        await client.store()
        await client.send(client.add(1, highest - 1, b"x"), client.add(2, highest, b"y"))
        while (await client.receive_one(AddsSynced)).through < 2:
            pass
        await client.send(client.reading(highest - 1, 8, bytes_max=0, answers_max=8))

        assert entries_of(await answers_of(client)) == [b"x", b"y"]


async def test_an_answer_holds_no_more_entries_than_the_node_can_look_up_quickly(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node() as node, world.client(node) as client:
        await client.store(*[b"tiny"] * 1200)
        await client.send(client.reading(0, 1200, answers_max=10))

        answers = await answers_of(client)

        assert entries_of(answers) == [b"tiny"] * 1200
        assert [len(answer.entries) for answer in answers] == [512, 512, 176]


async def test_several_streams_of_a_connection_take_turns(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node(UNCACHED) as node, world.client(node) as client:
        await client.store(*bodies(6))
        await client.send_at_once(
            *(
                client.reading(0, 6, request=request, bytes_max=ENTRY_BYTES, answers_max=6)
                for request in (11, 12, 13)
            )
        )

        requests = [(await client.receive_one(ReadAnswer)).request for _ in range(18)]

        assert requests == [11, 12, 13] * 6


async def test_a_cold_read_delays_neither_adds_nor_fences_of_its_connection(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node(UNCACHED) as node, world.client(node) as client:
        await client.store(*bodies(2))
        assert isinstance(world.disk, MemoryDisk)
        world.disk.faults = DiskFaults(read_s=5.0)
        start_s = trio.current_time()
        await client.send(client.reading(0, 1), client.add(3, 2, b"two"), client.fence(2))

        assert await client.receive_one(AddsSynced) == AddsSynced(3)
        await client.receive_one(Fenced)
        assert trio.current_time() - start_s < 1
        assert entries_of([await client.receive_one(ReadAnswer)]) == bodies(1)
        assert trio.current_time() - start_s == pytest.approx(5)


async def test_a_stream_to_a_client_that_takes_nothing_delays_its_adds_by_nothing(
    autojump_clock: MockClock, world: World
) -> None:
    config = attrs.evolve(a_config(), outgoing_bytes_max=1 << 20, read_bytes_max=100_000)
    async with (
        world.node(config) as node,
        world.client(node) as reader,
        world.client(node) as other,
    ):
        await reader.store(*[bytes(100_000)] * 100)
        await reader.send(reader.reading(0, 100, bytes_max=100_000, answers_max=100))
        await trio.sleep(1)

        await reader.send(reader.add(101, 100, b"after"))
        await trio.sleep(1)

        probe = await _probe_from(other)
        assert probe == [Answer.HAVE], "it was taken, though its answer waits with the stream"
        outgoing_bytes = json.loads(node.status())["outgoing_bytes"]
        assert 400_000 < outgoing_bytes < 700_000, "half of the bound, and an answer"


async def _probe_from(client: BareClient) -> list[Answer]:
    return list((await client.probe(100, 1)).answers)


async def test_a_recovery_read_is_answered_when_its_fence_is_on_disk(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node() as node, world.client(node) as client:
        await client.store(*bodies(4))
        assert isinstance(world.disk, MemoryDisk)
        world.disk.faults = DiskFaults(sync_s=2.0)
        start_s = trio.current_time()
        await client.send(
            client.reading(0, 4, fence_epoch=2, bytes_max=ENTRY_BYTES, answers_max=4)
        )

        answers = await answers_of(client)

        assert trio.current_time() - start_s >= 2
        assert entries_of(answers) == bodies(4)
        assert all(answer.is_fenced for answer in answers)


@pytest.mark.parametrize(
    "config",
    [attrs.evolve(UNCACHED, reads_max=20), attrs.evolve(UNCACHED, reads_max_all=20)],
    ids=["of a connection", "of a node"],
)
async def test_a_flood_of_streams_is_refused_as_busy(
    autojump_clock: MockClock, world: World, config: StorageConfig
) -> None:
    async with world.node(config) as node, world.client(node) as client:
        await client.store(*bodies(2))
        assert isinstance(world.disk, MemoryDisk)
        world.disk.faults = DiskFaults(read_s=1.0)
        for request in range(200):
            await client.send(client.reading(0, 2, request=request, bytes_max=1, answers_max=2))
        taken = [await client.receive() for _ in range(180 + 2 * 20)]

        refusals = [each for each in taken if isinstance(each, Refused)]
        assert len(refusals) == 180
        assert {refused.reason for refused in refusals} == {Reason.BUSY}
        assert len([each for each in taken if _is_last(each)]) == 20
        assert json.loads(node.status())["reads_open"] == 0


def _is_last(message: Message | None) -> bool:
    return isinstance(message, ReadAnswer) and message.is_last


async def test_cold_reads_of_many_connections_stay_within_the_bytes_of_the_node(
    autojump_clock: MockClock, world: World
) -> None:
    """Bytes being read count before they arrive."""
    entry_bytes = 1 << 20
    config = attrs.evolve(UNCACHED, outgoing_bytes_max_all=4 * entry_bytes)
    async with world.node(config) as node, world.client(node) as writer:
        await writer.store(bytes(entry_bytes))
        assert isinstance(world.disk, MemoryDisk)
        world.disk.faults = DiskFaults(read_s=1.0)
        used_bytes_highest = 0
        done_count = 0

        async def read_once() -> None:
            nonlocal done_count
            async with world.client(node) as client:
                await client.read(0, 1)
                done_count += 1

        async with trio.open_nursery() as nursery:
            for _ in range(30):
                nursery.start_soon(read_once)
            while done_count < 30:
                used_bytes = json.loads(node.status())["outgoing_bytes"]
                used_bytes_highest = max(used_bytes, used_bytes_highest)
                await trio.sleep(0.1)

        assert 2 * entry_bytes <= used_bytes_highest <= 5 * entry_bytes


async def test_a_client_that_leaves_amid_a_stream_leaves_nothing_behind(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node(UNCACHED) as node:
        async with world.client(node) as client:
            await client.store(*bodies(10))
            assert isinstance(world.disk, MemoryDisk)
            world.disk.faults = DiskFaults(read_s=1.0)
            await client.send(client.reading(0, 10, bytes_max=1, answers_max=10))
            await client.send(client.reading(0, 10, bytes_max=1, answers_max=10, fence_epoch=2))
            await trio.sleep(2.5)
            assert json.loads(node.status())["reads_open"] == 2
        await trio.sleep(5)

        status = json.loads(node.status())
        assert (status["reads_open"], status["outgoing_bytes"]) == (0, 0)
