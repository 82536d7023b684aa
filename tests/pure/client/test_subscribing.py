"""A subscription over fake partitions: what fails, what waits, and what memory it takes."""

import random
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from geolog.client.reading.reader import Reader
from geolog.client.reading.record import Gap, RecordBatch
from geolog.client.reading.subscribing import (
    OpenedPartition,
    SubscriptionConfig,
    open_subscription,
)
from geolog.protocol.ids import Position
from geolog.protocol.stream_state import StreamMode, StreamName, StreamRecord
from geolog.protocol.subscription import SubscribedPartition, Subscription
from geolog.wire.batch import open_batch, seal_batch
from topology.errors import DataLostError, GeologError, NoSuchStreamError, UnavailableError
from topology.quorum import QuorumConfig

CONFIG = SubscriptionConfig(turns_max=4, turn_bytes=1, ahead_runs=3)
BATCH = open_batch(seal_batch([b"value"], created_us=1).data)


def stream_of(name: str) -> StreamRecord:
    return StreamRecord(
        name=StreamName("shop", name),
        mode=StreamMode.GLOBAL,
        quorum=QuorumConfig(ensemble_size=1, write_quorum=1, ack_quorum=1),
        segment_bytes=1 << 20,
        created_us=5,
        life="a",
    )


@attrs.define(eq=False)
class FakeRuns:
    """The records of one partition, each a run; at their end it waits for more, or ends."""

    log: "FakeLog"
    partition: SubscribedPartition
    next: int

    async def next_run(self) -> RecordBatch | Gap:
        await trio.lowlevel.checkpoint()
        name = self.partition.stream.name
        errors = self.log.errors[name]
        if self.next == self.log.fails_at.get(name) and errors:
            raise errors.pop()
        while self.next == self.log.counts[name]:
            if not self.log.is_following:
                raise StopAsyncIteration
            await self.log.wait_more()
        self.log.read_count += 1
        self.next += 1
        return RecordBatch(
            stream=str(self.partition.stream),
            partition=0,
            epoch=1,
            segment=1,
            entry=self.next,
            first_slot=0,
            first_sequence=self.next - 1,
            timestamp_us=1,
            served_region="a",
            batch=BATCH,
            end_row=1,
        )

    def close(self) -> None:
        pass


@attrs.define(eq=False)
class FakeLog:
    """Partitions with so many records each."""

    counts: dict[str, int]
    is_following: bool = True
    errors: dict[str, list[GeologError]] = attrs.field(factory=lambda: defaultdict(list))
    fails_at: dict[str, int] = attrs.field(factory=dict)
    open_count: int = 0
    read_count: int = 0
    opened: list[str] = attrs.field(factory=list)
    _more: trio.Event = attrs.field(factory=trio.Event)

    async def wait_more(self) -> None:
        await self._more.wait()

    def append(self) -> None:
        """Append a record to each partition."""
        self.counts = {name: count + 1 for name, count in self.counts.items()}
        more, self._more = self._more, trio.Event()
        more.set()

    @asynccontextmanager
    async def open_partition(
        self, _: StreamRecord, partition: SubscribedPartition, begin: Position | None
    ) -> AsyncIterator[OpenedPartition]:
        self.open_count += 1
        self.opened.append(partition.stream.name)
        first = 0 if begin is None else begin.sequence
        try:
            reader = Reader("a partition", FakeRuns(self, partition, first))
            yield OpenedPartition(reader, self.counts[partition.stream.name])
        finally:
            self.open_count -= 1

    @asynccontextmanager
    async def subscribed(self) -> AsyncIterator[Reader]:
        streams = [stream_of(name) for name in self.counts]

        async def look() -> list[StreamRecord]:
            await trio.lowlevel.checkpoint()
            return streams

        async with open_subscription(
            "shop/*",
            subscription=Subscription({}),
            streams=streams,
            look=look,
            open_partition=self.open_partition,
            is_following=self.is_following,
            rng=random.Random(1),
            config=CONFIG,
        ) as reader:
            yield reader


async def take(reader: Reader, count: int) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    with trio.fail_after(600):
        for _ in range(count):
            record = await anext(reader)
            found[record.stream].append(record.sequence)
    return dict(found)


async def test_a_partition_that_cannot_be_read_now_is_tried_again_and_the_others_go_on(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    log = FakeLog({"carts": 3, "orders": 3})
    log.fails_at["carts"] = 1
    log.errors["carts"] = [UnavailableError("no replica answers") for _ in range(5)]
    async with log.subscribed() as reader:
        started_s = trio.current_time()
        first = await take(reader, 4)
        is_prompt = trio.current_time() - started_s < 0.5
        rest = await take(reader, 2)
        waited_s = trio.current_time() - started_s

    assert first == {"shop/carts": [0], "shop/orders": [0, 1, 2]}
    assert is_prompt
    assert rest == {"shop/carts": [1, 2]}
    assert 5 < waited_s < 60
    assert "shop/carts#0: cannot be read now (no replica answers)" in caplog.text


async def test_an_error_that_no_retry_mends_ends_the_read_with_the_name_of_the_partition(
    autojump_clock: MockClock,
) -> None:
    log = FakeLog({"carts": 3, "orders": 3})
    log.fails_at["carts"] = 1
    log.errors["carts"] = [DataLostError("entry 7 is on no replica")]
    async with log.subscribed() as reader:
        with pytest.raises(DataLostError, match=r"^shop/carts#0: entry 7 is on no replica$"):
            await take(reader, 6)
        with pytest.raises(DataLostError, match="shop/carts"):
            await anext(reader)


@pytest.mark.parametrize("kind", [UnavailableError, NoSuchStreamError, DataLostError])
async def test_without_following_any_error_ends_the_read(
    autojump_clock: MockClock, kind: type[GeologError]
) -> None:
    log = FakeLog({"carts": 3}, is_following=False)
    log.fails_at["carts"] = 2
    log.errors["carts"] = [kind("it is gone")]
    async with log.subscribed() as reader:
        assert await take(reader, 2) == {"shop/carts": [0, 1]}
        with pytest.raises(kind, match="shop/carts#0: it is gone"):
            await anext(reader)


async def test_a_stream_that_is_gone_is_left_and_the_others_go_on(
    autojump_clock: MockClock,
) -> None:
    log = FakeLog({"carts": 3, "orders": 3})
    log.fails_at["carts"] = 1
    log.errors["carts"] = [NoSuchStreamError("stream 'shop/carts' was deleted")]
    async with log.subscribed() as reader:
        found = await take(reader, 4)
        log.append()
        later = await take(reader, 1)

    assert found == {"shop/carts": [0], "shop/orders": [0, 1, 2]}
    assert later == {"shop/orders": [3]}


async def test_a_thousand_streams_that_are_behind_take_turns(autojump_clock: MockClock) -> None:
    log = FakeLog({f"s{number}": 3 for number in range(1000)})
    async with log.subscribed() as reader:
        await wait_all_tasks_blocked()
        assert log.open_count == CONFIG.turns_max
        assert log.read_count <= CONFIG.ahead_runs + CONFIG.turns_max
        found = await take(reader, 3000)
        await wait_all_tasks_blocked()
        assert log.open_count == 1000, "all wait at their tails"

    assert found == {f"shop/s{number}": [0, 1, 2] for number in range(1000)}
    assert len(set(log.opened[:1000])) == 1000, "each has its first turn before a second one"


async def test_records_that_come_while_the_application_is_busy_are_read_again_later(
    autojump_clock: MockClock,
) -> None:
    log = FakeLog({f"s{number}": 1 for number in range(100)})
    async with log.subscribed() as reader:
        await take(reader, 100)
        await wait_all_tasks_blocked()
        for _ in range(5):
            log.append()
            await wait_all_tasks_blocked()
        assert log.open_count <= CONFIG.turns_max, "the others have dropped what they had"
        found = await take(reader, 500)

    assert found == {f"shop/s{number}": [1, 2, 3, 4, 5] for number in range(100)}
