"""Records a staged batch, copies it into its streams, and drops what is left over.

It performs what `geolog.protocol.sink_copy` decides. The copies are ordinary batches of a named
writer: readers see them as they come, so a batch is not atomic to readers.

Rules: PROTOCOL S35, S36, S38 and S40.
"""

import logging
from collections.abc import AsyncGenerator, Container
from contextlib import aclosing
from typing import assert_never

import attrs
import trio

from geolog.catalog.sinks import SinkCatalog, VersionedSink, writer_id_of
from geolog.client.log import Log
from geolog.client.staging.row_copier import RowCopier
from geolog.ledger.ledger_metadata import NoSuchLedgerError
from geolog.ledger.reading.ledger_reader import FetchedEntry
from geolog.ledger.reading.ledger_stream import LedgerStream
from geolog.metadata.seam import BadVersionError, NoNodeError
from geolog.protocol.append_failure import in_other_words
from geolog.protocol.ids import EntryId
from geolog.protocol.sink_copy import (
    FinishCopy,
    Finished,
    RecordNext,
    RefuseBatch,
    SinkRecord,
    StagedBatch,
    StagedPart,
    garbage_of,
    on_commit,
    told_parts,
)
from geolog.wire.batch import Batch
from topology.errors import (
    ConflictError,
    DataLostError,
    FencedError,
    GeologError,
    InvalidArgumentError,
    NoSuchStreamError,
    NotEnoughNodesError,
    OutcomeUnknownError,
    OverCapacityError,
    RegionUnavailableError,
    SealedError,
    UnavailableError,
)

_TRIES_MAX = 8
"""Times that a driver which has a batch takes its stream back from another writer."""

_PAUSE_S = 0.25
"""Longest pause before the second time; longer ones follow."""

UNREAD_S_MAX = 600.0
"""Longest time without any staged entry read; then the copy fails, and a later one goes on."""

UNREAD_AGAIN_S_MAX = 30.0
"""The same, once staging for another stream of the batch could not be read for that long."""


class StagingUnreadError(UnavailableError):
    """No node that has what was staged for one stream answers. Start the nodes, then retry."""


_NEVER_AGAIN = (SealedError, NoSuchStreamError, DataLostError)
"""A stream cannot get the rest of its records."""

_OF_ONE_STREAM = (
    *_NEVER_AGAIN,
    FencedError,
    InvalidArgumentError,
    NotEnoughNodesError,
    OverCapacityError,
    RegionUnavailableError,
    StagingUnreadError,
)
"""A stream cannot get its records now. Others may."""

_log = logging.getLogger(__name__)


@attrs.frozen
class CommitReport:
    """Outcome of a commit."""

    records_count: int
    """Records that this commit added to streams, at least: less what was fenced."""
    is_as_given: bool
    """Whether the batch has the rows that this driver staged, as far as digests tell."""


class SinkCommit:
    """Brings the batches of one sink into their streams."""

    def __init__(self, log: Log, sink: str) -> None:
        self._log = log
        self._access = log.access
        self._sink = sink
        self._sinks = SinkCatalog(
            self._access.metadata,
            self._access.paths,
            self._access.ledgers,
            rng=self._access.rng,
        )
        self._unread_s_max = UNREAD_S_MAX

    async def commit(self, given: StagedBatch) -> CommitReport:
        """Bring a batch into its streams, each record once, whichever driver tried before.

        A batch that was recorded before is copied as it was recorded. ConflictError: another
        driver of the sink was first, or what is written are not the rows of this batch.
        SealedError, NoSuchStreamError, DataLostError: a stream cannot have the rest of its
        records; the others have theirs. Call again after other errors.
        """
        copied_count = 0
        while True:
            found = await self._sinks.ensure(self._sink)
            match on_commit(found.record, given):
                case RecordNext(record):
                    await self._check_streams(record)
                    held = await self._hold(found, record, staged_by=given.run)
                    copied_count += await self._copy(held, given, is_resumed=False)
                case FinishCopy(record):
                    record = attrs.evolve(record, recorded_us=found.batch_recorded_us)
                    held = await self._hold(found, record)
                    is_resumed = found.record.copier != given.copier
                    copied_count += await self._copy(held, given, is_resumed=is_resumed)
                case Finished(is_as_given):
                    await self._drop_garbage(found.record)
                    if not is_as_given:
                        _log.warning(
                            "sink %r: batch %d was repeated with other rows; those written"
                            " before are kept",
                            self._sink,
                            given.batch,
                        )
                    return CommitReport(copied_count, is_as_given)
                case RefuseBatch(why):
                    raise ConflictError(why)
                case step:
                    assert_never(step)

    async def abort(self, ended_runs: Container[str]) -> None:
        """Drop the staging of these runs and of past batches, unless it is being copied."""
        while True:
            found = await self._sinks.ensure(self._sink)
            listed = await self._sinks.listed(self._sink)
            garbage = garbage_of(found.record, listed, ended_runs=ended_runs)
            try:
                # A record that one of the runs has sent may arrive even now, and needs it.
                return await self._sinks.drop(self._sink, garbage, unless_changed=found.version)
            except BadVersionError:
                continue

    async def _drop_garbage(self, known: SinkRecord) -> None:
        listed = await self._sinks.listed(self._sink)
        await self._sinks.drop(self._sink, garbage_of(known, listed))

    async def _check_streams(self, record: SinkRecord) -> None:
        """Refuse a batch for streams that take nothing: once recorded, it must be copied."""
        for name in sorted({part.stream for part in record.parts}):
            await self._log.check_writable(name)

    async def _check_remembered(self, name: str, age_s: float) -> None:
        """Refuse a copy begun so long ago that the stream may not know what it has of it.

        A stream forgets an idle writer only once that one's records are trimmed.
        """
        stream = await self._log.describe_stream(name)
        is_trimmed = any(one.first_sequence for one in stream.partition_list)
        if is_trimmed and age_s > stream.writer_retention_s:
            raise self._expired(name)

    async def _hold(
        self, found: VersionedSink, record: SinkRecord, *, staged_by: str | None = None
    ) -> VersionedSink:
        """Write the record that makes this driver the one that copies."""
        try:
            return await self._sinks.replace(found, record, staged_by=staged_by)
        except BadVersionError:
            raise self._overtaken(record.batch) from None
        except NoNodeError:
            raise ConflictError(
                f"what was staged for batch {record.batch} of {self._sink!r} is gone: it was"
                " dropped when the job was aborted, or it expired. Run the batch again"
            ) from None

    def _overtaken(self, batch: int) -> ConflictError:
        return ConflictError(
            f"another driver of {self._sink!r} took over while batch {batch} was committed: it"
            " has the batch now. Run one driver of a query, or give each a writer of its own"
        )

    def _expired(self, stream: str) -> DataLostError:
        return DataLostError(
            f"the copy of a batch of {self._sink!r} into {stream} was left unfinished for too"
            " long: its staging has expired, or the stream may have forgotten which records it"
            " has. Compare the stream with the source of the rows, and write those that it"
            " lacks under a new name"
        )

    def _crowded_out(self, stream: str, error: GeologError) -> GeologError:
        """The error of a driver from which other writers took the stream again and again."""
        if not isinstance(error, FencedError):
            return error
        return FencedError(
            f"other writers keep fencing {self._sink!r} on {stream} ({error}). Stop them, or"
            " start write proxies, through which any number append; then start again"
        )

    async def _copy(self, held: VersionedSink, given: StagedBatch, *, is_resumed: bool) -> int:
        """Copy what the log lacks of the recorded batch; return how many records that was.

        A stream that cannot have its records does not keep the other ones from theirs.
        """
        copied_count = 0
        streams = held.record.streams_left()
        failed: dict[str, GeologError] = {}
        if is_resumed or len(streams) > 1:
            held = await self._look(held)
        age_s = (held.modified_us - held.batch_recorded_us) / 1e6
        for stream in streams:
            try:
                if is_resumed:
                    await self._check_remembered(stream, age_s)
                copied_count += await self._copy_into(stream, held)
            except _OF_ONE_STREAM as error:
                failed[stream] = error
                continue
            if len(streams) > 1:  # It may be sealed or deleted before the others have theirs.
                done = held.record.copied_into(stream)
                done = attrs.evolve(done, recorded_us=held.batch_recorded_us)
                held = await self._put(held, done)
        self._judge(failed, held.record, given)
        await self._put(held, held.record.copied())
        return copied_count

    def _judge(
        self, failed: dict[str, GeologError], record: SinkRecord, given: StagedBatch
    ) -> None:
        """Raise the error of a stream that lacks records, unless they are given up."""
        if not failed:
            return
        told = f"batch {record.batch} of {self._sink!r}: {'; '.join(map(str, failed.values()))}"
        if given.is_loss_accepted and all(
            isinstance(error, _NEVER_AGAIN) for error in failed.values()
        ):
            _log.warning("%s. The rest of the records for these streams is left out", told)
            return
        error = next(iter(failed.values()))
        words = f"{told}. {_standing(list(failed), record)}{_way_out(error, given)}"
        raise in_other_words(error, words)

    async def _look(self, held: VersionedSink) -> VersionedSink:
        """Read the record with which this driver copies, and its time."""
        found = await self._sinks.ensure(self._sink)
        if found.version != held.version:
            raise self._overtaken(held.record.batch)
        return found

    async def _put(self, held: VersionedSink, record: SinkRecord) -> VersionedSink:
        """Store the successor of the record with which this driver copies."""
        try:
            return await self._sinks.replace(held, record)
        except BadVersionError:
            raise self._overtaken(held.record.batch) from None

    async def _copy_into(self, stream: str, held: VersionedSink) -> int:
        """Copy the parts for one stream, as long as this driver is the one that copies."""
        tries_count = 0
        while True:
            await self._look(held)
            try:
                return await self._copy_parts(stream, held.record)
            except NoSuchLedgerError as error:
                await self._look(held)
                raise self._expired(stream) from error
            except (FencedError, ConflictError, OutcomeUnknownError) as error:
                # A driver that this one took over from may have opened the stream after it. It
                # stops as soon as it looks at the record, so one of the two goes on.
                tries_count += 1
                if tries_count >= _TRIES_MAX:
                    raise self._crowded_out(stream, error) from error
                await trio.sleep(self._access.rng.uniform(0, _PAUSE_S * tries_count))

    async def _copy_parts(self, stream: str, record: SinkRecord) -> int:
        async with self._log.open_writer(stream, writer_id=writer_id_of(record)) as writer:
            copier = RowCopier(writer)
            for part, seq in record.places():
                if part.stream == stream:
                    await self._copy_part(copier, part, seq)
        return copier.copied_count

    async def _copy_part(self, copier: RowCopier, part: StagedPart, seq: int) -> None:
        async with aclosing(self._batches(part)) as batches:
            async for batch in batches:
                for row in range(len(batch)):
                    await copier.add(seq, batch.value(row), batch.key(row), batch.headers(row))
                    seq += 1
        await copier.flush()

    async def _batches(self, part: StagedPart) -> AsyncGenerator[Batch, None]:
        """Read a staging ledger, in order."""
        ledger = (await self._access.ledgers.read_latest(part.ledger)).record
        last = ledger.last_entry
        if last is None or last < 0:
            return
        with LedgerStream(self._access.reader, ledger, EntryId(0), last) as stream:
            while stream.entry_next <= last:
                for fetched in await self._read(stream, part):
                    for place in range(len(fetched.decoded.batch_views)):
                        yield fetched.decoded.open(place)

    async def _read(self, stream: LedgerStream, part: StagedPart) -> list[FetchedEntry]:
        waited_s = self._unread_s_max
        with trio.move_on_after(waited_s):
            return await stream.read()
        self._unread_s_max = UNREAD_AGAIN_S_MAX  # The nodes that are away may have all staging.
        raise StagingUnreadError(
            f"the rows for {part.stream} that {self._sink!r} has staged cannot be read: no node"
            f" that has the next ones answered within {waited_s:g} s (ledger"
            f" {part.ledger}). Start the nodes, then start the write again. If their disks are"
            " lost, give it another name (.option('writer', NAME)): then all rows of its batch"
            " are written, those that streams have already a second time"
        )


def _standing(failed: list[str], record: SinkRecord) -> str:
    """The streams that have their records, and those that do not, for an error."""
    counts = record.copied().parts
    done = [one for one in counts if one.stream not in failed]
    lacking = [one for one in counts if one.stream in failed]
    told = f"Not written, or only in part: {told_parts(lacking)}"
    return f"{told}. Written: {told_parts(done)}" if done else told


def _way_out(error: GeologError, given: StagedBatch) -> str:
    if not isinstance(error, _NEVER_AGAIN):
        return ""
    if not given.is_repeatable:
        way = "write those rows to another stream, under another name (.option('writer', NAME))"
        if isinstance(error, DataLostError):
            way = "write those that it lacks under another name (.option('writer', NAME))"
    else:
        way = "leave these records out with .option('failOnDataLoss', 'false')"
        if not isinstance(error, DataLostError):
            way = f"have the query write to another stream from now on, and {way}"
    if isinstance(error, NoSuchStreamError):
        return (
            f". Create the stream again, and it gets its records with the next start. Or {way}"
        )
    return f". To go on, {way}"
