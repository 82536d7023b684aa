"""Opens a writer of a stream or partition, with its owners and its retention."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from geolog.background import open_background
from geolog.catalog.partition_config import PartitionConfig
from geolog.client.writing.partition_batcher import WriterConfig
from geolog.client.writing.writer import Writer, open_linger
from geolog.client.writing.writer_pending import AckLevel
from geolog.client.writing.writer_session import open_session
from geolog.partition.owner import open_partition_writers
from geolog.partition.repeated_batch import ReadBack
from geolog.partition.stream_upkeep import StreamUpkeep, run_retention
from geolog.protocol.retention import RetentionPolicy
from geolog.protocol.stream_state import StreamRecord
from topology.errors import SealedError


@asynccontextmanager
async def open_stream_writer(
    stream: StreamRecord,
    number: int | None,
    config: WriterConfig,
    *,
    writer_id: str | None,
    ack: AckLevel,
    who: str,
    upkeep: StreamUpkeep,
    read_back: ReadBack,
    owning: PartitionConfig,
    rng: random.Random,
) -> AsyncIterator[Writer]:
    """Own the stream, or partition `number` of it, and append while the block lasts.

    Records past the stream's retention are trimmed meanwhile. SealedError, NoSuchStreamError,
    NotEnoughNodesError.
    """
    if stream.is_sealed:
        raise SealedError(f"{stream.name} is sealed: it takes no more records")
    async with (
        open_background() as nursery,
        open_partition_writers(
            stream,
            number,
            who=who,
            catalog=upkeep.catalog,
            takeover=upkeep.takeover,
            config=owning,
            wants_received=ack is AckLevel.RECEIVED,
            now_us=upkeep.now_us,
            read_back=read_back,
        ) as owned,
    ):
        owners, session = owned.in_order, None
        if writer_id is not None:
            # The owners answer for themselves, so a session costs an entry per partition.
            session = await open_session(
                writer_id,
                owners,
                is_whole=number is None,
                count_partitions=owned.grow,
                rng=rng,
            )
        names = [one.name for one in owners]
        writer = Writer(
            owners,
            config,
            session=session,
            ack=ack,
            home_epoch=stream.home_epoch,
            now_us=upkeep.now_us,
            first_partition=rng.randrange(len(names)),
        )
        policy = RetentionPolicy(
            retention_s=stream.retention_s, retention_bytes=stream.retention_bytes
        )
        if not policy.keeps_all:
            every_s = owning.retention_every_s
            nursery.start_soon(partial(run_retention, upkeep, names, policy, every_s=every_s))
        async with open_linger(writer):
            yield writer
