"""Cancelled requests, seen by a node's client: each gets exactly one last answer."""

import json
from collections import defaultdict
from collections.abc import AsyncIterator

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from geolog.protocol.ids import LedgerId
from geolog.protocol.messages import (
    Cancel,
    Follow,
    Message,
    Probe,
    ProbeAnswer,
    Read,
    ReadAnswer,
    Reason,
    Refused,
    Status,
    StatusRequest,
)
from regions.storage.config import StorageConfig
from regions.storage.node import StorageNode
from sim.fakes.memory_disk import DiskFaults, MemoryDisk
from tests.pure.storage.nodes import BareClient, World, a_config, a_world

ENTRY_BYTES = 10_000
OTHER = LedgerId(8)
UNCACHED = attrs.evolve(a_config(), tail_cache_bytes_max=1)
BODIES = [bytes([number]) * ENTRY_BYTES for number in range(6)]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with a_world() as world:
        yield world


def slow_down(world: World, *, read_s: float = 0.0, sync_s: float = 0.0) -> None:
    assert isinstance(world.disk, MemoryDisk)
    world.disk.faults = DiskFaults(read_s=read_s, sync_s=sync_s)


def in_use(node: StorageNode) -> tuple[int, ...]:
    """What open requests take of the node: nothing if there are none."""
    status = json.loads(node.status())
    return status["reads_open"], status["follows_waiting"], status["outgoing_bytes"]


async def test_a_cancelled_read_that_waits_for_its_turn_ends_at_once(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node(UNCACHED) as node, world.client(node) as client:
        await client.store(*BODIES)
        slow_down(world, read_s=5.0)
        started_s = trio.current_time()
        await client.send(client.reading(0, 1, request=11), client.reading(1, 1, request=12))
        await client.send(Cancel(12))

        refused = await client.receive_one(Refused)
        assert (refused.request, refused.reason) == (12, Reason.CANCELLED)
        assert json.loads(node.status())["requests"]["cancelled"] == 1
        assert trio.current_time() - started_s < 1
        assert (await client.receive_one(ReadAnswer)).request == 11
        assert in_use(node) == (0, 0, 0)


async def test_a_read_cancelled_at_the_disk_finishes_there_and_sends_no_bytes(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node(UNCACHED) as node, world.client(node) as client:
        await client.store(*BODIES)
        slow_down(world, read_s=5.0)
        await client.send(client.reading(0, 1, request=11))
        await trio.sleep(1)
        await client.send(Cancel(11), Cancel(11))
        await trio.sleep(1)
        assert in_use(node) == (1, 0, a_config().read_bytes_max // 4)

        assert (await client.receive_one(Refused)).reason is Reason.CANCELLED
        assert in_use(node) == (0, 0, 0)
        assert (await client.read(1, 1)).is_last, "nothing else was sent for it"


async def test_a_cancelled_stream_sends_no_further_entries(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node(UNCACHED) as node, world.client(node) as client:
        await client.store(*BODIES)
        slow_down(world, read_s=1.0)
        await client.send(
            client.reading(0, 6, request=11, bytes_max=ENTRY_BYTES, answers_max=6)
        )
        assert not (await client.receive_one(ReadAnswer)).is_last
        await client.send(Cancel(11))

        assert (await client.receive_one(Refused)).reason is Reason.CANCELLED
        assert in_use(node) == (0, 0, 0)


async def test_a_cancelled_follower_is_no_longer_waiting(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node() as node, world.client(node) as client:
        await client.store(b"zero")
        await client.send(client.following(0, request=11), client.following(0, request=12))
        await client.send(Cancel(11))

        assert (await client.receive_one(Refused)).request == 11
        assert in_use(node) == (0, 1, 0)
        await client.send(client.push(0))
        assert (await client.receive_one(ReadAnswer)).request == 12


async def test_one_client_cannot_cancel_what_another_asked(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node() as node, world.client(node) as one, world.client(node) as other:
        await one.store(b"zero")
        await one.send(one.following(0, request=11))
        await other.send(Cancel(11))
        assert isinstance(await ask_status(other), Status)

        assert in_use(node) == (0, 1, 0)


async def test_cancels_of_unknown_and_answered_requests_are_ignored(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node() as node, world.client(node) as client:
        await client.store(b"zero")
        await client.read(0, 1)
        await client.send(Cancel(4), Cancel(99), Cancel(0))

        assert isinstance(await ask_status(client), Status)
        assert json.loads(node.status())["requests"]["cancelled"] == 0


async def test_a_cancelled_recovery_read_still_fences(
    autojump_clock: MockClock, world: World
) -> None:
    """Its fence was journaled before: only the entries are no longer wanted."""
    async with world.node() as node, world.client(node) as client:
        await client.store(*BODIES)
        slow_down(world, sync_s=1.0)
        await client.send(client.reading(0, 1, request=11, fence_epoch=5), Cancel(11))

        assert (await client.receive_one(Refused)).reason is Reason.CANCELLED
        await client.send(client.add(7, 6, b"late"))
        message = await client.receive()
        assert type(message).__name__ == "AddRefused"
        assert in_use(node) == (0, 0, 0)
    async with world.node() as node, world.client(node) as client:
        assert (await client.read(0, 1)).is_fenced


async def test_places_are_free_again_after_a_flood_of_cancelled_reads(
    autojump_clock: MockClock, world: World
) -> None:
    config = attrs.evolve(UNCACHED, reads_max=4)
    async with world.node(config) as node, world.client(node) as client:
        await client.store(*BODIES)
        slow_down(world, read_s=0.1)
        for request in range(100):
            await client.send(client.reading(0, 1, request=request), Cancel(request))
        answers = [await client.receive() for _ in range(100)]

        reasons = {answer.reason for answer in answers if isinstance(answer, Refused)}
        assert Reason.CANCELLED in reasons
        await trio.sleep(1)
        assert in_use(node) == (0, 0, 0)


async def ask_status(client: BareClient) -> Message | None:
    await client.send(StatusRequest(77))
    return await client.receive()


# Histories.

counts = st.integers(1, 6)
entries = st.integers(0, 5)
steps = st.one_of(
    st.tuples(st.just("read"), entries, counts),
    st.tuples(st.just("stream"), entries, counts),
    st.tuples(st.just("recovery read"), entries, counts),
    st.tuples(st.just("follow"), entries, counts),
    st.tuples(st.just("probe"), entries, counts),
    st.tuples(st.just("cancel"), st.integers(1, 12), st.just(0)),
    st.tuples(st.just("cancel"), st.integers(1, 12), st.just(0)),
    st.tuples(st.just("cancel the last"), st.just(0), st.just(0)),
    st.tuples(st.just("push"), st.integers(-1, 5), st.just(0)),
    st.tuples(st.just("wait"), st.integers(1, 30), st.just(0)),
)


@attrs.define
class NaiveNode:
    """What each request would get without cancels, and which were cancelled."""

    asked: dict[int, Read | Follow | Probe] = attrs.field(factory=dict)
    cancelled: set[int] = attrs.field(factory=set)

    def problems(self, answers: dict[int, list[Message]]) -> list[str]:
        found = [f"nobody asked {number}" for number in answers if number not in self.asked]
        for number, request in self.asked.items():
            got = answers.get(number, [])
            if [is_last(answer) for answer in got] != [False] * (len(got) - 1) + [True]:
                found.append(f"{request}: not one last answer: {got}")
                continue
            *_, end = got
            if isinstance(end, Refused):
                if end.reason is not Reason.CANCELLED or number not in self.cancelled:
                    found.append(f"{request}: {end}")
                got.pop()
            elif isinstance(request, Read) and len(self._bodies(got)) < len(
                self._wanted(request)
            ):
                found.append(f"{request}: incomplete")
            wanted = self._wanted(request)
            if self._bodies(got) != wanted[: len(self._bodies(got))]:
                found.append(f"{request}: other bytes")
        return found

    def _wanted(self, request: Read | Follow | Probe) -> list[bytes]:
        return BODIES[request.first : request.first + request.count_max]

    def _bodies(self, answers: list[Message]) -> list[bytes]:
        return [
            bytes(entry.body)
            for answer in answers
            if isinstance(answer, ReadAnswer)
            for entry in answer.entries
            if entry.body
        ]


def is_last(message: Message) -> bool:
    return not isinstance(message, ReadAnswer) or message.is_last


def request_of(
    client: BareClient, what: str, number: int, first: int, count: int
) -> Read | Follow | Probe:
    match what:
        case "read":
            return client.reading(first, count, request=number)
        case "stream":
            return client.reading(
                first, count, request=number, bytes_max=ENTRY_BYTES, answers_max=6
            )
        case "recovery read":
            return client.reading(first, count, request=number, fence_epoch=5, ledger=OTHER)
        case "follow":
            return client.following(first, request=number, count=count, wait_s=5)
        case _:
            return attrs.evolve(client.probing(first, count), request=number)


@given(st.lists(steps, max_size=25), st.sampled_from([UNCACHED, a_config()]))
def test_every_request_gets_one_last_answer_whatever_is_cancelled(
    history: list[tuple[str, int, int]], config: StorageConfig
) -> None:
    naive = NaiveNode()
    answers: dict[int, list[Message]] = defaultdict(list)

    async def take_answers(client: BareClient) -> None:
        while (message := await client.receive()) is not None:
            if isinstance(message, Refused | ReadAnswer | ProbeAnswer):
                answers[message.request].append(message)

    async def live() -> tuple[int, ...]:
        async with (
            a_world() as world,
            world.node(config) as node,
            world.client(node) as client,
        ):
            await client.store(*BODIES)
            await client.store(*BODIES, ledger=OTHER)
            slow_down(world, read_s=0.3, sync_s=0.2)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(take_answers, client)
                for number, (what, one, two) in enumerate(history, start=1):
                    match what:
                        case "cancel" | "cancel the last":
                            target = one or number - 1
                            naive.cancelled.add(target)
                            await client.send(Cancel(target))
                        case "push":
                            await client.send(client.push(one))
                        case "wait":
                            await trio.sleep(one / 10)
                        case _:
                            request = request_of(client, what, number, one, two)
                            naive.asked[number] = request
                            naive.cancelled.discard(number)
                            await client.send(request)
                await trio.sleep(60)
                nursery.cancel_scope.cancel()
            return in_use(node)

    left = trio.run(live, clock=MockClock(autojump_threshold=0))

    assert naive.problems(answers) == []
    assert left == (0, 0, 0)
