"""Sessions of geolog's own clients: one that does not read, and messages that come together."""

import pytest
import trio
from trio.testing import MockClock

from geolog.protocol.batch_seqs import BatchSeqs
from geolog.protocol.writer_standing import WriterFence
from geolog.wire.batch import seal_batch
from geolog.wire.batch_terms import NO_TERMS, BatchTerms
from geolog.wire.entry import WriterStamp
from geolog.wire.session.batches import encode_batches, messages_of
from geolog.wire.session.channel_messages import (
    AskStanding,
    BatchCompared,
    BatchPlaced,
    BatchRefused,
    ChannelClosed,
    ChannelOpened,
    CloseChannel,
    DescribeRequest,
    OpenChannel,
    SendBatch,
    StandingTold,
    StreamTold,
)
from geolog.wire.session.outgoing_messages import OutgoingMessages
from regions.proxy import batch_session, session_host
from tests.pure.proxy.batches_client import CHANNEL, open_batches
from tests.pure.proxy.proxies import open_proxy, open_session
from tests.pure.whole.clusters import STREAM, open_world, values_of

RECORDS_COUNT = 1000
REPEATS_COUNT = 60
"""Their answers are more than the client's socket takes unread: four messages of 256 KiB."""


async def test_answers_to_comparisons_are_made_as_the_client_takes_them(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_session, "OUTGOING_BYTES_MAX", 200_000)
    batch = seal_batch([b""] * RECORDS_COUNT, created_us=1)
    terms = BatchTerms(writer=WriterStamp(b"w", 1, BatchSeqs(0, RECORDS_COUNT), 0))
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_batches(world.cluster, proxy, STREAM) as client,
    ):
        world.cluster.network.pipe_bytes_max = 1 << 14
        fenced = await client.ask(AskStanding(CHANNEL, 1, b"w", WriterFence(1, 1)))
        assert isinstance(fenced, StandingTold)
        await client.send_batch(batch, terms)
        await client.receive()
        for _ in range(REPEATS_COUNT):
            await client.send_batch(batch, terms)
        await trio.sleep(5)
        held_bytes = proxy.answers.bytes
        in_flight_bytes = proxy.in_flight.bytes
        answers = [await client.receive() for _ in range(REPEATS_COUNT)]
        with trio.fail_after(5):
            while proxy.in_flight.bytes:
                await proxy.in_flight.wait_changed()
        await trio.sleep(1)
        left_bytes = proxy.answers.bytes

    assert 100_000 < held_bytes < 600_000
    assert 0 < in_flight_bytes < REPEATS_COUNT * batch.length_bytes
    assert all(isinstance(one, BatchCompared) for one in answers)
    assert left_bytes == 0


async def test_repeated_batches_whose_answers_wait_do_not_keep_a_partition_full(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_session, "OUTGOING_BYTES_MAX", 200_000)
    batch = seal_batch([b""] * RECORDS_COUNT, created_us=1)
    terms = BatchTerms(writer=WriterStamp(b"w", 1, BatchSeqs(0, RECORDS_COUNT), 0))
    bound = 10 * batch.length_bytes
    async with (
        open_world() as world,
        open_proxy(
            world.cluster, "proxy-1", "us-east", partition_in_flight_bytes_max=bound
        ) as proxy,
        open_batches(world.cluster, proxy, STREAM) as client,
        open_session(
            world.cluster, proxy, f"/v1/streams/{STREAM}/append", host="other"
        ) as other,
    ):
        await other.receive()
        world.cluster.network.pipe_bytes_max = 1 << 14
        fenced = await client.ask(AskStanding(CHANNEL, 1, b"w", WriterFence(1, 1)))
        assert isinstance(fenced, StandingTold)
        await client.send_batch(batch, terms)
        await client.receive()
        for _ in range(REPEATS_COUNT):
            await client.send_batch(batch, terms)
        await trio.sleep(5)
        in_flight_bytes = proxy.in_flight.bytes
        answer = await other.ask(value="v" * (bound // 2))
        answers = [await client.receive() for _ in range(REPEATS_COUNT)]
        with trio.fail_after(5):
            while proxy.in_flight.bytes:
                await proxy.in_flight.wait_changed()

    assert in_flight_bytes > bound
    assert answer["type"] == "ack"
    assert all(isinstance(one, BatchCompared) for one in answers)


async def test_a_question_waits_for_no_batches_that_came_later(
    autojump_clock: MockClock,
) -> None:
    batch = seal_batch([b"v"], created_us=1)
    async with (
        open_world() as world,
        open_proxy(
            world.cluster, "proxy-1", "us-east", partition_in_flight_bytes_max=1
        ) as proxy,
        open_batches(world.cluster, proxy, STREAM) as client,
    ):
        for _ in range(4):  # All but the first wait.
            await client.send_batch(batch)
        await client.send(AskStanding(CHANNEL, 1, b"w", WriterFence(1, 1)))
        answers = []
        for _ in range(20):
            await client.send_batch(batch)
            answers.append(await client.receive())

    [told_at] = [at for at, one in enumerate(answers) if isinstance(one, StandingTold)]
    assert 3 <= told_at <= 6


async def test_a_session_takes_no_more_while_its_client_takes_no_answers(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, size_bytes_max = list[int](), 1 << 18
    push = OutgoingMessages.push

    def push_noted(self: OutgoingMessages, message: bytes, *, counted_bytes: int = 0) -> None:
        push(self, message, counted_bytes=counted_bytes)
        sizes.append(self.size_bytes)

    monkeypatch.setattr(OutgoingMessages, "push", push_noted)
    monkeypatch.setattr(batch_session, "OUTGOING_BYTES_MAX", size_bytes_max)
    again = encode_batches(OpenChannel(CHANNEL, str(STREAM), "life", 0))
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_batches(world.cluster, proxy, STREAM) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(client.socket.send, again * 10_000)
        await trio.sleep(5)
        untaken = len(sizes)
        answers = [await client.receive() for _ in range(10_000)]

    assert untaken < 10_000
    assert max(sizes) <= size_bytes_max + 1_000
    assert all(isinstance(one, ChannelClosed) for one in answers)


async def test_requests_of_a_session_wait_unread_beyond_a_bound(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_session, "REQUESTS_WAITING_MAX", 100)
    asked = b"".join(
        encode_batches(DescribeRequest(number, str(STREAM))) for number in range(1000)
    )
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_batches(world.cluster, proxy, STREAM) as client,
    ):
        await client.socket.send(asked)
        answers = [await client.receive() for _ in range(1000)]

    assert sorted(one.request for one in answers if isinstance(one, StreamTold)) == list(
        range(1000)
    )


async def test_a_client_has_only_its_share_of_the_channels(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_host, "CHANNELS_MAX", 4)
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_batches(world.cluster, proxy, STREAM) as client,
        open_batches(world.cluster, proxy, STREAM) as second,
    ):
        told = await client.ask(DescribeRequest(1, str(STREAM)))
        assert isinstance(told, StreamTold)
        refused = await client.ask(OpenChannel(7, str(STREAM), told.life, 0))
        await second.send(CloseChannel(CHANNEL))
        await trio.sleep(1)
        opened = await client.ask(OpenChannel(7, str(STREAM), told.life, 0))

    assert isinstance(refused, ChannelClosed)
    assert "2 channels" in refused.error.error
    assert isinstance(opened, ChannelOpened)


async def test_batches_of_one_message_are_judged_one_by_one_and_share_an_entry(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_batches(world.cluster, proxy, STREAM) as client,
    ):
        batches = [seal_batch([b"%d" % number], created_us=1) for number in range(20)]
        sent = [
            encode_batches(SendBatch(CHANNEL, number, NO_TERMS, batch))
            for number, batch in enumerate(batches)
        ]
        damaged = bytearray(sent[10])
        damaged[-1] ^= 1  # The batch, not the message around it.
        sent[10] = bytes(damaged)
        other = encode_batches(SendBatch(CHANNEL + 1, 0, NO_TERMS, batches[0]))
        await client.socket.send(b"".join([*sent[:15], other, *sent[15:]]))
        answers = [await client.receive() for _ in sent]
        read = await values_of(world.log)

    refused = answers.pop(10)
    assert isinstance(refused, BatchRefused)
    assert refused.number == 10
    placed = [one for one in answers if isinstance(one, BatchPlaced)]
    assert [one.number for one in placed] == [*range(10), *range(11, 20)]
    assert [one.first_sequence for one in placed] == list(range(19))
    assert len({one.entry for one in placed}) < 10
    assert read == [b"%d" % one.number for one in placed]


async def test_answers_that_come_together_share_a_message(autojump_clock: MockClock) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_batches(world.cluster, proxy, STREAM) as client,
    ):
        batch = seal_batch([b"v"], created_us=1)
        messages = [
            encode_batches(SendBatch(CHANNEL, number, NO_TERMS, batch)) for number in range(50)
        ]
        await client.socket.send(b"".join(messages))
        frames_count = answers_count = 0
        while answers_count < 50:
            frame = await client.socket.receive()
            assert isinstance(frame, bytes)
            frames_count += 1
            answers_count += len(list(messages_of(frame)))

    assert frames_count < 10
