"""A session of geolog's own clients bounds what it holds for a client that does not read."""

import trio
from trio.testing import MockClock

from geolog.protocol.batch_seqs import BatchSeqs
from geolog.protocol.writer_standing import WriterFence
from geolog.wire.batch import seal_batch
from geolog.wire.batch_terms import BatchTerms
from geolog.wire.entry import WriterStamp
from geolog.wire.session.channel_messages import AskStanding, BatchCompared, StandingTold
from tests.pure.proxy.batches_client import CHANNEL, open_batches
from tests.pure.proxy.proxies import open_proxy
from tests.pure.whole.clusters import STREAM, open_world

RECORDS_COUNT = 1000
REPEATS_COUNT = 20


async def test_answers_to_comparisons_count_as_bytes_in_flight_until_they_are_sent(
    autojump_clock: MockClock,
) -> None:
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
        held_bytes = proxy.in_flight.bytes
        answers = [await client.receive() for _ in range(REPEATS_COUNT)]
        with trio.fail_after(5):
            while proxy.in_flight.bytes:
                await proxy.in_flight.wait_changed()

    assert held_bytes > REPEATS_COUNT * batch.length_bytes
    assert all(isinstance(one, BatchCompared) for one in answers)
