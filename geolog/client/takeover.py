"""Becoming the owner of a partition: take its epoch, then end what the one before left open."""

import random
from contextlib import suppress

import attrs
import trio

from geolog.client.stream_metadata import (
    GIVE_BACK_S,
    StreamMetadata,
    VersionedOwner,
    VersionedSegment,
)
from geolog.ledger.ledger_metadata import LedgerMetadata
from geolog.ledger.ledger_reader import LedgerReadConfig, LedgerReader
from geolog.ledger.ledger_recovery import RecoveryConfig, recover_ledger
from geolog.ledger.node_pool import NodePool
from geolog.protocol.ids import EntryId, Sequence
from geolog.protocol.ledger_state import LedgerRecord
from geolog.protocol.stream_state import SegmentRecord, StreamRecord
from topology.errors import GeologError


@attrs.frozen
class TakenOver:
    """The new owner, and where its partition goes on."""

    owner: VersionedOwner
    last_sequence: Sequence
    append_time_us: int


async def take_over(
    stream: StreamRecord,
    *,
    who: str,
    streams: StreamMetadata,
    ledgers: LedgerMetadata,
    pool: NodePool,
    region: str | None,
    rng: random.Random,
    config: RecoveryConfig,
) -> TakenOver:
    """Own the partition, with every listed ledger CLOSED. FencedError if taken over in turn.

    Whoever does not come to the end, for whatever reason, gives the partition back: as long as
    an owner is alive readers leave its open ledger to it.
    """
    owner = await streams.take_ownership(stream.name, who)
    try:
        return await _take_over_as(
            owner,
            stream,
            streams=streams,
            ledgers=ledgers,
            pool=pool,
            region=region,
            rng=rng,
            config=config,
        )
    except BaseException:
        with trio.move_on_after(GIVE_BACK_S, shield=True), suppress(GeologError):
            await streams.release_ownership(owner)
        raise


async def _take_over_as(
    owner: VersionedOwner,
    stream: StreamRecord,
    *,
    streams: StreamMetadata,
    ledgers: LedgerMetadata,
    pool: NodePool,
    region: str | None,
    rng: random.Random,
    config: RecoveryConfig,
) -> TakenOver:
    reader = LedgerReader(pool, region=region, rng=rng, config=LedgerReadConfig())
    last: SegmentRecord | None = None
    for listed in await streams.segments(stream.name):
        last = listed.record
        if last.is_completed:
            continue
        closed = await recover_ledger(
            last.ledger, ledgers=ledgers, pool=pool, rng=rng, config=config
        )
        last = await completed_as_closed(last, closed, reader)
        await streams.complete_segment(
            stream.name, owner, VersionedSegment(last, listed.version)
        )
    if last is None:
        return TakenOver(owner, Sequence(-1), 0)
    assert last.last_sequence is not None
    assert last.last_append_time_us is not None
    return TakenOver(owner, last.last_sequence, last.last_append_time_us)


async def completed_as_closed(
    segment: SegmentRecord, ledger: LedgerRecord, reader: LedgerReader
) -> SegmentRecord:
    """The segment with the end that its CLOSED ledger has; its last entry is read for that."""
    assert ledger.last_entry is not None
    if ledger.last_entry < 0:
        return segment.completed(
            last_entry=ledger.last_entry,
            last_sequence=Sequence(segment.first_sequence - 1),
            last_append_time_us=segment.append_time_us_before,
            size_bytes=0,
        )
    last = EntryId(ledger.last_entry)
    (fetched, *_) = await reader.read(ledger, last, last)
    header = fetched.decoded.header
    return segment.completed(
        last_entry=last,
        last_sequence=Sequence(header.next_sequence - 1),
        last_append_time_us=header.append_time_us,
        size_bytes=None,
    )
