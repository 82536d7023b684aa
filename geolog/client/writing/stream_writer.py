"""Opens a writer of a stream or partition, with its owners and its retention."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from geolog.client.writing.partition_batcher import WriterConfig
from geolog.client.writing.writer import Writer, open_linger
from geolog.client.writing.writer_pending import AckLevel
from geolog.client.writing.writer_session import open_session
from geolog.partition.partition_opener import PartitionOpener
from geolog.protocol.session_home import SessionHome
from geolog.protocol.stream_state import StreamRecord


@asynccontextmanager
async def open_stream_writer(
    stream: StreamRecord,
    number: int | None,
    config: WriterConfig,
    *,
    writer_id: str | None,
    ack: AckLevel,
    opener: PartitionOpener,
) -> AsyncIterator[Writer]:
    """Own the stream, or partition `number` of it, and append while the block lasts.

    Records past the stream's retention are trimmed meanwhile. SealedError, NoSuchStreamError,
    NotEnoughNodesError.
    """
    wants_received = ack is AckLevel.RECEIVED
    async with opener.open(stream, number, wants_received=wants_received) as owned:
        owners, session = owned.in_order, None
        if writer_id is not None:
            # The owners answer for themselves, so a session costs an entry per partition.
            session = await open_session(
                writer_id,
                owners,
                home=SessionHome(stream.life, stream.session_epoch),
                is_whole=number is None,
                count_partitions=owned.grow,
                rng=opener.rng,
            )
        writer = Writer(
            owners,
            config,
            session=session,
            ack=ack,
            home_epoch=stream.home_epoch,
            now_us=opener.upkeep.now_us,
            first_partition=opener.rng.randrange(len(owners)),
        )
        async with open_linger(writer):
            yield writer
