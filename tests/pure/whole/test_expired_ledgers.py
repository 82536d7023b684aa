"""A ledger that was prepared long ago, and is gone when a partition rolls to it."""

import random
import re
from collections.abc import Awaitable, Callable
from typing import TypeVar

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.client.connect import open_log
from sim.fakes.forwarded_metadata import ForwardedMetadata
from sim.fakes.memory_metadata import MemoryMetadata
from sim.in_process import open_in_process_cluster
from tests.pure.whole.clusters import REGIONS, STREAM, values_of
from topology.errors import UnavailableError

T = TypeVar("T")


@attrs.define(eq=False)
class RefusingMetadata(ForwardedMetadata[MemoryMetadata]):
    """A session that notes the ledgers that are created, and refuses to create some."""

    created: list[str] = attrs.field(factory=list)
    """Paths of ledgers."""
    refusals_left: int = 0
    is_last_creation_lost: bool = False
    """Whether the next ledger is gone at once, and no other can be made."""

    async def _forward(self, request: str, send: Callable[[], Awaitable[T]]) -> T:
        creates = re.search(r"create (\S*/ledgers/\S*) ", request)
        if creates is not None and self.refusals_left:
            self.refusals_left -= 1
            raise UnavailableError("metadata does not answer")
        answer = await send()
        if creates is not None:
            self.created.append(creates[1])
            if self.is_last_creation_lost:
                await self.behind.delete(creates[1])
                self.refusals_left = 1_000_000
        return answer


async def test_opening_fails_if_the_first_ledger_has_expired_and_none_can_be_made(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.store.open_session() as near,
    ):
        metadata = RefusingMetadata(near, is_last_creation_lost=True)
        async with open_log(
            metadata=metadata,
            transport=cluster.network.transport("client"),
            cluster="default",
            region="us-east",
            who="client",
            rng=random.Random(0),
            now_us=cluster.now_us,
        ) as log:
            await log.create_stream(STREAM, survive="1 region")
            with trio.fail_after(300), pytest.raises(UnavailableError):
                async with log.open_writer(STREAM):
                    raise AssertionError("opened without a ledger")


async def test_a_roll_survives_that_its_next_ledger_has_expired_and_none_can_be_made_at_once(
    autojump_clock: MockClock,
) -> None:
    values = [random.Random(number).randbytes(15_000) for number in range(8)]
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.store.open_session() as near,
    ):
        metadata = RefusingMetadata(near)
        async with open_log(
            metadata=metadata,
            transport=cluster.network.transport("client"),
            cluster="default",
            region="us-east",
            who="client",
            rng=random.Random(0),
            now_us=cluster.now_us,
        ) as log:
            await log.create_stream(STREAM, survive="1 region", segment_bytes=1 << 16)
            async with log.open_writer(STREAM) as writer:
                for value in values[:3]:
                    await writer.append(value)
                    await trio.sleep(1)
                prepared = metadata.created[-1]
                await near.delete(prepared)
                metadata.refusals_left = 2
                for value in values[3:]:
                    await writer.append(value)

            assert not metadata.refusals_left
            assert prepared not in metadata.created[-1:]
            assert len(await log.list_segments(STREAM)) > 1
            assert await values_of(log) == values
