"""Owning a mirror for the length of a block.

Rules: PROTOCOL H9, H13 to H15 and H20.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import attrs
import trio

from geolog.background import both, open_background
from geolog.catalog.partition_config import PartitionConfig
from geolog.ledger.recovery.recovery_progress import RecoveryProgress
from geolog.partition.branch_cut import without_dead_branch, without_rows_before_begin
from geolog.partition.ledger_allocator import LedgerAllocator
from geolog.partition.mirror_upkeep import follow_home
from geolog.partition.mirror_writer import MirrorListener, MirrorWriter
from geolog.partition.takeover import TakenOver, Takeover
from geolog.protocol.home_record import Fork
from geolog.protocol.ids import Sequence
from geolog.protocol.stream_state import PartitionName, StreamRecord, TrimRecord
from geolog.protocol.watermark import Watermark
from topology.errors import ConflictError, InvalidArgumentError, UnavailableError

_log = logging.getLogger(__name__)

_STILL_S_MAX = 20.0
"""How long nothing may be read or recovered while a mirror is opened."""


@asynccontextmanager
async def open_mirror(
    name: PartitionName,
    stream: StreamRecord,
    listener: MirrorListener,
    *,
    who: str,
    takeover: Takeover,
    config: PartitionConfig,
) -> AsyncIterator[MirrorWriter]:
    """Own a mirror while the block lasts: fence its owner before, and recover its last row.

    If it holds a dead branch, it is cut first; what was behind the fork is kept as a rest.
    While the block lasts the mirror is trimmed with its home. Once it has all of a home that is
    sealed, it is sealed, too, and fails with SealedError; so does opening it then.

    UnavailableError if nothing of it can be read for a while: its nodes may have lost it, and
    an operator may begin it again meanwhile; also while its stream is failed over. FencedError
    if another process took it over in turn. NoSuchStreamError, also if the stream is no longer
    relayed here. InvalidArgumentError in another region. A block that ends without an error
    leaves what was taken durable, and the open ledger CLOSED.
    """
    region = stream.region_of(name)
    if region is None or takeover.region != region:
        raise InvalidArgumentError(
            f"mirror {name} is written in {region}; this process is in {takeover.region}"
        )
    if region == stream.home:
        raise ConflictError(f"{name} is the log at home now, and not a mirror")
    home = stream.partition(name.number)
    async with open_background() as nursery:
        source = LedgerAllocator(
            name,
            stream,
            ledgers=takeover.ledgers,
            replicas=takeover.replicas,
            region=takeover.region,
            rng=takeover.rng,
            nursery=nursery,
            config=config,
        )
        taken, watermark, forks = await _taken_over(name, stream, region, who, takeover)
        writer = MirrorWriter(
            name,
            stream,
            taken,
            watermark,
            forks,
            listener=listener,
            partitions=takeover.partitions,
            owners=takeover.owners,
            source=source,
            config=config,
            now_us=takeover.now_us,
            nursery=nursery,
        )
        nursery.start_soon(writer.run, name=f"owner of {name}")
        nursery.start_soon(
            follow_home, writer, home, stream.home_epoch, takeover, name=f"upkeep of {name}"
        )
        try:
            yield writer
            await writer.wait_durable()
        finally:
            with trio.move_on_after(config.close_timeout_s, shield=True):
                await writer.leave()
            writer.close()


async def _taken_over(
    name: PartitionName, stream: StreamRecord, region: str, who: str, takeover: Takeover
) -> tuple[TakenOver, Watermark | None, tuple[Fork, ...]]:
    """The mirror, taken over and cut, its last entry, and the forks of its partition.

    UnavailableError if nothing moves.
    """
    homes = takeover.partitions.homes
    with trio.CancelScope() as opening:
        async with open_background() as nursery:
            nursery.start_soon(_cancel_once_still, opening, takeover.progress)
            try:
                taken = await takeover.take_over(name, who, mirror_in=region)
            except UnavailableError:
                if await homes.is_failing_over(name):
                    await takeover.partitions.home_moves.give_up_abandoned(stream)
                raise
            try:
                forks = await homes.forks_of(name)
                cutting = partial(
                    without_dead_branch, name, taken, takeover, forks, region=region
                )
                # `follow_home` finds a gap that the home allows just now.
                trims = takeover.partitions.trims
                (cut, watermark), trim = await both(cutting, partial(trims.read, name))
                if cut is not taken:
                    trim = await trims.read(name)
                watermark = await _begun_behind_gap(
                    name, region, cut, watermark, trim, takeover
                )
                return cut, watermark, forks
            except BaseException:
                takeover.owners.release_nowait(taken.owner)
                raise
    raise UnavailableError(
        f"mirror {name} cannot be taken over: nothing of it was read for {_STILL_S_MAX:g} s"
    )


async def _cancel_once_still(opening: trio.CancelScope, progress: RecoveryProgress) -> None:
    while True:
        before = attrs.evolve(progress)
        await trio.sleep(_STILL_S_MAX)
        if progress == before:
            opening.cancel(reason="nothing of the mirror can be read")
            return


async def _begun_behind_gap(
    name: PartitionName,
    region: str,
    taken: TakenOver,
    watermark: Watermark | None,
    trim: TrimRecord,
    takeover: Takeover,
) -> Watermark | None:
    """The mirror's last entry; None if it is empty, or is now because its home evicts.

    Then it begins again where the home keeps entries for it, and its rows are dropped.
    """
    trims = takeover.partitions.trims
    end = Sequence(max(taken.state.sequence_next, trim.first_sequence))
    if end < trim.evicted_before:
        trim = await trims.begin_again(
            name,
            taken.owner,
            trim.evicted_before,
            ended=end,
            now_us=takeover.now_us(),
            find_checks=partial(takeover.partitions.homes.checks_to_claim_mirror, name, region),
        )
        _log.warning(
            "mirror %s goes on at sequence %d: its home dropped %d records that it never got",
            name,
            trim.first_sequence,
            trim.first_sequence - end,
        )
        await trims.drop_noted(name, taken.owner)
        return None
    return await without_rows_before_begin(name, taken, watermark, trim, takeover)
