"""Followers of a tail, seen by a node's clients."""

import json
from collections.abc import AsyncIterator

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.protocol.ids import InstanceId, LedgerId
from geolog.protocol.messages import (
    AddsSynced,
    Answer,
    EntryAnswer,
    Fenced,
    ReadAnswer,
    Reason,
    Refused,
)
from regions.storage.config import StorageConfig
from regions.storage.node import StorageNode
from tests.pure.storage.nodes import World, a_config, a_world

HAVE = Answer.HAVE


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with a_world() as world:
        yield world


def waiting_count(node: StorageNode) -> int:
    count = json.loads(node.status())["follows_waiting"]
    assert isinstance(count, int)
    return count


async def test_a_follower_sees_an_entry_when_the_lac_passes_it_and_not_before(
    autojump_clock: MockClock, world: World
) -> None:
    async with (
        world.node() as node,
        world.client(node) as writer,
        world.client(node) as follower,
    ):
        await writer.store(b"zero")
        await follower.send(follower.following(0))
        await trio.sleep(1)
        assert waiting_count(node) == 1, "the entry is there, but not the LAC"

        await writer.send(writer.add(2, 1, b"one", lac=0))

        answer = await follower.receive_one(ReadAnswer)
        assert (answer.request, answer.first, answer.lac) == (6, 0, 0)
        assert answer.entries == (EntryAnswer(HAVE, b"zero"),)
        assert waiting_count(node) == 0


async def test_a_pushed_lac_wakes_a_follower(autojump_clock: MockClock, world: World) -> None:
    async with (
        world.node() as node,
        world.client(node) as writer,
        world.client(node) as follower,
    ):
        await writer.store(b"zero", b"one", b"two")
        await follower.send(follower.following(1))
        await trio.sleep(1)

        await writer.send(writer.push(1))

        answer = await follower.receive_one(ReadAnswer)
        assert answer.entries == (EntryAnswer(HAVE, b"one"),)


async def test_entries_below_the_lac_are_shown_at_once(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node() as node, world.client(node) as client:
        await client.store(b"zero", b"one", b"two")
        await client.send(client.push(1), client.following(0))

        answer = await client.receive_one(ReadAnswer)

        assert answer.entries == (EntryAnswer(HAVE, b"zero"), EntryAnswer(HAVE, b"one"))


async def test_a_follower_is_answered_when_its_time_is_up(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node() as node, world.client(node) as client:
        await client.store(b"zero")
        start_s = trio.current_time()
        await client.send(client.following(0, wait_s=3, request=8))
        await client.send(client.following(0, wait_s=2, request=9))

        first = await client.receive_one(ReadAnswer)
        assert (first.request, first.entries, first.is_fenced) == (9, (), False)
        assert trio.current_time() - start_s == pytest.approx(2, abs=0.1)
        second = await client.receive_one(ReadAnswer)
        assert second.request == 8
        assert trio.current_time() - start_s == pytest.approx(3, abs=0.1)


async def test_a_fence_ends_the_wait(autojump_clock: MockClock, world: World) -> None:
    async with world.node() as node, world.client(node) as client:
        await client.store(b"zero")
        await client.send(client.following(0), client.fence(2))

        answer = await client.receive_one(ReadAnswer)

        assert (answer.entries, answer.is_fenced) == ((), True)
        await client.receive_one(Fenced)


async def test_a_follower_holds_up_no_other_request_of_its_connection(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node() as node, world.client(node) as client:
        await client.store(b"zero")
        await client.send(client.following(5), client.add(2, 1, b"one"))

        with trio.fail_after(1):
            assert await client.receive_one(AddsSynced) == AddsSynced(2)
            assert (await client.read(1, 1)).entries == (EntryAnswer(HAVE, b"one"),)


async def test_followers_of_one_tail_share_the_bytes_of_its_entries(
    autojump_clock: MockClock, world: World
) -> None:
    """A thousand followers cost little more memory than one."""
    async with (
        world.node() as node,
        world.client(node) as writer,
        world.client(node) as follower,
    ):
        await writer.store(b"zero")
        for request in range(1000):
            await follower.send(follower.following(1, request=request))
        await writer.send(writer.add(2, 1, bytes(1000), lac=0))
        await writer.receive_one(AddsSynced)
        await writer.send(writer.push(1))

        answers = [await follower.receive_one(ReadAnswer) for _ in range(1000)]

        assert [answer.request for answer in answers] == list(range(1000))
        assert {bytes(answer.entries[0].body) for answer in answers} == {bytes(1000)}


async def test_a_follower_that_left_is_forgotten(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node() as node, world.client(node) as writer:
        await writer.store(b"zero")
        async with world.client(node) as follower:
            await follower.send(follower.following(0))
            await trio.sleep(1)
            assert waiting_count(node) == 1
        await trio.sleep(1)
        assert waiting_count(node) == 0

        await writer.send(writer.push(0))
        assert (await writer.read(0, 1)).lac == 0


async def test_a_follow_of_a_ledger_that_was_never_opened_is_refused(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node() as node, world.client(node) as client:
        await client.send(client.following(0, ledger=LedgerId(99)))

        refused = await client.receive_one(Refused)

        assert refused.reason is Reason.NO_SUCH_LEDGER
        assert refused.message == "ledger 99 was never opened at this node"


async def test_a_follow_meant_for_another_node_is_refused(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node() as node, world.client(node) as client:
        await client.store(b"zero")
        await client.send(attrs.evolve(client.following(0), instance=InstanceId("9" * 32)))

        assert (await client.receive_one(Refused)).reason is Reason.WRONG_INSTANCE


@pytest.mark.parametrize(
    "config",
    [attrs.evolve(a_config(), follows_max=50), attrs.evolve(a_config(), follows_max_all=50)],
    ids=["of a connection", "of a node"],
)
async def test_a_flood_of_followers_is_refused_as_busy(
    autojump_clock: MockClock, world: World, config: StorageConfig
) -> None:
    async with (
        world.node(config) as node,
        world.client(node) as flooder,
        world.client(node) as writer,
    ):
        await writer.store(b"zero")
        for request in range(1000):
            await flooder.send(flooder.following(0, request=request))
        refusals = [await flooder.receive_one(Refused) for _ in range(950)]

        assert {refused.reason for refused in refusals} == {Reason.BUSY}
        assert waiting_count(node) == 50
        assert json.loads(node.status())["requests"]["busy"] == 950
        await writer.send(writer.push(0))
        served = [await flooder.receive_one(ReadAnswer) for _ in range(50)]
        assert [answer.request for answer in served] == list(range(50))


async def test_nothing_more_is_read_for_a_follower_that_takes_no_answers(
    autojump_clock: MockClock, world: World
) -> None:
    entry_bytes = 1 << 20
    config = attrs.evolve(a_config(), outgoing_bytes_max=entry_bytes)
    async with (
        world.node(config) as node,
        world.client(node) as writer,
        world.client(node) as sleeper,
    ):
        await writer.store(bytes(entry_bytes))
        for request in range(100):
            await sleeper.send(sleeper.following(0, request=request))
        await trio.sleep(1)
        await writer.send(writer.push(0))
        await trio.sleep(1)

        status = json.loads(node.status())
        assert status["outgoing_bytes"] < 3 * entry_bytes
        assert status["reads_open"] > 90
        await trio.sleep(config.outgoing_stall_s)
        status = json.loads(node.status())
        assert (status["outgoing_bytes"], status["reads_open"]) == (0, 0)


async def test_a_crowd_at_one_tail_holds_up_no_other_client_and_all_of_it_is_served(
    autojump_clock: MockClock, world: World
) -> None:
    async with (
        world.node() as node,
        world.client(node) as writer,
        world.client(node) as other,
        world.client(node) as crowd,
    ):
        await writer.store(b"zero")
        await crowd.send_at_once(*(crowd.following(0, request=n) for n in range(3000)))
        await trio.sleep(1)
        await writer.send(writer.push(0))
        while waiting_count(node) == 3000:
            await trio.lowlevel.checkpoint()

        await other.send(other.add(1, 1, b"one"))
        await other.receive_one(AddsSynced)

        assert waiting_count(node) > 1000, "most of the crowd has had no turn yet"
        for number in range(3000):
            assert (await crowd.receive_one(ReadAnswer)).request == number


async def test_a_crowd_whose_time_is_up_is_answered_in_slices(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node() as node, world.client(node) as client:
        await client.store(b"zero")
        await client.send_at_once(
            *(client.following(0, request=n, wait_s=1) for n in range(300))
        )

        answers = [await client.receive_one(ReadAnswer) for _ in range(300)]

        assert {answer.entries for answer in answers} == {()}
        assert waiting_count(node) == 0
