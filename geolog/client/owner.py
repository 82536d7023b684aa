"""Owning a partition while a block lasts: take it over, write it, show who lives, leave."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from geolog.background import open_background
from geolog.client.ledger_source import LedgerSource
from geolog.client.partition_config import PartitionConfig
from geolog.client.partition_writer import PartitionWriter
from geolog.client.stream_metadata import StreamMetadata, VersionedOwner
from geolog.client.takeover import take_over
from geolog.ledger.ledger_metadata import LedgerMetadata
from geolog.ledger.ledger_recovery import RecoveryConfig
from geolog.ledger.node_pool import NodePool
from geolog.metadata.seam import Metadata, SessionState
from geolog.protocol.stream_state import StreamRecord
from topology.errors import GeologError

_SESSION_LOOK_S = 1.0


@asynccontextmanager
async def open_partition_writer(
    stream: StreamRecord,
    *,
    who: str,
    streams: StreamMetadata,
    ledgers: LedgerMetadata,
    metadata: Metadata,
    pool: NodePool,
    region: str | None,
    rng: random.Random,
    config: PartitionConfig,
    recovery: RecoveryConfig,
    now_us: Callable[[], int],
    on_progress: Callable[[], None],
) -> AsyncIterator[PartitionWriter]:
    """Take the partition over, and write it while the block lasts.

    Waits for its predecessor's ledgers to be recovered; the caller bounds that wait.
    NoSuchStream, NotEnoughNodesError. A block that ends without an error leaves the open ledger
    CLOSED.
    """
    taken = await take_over(
        stream, who=who, streams=streams, ledgers=ledgers, pool=pool, rng=rng,
        config=recovery, region=region,
    )  # fmt: skip
    async with open_background() as nursery:
        source = LedgerSource(
            stream,
            ledgers=ledgers,
            pool=pool,
            region=region,
            rng=rng,
            nursery=nursery,
            config=config,
        )
        writer = PartitionWriter(
            stream,
            taken,
            streams=streams,
            source=source,
            config=config,
            now_us=now_us,
            on_progress=on_progress,
        )
        try:
            await writer.start()
            nursery.start_soon(writer.run, name=f"owner of {stream.name}")
            nursery.start_soon(
                _keep_session, metadata, streams, taken.owner, config.retry_delay_s
            )
            yield writer
            await writer.wait_idle()
        finally:
            with trio.move_on_after(config.close_timeout_s, shield=True):
                await writer.leave()
            source.close()


async def _keep_session(
    metadata: Metadata, streams: StreamMetadata, owner: VersionedOwner, retry_delay_s: float
) -> None:
    """After a lost session, show in the next one that this owner lives; never returns."""
    shown_in = metadata.session_id
    while True:
        state = metadata.session_state
        session = metadata.session_id
        if state is SessionState.CONNECTED and session != shown_in:
            try:
                if await streams.revive_session(owner.record):
                    shown_in = session
                    continue
            except GeologError:
                pass  # Metadata is away again: it is tried after the pause.
            await trio.sleep(retry_delay_s)
            continue
        with trio.move_on_after(_SESSION_LOOK_S):  # A quick loss and return shows no change.
            await metadata.wait_state_change(state)
