"""Bridges between regions in one process: mirrors become their home's log.

The nodes, owners, mirrors and bridges are the real ones; network, disks and metadata are in
memory. Coordinators die without a word.
"""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs
import trio
from trio.testing import MockClock

import geolog
from geolog.transport.message_socket import MessageSocket
from geolog.transport.seam import Address
from geolog.transport.websocket import WebSockets
from geolog.wire.session.batches import messages_of
from relay.bridge.bridge_ends import BridgeEnds
from relay.bridge.target_bridge import BRIDGE_PATH
from relay.protocol.bridge_messages import (
    AskWatermark,
    BridgeHeartbeat,
    BridgeHello,
    BridgeRefused,
    BridgeWelcome,
    ChannelEnded,
    FromHome,
    FromTarget,
    WatermarkTold,
)
from relay.wire.bridge import (
    SUBPROTOCOL_BRIDGE,
    decode_from_home,
    decode_from_target,
    encode_bridge,
)
from sim.in_process import InProcessCluster, open_in_process_cluster
from tests.pure.whole.clusters import append_each
from tests.pure.whole.mirroring import (
    HOME,
    REGIONS,
    STREAM,
    TARGET,
    create,
    entries_of,
    home_of,
    mirror_of,
    rows_of,
)

PORT = 7400


@asynccontextmanager
async def open_ends(
    cluster: InProcessCluster, region: str, relay_epoch: int
) -> AsyncIterator[BridgeEnds]:
    """A coordinator of the region on a host of its own; it dies at the end of the block."""
    host = f"relay-{region}-{relay_epoch}"
    async with cluster.open_client(region, host=host) as log:
        yield BridgeEnds(
            region=region,
            relay_epoch=relay_epoch,
            log=log,
            messages=WebSockets(cluster.network.transport(host)),
            now_us=cluster.now_us,
        )


def address_of(relay_epoch: int) -> Address:
    return Address(f"relay-{HOME}-{relay_epoch}", PORT)


@asynccontextmanager
async def open_home(
    cluster: InProcessCluster, relay_epoch: int = 1
) -> AsyncIterator[BridgeEnds]:
    address = address_of(relay_epoch)
    transport = cluster.network.transport(address.host)
    async with open_ends(cluster, HOME, relay_epoch) as ends, trio.open_nursery() as nursery:
        listener = await transport.listen(address)
        nursery.start_soon(ends.serve, listener)
        try:
            yield ends
        finally:
            nursery.cancel_scope.cancel()
            listener.close()


@asynccontextmanager
async def open_target(
    cluster: InProcessCluster, relay_epoch: int = 1, *, home_epoch: int = 1
) -> AsyncIterator[BridgeEnds]:
    async with (
        open_ends(cluster, TARGET, relay_epoch) as ends,
        ends.open_mirrors() as mirrors,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(ends.mirror, HOME, address_of(home_epoch), mirrors)
        try:
            yield ends
        finally:
            nursery.cancel_scope.cancel()


async def wait_equal(log: geolog.Log, number: int = 0) -> int:
    """Wait until the mirror has all of the home's entries, byte for byte; how many."""
    at_home = [one.data for one in await entries_of(log, await home_of(log, number))]
    with trio.fail_after(60):
        while True:
            mirror = await mirror_of(log, number)
            mirrored = [one.data for one in await entries_of(log, mirror)]
            assert mirrored == at_home[: len(mirrored)], "a mirror is a prefix at all times"
            if len(mirrored) == len(at_home):
                return len(at_home)
            await trio.sleep(0.1)


async def test_a_mirror_follows_its_home_across_segments_and_partitions(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster) as home,
        open_target(cluster),
    ):
        await create(log, segment_bytes=64 << 10, partitions=2)
        for number in range(4):
            async with log.open_writer(STREAM, writer_id="till") as writer:
                await append_each(writer, [b"%d" % number, bytes(50_000), b"x" * 30_000])

        assert await wait_equal(log, 0) + await wait_equal(log, 1) > 12
        assert [bridge.alarms for bridge in home.served] == [[]]


async def test_readers_in_the_targets_region_see_the_homes_records(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        cluster.open_client(TARGET) as far,
        open_home(cluster),
        open_target(cluster),
    ):
        await create(log)
        values = [b"%d" % number for number in range(20)]
        async with log.open_writer(STREAM, writer_id="till") as writer:
            await append_each(writer, values)
        await wait_equal(log)

        async with far.open_reader(STREAM) as reader:
            found = [(record.sequence, record.value) async for record in reader]
        report = await log.verify_stream(STREAM)

        assert found == list(enumerate(values))
        assert (report.mirrored > 0, report.mirrors_unequal, report.gaps) == (True, 0, 0)


async def test_a_mirror_is_sealed_with_its_home_once_it_has_all_of_it(
    autojump_clock: MockClock,
) -> None:
    values = [b"%d" % number for number in range(20)]
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        cluster.open_client(TARGET) as far,
        open_home(cluster) as home,
    ):
        await create(log)
        async with open_target(cluster):
            async with log.open_writer(STREAM) as writer:
                await append_each(writer, values[:5])
            await wait_equal(log)
        async with log.open_writer(STREAM) as writer:
            await append_each(writer, values[5:])
        await log.seal_stream(STREAM)
        async with open_target(cluster, 2), far.open_reader(STREAM, follow=True) as reader:
            with trio.fail_after(60):  # It ends by itself, as readers at home do.
                found = [record.value async for record in reader]
        async with open_target(cluster, 3):  # Finds the mirror sealed.
            await trio.sleep(30)
            (progress,) = home.served[-1].progress()
            alarms = [alarm for bridge in home.served for alarm in bridge.alarms]

    assert (found, alarms) == (values, [])
    assert progress.durable is not None
    assert (progress.durable.sequence_next, progress.unanswered_bytes) == (20, 0)


async def test_a_mirror_begins_where_its_home_begins(autojump_clock: MockClock) -> None:
    rng = random.Random(1)
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster),
        open_target(cluster),
    ):
        await create(log, segment_bytes=64 << 10)
        async with log.open_writer(STREAM) as writer:
            for _ in range(12):  # Two records fill a segment: they cannot be compressed.
                await append_each(writer, [rng.randbytes(30_000)])
        await wait_equal(log)
        await log.truncate_stream(STREAM, before=geolog.AtSequence(8))
        trims = log.access.partitions.trims
        mirror = await mirror_of(log)
        with trio.fail_after(30):
            while True:
                moved = trio.Event()
                if (await trims.read(mirror, changed=moved)).first_sequence:
                    break
                await moved.wait()
        at_home = await trims.read(await home_of(log))
        mirrored = await trims.read(mirror)
        rows = await rows_of(log, mirror)

    assert mirrored.first_sequence == at_home.first_sequence > 0
    assert rows[0].first_sequence > 0


async def test_a_stream_that_is_deleted_ends_its_feed_and_leaves_nothing_to_repair(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster) as home,
        open_target(cluster),
    ):
        await create(log)
        async with log.open_writer(STREAM) as writer:
            await append_each(writer, [b"%d" % number for number in range(20)])
        await wait_equal(log)
        await log.delete_stream(STREAM)
        await trio.sleep(30)
        queued = (await log.health()).repair_queue
        assert home.feeds is not None
        left = dict(home.feeds.by_name)

    assert (queued, left) == (0, {})


async def test_coordinators_that_die_at_any_moment_lose_and_repeat_nothing(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        trio.open_nursery() as nursery,
    ):
        await create(log, segment_bytes=64 << 10)

        async def write() -> None:
            async with log.open_writer(STREAM, writer_id="till") as writer:
                for number in range(150):
                    await writer.append(b"%d" % number * 1000)
                    await trio.sleep(0.05)

        nursery.start_soon(write)
        for epoch in range(1, 6):
            async with open_home(cluster, epoch), open_target(cluster, home_epoch=epoch):
                await trio.sleep(0.4 * epoch)
            async with open_home(cluster, 10 + epoch):
                for target_epoch in (10 + epoch, 20 + epoch):
                    async with open_target(cluster, target_epoch, home_epoch=10 + epoch):
                        await trio.sleep(0.3 * epoch)
        async with open_home(cluster, 99), open_target(cluster, 99, home_epoch=99):
            await trio.sleep(10)
            assert await wait_equal(log) > 100


async def test_a_target_that_is_away_catches_up_and_delays_no_append(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster),
    ):
        await create(log)
        async with log.open_writer(STREAM) as writer:
            await append_each(writer, [b"before"])
            async with open_target(cluster):
                await trio.sleep(5)
            began_s = trio.current_time()
            await append_each(writer, [b"%d" % number for number in range(50)])
            assert trio.current_time() - began_s < 5

        async with open_target(cluster, 2):
            assert await wait_equal(log) > 50


async def answer_to(cluster: InProcessCluster, first: str | bytes) -> str:
    """The refusal that a stranger gets who begins a bridge with these words."""
    async with (
        WebSockets(cluster.network.transport("stranger")).open(
            address_of(1),
            BRIDGE_PATH,
            subprotocols=(SUBPROTOCOL_BRIDGE,),
            message_bytes_max=1 << 20,
        ) as socket,
    ):
        await socket.send(first)
        answer = await socket.receive()
    assert isinstance(answer, bytes)
    message = decode_from_home(answer)
    assert isinstance(message, BridgeRefused), message
    return f"{message.code} {message.error}"


async def test_strangers_are_refused_with_the_reason(autojump_clock: MockClock) -> None:
    hello = BridgeHello(cluster="bank", region=TARGET, relay_epoch=1, window_bytes=1)
    same = BridgeHello(cluster="default", region=HOME, relay_epoch=1, window_bytes=1)
    async with open_in_process_cluster(REGIONS) as cluster, open_home(cluster) as home:
        assert "403 this relay is of cluster 'default'" in await answer_to(
            cluster, encode_bridge(hello)
        )
        assert "409 both sides say" in await answer_to(cluster, encode_bridge(same))
        assert "400 " in await answer_to(cluster, b"GLF")
        assert "is cut within its header" in await answer_to(cluster, b"GLF")
        assert "400 a text on a bridge" in await answer_to(cluster, "hello")
        failures = "\n".join(home.failures)

    assert "refused a bridge of eu-west: this relay is of cluster" in failures
    assert "refused a bridge of us-east: both sides say" in failures


async def test_a_target_that_answers_nothing_is_left_and_its_lag_grows(
    autojump_clock: MockClock,
) -> None:
    hello = BridgeHello(cluster="default", region=TARGET, relay_epoch=1, window_bytes=1 << 20)
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster) as home,
        WebSockets(cluster.network.transport("frozen")).open(
            address_of(1),
            BRIDGE_PATH,
            subprotocols=(SUBPROTOCOL_BRIDGE,),
            message_bytes_max=1 << 20,
        ) as socket,
    ):
        await create(log)
        async with log.open_writer(STREAM) as writer:
            await append_each(writer, [b"record"])
        began_s = trio.current_time()
        await socket.send(encode_bridge(hello))
        lags_s: list[float] = []
        said: list[FromHome] = []
        while not said or not isinstance(said[-1], BridgeRefused):
            message = await socket.receive()
            assert isinstance(message, bytes)
            said += map(decode_from_home, messages_of(message))
            if isinstance(said[-1], AskWatermark):
                await socket.send(encode_bridge(WatermarkTold(said[-1].channel, None)))
            lags_s += [one.lag_s for bridge in home.served for one in bridge.progress()]

        assert "is stuck" in said[-1].error
        assert 10 <= trio.current_time() - began_s < 15
        assert lags_s == sorted(lags_s)
        assert lags_s[-1] > 8
        assert "is stuck" in home.failures[-1]
        [reported] = home.reports.report().streams
        assert "is stuck" in (reported.alarm or "")
        assert reported.stalls_count == 1
        tails = [one.tails for one in said if isinstance(one, BridgeHeartbeat) and one.tails]
        assert {(tail.sequence_next, tail.append_time_us > 0) for (tail,) in tails} == {
            (1, True)
        }


async def test_a_link_without_records_is_left_once_its_canaries_stay_away(
    autojump_clock: MockClock,
) -> None:
    hello = BridgeHello(cluster="default", region=TARGET, relay_epoch=1, window_bytes=1 << 20)
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        open_home(cluster) as home,
        WebSockets(cluster.network.transport("freezing")).open(
            address_of(1),
            BRIDGE_PATH,
            subprotocols=(SUBPROTOCOL_BRIDGE,),
            message_bytes_max=1 << 20,
        ) as socket,
    ):
        await socket.send(encode_bridge(hello))
        beats: list[BridgeHeartbeat] = []
        round_trips_s: list[float | None] = []
        said: list[FromHome] = []
        while not said or not isinstance(said[-1], BridgeRefused):
            message = await socket.receive()
            assert isinstance(message, bytes)
            said = list(map(decode_from_home, messages_of(message)))
            beats += [one for one in said if isinstance(one, BridgeHeartbeat)]
            round_trips_s += [bridge.link.round_trip_s for bridge in home.served]
            if len(beats) <= 3 and beats:
                await socket.send(encode_bridge(BridgeHeartbeat(beats[-1].now_us)))

    assert said[-1].error == f"the link to {TARGET} is stuck: no answer for 10 s"
    assert len(beats) in (12, 13)
    assert (round_trips_s[0], round_trips_s[-1]) == (None, 0.0), "there is no distance"


async def test_a_heartbeat_comes_back_from_a_mirror_that_has_all(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster) as home,
        open_target(cluster),
    ):
        await create(log)
        async with log.open_writer(STREAM) as writer:
            await append_each(writer, [b"record"])
        await trio.sleep(5)
        [reported] = home.reports.report().streams

    assert (reported.durable_records, reported.lag_records) == (1, 0)
    assert reported.round_trip_s == 0.0, "there is no distance, and the disks take no time"


async def test_a_bridge_gives_way_to_a_newer_one_of_its_target(
    autojump_clock: MockClock,
) -> None:
    def hello(relay_epoch: int) -> bytes:
        return encode_bridge(
            BridgeHello(
                cluster="default",
                region=TARGET,
                relay_epoch=relay_epoch,
                window_bytes=1 << 20,
            )
        )

    async with open_in_process_cluster(REGIONS) as cluster, open_home(cluster) as home:
        old, new = (
            WebSockets(cluster.network.transport(host)).open(
                address_of(1),
                BRIDGE_PATH,
                subprotocols=(SUBPROTOCOL_BRIDGE,),
                message_bytes_max=1 << 20,
            )
            for host in ("paused", "successor")
        )
        async with old as before, new as after:
            await before.send(hello(1))
            await before.receive()
            await after.send(hello(2))
            await after.receive()
            said: list[FromHome] = []
            with trio.fail_after(5):
                while not said or not isinstance(said[-1], BridgeRefused):
                    message = await before.receive()
                    assert isinstance(message, bytes)
                    said += map(decode_from_home, messages_of(message))
            open_now = [bridge.target for bridge in home.served]

    assert (said[-1].code, said[-1].error) == (412, f"{TARGET} has opened a newer bridge")
    assert open_now == [TARGET]


async def test_a_channel_of_another_life_of_the_stream_is_ended_with_the_reason(
    autojump_clock: MockClock,
) -> None:
    answers: list[FromTarget] = []
    answered = trio.Event()

    async def be_home(socket: MessageSocket, _target: str) -> None:
        await socket.receive()
        welcome = BridgeWelcome(cluster="default", region=HOME, relay_epoch=1)
        asked = AskWatermark(channel=1, stream=STREAM, life="of-old", partition=0, home_epoch=1)
        await socket.send(encode_bridge(welcome))
        await socket.send(encode_bridge(asked))
        received = await socket.receive()
        assert isinstance(received, bytes)
        answers.extend(decode_from_target(one) for one in messages_of(received))
        answered.set()

    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        trio.open_nursery() as nursery,
    ):
        await create(log)
        transport = cluster.network.transport(address_of(1).host)
        listener = await transport.listen(address_of(1))

        async def serve() -> None:
            await WebSockets(transport).serve(
                await listener.accept(),
                lambda offered: offered[0],
                be_home,
                refusal="",
                message_bytes_max=1 << 20,
            )

        nursery.start_soon(serve)
        async with open_target(cluster):
            with trio.fail_after(30):
                await answered.wait()
            rows = await rows_of(log, await mirror_of(log))
        nursery.cancel_scope.cancel()

    [ended] = answers
    assert isinstance(ended, ChannelEnded)
    assert (ended.channel, ended.code) == (1, 404)
    assert "of life 'of-old' is not relayed from us-east" in ended.error
    assert rows == []


@attrs.define(eq=False)
class LastTaskWatch(trio.abc.Instrument):
    """Acts when the last task of a bridge has ended, before the bridge knows."""

    act: Callable[[], None]
    left_count: int
    """Tasks that have not ended."""
    bugs: list[Exception] = attrs.field(factory=list)

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        if "HomeBridge." not in task.name:
            return
        self.left_count -= 1
        if self.left_count == 0:
            try:
                self.act()
            except Exception as error:  # noqa: BLE001 - trio would only log it.
                self.bugs.append(error)


async def test_a_buffer_that_moves_while_a_bridge_ends_harms_nobody(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster) as home,
    ):
        await create(log)
        async with open_target(cluster), log.open_writer(STREAM) as writer:
            await append_each(writer, [b"one", b"two"])
            await wait_equal(log)
            assert home.feeds is not None
            [feed] = home.feeds.by_name.values()
            watch = LastTaskWatch(act=lambda: feed.fill_from(None), left_count=3)
            trio.lowlevel.add_instrument(watch)
        await trio.sleep(5)
        trio.lowlevel.remove_instrument(watch)

    assert (watch.left_count, watch.bugs) == (0, [])
