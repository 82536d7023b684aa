"""Sessions that share an owner: each hears of the answers to its own batches."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio
from trio.testing import MockClock

import geolog
from geolog.partition.batch_sink import SentBatch
from geolog.partition.partition_writer import PartitionWriter
from geolog.protocol.owner_answers import OwnerEnded
from geolog.wire.batch import seal_batch
from tests.pure.whole.clusters import REGIONS, STREAM, ended_by, open_world


@attrs.define(eq=False)
class Session:
    """Sends batches to an owner, and notes how many are answered each time it is told."""

    owner: PartitionWriter
    sent: list[SentBatch] = attrs.field(factory=list)
    told: list[int] = attrs.field(factory=list)

    def send(self, count: int = 1) -> None:
        for _ in range(count):
            sealed = seal_batch([b"record"], created_us=1)
            self.sent.append(self.owner.append(sealed, listener=self))

    def on_answers(self) -> None:
        self.told.append(sum(one.done.is_set() for one in self.sent))


@asynccontextmanager
async def open_owner(log: geolog.Log) -> AsyncIterator[PartitionWriter]:
    """Own the stream's only partition."""
    async with log.open_writer(STREAM) as writer:
        sink: object = writer.lanes[0].sink
        assert isinstance(sink, PartitionWriter)
        yield sink


async def test_batches_answered_at_once_are_told_once(autojump_clock: MockClock) -> None:
    async with open_world() as world, open_owner(world.log) as owner:
        session, other = Session(owner), Session(owner)
        session.send(5)
        await session.sent[-1].done.wait()

        assert session.told[-1] == 5
        assert len(session.told) <= 5
        assert other.told == []


async def test_each_session_is_told_of_its_own_answers(autojump_clock: MockClock) -> None:
    async with open_world() as world, open_owner(world.log) as owner:
        sessions = [Session(owner), Session(owner)]
        for turn in range(6):
            sessions[turn % 2].send()
        await sessions[1].sent[-1].done.wait()

        assert [session.told[-1] for session in sessions] == [3, 3]
        assert all(session.told == sorted(session.told) for session in sessions)


async def test_a_session_is_told_when_its_owner_fails(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        with ended_by(geolog.OutcomeUnknownError):
            async with open_owner(world.log) as owner:
                session = Session(owner)
                for region in REGIONS:
                    await world.cluster.kill_region(region)
                session.send(3)
                with trio.move_on_after(120):
                    await session.sent[-1].done.wait()

                assert session.told == [3]
                answer = session.sent[0].answer
                assert isinstance(answer, OwnerEnded)
                assert isinstance(answer.error, geolog.OutcomeUnknownError)
                raise answer.error
