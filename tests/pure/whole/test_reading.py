"""Promises of a reader, in a whole cluster: bounds, ends, following, failing replicas."""

import itertools
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.catalog.partition_config import PartitionConfig
from geolog.client.log import LogConfig
from geolog.client.reading.scan import ReaderConfig
from sim.fakes.memory_metadata import MemoryMetadata
from sim.in_process import InProcessCluster
from tests.pure.garbage import only_collected
from tests.pure.thinned import sampled
from tests.pure.whole.clusters import (
    STREAM,
    World,
    append_each,
    ended_by,
    numbered,
    open_world,
    records_of,
    values_of,
)


@asynccontextmanager
async def a_far_client(world: World) -> AsyncIterator[tuple[geolog.Log, MemoryMetadata]]:
    """A client in another region, with its session, which a test may let lag."""
    sessions: list[MemoryMetadata] = []
    async with world.cluster.open_client(
        "eu-west", host="lags", on_session=sessions.append
    ) as log:
        yield log, sessions[0]


@attrs.frozen
class Kept:
    """A record in the naive list."""

    value: bytes
    dlsn: geolog.DLSN
    time_us: int
    transaction_id: int | None


class Shelf:
    """A stream that never changes, and a naive list of its records."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.records: list[Kept] = []

    async def fill(self, rng: random.Random) -> None:
        """Write with several owners, one of an empty segment, and batches of several sizes."""
        for _ in range(3):
            async with self.world.log.open_writer(STREAM) as writer:
                for _ in range(rng.randint(2, 6)):
                    await self._append_batch(writer, rng)
                    await trio.sleep(rng.random())
        async with self.world.log.open_writer(STREAM):
            pass
        async with self.world.log.open_writer(STREAM) as writer:
            await self._append_batch(writer, rng)
        read = await records_of(self.world.log)
        self.records = [
            attrs.evolve(kept, time_us=record.timestamp_us)
            for kept, record in zip(self.records, read, strict=True)
        ]

    async def _append_batch(self, writer: geolog.Writer, rng: random.Random) -> None:
        number = len(self.records)
        sent: list[tuple[bytes, int | None, geolog.Pending]] = []
        for _ in range(rng.randint(1, 5)):
            value = b"record %d" % (number + len(sent))
            transaction = 10 * (number + len(sent)) if rng.random() < 0.7 else None
            sent.append((value, transaction, writer.append_nowait(
                value,
                key=b"key" if rng.random() < 0.5 else None,
                headers={"h": value} if rng.random() < 0.5 else None,
                transaction_id=transaction,
            )))  # fmt: skip
        for value, transaction, pending in sent:
            self.records.append(Kept(value, (await pending.wait()).dlsn, 0, transaction))

    def place_of(self, bound: geolog.Bound, behind: int = 0) -> int:
        """Index of the bound in the list, for a read that begins at `behind`."""
        count = len(self.records)
        match bound:
            case geolog.AtSequence(sequence):
                return min(sequence, count)
            case geolog.AtDlsn(dlsn):
                return self._first(lambda kept: kept.dlsn >= dlsn)
            case geolog.AtTime(time_us):
                return self._first(lambda kept: kept.time_us >= time_us)
            case geolog.AtTransaction(number):
                return self._first(
                    lambda kept: (
                        kept.transaction_id is not None and kept.transaction_id >= number
                    ),
                    behind,
                )
            case geolog.LastRecords(number):
                return max(0, count - number)
            case _:
                return 0 if bound == geolog.EARLIEST else count

    def _first(self, holds: Callable[[Kept], bool], behind: int = 0) -> int:
        count = len(self.records)
        return next((one for one in range(behind, count) if holds(self.records[one])), count)

    def bounds(self, rng: random.Random) -> list[geolog.Bound]:
        """Every kind of bound at every position that may differ."""
        count = len(self.records)
        found: list[geolog.Bound] = [geolog.EARLIEST, geolog.LATEST]
        found += [geolog.LastRecords(number) for number in (0, 1, count - 1, count, count + 5)]
        found += [geolog.AtSequence(number) for number in range(count + 1)]
        for kept in self.records:
            dlsn = kept.dlsn
            found.append(geolog.AtDlsn(dlsn))
            found.append(geolog.AtDlsn(attrs.evolve(dlsn, slot=dlsn.slot + 9)))
            found.append(geolog.AtDlsn(attrs.evolve(dlsn, entry=dlsn.entry + 9)))
            if dlsn.segment < self.records[-1].dlsn.segment:
                behind = attrs.evolve(dlsn, segment=dlsn.segment + 1, entry=0)
                found.append(geolog.AtDlsn(behind))
            found += [geolog.AtTime(kept.time_us + more) for more in (-1, 0, 1)]
            if kept.transaction_id is not None:
                found += [
                    geolog.AtTransaction(kept.transaction_id + more) for more in (-1, 0, 1)
                ]
        found += [geolog.AtTime(0), geolog.AtTransaction(-5), geolog.AtTransaction(10**6)]
        return found


@asynccontextmanager
async def a_shelf(seed: int = 0) -> AsyncIterator[Shelf]:
    async with open_world(segment_bytes=64 * 1024) as world:
        shelf = Shelf(world)
        await shelf.fill(random.Random(seed))
        yield shelf


SOME_OR_ALL = [
    pytest.param(0, 3),
    pytest.param(0, 1, marks=pytest.mark.long),
    pytest.param(1, 1, marks=pytest.mark.long),
]
"""A seed, and one in how many of its bounds are tried."""


@pytest.mark.parametrize(("seed", "one_in"), SOME_OR_ALL)
async def test_every_start_agrees_with_a_naive_list(
    seed: int, one_in: int, autojump_clock: MockClock
) -> None:
    async with a_shelf(seed) as shelf:
        values = [kept.value for kept in shelf.records]
        for bound in shelf.bounds(random.Random(seed))[::one_in]:
            found = await values_of(shelf.world.log, start=bound)
            assert found == values[shelf.place_of(bound) :], bound


@pytest.mark.parametrize(("seed", "one_in"), SOME_OR_ALL)
async def test_every_stop_agrees_with_a_naive_list(
    seed: int, one_in: int, autojump_clock: MockClock
) -> None:
    async with a_shelf(seed) as shelf:
        values = [kept.value for kept in shelf.records]
        for bound in shelf.bounds(random.Random(seed))[::one_in]:
            found = await values_of(shelf.world.log, stop=bound)
            assert found == values[: shelf.place_of(bound)], bound


async def test_any_start_and_stop_together_agree_with_a_naive_list(
    autojump_clock: MockClock,
) -> None:
    async with a_shelf() as shelf:
        rng = random.Random(7)
        values = [kept.value for kept in shelf.records]
        bounds = shelf.bounds(rng)
        for _ in range(150):
            start, stop = rng.choice(bounds), rng.choice(bounds)
            if is_refused(shelf, start, stop):
                with pytest.raises(geolog.InvalidArgumentError, match="swap the two"):
                    await values_of(shelf.world.log, start=start, stop=stop)
                continue
            found = await values_of(shelf.world.log, start=start, stop=stop)
            first = shelf.place_of(start)
            end = shelf.place_of(stop, behind=first)
            expected = values[first:end]
            if isinstance(stop, geolog.AtTransaction) and shelf.place_of(stop) < first:
                # The id was passed before the start: whether the first batch has it
                # decides how many of the records without an id are read.
                expected = expected[: len(found)]
            assert found == expected, (start, stop)


def is_refused(shelf: Shelf, start: geolog.Bound, stop: geolog.Bound) -> bool:
    """Whether the bounds alone show that the stop lies before the start."""
    first, last = attrs.astuple(start)[:1], attrs.astuple(stop)[:1]
    if stop == geolog.EARLIEST:
        return start != geolog.EARLIEST
    if type(start) is type(stop):
        is_counted_back = isinstance(start, geolog.LastRecords)
        return last > first if is_counted_back else last < first
    is_counted = start == geolog.LATEST or isinstance(
        start, geolog.AtSequence | geolog.LastRecords
    )
    if is_counted and isinstance(stop, geolog.AtSequence | geolog.LastRecords):
        return shelf.place_of(stop) < shelf.place_of(start)
    return False


@pytest.mark.parametrize("side", ["start", "stop"])
async def test_a_position_beyond_the_end_is_refused(
    side: str, autojump_clock: MockClock
) -> None:
    async with a_shelf() as shelf:
        last = shelf.records[-1].dlsn
        for bound in (
            geolog.AtSequence(len(shelf.records) + 1),
            geolog.AtDlsn(attrs.evolve(last, segment=last.segment + 2)),
        ):
            with pytest.raises(geolog.InvalidArgumentError, match="is beyond the end"):
                await values_of(shelf.world.log, **{side: bound})


async def test_a_follower_with_a_stop_ends_there(autojump_clock: MockClock) -> None:
    async with a_shelf() as shelf:
        values = [kept.value for kept in shelf.records]
        for stop in (
            geolog.EARLIEST,
            geolog.LATEST,
            geolog.AtSequence(3),
            geolog.AtDlsn(shelf.records[5].dlsn),
            geolog.AtTime(shelf.records[5].time_us),
            geolog.LastRecords(2),
        ):
            with trio.fail_after(10):
                async with shelf.world.log.open_reader(
                    STREAM, stop=stop, follow=True
                ) as reader:
                    found = [record.value async for record in reader]
            assert found == values[: shelf.place_of(stop)], stop


async def test_a_follower_from_the_end_to_the_end_ends_at_once(
    autojump_clock: MockClock,
) -> None:
    async with a_shelf() as shelf:
        with trio.fail_after(10):
            async with shelf.world.log.open_reader(
                STREAM, start=geolog.LATEST, stop=geolog.LATEST, follow=True
            ) as reader:
                assert [record.value async for record in reader] == []


async def test_records_after_the_stop_in_the_same_chunk_are_not_read(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM) as writer:
            for number in (1, 5, 5, 7):
                await writer.append(b"%d" % number, transaction_id=number)

        assert await values_of(world.log, stop=geolog.AtTransaction(5)) == [b"1"]


async def test_an_empty_stream_reads_as_nothing(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        for start in (geolog.EARLIEST, geolog.LATEST, geolog.LastRecords(3),
                      geolog.AtSequence(0), geolog.AtTime(5), geolog.AtTransaction(6),
                      geolog.AtDlsn(geolog.DLSN(1, 2, 1))):  # fmt: skip
            assert await values_of(world.log, start=start) == []


async def test_keys_headers_and_ids_are_read_back(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM) as writer:
            await writer.append(
                b"one", key=b"", headers={"h": b"1", "i": b""}, transaction_id=0
            )
            await writer.append(b"two")
        one, two = await records_of(world.log)

    assert (one.key, one.headers, one.transaction_id) == (b"", {"h": b"1", "i": b""}, 0)
    assert (two.key, two.headers, two.transaction_id) == (None, {}, None)
    assert one.timestamp_us <= two.timestamp_us
    assert (one.position.home_epoch, one.stream, one.partition) == (1, STREAM, 0)


async def test_batches_and_records_agree(autojump_clock: MockClock) -> None:
    async with a_shelf() as shelf:
        async with shelf.world.log.open_reader(
            STREAM, start=geolog.AtSequence(2), stop=geolog.AtSequence(9)
        ) as reader:
            batches = [batch async for batch in reader.batches()]

        values = [value for batch in batches for value in batch.values()]
        assert values == [kept.value for kept in shelf.records[2:9]]
        ends = [batch.end_sequence for batch in batches]
        assert ends == sorted(ends)
        assert ends[-1] == 9


# The end of a bounded read.


async def test_a_read_has_all_records_answered_before_it_while_a_writer_appends(
    autojump_clock: MockClock,
) -> None:
    async with open_world(segment_bytes=64 * 1024) as world:
        world.cluster.network.latency_s = lambda one, other: 0.01
        answered: list[bytes] = []
        async with world.log.open_writer(STREAM) as writer, trio.open_nursery() as nursery:

            async def write() -> None:
                for number in itertools.count():
                    value = b"%d" % number + bytes(500)
                    await writer.append(value)
                    answered.append(value)

            nursery.start_soon(write)
            for _ in range(20):
                await trio.sleep(0.1)
                due = list(answered)
                values = await values_of(world.log)
                assert values[: len(due)] == due
            nursery.cancel_scope.cancel()


@pytest.mark.long
async def test_a_read_ends_even_if_more_entries_are_in_flight_than_one_request_covers(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        world.log.open_writer(STREAM, batch_bytes=20, linger_s=0) as writer,
        world.cluster.open_client("us-east", host="reader") as log,
        trio.open_nursery() as nursery,
    ):
        world.cluster.network.latency_s = lambda one, other: (
            0.5 if "client" in (one, other) else 0.0
        )

        async def write() -> None:
            for number in itertools.count():
                writer.append_nowait(b"%d" % number)
                await trio.sleep(0.001)

        nursery.start_soon(write)
        await trio.sleep(2)
        with trio.fail_after(10):
            values = await values_of(log)
        assert len(values) > 500
        nursery.cancel_scope.cancel()


async def test_a_read_recovers_a_dead_owners_open_ledger(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        with trio.move_on_after(3):
            async with (
                world.cluster.open_client("eu-west", host="dies") as log,
                log.open_writer(STREAM) as writer,
            ):
                await append_each(writer, numbered(5))
                isolate(world.cluster, "dies")
                writer.append_nowait(b"in flight")
                await trio.sleep_forever()

        assert (await values_of(world.log))[:5] == numbered(5)


def isolate(cluster: InProcessCluster, host: str) -> None:
    for node_id in cluster.nodes:
        cluster.network.cut(host, node_id)


async def test_an_end_is_never_taken_from_a_deposed_owner(autojump_clock: MockClock) -> None:
    """The zombie's members answer and its ledger looks open; the list of segments decides."""
    async with open_world() as world:
        with ended_by(geolog.GeologError):
            async with (
                world.cluster.open_client("eu-west", host="zombie") as log,
                log.open_writer(STREAM) as zombie,
            ):
                await append_each(zombie, numbered(3))
                isolate(world.cluster, "zombie")
                async with world.log.open_writer(STREAM) as writer:
                    await append_each(writer, numbered(3, start=3))
                assert await values_of(world.log) == numbered(6)
                for node_id in world.cluster.nodes:
                    world.cluster.network.mend("zombie", node_id)
                await zombie.append(b"never")

        assert await values_of(world.log) == numbered(6)


async def test_a_read_fails_at_its_deadline_rather_than_end_early(
    autojump_clock: MockClock,
) -> None:
    config = LogConfig(reader=ReaderConfig(end_timeout_s=5.0))
    async with open_world(config=config) as world:
        with trio.move_on_after(1):
            async with (
                world.cluster.open_client("eu-west", host="dies") as log,
                log.open_writer(STREAM) as writer,
            ):
                await append_each(writer, numbered(5))
                isolate(world.cluster, "dies")
                writer.append_nowait(b"in flight")
                await trio.sleep_forever()
        await world.cluster.kill_region("us-east")
        await world.cluster.kill_region("eu-west")
        started_s = trio.current_time()
        with pytest.raises(geolog.UnavailableError, match="could not be found within 5"):
            await values_of(world.log)

        assert trio.current_time() - started_s == pytest.approx(5, abs=0.5)


async def test_a_short_loss_of_metadata_delays_a_read_without_failing_it(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(5))
        async with trio.open_nursery() as nursery:
            world.session.cut_off()

            async def restore() -> None:
                await trio.sleep(4)
                world.session.restore()

            nursery.start_soon(restore)
            assert await values_of(world.log) == numbered(5)


# Following.


async def follow(log: geolog.Log, found: list[bytes], count: int, done: trio.Event) -> None:
    async with log.open_reader(STREAM, follow=True) as reader:
        async for record in reader:
            found.append(record.value)
            if len(found) == count:
                done.set()
                return


@pytest.mark.parametrize("seed", sampled(range(4), one_in=2))
async def test_a_follower_goes_on_across_rolls_takeovers_and_failovers(
    seed: int, autojump_clock: MockClock
) -> None:
    """The first next ledger of the second writer may need nodes that are cut off."""
    async with (
        open_world(segment_bytes=64 * 1024, seed=seed) as world,
        world.cluster.open_client("ap-northeast", host="reader") as reader,
        trio.open_nursery() as nursery,
    ):
        found: list[bytes] = []
        followed = trio.Event()
        rng = random.Random(1)
        values = [rng.randbytes(3000) for _ in range(100)]
        nursery.start_soon(follow, reader, found, 100, followed)
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, values[:50])
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, values[50:60])
            for node_id in (await world.log.list_segments(STREAM))[-1].ensemble[:2]:
                world.cluster.network.cut("client", node_id)
            await append_each(writer, values[60:98])
            for value in values[98:]:  # A ledger that failed is prepared again.
                await trio.sleep(PartitionConfig().prepare_retry_s)
                await writer.append(value)
            with trio.fail_after(10):
                await followed.wait()

        assert found == values
        assert len(await world.log.list_segments(STREAM)) >= 5


async def test_a_follower_gets_records_that_its_own_region_does_not_hear_of(
    autojump_clock: MockClock,
) -> None:
    """The writer is cut off from the nodes near the reader."""
    async with (
        open_world() as world,
        world.cluster.open_client("ap-northeast", host="reader") as reader,
        trio.open_nursery() as nursery,
    ):
        found: list[bytes] = []
        followed = trio.Event()
        async with world.log.open_writer(STREAM) as writer:
            await writer.append(b"record 0")
            nursery.start_soon(follow, reader, found, 5, followed)
            await trio.sleep(1)
            for node in world.cluster.nodes_of("ap-northeast"):
                world.cluster.network.cut("client", node.node_id)
            await append_each(writer, numbered(4, start=1))
            with trio.move_on_after(5):
                await followed.wait()
            assert found == numbered(5)


async def test_a_follower_goes_on_while_metadata_is_away(autojump_clock: MockClock) -> None:
    sessions: list[MemoryMetadata] = []
    async with (
        open_world() as world,
        world.cluster.open_client(
            "ap-northeast", host="reader", on_session=sessions.append
        ) as reader,
        trio.open_nursery() as nursery,
    ):
        found: list[bytes] = []
        followed = trio.Event()
        async with world.log.open_writer(STREAM) as writer:
            await writer.append(b"record 0")
            nursery.start_soon(follow, reader, found, 5, followed)
            await trio.sleep(1)
            sessions[0].cut_off()
            await trio.sleep(15)
            await append_each(writer, numbered(4, start=1))
            with trio.move_on_after(5):
                await followed.wait()
            assert found == numbered(5)
            sessions[0].restore()


async def test_a_follower_of_a_deleted_stream_gets_an_error(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM) as writer:
            await writer.append(b"one")
        with ended_by(geolog.GeologError) as ended, trio.fail_after(20):
            async with world.log.open_reader(STREAM, follow=True) as reader:
                async for record in reader:
                    assert record.value == b"one"
                    await world.log.delete_stream(STREAM)

        assert isinstance(ended.error, geolog.NoSuchStreamError)


async def test_leaving_the_loop_early_is_not_an_error(autojump_clock: MockClock) -> None:
    async with a_shelf() as shelf:
        for is_following in (False, True):
            async with shelf.world.log.open_reader(STREAM, follow=is_following) as reader:
                async for record in reader:
                    assert record.sequence == 0
                    break


async def test_a_failed_reader_raises_its_error_again(
    autojump_clock: MockClock,
) -> None:
    config = LogConfig(reader=ReaderConfig(stall_timeout_s=3.0))
    async with open_world(config=config) as world:
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(5))
        for region in ("us-east", "eu-west", "ap-northeast"):
            await world.cluster.kill_region(region)
        async with world.log.open_reader(STREAM) as reader:
            for _ in range(2):
                with pytest.raises(geolog.UnavailableError):
                    await anext(reader)


async def test_a_reader_whose_metadata_server_lags_ends_no_earlier(
    autojump_clock: MockClock,
) -> None:
    """The list that it would see ends with a completed segment."""
    async with open_world() as world, a_far_client(world) as (other, session):
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(3))
        assert await values_of(other) == numbered(3)
        session.lag()
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(3, start=3))

            assert await values_of(other) == numbered(6)


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "open"])
async def test_a_read_ends_no_earlier_if_a_deposed_leader_answers_its_sync(
    autojump_clock: MockClock,
    is_closed: bool,  # noqa: FBT001 - how the segment is left that seems to be the last
) -> None:
    async with (
        open_world(segment_bytes=64 << 10) as world,
        a_far_client(world) as (other, session),
    ):
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(3))
            if not is_closed:
                assert await values_of(other) == numbered(3)
                session.lag_deposed()
                large = [random.Random(one).randbytes(20 << 10) for one in range(12)]
                await append_each(writer, large)
                assert len(await world.log.list_segments(STREAM)) > 1
                assert await values_of(other) == [*numbered(3), *large]
                return
        assert await values_of(other) == numbered(3)
        session.lag_deposed()
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(3, start=3))
            assert await values_of(other) == numbered(6)


async def test_a_stream_is_not_empty_for_a_reader_whose_metadata_leader_is_deposed(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, a_far_client(world) as (other, session):
        assert await values_of(other) == []
        session.lag_deposed()
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(3))

            assert await values_of(other) == numbered(3)


async def test_a_position_with_an_unknown_home_epoch_is_refused(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(3))
        reading = world.log.open_reader(STREAM, start=geolog.AtSequence(1, home_epoch=9))
        with pytest.raises(geolog.InvalidArgumentError, match="home epoch 9"):
            await reading.__aenter__()


@pytest.mark.parametrize("lag", ["lag", "lag_deposed"])
async def test_a_reader_whose_metadata_lags_opens_new_partitions(
    autojump_clock: MockClock, lag: str
) -> None:
    async with open_world() as world, a_far_client(world) as (other, session):
        assert await values_of(other) == []
        getattr(session, lag)()
        await world.log.update_stream(STREAM, partitions=2)
        async with world.log.open_writer(f"{STREAM}#1") as writer:
            await append_each(writer, numbered(3))

        assert await values_of(other) == numbered(3)


async def test_verification_by_metadata_that_lags_takes_the_partitions_that_are_new(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, a_far_client(world) as (other, session):
        assert await values_of(other) == []
        session.lag()
        await world.log.update_stream(STREAM, partitions=2)
        async with world.log.open_writer(f"{STREAM}#1") as writer:
            await append_each(writer, numbered(3))

        assert (await other.verify_stream(STREAM)).records == 3


async def test_a_read_leaves_nothing_for_the_garbage_collector(
    autojump_clock: MockClock,
) -> None:
    """Else all that it has fetched stays in memory until the collector comes by."""

    async def read_and_follow() -> None:
        async with world.log.open_reader(STREAM) as reader:
            assert len([record async for record in reader]) == 20
        async with world.log.open_reader(STREAM, follow=True) as reader:
            for _ in range(20):
                await anext(reader)

    async with open_world() as world, world.log.open_writer(STREAM) as writer:
        await append_each(writer, numbered(20))
        await read_and_follow()
        with only_collected() as found:
            await read_and_follow()

    assert found == []
