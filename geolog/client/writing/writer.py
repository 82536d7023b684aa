"""The application's side of appending: records become batches, batches become receipts.

A writer has one lane per partition that it writes; all lanes share one window, in bytes.

A writer with an id numbers its records, and has a session that has fenced older ones. If the
log has a record's number already, the record is not appended again: the owner of its partition
compares its bytes with those in the log, and answers with the position it has there.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import ClassVar

import attrs
import trio

from geolog.background import open_background
from geolog.client.writing.append_window import AppendWindow
from geolog.client.writing.open_batch import WriterSession
from geolog.client.writing.partition_batcher import (
    PartitionBatcher,
    WriterConfig,
)
from geolog.client.writing.partitioner import NamedPartitioner, Partitioner
from geolog.client.writing.record_fields import (
    RecordFields,
    checked_records,
    plain_size_bytes,
    size_of,
)
from geolog.client.writing.writer_pending import (
    AckLevel,
    NewRecord,
    Pending,
    Receipt,
    ReceiptTerms,
)
from geolog.client.writing.writer_repeats import WriterRepeats
from geolog.partition.batch_sink import BatchSink
from geolog.protocol.append_failure import told_of_record
from topology.errors import (
    ClosedError,
    ConflictError,
    GeologError,
    InvalidArgumentError,
    TooLargeError,
)

CLOSED_WRITER = "the writer is closed: use it within its block"


@attrs.frozen
class WriterStatistics:
    """Figures of a writer."""

    records_count: int
    batches_count: int
    in_flight_bytes: int
    in_flight_bytes_max: int


@attrs.frozen
class SpoolStatistics:
    """Figures of a writer's spool."""

    unanswered_records: int
    """Records on the local disk that the log has not answered."""
    disk_bytes: int
    disk_bytes_max: int
    refused_records: int
    """Records that the log refused for good, since the writer was opened."""
    is_connected: bool
    """Whether a session with the log is open."""
    trouble: str | None
    """Why none is."""


@attrs.frozen
class _Named:
    """The parts that only a writer with an id has."""

    partitioner: NamedPartitioner
    repeats: WriterRepeats


class Writer:
    """Appends to one stream, in order within each partition. `Log.open_writer` opens it."""

    has_spool: ClassVar[bool] = False
    """Whether records are written to the application's own disk first."""

    def __init__(
        self,
        sinks: Sequence[BatchSink],
        config: WriterConfig,
        *,
        session: WriterSession | None = None,
        ack: AckLevel = AckLevel.DURABLE,
        home_epoch: int,
        now_us: Callable[[], int],
        first_partition: int = 0,
    ) -> None:
        """`session`: of a named writer, with its standings in the order of the sinks."""
        self.ack = ack
        self.home_epoch = home_epoch
        self.session = session
        self._config = config
        self._window = AppendWindow()
        standings = [None] * len(sinks) if session is None else session.standings
        self.lanes = [
            PartitionBatcher(
                sink, config, session=session, standing=standing, now_us=now_us,
                window=self._window,
            )
            for sink, standing in zip(sinks, standings, strict=True)
        ]  # fmt: skip
        self._terms = [ReceiptTerms(sink.name.number, sink, ack) for sink in sinks]
        self._partitioner = Partitioner(len(sinks), first=first_partition)
        self._named: _Named | None = None
        if session is not None:
            self._named = _Named(
                _named_partitioner(session),
                WriterRepeats(
                    session.writer_id, self.lanes, self._terms, batch_bytes=config.batch_bytes
                ),
            )
        self._seq_highest = max(lane.seq_highest for lane in self.lanes)
        self._refusals_count = 0  # Those that `_seq_highest` takes into account.
        self._blocked_bytes = 0  # Size of the last record that found no room.
        self._blocked_lane: PartitionBatcher | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"Writer({len(self.lanes)} partitions, {self._window!r})"

    @property
    def seq_highest(self) -> int:
        """The highest seq of this named writer in the log or in flight; -1 for none."""
        if self._refusals_count != self._window.refusals_count:  # Seqs are free again.
            self._refusals_count = self._window.refusals_count
            self._seq_highest = max(lane.seq_highest for lane in self.lanes)
        return self._seq_highest

    async def append(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        transaction_id: int | None = None,
        seq: int | None = None,
        expect_sequence: int | None = None,
        local_only: bool = False,
    ) -> Receipt:
        """Append one record; wait until the writer's ack level is reached.

        A named writer gives a record without `seq` the next seq. local_only: the record must
        not leave the region of the stream's home; readers elsewhere get a gap.

        ConflictError: the transaction id or seq goes back, the seq was used for other bytes, or
        the record would not get `expect_sequence`. FencedError: another writer owns the stream
        now. SealedError: the stream takes no more records. OutcomeUnknownError: the record may
        or may not be in the log. TooLargeError, InvalidArgumentError: it was not sent.
        """
        fields = RecordFields(
            value=value, key=key, headers=headers, transaction_id=transaction_id, seq=seq,
            expect_sequence=expect_sequence, local_only=local_only,
        )  # fmt: skip
        return await (await self._gather_when_writable(fields)).wait()

    async def append_many(
        self,
        values: Iterable[bytes],
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        local_only: bool = False,
    ) -> list[Receipt]:
        """Append records in order, all in flight at once; return their receipts in order.

        key, headers, local_only: of each record. If a record is wrong, none is sent:
        TooLargeError, InvalidArgumentError. Otherwise each is answered as `append` would answer
        it, and the error of the first that failed is raised: then any of the records may be in
        the log.
        """
        values = list(values)
        pending: list[Pending] = []
        is_bare = headers is None and not local_only
        sizes = [plain_size_bytes(value, key) for value in values] if is_bare else [None]
        if None not in sizes:
            for value, size_bytes in zip(values, sizes, strict=True):
                plain = self.append_plain_nowait(value, key, size_bytes)
                pending.append(
                    plain
                    if plain is not None
                    else await self._append_when_writable(RecordFields(value=value, key=key))
                )
        else:
            records = checked_records(values, key=key, headers=headers, local_only=local_only)
            pending = [await self._append_when_writable(fields) for fields in records]
        if not pending:
            await trio.lowlevel.checkpoint()
        receipts: list[Receipt] = []
        for one in pending:  # The records of a batch are answered together.
            is_known = receipts and one.is_done
            receipts.append(one.receipt_nowait() if is_known else await one.wait())
        return receipts

    async def _append_when_writable(self, fields: RecordFields) -> Pending:
        while True:
            try:
                return self.append_fields_nowait(fields)
            except trio.WouldBlock:
                await self.wait_writable()

    async def post(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        transaction_id: int | None = None,
        local_only: bool = False,
    ) -> None:
        """Append one record without an answer; return once it is in the window.

        If the record is refused, or may be lost, `flush` raises the error. If the writer fails,
        a later call does so, too.
        """
        if headers is None and transaction_id is None and not local_only:
            plain = self.append_plain_nowait(value, key, is_posted=True)
            if plain is not None:
                return
        await self._gather_when_writable(
            RecordFields(
                value=value, key=key, headers=headers, transaction_id=transaction_id,
                local_only=local_only, is_posted=True,
            )
        )  # fmt: skip

    async def _gather_when_writable(self, fields: RecordFields) -> Pending:
        size_bytes = size_of(fields)
        while True:
            try:
                place, pending = self._gather(fields, size_bytes)
            except trio.WouldBlock:
                await self.wait_writable()
                continue
            if place is not None and not self.lanes[place].seal_if_idle():
                self.lanes[place].send_soon()
            return pending

    def append_nowait(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        transaction_id: int | None = None,
        seq: int | None = None,
        expect_sequence: int | None = None,
        local_only: bool = False,
    ) -> Pending:
        """Append one record without waiting. trio.WouldBlock while the window is full.

        A named writer's window is also full while a partition has 64 unanswered batches of it.
        """
        is_numbered = transaction_id is not None or seq is not None
        if headers is None and expect_sequence is None and not (is_numbered or local_only):
            plain = self.append_plain_nowait(value, key)
            if plain is not None:
                return plain
        return self.append_fields_nowait(
            RecordFields(
                value=value, key=key, headers=headers, transaction_id=transaction_id, seq=seq,
                expect_sequence=expect_sequence, local_only=local_only,
            )
        )  # fmt: skip

    def append_fields_nowait(self, fields: RecordFields) -> Pending:
        """Append a record like `append_nowait`."""
        place, pending = self._gather(fields, size_of(fields))
        if place is not None:
            self.lanes[place].send_soon()
        return pending

    def append_plain_nowait(
        self,
        value: bytes,
        key: bytes | None,
        size_bytes: int | None = None,
        *,
        is_posted: bool = False,
    ) -> Pending | None:
        """Append a record with no more than a value and a key, if it just joins a batch.

        Most records do, and this is the short way for them. None, and nothing is done, for one
        that is wrong, finds no room, or opens or fills a batch: `append_fields_nowait` takes it
        or says why not. So it does with all records of a writer that numbers or spools them.
        size_bytes: as of `plain_size_bytes`, if it was measured.
        """
        if size_bytes is None:
            size_bytes = plain_size_bytes(value, key)
        if (
            size_bytes is None
            or self.has_spool
            or self._named is not None
            or self._is_closed
            or self._window.in_flight_bytes + size_bytes > self._config.in_flight_bytes
        ):
            return None
        is_divided = len(self.lanes) > 1
        place = self._partitioner.look(key) if is_divided else 0
        # The task that seals batches knows of this one: it was told when the batch was opened.
        batch = self.lanes[place].gather_plain(value, key, size_bytes)
        if batch is None:
            return None
        if is_divided:
            self._partitioner.give(place, key, size_bytes)
        if is_posted:
            batch.is_posted = True
        return NewRecord(self._terms[place], batch, len(batch.values) - 1)

    def _gather(self, fields: RecordFields, size_bytes: int) -> tuple[int | None, Pending]:
        """Take a record in; return the index of its lane (None for a repeat) and its append."""
        if self._is_closed:
            raise self._closed(fields.seq)
        is_numbered_here = may_be_elsewhere = False
        if self._named is None:
            place = self._place_of_nameless(fields, size_bytes)
        else:
            is_numbered_here = fields.seq is None
            seq = self.seq_highest + 1 if fields.seq is None else fields.seq
            place = self._place_of(self._named, seq, fields.key)
            having = self._place_having(self._named, seq, place)
            fields.seq = seq
            if having is not None:
                return None, self._named.repeats.append(having, fields, size_bytes)
            may_be_elsewhere = seq <= self.seq_highest and not self._named.repeats.surely_lack(
                seq, except_in=place
            )
        lane = self.lanes[place]
        if lane.ended is not None:
            # A number that this writer assigns just now belongs to no earlier record.
            is_numbered = fields.seq is not None and not is_numbered_here
            raise told_of_record(lane.ended.failure, is_numbered=is_numbered)
        _check(lane, fields, may_be_elsewhere=may_be_elsewhere)
        if not self._has_room(lane, fields, size_bytes):
            self._blocked_bytes, self._blocked_lane = size_bytes, lane
            lane.seal()
            if is_numbered_here:
                fields.seq = None  # Another record may get the number before there is room.
            raise trio.WouldBlock
        batch, slot = lane.gather(fields, size_bytes)
        if self._named is not None:
            batch.may_be_elsewhere |= may_be_elsewhere
            batch.is_numbered_here &= is_numbered_here
        if lane.seq_highest > self._seq_highest:
            self._seq_highest = lane.seq_highest
        return place, NewRecord(self._terms[place], batch, slot)

    def _has_room(self, lane: PartitionBatcher, fields: RecordFields, size_bytes: int) -> bool:
        if self._window.in_flight_bytes + size_bytes > self._config.in_flight_bytes:
            self._check_can_wait(fields, size_bytes)
            return False
        return lane.has_room(fields, size_bytes)

    def _place_of_nameless(self, fields: RecordFields, size_bytes: int) -> int:
        if fields.seq is not None:
            raise InvalidArgumentError(
                f"seq {fields.seq} needs a writer with an id: pass writer_id to open_writer"
            )
        if len(self.lanes) == 1:
            return 0
        return self._partitioner.partition_of(fields.key, size_bytes)

    def _place_of(self, named: _Named, seq: int, key: bytes | None) -> int:
        """The lane of a named writer's record; a repeated record goes to its first lane."""
        return 0 if len(self.lanes) == 1 else named.partitioner.partition_of(key, seq)

    def _place_having(self, named: _Named, seq: int, place: int) -> int | None:
        """The lane that has this seq or a higher one; None if the seq is new."""
        if seq <= self.lanes[place].seq_highest:
            return place
        if seq > self.seq_highest:
            return None
        return named.repeats.place_that_has(seq)

    def _check_can_wait(self, fields: RecordFields, size_bytes: int) -> None:
        """Raise an error if there will never be room."""
        failure = self.failure
        if failure is not None:  # A failed lane may hold its share of the window for ever.
            raise told_of_record(failure, is_numbered=fields.seq is not None)
        if size_bytes > self._config.in_flight_bytes:
            raise TooLargeError(
                f"the record takes {size_bytes} bytes; in_flight_bytes is"
                f" {self._config.in_flight_bytes}: pass a larger one to open_writer"
            )

    def is_appended(self, seq: int, *, key: bytes | None = None) -> bool:
        """Whether `seq` is at or below the named writer's highest seq in the log.

        The seq may have been appended or left out; `append` says whether it is remembered.
        """
        if self._named is None:
            return False
        return seq <= self.lanes[self._place_of(self._named, seq, key)].seq_highest

    # The window.

    async def wait_writable(self) -> None:
        """Wait until there is room for the record that `append_nowait` refused last.

        Returns when the writer has failed, too.
        """
        # Wait until there is room for a whole batch. If each small batch were followed by as
        # few records as it held, batches would stay small for ever (the silly window of
        # RFC 813).
        lane = self._blocked_lane
        while self._is_window_full() or (lane is not None and lane.is_waiting):
            await self._window.wait_change()

    def _is_window_full(self) -> bool:
        """Whether to wait for room. A failed lane may never free its share: no wait then."""
        window_bytes = self._config.in_flight_bytes
        room_bytes = max(self._blocked_bytes, min(self._config.batch_bytes, window_bytes // 2))
        in_flight_bytes = self._window.in_flight_bytes
        return in_flight_bytes + room_bytes > window_bytes and self.failure is None

    @property
    def failure(self) -> GeologError | None:
        """The error that stopped one of its partitions, if any."""
        return next((lane.ended.failure for lane in self.lanes if lane.ended is not None), None)

    async def flush(self) -> None:
        """Wait until all records appended before this call are durable.

        Raises the error that stopped the writer; else the first error of a posted record.
        """
        if self._is_closed:
            raise self._closed(None)
        for lane in self.lanes:
            lane.seal()
        for lane in self.lanes:
            await lane.flush()

    async def wait_spooled(self) -> None:
        """Wait until all records appended before this call are on the local disk.

        InvalidArgumentError: the writer has no spool.
        """
        raise InvalidArgumentError(
            "the writer has no spool: pass spool='DIRECTORY' to open_writer, or wait for the"
            " log with flush()"
        )

    def spool_statistics(self) -> SpoolStatistics:
        """A snapshot of the spool's figures. InvalidArgumentError without one."""
        raise InvalidArgumentError(
            "the writer has no spool: pass spool='DIRECTORY' to open_writer"
        )

    def close(self) -> None:
        """Refuse all further records: the block is over."""
        self._is_closed = True

    def _closed(self, seq: int | None) -> GeologError:
        return told_of_record(ClosedError(CLOSED_WRITER), is_numbered=seq is not None)

    def statistics(self) -> WriterStatistics:
        """A snapshot of the writer's figures."""
        return WriterStatistics(
            records_count=sum(lane.records_count for lane in self.lanes),
            batches_count=sum(lane.batches_count for lane in self.lanes),
            in_flight_bytes=self._window.in_flight_bytes,
            in_flight_bytes_max=self._config.in_flight_bytes,
        )


def _check(lane: PartitionBatcher, fields: RecordFields, *, may_be_elsewhere: bool) -> None:
    try:
        lane.check(fields)
    except ConflictError as refusal:
        if not may_be_elsewhere:
            raise
        raise told_of_record(refusal, is_numbered=True) from refusal


def _named_partitioner(session: WriterSession) -> NamedPartitioner:
    found = [one.generations for one in session.standings]
    return NamedPartitioner(session.writer_id, found, len(found))


@asynccontextmanager
async def open_linger(writer: Writer) -> AsyncIterator[Writer]:
    """Run a writer's background tasks. A block that ends without an error flushes."""
    async with open_background() as nursery:
        for lane in writer.lanes:
            nursery.start_soon(lane.run_linger, name=f"linger of {lane.sink.name}")
            nursery.start_soon(lane.run_end_watch, name=f"end of the owner of {lane.sink.name}")
        try:
            yield writer
            await writer.flush()
        finally:
            writer.close()
