"""A bound on what the loss of a home could cost: real owners, relays and mirrors."""

import random

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.catalog.descriptions import HealthState
from geolog.partition.partition_writer import PartitionWriter
from geolog.protocol.owner_answers import Placed
from geolog.transport.seam import Address
from geolog.transport.websocket import WebSockets
from geolog.wire.multicast import (
    MULTICAST_BYTES_MAX,
    MULTICAST_PATH,
    SUBPROTOCOL_MULTICAST,
    MulticastAsk,
    MulticastHello,
    MulticastLog,
    MulticastProgress,
    decode_multicast,
    encode_multicast,
)
from sim.in_process import InProcessCluster, open_in_process_cluster
from tests.pure.relay.test_bridges import wait_equal
from tests.pure.relay.test_relay_groups import PORT, open_groups
from tests.pure.whole.mirroring import (
    HOME,
    REGIONS,
    STREAM,
    TARGET,
    entries_of,
    home_of,
    mirror_of,
)
from tests.pure.whole.test_writer_fences import Session, begin
from topology.errors import ConflictError, OverCapacityError, TooLargeError

BOUND_BYTES = 1 << 20
RECORD_BYTES = 100_000


async def create(
    log: geolog.Log, *, max_bytes: int | None = None, max_s: float | None = None
) -> None:
    await log.create_stream(
        STREAM,
        mode="regional",
        home=HOME,
        relay_to=[TARGET],
        segment_bytes=8 << 20,
        rpo_max_bytes=max_bytes,
        rpo_max_s=max_s,
    )


def payload(number: int) -> bytes:
    return random.Random(number).randbytes(RECORD_BYTES)


async def append_until_held(writer: geolog.Writer, *, at_most: int) -> OverCapacityError:
    for number in range(at_most):
        try:
            await writer.append(payload(number))
        except OverCapacityError as held:
            return held
    raise AssertionError(f"{at_most} appends were taken")


async def refusal_of(writer: geolog.Writer) -> OverCapacityError | None:
    try:
        await writer.append(b"small")
    except OverCapacityError as held:
        return held
    return None


async def append_once_free(writer: geolog.Writer, *, within_s: float = 10) -> int:
    """Append until it is taken; how often it was refused before."""
    refused_count = 0
    with trio.fail_after(within_s):
        while True:
            try:
                await writer.append(payload(0))
            except OverCapacityError as held:
                refused_count += 1
                await trio.sleep(held.retry_after_s / 10)
            else:
                return refused_count


async def lost_bytes(log: geolog.Log) -> int:
    """Bytes of the home's entries that the mirror has not."""
    at_home = await entries_of(log, await home_of(log))
    mirrored = await entries_of(log, await mirror_of(log))
    return sum(len(one.data) for one in at_home[len(mirrored) :])


async def test_a_paused_target_holds_appends_at_the_bound_until_it_is_resumed(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_groups(cluster),
    ):
        await create(log, max_bytes=BOUND_BYTES)
        async with log.open_writer(STREAM, writer_id="till") as writer:
            for _ in range(20):
                await append_once_free(writer)
            await wait_equal(log)
            await log.pause_relay(STREAM)
            await trio.sleep(3)
            held = await append_until_held(writer, at_most=11)
            lost = await lost_bytes(log)
            again = await append_until_held(writer, at_most=1)
            await trio.sleep(1)
            [shown] = await log.relay_status(STREAM)
            health = await log.health()
            await log.resume_relay(STREAM)
            refused_count = await append_once_free(writer)
        await wait_equal(log)
        [freed] = await log.relay_status(STREAM)

    assert TARGET in str(held)
    assert (held.code, held.retriable, held.outcome) == (429, True, "refused")
    assert held.retry_after_s > 0
    assert BOUND_BYTES - 2 * RECORD_BYTES < lost <= BOUND_BYTES + 10_000, "headers are extra"
    assert str(again) == str(held)
    assert refused_count > 0
    assert (shown.is_held, freed.is_held) == (True, False)
    assert shown.lag_bytes is not None
    assert shown.lag_bytes <= BOUND_BYTES + 10_000
    [named] = [one for one in health.reasons if "takes no appends" in one]
    assert f"{STREAM}#0 takes no appends: {TARGET} is further behind" in named
    assert health.state is HealthState.UNHEALTHY


async def test_a_bound_in_seconds_judges_the_age_of_what_a_target_lacks(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_groups(cluster),
    ):
        await create(log, max_s=5)
        async with log.open_writer(STREAM) as writer:
            await append_once_free(writer)
            await wait_equal(log)
            await log.pause_relay(STREAM)
            await trio.sleep(20)
            await writer.append(b"an idle stream is not late")
            began_s = trio.current_time()
            held = None
            while held is None:
                held = await refusal_of(writer)
                await trio.sleep(0.1)
            held_after_s = trio.current_time() - began_s
            await log.resume_relay(STREAM)
            await append_once_free(writer)

    assert TARGET in str(held)
    assert 4.8 < held_after_s < 5.3


async def test_without_any_relay_a_new_stream_takes_the_bound_and_a_new_owner_nothing(
    autojump_clock: MockClock,
) -> None:
    async with open_in_process_cluster(REGIONS) as cluster, cluster.open_client(HOME) as log:
        await create(log, max_bytes=BOUND_BYTES)
        async with log.open_writer(STREAM) as writer:
            await writer.append(payload(1))
        async with log.open_writer(STREAM) as writer:
            held = await append_until_held(writer, at_most=1)

    assert f"how far {TARGET} is behind is not known yet" in str(held)


async def test_a_new_owner_counts_what_its_predecessor_left(autojump_clock: MockClock) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_groups(cluster),
    ):
        await create(log, max_bytes=BOUND_BYTES)
        async with log.open_writer(STREAM) as writer:
            await append_once_free(writer)
        await wait_equal(log)
        await log.pause_relay(STREAM)
        await trio.sleep(3)
        async with log.open_writer(STREAM) as writer:
            for number in range(5):
                await writer.append(payload(number))
        async with log.open_writer(STREAM) as writer:
            await append_until_held(writer, at_most=6)
        lost = await lost_bytes(log)

    assert BOUND_BYTES - 2 * RECORD_BYTES < lost <= BOUND_BYTES + 10_000


async def test_a_target_that_is_away_is_remembered_by_the_next_coordinator(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_groups(cluster) as groups,
    ):
        await create(log, max_bytes=BOUND_BYTES)
        async with log.open_writer(STREAM) as writer:
            await append_once_free(writer)
        await wait_equal(log)
        await log.pause_relay(STREAM)
        await trio.sleep(3)
        async with log.open_writer(STREAM) as writer:
            for number in range(5):
                await writer.append(payload(number))
        cluster.network.darken(groups[HOME][0].host)
        await trio.sleep(6)
        async with log.open_writer(STREAM) as writer:
            await append_once_free(writer, within_s=12)
            await append_until_held(writer, at_most=5)
        lost = await lost_bytes(log)

    assert BOUND_BYTES - 2 * RECORD_BYTES < lost <= BOUND_BYTES + 10_000


async def test_a_bound_that_changes_holds_for_open_writers(autojump_clock: MockClock) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_groups(cluster),
    ):
        await create(log)
        async with log.open_writer(STREAM) as writer:
            await append_once_free(writer)
            await wait_equal(log)
            await log.pause_relay(STREAM)
            await trio.sleep(3)
            for number in range(15):
                await writer.append(payload(number))
            await log.update_stream(STREAM, rpo_max_bytes=BOUND_BYTES)
            await trio.sleep(3)
            await append_until_held(writer, at_most=1)
            await log.update_stream(STREAM, rpo_max_bytes=4 << 20)
            await append_once_free(writer)
            await log.update_stream(STREAM, rpo_max_s=0.5)
            await trio.sleep(3)
            await append_until_held(writer, at_most=1)
            found = await log.update_stream(STREAM, rpo_max_s=None)
            await append_once_free(writer)

    assert (found.rpo_max_s, found.rpo_max_bytes, found.rpo_targets) == (None, None, ["all"])


async def test_a_new_coordinator_releases_what_the_old_one_left_held(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_groups(cluster) as groups,
    ):
        await create(log, max_bytes=BOUND_BYTES)
        async with log.open_writer(STREAM) as writer:
            for _ in range(20):
                await append_once_free(writer)
            cluster.network.darken(groups[HOME][0].host)
            for _ in range(20):
                await append_once_free(writer)
        await wait_equal(log)


async def test_a_batch_larger_than_the_bound_is_too_large(autojump_clock: MockClock) -> None:
    async with open_in_process_cluster(REGIONS) as cluster, cluster.open_client(HOME) as log:
        await create(log, max_bytes=BOUND_BYTES)
        async with log.open_writer(STREAM, batch_bytes=2 << 20) as writer:
            with pytest.raises(TooLargeError, match=r"larger than the stream's rpo max"):
                await writer.append(random.Random(1).randbytes((1 << 20) - 10))


def send_until_held(session: Session) -> int:
    """Send records without waiting; the seq that was refused."""
    for seq in range(20):
        try:
            session.send(payload(seq), seq=seq, seq_before=seq - 1)
        except OverCapacityError:
            return seq
    raise AssertionError("all were taken")


async def test_what_came_behind_a_held_batch_of_a_named_writer_may_be_sent_again_too(
    autojump_clock: MockClock,
) -> None:
    """The partition goes on between the two: the second is refused for its place alone."""
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_groups(cluster),
    ):
        await create(log, max_bytes=BOUND_BYTES)
        async with log.open_writer(STREAM) as writer:
            owner: object = writer.lanes[0].sink
            assert isinstance(owner, PartitionWriter)
            session = await begin(owner)
            seq = send_until_held(session)
            await trio.sleep(3)
            for behind in (seq + 1, seq + 2):
                with pytest.raises(OverCapacityError, match=f"seq {behind - 1} was refused"):
                    session.send(b"small", seq=behind, seq_before=behind - 1)
            with pytest.raises(ConflictError, match="seq 99 was refused"):
                session.send(b"small", seq=100, seq_before=99)
            for again in (seq, seq + 1, seq + 2):
                sent = session.send(b"small", seq=again, seq_before=again - 1)
                await sent.done.wait()
                assert isinstance(sent.answer, Placed)


async def progress_of(cluster: InProcessCluster, host: str, life: str) -> list[str]:
    """The targets of which this relay tells anything within 3 s."""
    told: list[str] = []
    async with WebSockets(cluster.network.transport("owner")).open(
        Address(host, PORT),
        MULTICAST_PATH,
        subprotocols=(SUBPROTOCOL_MULTICAST,),
        message_bytes_max=MULTICAST_BYTES_MAX,
    ) as socket:
        await socket.send(
            encode_multicast(MulticastHello("default", HOME, "owner"))
            + encode_multicast(MulticastLog(1, STREAM, life, 0))
            + encode_multicast(MulticastAsk(1))
        )
        with trio.move_on_after(3):
            while True:
                for message in decode_multicast(await socket.receive()):
                    assert isinstance(message, MulticastProgress)
                    told.append(message.target)
    return told


async def test_the_coordinator_alone_tells_how_far_targets_are(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_groups(cluster) as groups,
    ):
        await create(log)
        async with log.open_writer(STREAM) as writer:
            await writer.append(b"one")
        await wait_equal(log)
        life = (await home_of(log)).life
        told = [await progress_of(cluster, one.host, life) for one in groups[HOME]]

    assert (set(told[0]), told[1]) == ({TARGET}, [])


async def test_quick_changes_of_other_settings_take_back_nothing_of_a_target_that_is_paused(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_groups(cluster),
    ):
        await create(log, max_bytes=BOUND_BYTES)
        async with log.open_writer(STREAM) as writer:
            await append_once_free(writer)
        await wait_equal(log)
        await log.pause_relay(STREAM)
        await trio.sleep(3)
        async with log.open_writer(STREAM) as writer:
            await append_once_free(writer)
            for segment_age_s in (1000, 1001):
                await log.update_stream(STREAM, segment_age_s=segment_age_s)
            await trio.sleep(5)
            refused = await refusal_of(writer)
            [shown] = await log.relay_status(STREAM)

    assert refused is None
    assert (shown.durable_records, shown.lag_records) == (1, 2)


async def test_a_target_that_is_removed_and_added_at_once_has_nothing_until_it_tells(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_groups(cluster) as groups,
    ):
        await create(log, max_bytes=BOUND_BYTES)
        async with log.open_writer(STREAM) as writer:
            await append_once_free(writer)
            await wait_equal(log)
            for one in groups[TARGET]:
                cluster.network.darken(one.host)
            await append_once_free(writer)
            await log.update_stream(STREAM, relay_to=[], rpo_max_bytes=None)
            await log.update_stream(STREAM, relay_to=[TARGET], rpo_max_bytes=BOUND_BYTES)
            await trio.sleep(15)
            held = await refusal_of(writer)
            for one in groups[TARGET]:
                cluster.network.lighten(one.host)
            await append_once_free(writer, within_s=60)
        await wait_equal(log)

    assert held is not None
    assert f"how far {TARGET} is behind is not known" in str(held)
