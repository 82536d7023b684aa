"""The near end of a spool: gathers records in frames, and writes those to the local disk.

One frame is written and synced at a time; records that come meanwhile gather for the next.
"""

from collections import deque
from collections.abc import Callable

import attrs
import trio

from geolog.client.spooling.spool_facts import SpoolFacts
from geolog.client.spooling.spool_files import SpoolFiles
from geolog.client.spooling.spooled_record import PostedRecord, SpooledRecord
from geolog.client.writing.open_batch import OpenBatch
from geolog.client.writing.record_fields import RecordFields, size_of
from geolog.protocol.spool_queue import SpoolQueue
from geolog.wire.spool_frame import HEADER_BYTES
from topology.errors import GeologError, InvalidArgumentError, TooLargeError

_UNWRITTEN_MAX_BATCHES = 4
"""Batches that wait for the disk, in multiples of `batch_bytes`; appends beyond wait."""

_FRAME_SPARE_BYTES = 16384 + HEADER_BYTES
"""Upper bound of what a frame has besides its rows."""


SPOOL_BYTES = 1 << 30


@attrs.frozen(kw_only=True)
class SpoolConfig:
    """Bounds of a spool."""

    spool_bytes: int = SPOOL_BYTES
    """Bound of the files. Appends wait while the spool is full of unanswered records."""

    batch_bytes: int = 256 << 10
    """A frame is written at this size at the latest."""

    in_flight_bytes: int = 32 << 20
    """Bound of the records whose receipts are awaited; posted records do not count."""

    def __attrs_post_init__(self) -> None:
        least_bytes = 16 * self.batch_bytes
        if self.spool_bytes < least_bytes:
            raise InvalidArgumentError(
                f"spool_bytes is {self.spool_bytes}; it must be at least {least_bytes}, 16"
                " times batch_bytes"
            )

    @property
    def file_bytes(self) -> int:
        """A file is ended at this size."""
        return max(self.batch_bytes, min(8 << 20, self.spool_bytes // 8))

    @property
    def kept_bytes_max(self) -> int:
        """Answered frames that are kept, for homes that lose them."""
        return min(16 << 20, self.spool_bytes // 4)


@attrs.define(eq=False)
class _Gathered:
    """A batch that is not on disk yet, and its appends."""

    batch: OpenBatch = attrs.field(factory=OpenBatch)
    appends: list[SpooledRecord] = attrs.field(factory=list)


class SpoolInlet:
    """Takes records in and writes them. `run` performs the writes."""

    def __init__(
        self,
        files: SpoolFiles,
        queue: SpoolQueue,
        config: SpoolConfig,
        *,
        seq_taken: int,
        now_us: Callable[[], int],
    ) -> None:
        """seq_taken: the highest seq on disk, as frames have it; -1 for none."""
        self._files = files
        self._queue = queue
        self._config = config
        self._now_us = now_us
        self.numbering = files.facts.numbering
        """Whether the spool numbers the records itself; None before the first."""
        self.seq_taken = seq_taken
        """The highest seq taken in, as frames have it."""
        self.seq_written = seq_taken
        """The highest seq on disk."""
        self.failure: GeologError | None = None
        self.awaited: dict[int, tuple[SpooledRecord, int]] = {}
        """Records whose receipts are awaited, by seq, and their sizes."""
        self._awaited_bytes = 0
        self._unwritten: deque[_Gathered] = deque()
        self._unwritten_bytes = 0
        self._has_unwritten = trio.Event()
        self.records_count = 0
        self.batches_count = 0

    def __repr__(self) -> str:
        return f"SpoolInlet(seq {self.seq_taken}, {self._unwritten_bytes} bytes unwritten)"

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of records whose receipts are awaited."""
        return self._awaited_bytes

    def put_nowait(self, fields: RecordFields, seq: int) -> SpooledRecord:
        """Take a record in under this seq. trio.WouldBlock while there is no room."""
        size_bytes = size_of(fields)
        if not self.has_room(fields, size_bytes):
            raise trio.WouldBlock
        append = PostedRecord() if fields.is_posted else SpooledRecord()
        fields.seq = seq
        last = self._unwritten[-1] if self._unwritten else None
        if last is None or not last.batch.goes_on_with(
            fields, size_bytes, self._config.batch_bytes
        ):
            last = _Gathered()
            self._unwritten.append(last)
        last.batch.add(fields, created_us=self._now_us(), size_bytes=size_bytes)
        last.appends.append(append)
        self._unwritten_bytes += size_bytes
        self.seq_taken = seq
        self.records_count += 1
        if not fields.is_posted:
            self.awaited[seq] = append, size_bytes
            self._awaited_bytes += size_bytes
        self._has_unwritten.set()
        return append

    def has_room(self, fields: RecordFields, size_bytes: int) -> bool:
        """Whether the record can be taken in now. TooLargeError if it never can."""
        config = self._config
        disk_bytes = size_bytes + _FRAME_SPARE_BYTES
        if disk_bytes + self._frames_spare_bytes > config.spool_bytes:
            raise TooLargeError(
                f"the record takes {size_bytes} bytes, and the spool {config.spool_bytes}: pass"
                " a larger spool_bytes to open_writer"
            )
        if not fields.is_posted and size_bytes > config.in_flight_bytes:
            raise TooLargeError(
                f"the record takes {size_bytes} bytes; in_flight_bytes is"
                f" {config.in_flight_bytes}: pass a larger one to open_writer"
            )
        if not fields.is_posted and self._awaited_bytes + size_bytes > config.in_flight_bytes:
            return False
        unwritten_bytes = self._unwritten_bytes + size_bytes
        if self._unwritten and unwritten_bytes > _UNWRITTEN_MAX_BATCHES * config.batch_bytes:
            return False
        wanted_bytes = self._unwritten_bytes + disk_bytes + self._frames_spare_bytes
        return (
            self._queue.disk_bytes + wanted_bytes <= config.spool_bytes
            or self._queue.needed_bytes + wanted_bytes <= config.spool_bytes
        )

    @property
    def _frames_spare_bytes(self) -> int:
        return len(self._unwritten) * _FRAME_SPARE_BYTES

    def finish(self, seq: int) -> SpooledRecord | None:
        """The append of a seq that is answered, if anyone awaits it."""
        found = self.awaited.pop(seq, None)
        if found is None:
            return None
        self._awaited_bytes -= found[1]
        return found[0]

    def fail_all(self, told: GeologError) -> None:
        """Tell every append that has no answer that none will come."""
        for gathered in self._unwritten:
            for append in gathered.appends:
                append.finish(told)
        for append, _ in self.awaited.values():
            append.finish(told)
        self.awaited.clear()
        self._awaited_bytes = 0

    @property
    def is_all_written(self) -> bool:
        """Whether everything taken in is on disk."""
        return self.seq_written == self.seq_taken

    async def run(self, on_written: Callable[[], None]) -> None:
        """Write frames as records come. Ends when a write fails."""
        while True:
            await self._has_unwritten.wait()
            self._has_unwritten = trio.Event()
            while self._unwritten:
                await trio.lowlevel.checkpoint()  # Tasks that append in this turn join.
                gathered = self._unwritten[0]
                try:
                    await self._write(gathered)
                except GeologError as error:
                    self.failure = error
                    self.fail_all(error)
                    on_written()
                    return
                on_written()

    async def _write(self, gathered: _Gathered) -> None:
        batch = gathered.batch
        assert batch.seqs is not None
        seqs, size_bytes = batch.seqs.gathered(), batch.size_bytes
        self._unwritten.popleft()
        try:
            await self._files.learn(self._numbered)
            await self._files.write(seqs, batch.seal())
        except GeologError as error:
            for append in gathered.appends:
                append.finish(error)
            raise
        finally:
            self._unwritten_bytes -= size_bytes
        self.seq_written = seqs.last
        self.batches_count += 1
        for append in gathered.appends:
            append.on_spooled()

    def _numbered(self, facts: SpoolFacts) -> SpoolFacts:
        """Fix who numbers the records, before the first of them is on disk."""
        if facts.numbering is not None:
            return facts
        if self.numbering == "given":
            return attrs.evolve(facts, numbering="given", seq_base=0)
        return attrs.evolve(facts, numbering=self.numbering)
