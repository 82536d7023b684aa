"""A named writer with a spool: records are on the local disk first, and then in the log.

`SpoolInlet` writes to the disk, `SpoolOutlet` sends to the log. The writer's contract stays:
`append` and its receipt are the log's. `post` returns once the record is on the local disk.
"""

import logging
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from geolog.background import open_background
from geolog.client.spooling.spool_directory import FoundSpool, SpoolDirectory
from geolog.client.spooling.spool_facts import SpoolFacts
from geolog.client.spooling.spool_files import SpoolFiles
from geolog.client.spooling.spool_inlet import SpoolConfig, SpoolInlet
from geolog.client.spooling.spool_outlet import OpenWriter, SpoolOutlet
from geolog.client.spooling.spooled_record import SpooledRecord
from geolog.client.writing.record_fields import RecordFields, size_of
from geolog.client.writing.writer import (
    CLOSED_WRITER,
    SpoolStatistics,
    Writer,
    WriterStatistics,
)
from geolog.client.writing.writer_pending import AckLevel, Receipt
from geolog.client.writing.writer_session import encoded_writer_id
from geolog.partition.repeated_batch import ForgottenSeqError
from geolog.protocol.append_failure import told_as_unknown
from geolog.protocol.spool_queue import SpoolQueue
from geolog.protocol.stream_state import parse_target
from topology.errors import (
    ClosedError,
    GeologError,
    InvalidArgumentError,
    OutcomeUnknownError,
)

_LOGGER = logging.getLogger(__name__)

FIRST_SESSION_S = 2.0
"""How long opening waits for the log: an error that no wait can mend is then told at once."""

CLOSING_S = 5.0
"""How long the end of the block waits for the log without an answer."""


class SpooledWriter(Writer):
    """Appends to one stream through a spool. `Log.open_writer(spool=…)` opens it."""

    has_spool = True

    def __init__(  # It has sessions instead of the parts of `Writer`.
        self,
        files: SpoolFiles,
        queue: SpoolQueue,
        inlet: SpoolInlet,
        outlet: SpoolOutlet,
        config: SpoolConfig,
    ) -> None:
        self.ack = AckLevel.DURABLE
        self.session = None
        self.lanes = []
        self._files = files
        self._queue = queue
        self._inlet = inlet
        self._outlet = outlet
        self._spool_config = config
        self._blocked: tuple[RecordFields, int] | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"SpooledWriter({self._files.path!r}, {self._queue!r})"

    @property
    def home_epoch(self) -> int:  # type: ignore[override] # It changes with sessions.
        """The home epoch of the last session; 0 before the first."""
        return self._outlet.home_epoch

    @property
    def seq_highest(self) -> int:
        """The highest seq taken in; counted from 0 until the log was reached once."""
        return self._files.seq_in_log(self._inlet.seq_taken)

    def is_appended(self, seq: int, *, key: bytes | None = None) -> bool:  # noqa: ARG002
        """Whether `seq` is at or below the highest seq taken in."""
        return seq <= self.seq_highest

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
        """Append one record; wait until the log has it. Cancelled, it stays in the spool.

        ForgottenSeqError: the spool took a record with this seq before. Else errors as of
        `Writer.append`; SpoolWriteError: it is neither in the spool nor in the log.
        """
        fields = RecordFields(
            value=value, key=key, headers=headers, transaction_id=transaction_id, seq=seq,
            expect_sequence=expect_sequence, local_only=local_only,
        )  # fmt: skip
        return await (await self._put(fields)).wait()

    async def post(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        transaction_id: int | None = None,
        local_only: bool = False,
    ) -> None:
        """Append one record; return once it is on the local disk. SpoolWriteError.

        If the log refuses it for good, it is kept in the spool's `refused.jsonl`, and `flush`
        raises the error.
        """
        fields = RecordFields(
            value=value, key=key, headers=headers, transaction_id=transaction_id,
            local_only=local_only, is_posted=True,
        )  # fmt: skip
        await (await self._put(fields)).wait_done()

    async def _put(self, fields: RecordFields) -> SpooledRecord:
        while True:
            try:
                return self.append_fields_nowait(fields)
            except trio.WouldBlock:
                await self.wait_writable()

    def append_fields_nowait(self, fields: RecordFields) -> SpooledRecord:
        """Append a record like `append_nowait`."""
        if self._is_closed:
            raise ClosedError(CLOSED_WRITER)
        self._raise_failure()
        size_bytes = size_of(fields)
        if fields.expect_sequence is not None:
            raise InvalidArgumentError(
                "a writer with a spool cannot expect a sequence: the record may reach the log"
                " much later. Drop expect_sequence, or the spool"
            )
        if fields.local_only:
            raise InvalidArgumentError(
                "a writer with a spool takes no local-only records: the home may have moved to"
                " another region before they reach the log. Drop local_only, or the spool"
            )
        seq = self._seq_for(fields)
        if not self._inlet.has_room(fields, size_bytes):
            self._blocked = fields, size_bytes
            raise trio.WouldBlock
        self._inlet.numbering = "own" if fields.seq is None else "given"
        return self._inlet.put_nowait(fields, seq)

    def _seq_for(self, fields: RecordFields) -> int:
        """The seq that the record gets in its frame."""
        inlet, numbering = self._inlet, "own" if fields.seq is None else "given"
        if inlet.numbering not in (None, numbering):
            raise InvalidArgumentError(
                f"spool {self._files.path} has records that "
                + ("it numbered itself: leave seq out" if fields.seq is not None else
                   "the application numbered: give a seq")
            )  # fmt: skip
        if fields.seq is None:
            return inlet.seq_taken + 1
        if fields.seq <= inlet.seq_taken:
            raise ForgottenSeqError(
                f"the spool took seq {inlet.seq_taken} before: seq {fields.seq} is in it, or in"
                " the log, or was left out. Nothing was appended, and nothing compared"
            )
        return fields.seq

    async def wait_writable(self) -> None:
        """Wait until there is room for the record that `append_nowait` refused last."""
        while self.failure is None and not self._is_closed:
            if self._blocked is None or self._inlet.has_room(*self._blocked):
                return
            await self._outlet.wait_change()

    @property
    def failure(self) -> GeologError | None:
        """The error that stopped the disk or the sessions, if any."""
        return self._inlet.failure or self._outlet.failure

    def _raise_failure(self) -> None:
        failure = self.failure
        if failure is not None:
            raise failure

    # Waiting.

    async def wait_spooled(self) -> None:
        """Wait until all records appended before this call are on the local disk."""
        seq = self._inlet.seq_taken
        while self._inlet.seq_written < seq:
            if self._inlet.failure is not None:
                raise self._inlet.failure
            await self._outlet.wait_change()

    async def flush(self) -> None:
        """Wait until the log has everything in the spool.

        Raises the error that stopped the writer; else the first refusal of a posted record.
        """
        if self._is_closed:
            raise ClosedError(CLOSED_WRITER)
        await self.wait_spooled()
        while self._queue.figures().unanswered_records:
            self._raise_failure()
            await self._outlet.wait_change()
        self._raise_failure()
        self._raise_refused()

    def _raise_refused(self) -> None:
        refused, self._outlet.refused = self._outlet.refused, None
        if refused is not None:
            raise refused

    async def wait_answer(self) -> None:
        """Wait until the figures of the spool have changed."""
        await self._outlet.wait_change()

    async def finish(self) -> bool:
        """Wait for the disk, and for the log while it answers. True: the log has everything."""
        await self.wait_spooled()
        while self._queue.figures().unanswered_records and self.failure is None:
            answered_count = self._outlet.answered_count
            with trio.move_on_after(CLOSING_S) as waiting:
                while self._outlet.answered_count == answered_count and self.failure is None:
                    await self._outlet.wait_change()
            if waiting.cancelled_caught:
                _LOGGER.warning(
                    "spool %s: %d records stay in it for the next writer (%s)",
                    self._files.path, self._queue.figures().unanswered_records,
                    self._outlet.trouble or "the log does not answer",
                )  # fmt: skip
                return False
        self._raise_failure()
        self._raise_refused()
        return True

    async def wait_first_session(self) -> None:
        """Wait a moment for the log. Raises an error that no wait can mend."""
        with trio.move_on_after(FIRST_SESSION_S):
            while not self._outlet.attempts_count and self.failure is None:
                await self._outlet.wait_change()
        self._raise_failure()

    def close(self) -> None:
        """Refuse all further records: the block is over."""
        self._is_closed = True
        self._inlet.fail_all(
            OutcomeUnknownError(
                "the writer was closed before the log answered; a record that is in spool"
                f" {self._files.path} is sent by the next writer"
            )
        )

    def on_stopped(self, failure: GeologError) -> None:
        """No session follows: tell the appends that wait for an answer."""
        self._inlet.fail_all(
            told_as_unknown(failure, f"{failure}; the record stays in {self._files.path}")
        )

    # Figures.

    def statistics(self) -> WriterStatistics:
        """A snapshot of the writer's figures."""
        return WriterStatistics(
            records_count=self._inlet.records_count,
            batches_count=self._inlet.batches_count,
            in_flight_bytes=self._inlet.in_flight_bytes,
            in_flight_bytes_max=self._spool_config.in_flight_bytes,
        )

    def spool_statistics(self) -> SpoolStatistics:
        """A snapshot of the spool's figures."""
        figures, trouble = self._queue.figures(), self._outlet.trouble or self.failure
        return SpoolStatistics(
            unanswered_records=figures.unanswered_records,
            disk_bytes=figures.disk_bytes,
            disk_bytes_max=self._spool_config.spool_bytes,
            refused_records=self._outlet.refused_count,
            is_connected=self._outlet.is_open,
            trouble=None if trouble is None else str(trouble),
        )


@asynccontextmanager
async def open_spooled_writer(
    path: str | Path,
    wanted: SpoolFacts,
    config: SpoolConfig,
    *,
    open_writer: OpenWriter,
    rng: random.Random,
    now_us: Callable[[], int],
) -> AsyncIterator[SpooledWriter]:
    """Append through the spool at `path` while the block lasts.

    SpoolInUseError, SpoolMismatchError, SpoolDamagedError, SpoolWriteError: of the spool. Of
    the log only errors that no wait can mend: NoSuchStreamError, SealedError, FencedError.
    """
    directory, found = await trio.to_thread.run_sync(
        partial(SpoolDirectory.open, Path(path), wanted)
    )
    try:
        queue = _queue_of(found, config)
        files = SpoolFiles(
            directory,
            queue,
            spool_bytes=config.spool_bytes,
            file_bytes=config.file_bytes,
            refused=found.refused,
        )
        seq_taken = max((frame.seq_last for frame in found.frames), default=-1)
        inlet = SpoolInlet(files, queue, config, seq_taken=seq_taken, now_us=now_us)
        outlet = SpoolOutlet(files, queue, inlet, open_writer=open_writer, rng=rng)
        writer = SpooledWriter(files, queue, inlet, outlet, config)

        async def send() -> None:
            await outlet.run()
            assert outlet.failure is not None
            writer.on_stopped(outlet.failure)
            outlet.tell_change()

        async with open_background() as nursery:
            nursery.start_soon(inlet.run, outlet.tell_change, name=f"disk of spool {path}")
            nursery.start_soon(send, name=f"sessions of spool {path}")
            try:
                await writer.wait_first_session()
                yield writer
                await writer.finish()
                await files.move_mark()  # Of the answers since the outlet moved it last.
            finally:
                writer.close()
                outlet.tell_change()
    finally:
        directory.close()


def _queue_of(found: FoundSpool, config: SpoolConfig) -> SpoolQueue:
    queue = SpoolQueue(
        mark=found.mark.frame,
        mark_row=found.mark.row,
        kept_bytes_max=config.kept_bytes_max,
    )
    for frame in found.frames:
        queue.on_synced(frame, answered_rows=found.refused.get(frame.number, ()))
    return queue


def spooled_writer(
    open_writer: OpenWriter,
    path: str | Path,
    config: SpoolConfig,
    *,
    cluster: str,
    stream: str,
    writer_id: str | None,
    ack: AckLevel,
    rng: random.Random,
    now_us: Callable[[], int],
) -> AbstractAsyncContextManager[SpooledWriter]:
    """Check the arguments of a writer with a spool, and open it. InvalidArgumentError."""
    if writer_id is None:
        raise InvalidArgumentError(
            "a spool needs a named writer, so that the log recognises records that are sent"
            " again: give writer_id='NAME' as well"
        )
    encoded_writer_id(writer_id)
    if ack is not AckLevel.DURABLE:
        raise InvalidArgumentError(
            "ack='received' is not for a writer with a spool: it keeps records until they are"
            " durable. Use post, which returns once a record is on the local disk"
        )
    parse_target(stream)
    wanted = SpoolFacts(cluster=cluster, stream=stream, writer_id=writer_id)
    return open_spooled_writer(
        path, wanted, config, open_writer=open_writer, rng=rng, now_us=now_us
    )
