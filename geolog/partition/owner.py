"""Owning partitions while a block lasts: take them over, write them, leave.

Rules: PROTOCOL O7 and O8.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import trio

from geolog.background import all_of, open_background
from geolog.catalog.partition_config import PartitionConfig
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.partition.ledger_allocator import LedgerAllocator
from geolog.partition.partition_writer import PartitionWriter
from geolog.partition.takeover import Takeover
from geolog.protocol.stream_state import PartitionName, StreamRecord
from topology.errors import FencedError

_RESTS_MAX = 3.0
"""Longest back-off after losing a takeover race, as a multiple of how long the attempt took."""

_REST_S_MAX = 3.0
"""Bound on that back-off. Appends must go on within 5 s plus two session time-outs (law 24)."""


@asynccontextmanager
async def open_partition_writers(
    stream: StreamRecord,
    number: int | None,
    *,
    who: str,
    catalog: StreamCatalog,
    takeover: Takeover,
    config: PartitionConfig,
    wants_received: bool,
    now_us: Callable[[], int],
    on_progress: Callable[[PartitionName], None],
) -> AsyncIterator[list[PartitionWriter]]:
    """Take over a stream, or one partition of it, and write it while the block lasts.

    Waits until the predecessors' ledgers are recovered; the caller bounds that wait.
    FencedError, NoSuchStreamError, SealedError, NotEnoughNodesError. A block that ends without
    an error leaves the open ledgers CLOSED.
    """
    # A whole stream is all the partitions that it has once they are taken over; later writers
    # find as many, or more. If two processes take over at the same time, and each gets some
    # partitions first, neither succeeds: there is one moment at which the owner owned all.
    # The loser backs off before its caller hears of it. If all losers retried at once, they
    # would keep overtaking each other for ever.
    writers: list[PartitionWriter] = []
    began_s, rest_s = trio.current_time(), 0.0
    async with open_background() as nursery:

        async def take(name: PartitionName) -> PartitionWriter:
            source = LedgerAllocator(
                name,
                stream,
                ledgers=takeover.ledgers,
                pool=takeover.pool,
                region=takeover.region,
                rng=takeover.rng,
                nursery=nursery,
                config=config,
                wants_received=wants_received,
            )
            source.prepare_early_nowait()
            try:
                taken = await takeover.take_over(name, who)
            except BaseException:
                await source.give_up()
                raise
            writer = PartitionWriter(
                name,
                stream,
                taken,
                partitions=takeover.partitions,
                owners=takeover.owners,
                source=source,
                config=config,
                now_us=now_us,
                on_progress=partial(on_progress, name),
                nursery=nursery,
            )
            writers.append(writer)
            return writer

        async def take_all() -> list[PartitionWriter]:
            taken: list[PartitionWriter] = []
            latest = stream
            while len(taken) < latest.partitions:
                more = latest.partition_names()[len(taken) :]
                taken += await all_of([partial(take, name) for name in more])
                latest = await catalog.read_same(stream)  # As it was after they were taken.
            return taken

        try:
            try:
                if number is None:
                    in_order = await take_all()
                else:
                    in_order = [await take(stream.partition(number))]
                # Only the current owner can activate a first ledger. All partitions were
                # taken before this, so when the last was taken, none of the others was lost.
                await all_of([writer.start for writer in in_order])
            except FencedError:
                tried_s = trio.current_time() - began_s
                rest_s = takeover.rng.uniform(0, min(_RESTS_MAX * tried_s, _REST_S_MAX))
                raise
            for writer in in_order:
                nursery.start_soon(writer.run, name=f"owner of {writer.name}")
            yield in_order
            for writer in in_order:
                await writer.wait_idle()
        finally:
            with trio.move_on_after(config.close_timeout_s, shield=True):
                await all_of([writer.leave for writer in writers])
            for writer in writers:
                writer.close()
            if rest_s:
                await trio.sleep(rest_s)
