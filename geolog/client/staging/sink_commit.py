"""Records a staged batch, copies it into its streams, and drops what is left over.

It performs what `geolog.protocol.sink_copy` decides. The copies are ordinary batches of a named
writer: readers see them as they come, so a batch is not atomic to readers.

Rules: PROTOCOL S35, S36 and S38.
"""

from collections.abc import AsyncGenerator, Container
from contextlib import aclosing
from typing import assert_never

import attrs
import trio

from geolog.catalog.sinks import SinkCatalog, VersionedSink, writer_id_of
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.client.log import Log
from geolog.client.writing.writer import Writer
from geolog.client.writing.writer_pending import Pending
from geolog.ledger.ledger_metadata import NoSuchLedgerError
from geolog.ledger.reading.ledger_stream import LedgerStream
from geolog.metadata.seam import BadVersionError, NoNodeError
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
)
from geolog.protocol.stream_state import StreamName
from geolog.wire.batch import Batch
from topology.errors import (
    ConflictError,
    DataLostError,
    FencedError,
    GeologError,
    OutcomeUnknownError,
)

_TRIES_MAX = 8
"""Times that a driver which has a batch takes its stream back from another writer."""

_PAUSE_S = 0.25
"""Longest pause before the second time; longer ones follow."""

_PENDING_MAX = 4096
"""Appends without an answer; the writer's window bounds their bytes."""


@attrs.frozen
class CommitReport:
    """Outcome of a commit."""

    records_count: int
    """Records that this commit added to streams, at least: less what was fenced."""
    is_own_list: bool
    """Whether the batch consists of what this driver staged; else of an earlier attempt's."""


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

    async def commit(self, given: StagedBatch) -> CommitReport:
        """Bring a batch into its streams, each record once, whichever driver tried before.

        ConflictError: another driver of the sink was first, or the batch was there already.
        SealedError, NoSuchStreamError: a stream takes no more. Call again after other errors.
        """
        copied_count = 0
        while True:
            found = await self._sinks.ensure(self._sink)
            match on_commit(found.record, given):
                case RecordNext(record):
                    await self._check_streams(record)
                    record = attrs.evolve(record, recorded_us=self._access.now_us())
                    held = await self._hold(found, record, staged_by=given.run)
                    copied_count += await self._copy(held)
                case FinishCopy(record):
                    if found.record.copier != given.copier:
                        await self._check_remembered(record)
                    held = await self._hold(found, record)
                    copied_count += await self._copy(held)
                case Finished(is_own_list):
                    await self._drop_garbage(found.record)
                    return CommitReport(copied_count, is_own_list)
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
        catalog = StreamCatalog(self._access.metadata, self._access.paths)
        for name in sorted({part.stream for part in record.parts}):
            await catalog.read_writable(StreamName.parse(name))

    async def _check_remembered(self, record: SinkRecord) -> None:
        """Refuse a copy begun so long ago that a stream may not know what it has of it.

        A stream forgets an idle writer only once that one's records are trimmed.
        """
        age_s = (self._access.now_us() - record.recorded_us) / 1e6
        for name in sorted({part.stream for part in record.parts}):
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
            " has. Compare the stream with the query's source, then give the query a new writer"
        )

    def _crowded_out(self, stream: str, error: GeologError) -> GeologError:
        """The error of a driver from which other writers took the stream again and again."""
        if not isinstance(error, FencedError):
            return error
        return FencedError(
            f"other writers take {stream} from {self._sink!r} time and again ({error}). A"
            " direct writer takes a stream from the one before it: start write proxies, through"
            " which any number append; or stop the others. Then run the batch again"
        )

    async def _copy(self, held: VersionedSink) -> int:
        """Copy what the log lacks of the recorded batch; return how many records that was."""
        copied_count = 0
        for stream in dict.fromkeys(part.stream for part in held.record.parts):
            copied_count += await self._copy_into(stream, held)
        try:
            await self._sinks.replace(held, held.record.copied())
        except BadVersionError:
            raise self._overtaken(held.record.batch) from None
        return copied_count

    async def _copy_into(self, stream: str, held: VersionedSink) -> int:
        """Copy the parts for one stream, as long as this driver is the one that copies."""
        tries_count = 0
        while True:
            if (await self._sinks.ensure(self._sink)).version != held.version:
                raise self._overtaken(held.record.batch)
            try:
                return await self._copy_parts(stream, held.record)
            except NoSuchLedgerError as error:
                if (await self._sinks.ensure(self._sink)).version != held.version:
                    raise self._overtaken(held.record.batch) from None
                raise self._expired(stream) from error
            except (FencedError, ConflictError, OutcomeUnknownError) as error:
                # A driver that this one took over from may have opened the stream after it. It
                # stops as soon as it looks at the record, so one of the two goes on.
                tries_count += 1
                if tries_count >= _TRIES_MAX:
                    raise self._crowded_out(stream, error) from error
                await trio.sleep(self._access.rng.uniform(0, _PAUSE_S * tries_count))

    async def _copy_parts(self, stream: str, record: SinkRecord) -> int:
        copied_count = 0
        async with self._log.open_writer(stream, writer_id=writer_id_of(record)) as writer:
            for part, seq in record.places():
                if part.stream == stream:
                    copied_count += await self._copy_part(writer, part, seq)
        return copied_count

    async def _copy_part(self, writer: Writer, part: StagedPart, seq: int) -> int:
        pending: list[Pending] = []
        copied_count = 0
        async with aclosing(self._batches(part)) as batches:
            async for batch in batches:
                for row in range(len(batch)):
                    key = batch.key(row)
                    if not writer.is_appended(seq, key=key):
                        if len(pending) >= _PENDING_MAX:
                            await _wait_all(pending)
                        headers = batch.headers(row) or None
                        pending.append(
                            await _append_when_writable(
                                writer, batch.value(row), key, headers, seq
                            )
                        )
                        copied_count += 1
                    seq += 1
        await _wait_all(pending)
        return copied_count

    async def _batches(self, part: StagedPart) -> AsyncGenerator[Batch, None]:
        """Read a staging ledger, in order."""
        ledger = (await self._access.ledgers.read_latest(part.ledger)).record
        last = ledger.last_entry
        if last is None or last < 0:
            return
        with LedgerStream(self._access.reader, ledger, EntryId(0), last) as stream:
            while stream.entry_next <= last:
                for fetched in await stream.read():
                    for place in range(len(fetched.decoded.batch_views)):
                        yield fetched.decoded.open(place)


async def _append_when_writable(
    writer: Writer, value: bytes, key: bytes | None, headers: dict[str, bytes] | None, seq: int
) -> Pending:
    while True:
        try:
            return writer.append_nowait(value, key=key, headers=headers, seq=seq)
        except trio.WouldBlock:
            await writer.wait_writable()


async def _wait_all(pending: list[Pending]) -> None:
    for one in pending:
        await one.wait()
    pending.clear()
