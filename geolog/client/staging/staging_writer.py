"""Writes one staging ledger: the records of one task for one stream, then sealed.

The ledger is placed as those of its stream are, so staged records survive what the stream's do.
If too few of its members answer, the writer fails: its task is repeated, with another ledger.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import attrs
import trio

from geolog.admin.cluster_access import ClusterAccess
from geolog.background import open_background
from geolog.catalog.partition_config import PartitionConfig
from geolog.catalog.sinks import SinkCatalog
from geolog.client.staging.staged_rows import StagedRows
from geolog.ledger.ledger_metadata import VersionedLedger
from geolog.ledger.writing.ledger_writer import LedgerWriter
from geolog.metadata.seam import NoNodeError
from geolog.partition.ledger_allocator import LedgerAllocator
from geolog.protocol.ids import NO_ENTRY, EntryId
from geolog.protocol.sink_copy import StagedLedger, StagedPart
from geolog.protocol.stream_state import FIRST_HOME_EPOCH, StreamRecord
from geolog.wire.entry import encode_entry
from topology.errors import (
    ConflictError,
    FencedError,
    GeologError,
    NotEnoughNodesError,
    UnavailableError,
)

IN_FLIGHT_ENTRIES_MAX = 32
"""Entries without an ack set; then the writer waits."""

_DROP_S = 5.0

EXPIRES_AFTER_S = 7 * 86400.0
"""Age at which nodes drop staging that nobody has dropped: that of jobs that died.

As long as streams remember an idle named writer by default: a copy that is not finished by then
could not be continued anyway.
"""


class _Answers:
    """Hears what becomes of the entries of one ledger."""

    def __init__(self) -> None:
        self.lac: EntryId = NO_ENTRY
        self.failure: GeologError | None = None
        self.changed = trio.Event()

    def on_lac(self, lac: EntryId) -> None:
        self.lac = lac
        self._wake()

    def on_received(self, through: EntryId) -> None:
        """Only entries on disk count."""

    def on_fenced(self, writer: LedgerWriter, why: str) -> None:
        self.failure = FencedError(
            f"staging ledger {writer.record.ledger} was taken over: {why}"
        )
        self._wake()

    def on_stuck(self, entry: EntryId, why: str) -> None:
        self.failure = NotEnoughNodesError(
            f"entry {entry} of a staging ledger gets too few copies: {why}. If disks are full,"
            " free space or add nodes; then run the job again"
        )
        self._wake()

    def _wake(self) -> None:
        self.changed.set()
        self.changed = trio.Event()


@attrs.define(eq=False)
class StagingWriter:
    """Stages records of one stream. `open_staging_writer` opens it."""

    _access: ClusterAccess
    _stream: StreamRecord
    _ledger: VersionedLedger
    _writer: LedgerWriter
    _answers: _Answers
    _config: PartitionConfig
    _told: str
    """The batch and its sink, for errors."""
    rows: StagedRows = attrs.field(factory=StagedRows)
    """Rows to stage; call `send_full` after each that was added."""
    _records_count: int = 0

    async def send_full(self) -> None:
        """Send the rows if they fill an entry, once fewer entries are in flight."""
        if self.rows.is_full:
            await self._send()

    async def _send(self) -> None:
        await self._wait_acknowledged(EntryId(self._writer.entry_next - IN_FLIGHT_ENTRIES_MAX))
        now_us = self._access.now_us()
        encoded = encode_entry(
            [self.rows.seal(now_us=now_us)],
            home_epoch=FIRST_HOME_EPOCH,
            segment=self._ledger.record.segment,
            entry=self._writer.entry_next,
            first_sequence=self._records_count,
            append_time_us=now_us,
        )
        self._records_count = encoded.header.next_sequence
        self._writer.add_nowait(encoded)

    async def seal(self) -> StagedPart:
        """Wait until all records are durable, and close the ledger for good."""
        if self.rows.values:
            await self._send()
        last = EntryId(self._writer.entry_next - 1)
        await self._wait_acknowledged(last)
        self._writer.stop()
        closed = self._ledger.record.closed(last)
        try:
            await self._access.ledgers.replace(self._ledger, closed)
        except NoNodeError:
            raise ConflictError(
                f"staging for {self._told} was dropped: another driver has written the batch,"
                " or the job was aborted. Run one driver of a query; to go on with this one,"
                " start it again"
            ) from None
        return StagedPart(
            closed.ledger, str(self._stream.name), self._records_count, self.rows.digest
        )

    async def _wait_acknowledged(self, entry: EntryId) -> None:
        with trio.move_on_after(self._config.append_timeout_s):
            while self._answers.lac < entry:
                if self._answers.failure is not None:
                    raise self._answers.failure
                await self._answers.changed.wait()
            return
        away = self._writer.describe_away() or "no answer"
        raise UnavailableError(
            f"staging ledger {self._ledger.record.ledger}: entry {entry} has no ack set after"
            f" {self._config.append_timeout_s:g} s: {away}"
        )


@asynccontextmanager
async def open_staging_writer(
    access: ClusterAccess,
    stream: StreamRecord,
    sink: str,
    *,
    batch: int,
    run: str,
    config: PartitionConfig,
) -> AsyncIterator[StagingWriter]:
    """Make a staging ledger for the stream, and list it; write it while the block lasts.

    batch: the one that it is for. run: who stages it (`StagedLedger.run`). If the block fails,
    the ledger is dropped. Ledgers of processes that die are dropped by later batches of the
    sink, or expire. NotEnoughNodesError.
    """
    sinks = SinkCatalog(access.metadata, access.paths, access.ledgers, rng=access.rng)
    answers = _Answers()
    async with open_background() as nursery:
        allocator = LedgerAllocator(
            stream.partition(0),
            stream,
            ledgers=access.ledgers,
            replicas=access.replicas,
            region=access.region,
            rng=access.rng,
            nursery=nursery,
            config=config,
        )
        try:
            await sinks.ensure(sink)
            prepared = await allocator.prepare(answers)
            opened = prepared.ledger.record.opened_for_staging(
                str(stream.name), expires_after_s=EXPIRES_AFTER_S
            )
            listing = partial(
                sinks.open_listed, sink, prepared.ledger, opened, batch=batch, run=run
            )
            try:
                ledger = await listing()
            except NoNodeError:  # An old record, which was forgotten just now.
                await sinks.ensure(sink)
                ledger = await listing()
            told = f"batch {batch} of {sink!r}"
            writer = StagingWriter(
                access, stream, ledger, prepared.writer, answers, config, told
            )
            try:
                yield writer
            except BaseException:
                # The failure must be told soon: a ledger that is not dropped by then is left.
                with trio.move_on_after(_DROP_S, shield=True), suppress(GeologError):
                    prepared.writer.stop()
                    await sinks.drop(sink, [StagedLedger(opened.ledger, batch, run)])
                raise
        finally:
            allocator.close()
