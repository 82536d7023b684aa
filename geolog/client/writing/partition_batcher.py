"""One partition's lane of a writer: collects records in a batch, then seals and sends it.

A batch is sealed when it is full, when `linger_s` has passed, or at once if nothing is in
flight. So a single append waits for nothing, and under load batches fill while others are in
flight. While the processor is busy (a hundred streams, say) batches wait a little longer,
because fewer, larger batches cost less.

A named writer never has more unanswered batches than the log remembers, so each of them can be
recognised if it is sent again. The next batch is held back until one is answered.

The lane knows what the answers say, and nothing else of the partition: they may come late. If
one is a refusal, the owner also refuses the batches behind it: each tells the seq before it.
The next batch is held back until they are answered, since they may reach another owner. Only a
refusal frees seqs: a batch with any other answer may be in the log.

Rules: PROTOCOL S6, S18 and S22.
"""

import math
from collections import deque
from collections.abc import Callable
from typing import assert_never

import attrs
import trio

from geolog.client.writing.append_window import AppendWindow
from geolog.client.writing.known_seqs import KnownSeqs
from geolog.client.writing.open_batch import OpenBatch, WriterSession
from geolog.client.writing.record_fields import RecordFields
from geolog.partition.batch_sink import BatchSink, SentBatch, answered
from geolog.protocol.append_failure import told_as_unknown
from geolog.protocol.owner_answers import (
    AppendRefused,
    OwnerAnswer,
    OwnerEnded,
    Placed,
    Received,
    Repeated,
    Unknown,
    answer_of_error,
)
from geolog.protocol.partition_state import BATCHES_REMEMBERED
from geolog.protocol.writer_standing import WriterStanding
from geolog.wire.batch import SealedBatch
from geolog.wire.limits import BATCH_BYTES_MAX
from topology.errors import ConflictError, GeologError, InvalidArgumentError

_BATCH_SPARE_BYTES = 1024
"""Upper bound of a batch's bytes besides its rows: ends of columns, and padding."""

_BUSY_TURN_S = 0.005
"""A turn of the event loop that takes this long means that the processor is busy."""

_BUSY_LINGER_TURNS = 3
_BUSY_LINGER_S = 0.05
"""Longest time that a batch waits because the processor is busy."""


BATCH_BYTES = 256 << 10
"""A batch is sealed at this size."""


@attrs.frozen(kw_only=True)
class WriterConfig:
    """How records are batched, and how many may be in flight."""

    linger_s: float = 0.001
    """Longest time that a batch waits for more records while others are in flight."""

    batch_bytes: int = BATCH_BYTES
    """Seal a batch at this size. Larger batches cost less per record and wait longer."""

    in_flight_bytes: int = 32 * 1024 * 1024
    """Bound of the records not yet answered, in bytes; appends beyond it wait."""

    def __attrs_post_init__(self) -> None:
        if not 0 <= self.linger_s < math.inf:
            raise InvalidArgumentError(
                f"linger_s is {self.linger_s}; it must be >= 0 and finite"
            )
        largest = BATCH_BYTES_MAX - _BATCH_SPARE_BYTES
        if not 0 < self.batch_bytes <= largest:
            raise InvalidArgumentError(
                f"batch_bytes is {self.batch_bytes}; it must be 1 to {largest}"
            )
        if self.in_flight_bytes < self.batch_bytes:
            raise InvalidArgumentError(
                f"in_flight_bytes is {self.in_flight_bytes}; it must be at least batch_bytes,"
                f" {self.batch_bytes}, or no batch could be sent"
            )


class PartitionBatcher:
    """Fills, seals and sends batches for one partition.

    `seq_highest` is the highest seq taken in from the session's writer, open batch included;
    `seq_answered` the highest that may be in the log and is not in flight. `ended` is the
    answer that says why the owner takes nothing more.
    """

    def __init__(
        self,
        sink: BatchSink,
        config: WriterConfig,
        *,
        session: WriterSession | None,
        standing: WriterStanding | None,
        now_us: Callable[[], int],
        window: AppendWindow,
    ) -> None:
        """`standing`: where the writer of the session stands in this partition."""
        self.sink = sink
        self._config = config
        self._session = session
        self._now_us = now_us
        self._window = window
        self._counted_bytes = 0  # Share of this lane in the window's bytes.
        self.ended: OwnerEnded | None = None
        self._unheard: GeologError | None = None
        self._unknown_count = 0  # Records that the owner's end left unknown.
        self._transaction_id = sink.opened.transaction_id
        self.seq_highest = -1 if standing is None else standing.seq_highest
        self.seq_answered = self.seq_highest
        self.known = KnownSeqs(() if standing is None else standing.remembered)
        self._seq_sent = self.seq_highest
        self._seq_refused: int | None = None  # The lowest that has not come again.
        self._behind_refused_count = 0  # Unanswered batches that will be refused, too.
        self._attempt = 0
        self._filling: OpenBatch | None = None
        self._unanswered: deque[OpenBatch] = deque()
        self._unanswered_bytes = 0
        self.is_held_back = False
        """Whether the open batch is due, and waits for an answer to an earlier one."""
        self._has_filling = trio.Event()
        self._is_held = False  # The open batch waits because the processor is busy.
        self._sent_last: SentBatch | None = None
        self.records_count = 0
        self.batches_count = 0

    def __repr__(self) -> str:
        return f"PartitionBatcher({self.sink.name}, {self.in_flight_bytes} bytes in flight)"

    @property
    def is_waiting(self) -> bool:
        """Whether the lane takes nothing in until one of its own batches is answered."""
        return self.is_held_back and self.ended is None

    @property
    def in_flight_bytes(self) -> int:
        """Bytes collected, or sent and not answered."""
        filling_bytes = self._filling.size_bytes if self._filling is not None else 0
        return self._unanswered_bytes + filling_bytes

    @property
    def unanswered_count(self) -> int:
        """How many batches are sent and not answered."""
        return len(self._unanswered)

    def check(self, fields: RecordFields) -> None:
        """ConflictError if the record's transaction id or seq goes back."""
        number, highest = fields.transaction_id, self._transaction_id
        if number is not None and highest is not None and number < highest:
            raise ConflictError(
                f"transaction id {number} is too low: {self.sink.name} already has {highest}"
            )
        if fields.seq is not None and fields.seq <= self.seq_highest:
            raise ConflictError(
                f"seq {fields.seq} is too low: {self.sink.name} already has {self.seq_highest}"
            )

    def has_room(self, fields: RecordFields, size_bytes: int) -> bool:
        """Whether the record can be taken in before another batch is answered."""
        if self._may_send() or self._filling is None:
            return True
        return self._filling.goes_on_with(fields, size_bytes, self._config.batch_bytes)

    def _may_send(self) -> bool:
        """Whether one more batch may follow those without an answer.

        The log must remember it along with them, and none of them may be behind a refusal.
        """
        return self._session is None or (
            len(self._unanswered) < BATCHES_REMEMBERED and not self._behind_refused_count
        )

    def gather(self, fields: RecordFields, size_bytes: int) -> tuple[OpenBatch, int]:
        """Add a record that was checked and has room; return its batch and its slot."""
        filling = self._filling
        if filling is not None and not filling.goes_on_with(
            fields, size_bytes, self._config.batch_bytes
        ):
            self.seal()
            filling = None
        now_us = self._now_us()
        if filling is None:
            filling = self._filling = OpenBatch(
                fields.expect_sequence, now_us, fields.local_only
            )
        slot = filling.add(fields, created_us=now_us, size_bytes=size_bytes)
        if fields.transaction_id is not None:
            self._transaction_id = fields.transaction_id
        if fields.seq is not None:
            self.seq_highest = fields.seq
        if filling.size_bytes >= self._config.batch_bytes:
            self.seal()
        self._count()
        return filling, slot

    def gather_plain(
        self, value: bytes, key: bytes | None, size_bytes: int
    ) -> OpenBatch | None:
        """Add a nameless record with no more than a value and a key to the open batch.

        None, and nothing is done, unless the batch takes it and stays open.
        """
        filling = self._filling
        if (
            filling is None
            or not filling.is_plain
            or filling.size_bytes + size_bytes >= self._config.batch_bytes
            or self.ended is not None
        ):
            return None
        filling.add_plain(value, key, created_us=self._now_us(), size_bytes=size_bytes)
        self._counted_bytes += size_bytes
        self._window.in_flight_bytes += size_bytes
        return filling

    def _count(self) -> None:
        """Update the lane's share of the window."""
        now_bytes = self.in_flight_bytes
        self._window.in_flight_bytes += now_bytes - self._counted_bytes
        self._counted_bytes = now_bytes

    def send_soon(self) -> None:
        """Seal the open batch once nothing is in flight, or after its linger time."""
        self._has_filling.set()

    def on_answers(self) -> None:
        """Batches were answered: seal the open batch if held back, or nothing is in flight."""
        unanswered = self._unanswered
        while unanswered:
            sent = unanswered[0].sent
            assert sent is not None
            if not sent.done.is_set():
                break
            batch = unanswered.popleft()
            self._unanswered_bytes -= batch.sealed_bytes
            if self._behind_refused_count:
                self._behind_refused_count -= 1
            self._take_answer(batch, sent.answer, was_in_flight=True)
        if not unanswered:
            self._sent_last = None  # It knows this lane, so the two would be a cycle.
        if self.is_held_back:
            self.seal()
        else:
            self.seal_if_idle()
        self._count()
        self._window.tell_change()

    def _take_answer(
        self, batch: OpenBatch, answer: OwnerAnswer | None, *, was_in_flight: bool
    ) -> None:
        """Act on the last answer to a batch, which comes at once unless it was in flight."""
        match answer:
            case Placed():
                self._note_seqs(batch)
            case Repeated():
                if was_in_flight or not self._unanswered:
                    self._note_seqs(batch)
                self._note_unheard(batch, batch.in_log_already())
            case Unknown(error=error):
                if was_in_flight or not self._unanswered:
                    self._note_seqs(batch)
                self._note_unheard(batch, error)
            case AppendRefused(error=error):
                self._note_unheard(batch, error)
                if batch.attempt == self._attempt:
                    self._behind_refused_count = len(self._unanswered) if was_in_flight else 0
                    self._free_seqs(batch)
            case OwnerEnded(error=error):
                if not was_in_flight:
                    self._free_seqs(batch)
                elif error.outcome == "unknown":
                    self._unknown_count += len(batch.created_us)
                self._note_end(answer)
            case None | Received():
                raise AssertionError(f"{answer} is not the last answer")
            case _:
                assert_never(answer)

    def _note_unheard(self, batch: OpenBatch, error: GeologError) -> None:
        """Keep an error that no answer tells: `flush` raises it."""
        if batch.is_posted and self._unheard is None:
            self._unheard = batch.told(error)

    def _note_end(self, ended: OwnerEnded) -> None:
        if self.ended is None:
            self.ended = ended

    def seal_if_idle(self) -> bool:
        """Seal the open batch if nothing is in flight."""
        if self._is_held or self._unanswered:
            return False
        self.seal()
        return True

    def seal(self) -> None:
        """Seal and send the open batch; hold it back if too many are unanswered."""
        filling = self._filling
        self.is_held_back = filling is not None and not self._may_send()
        if filling is None or self.is_held_back:
            return
        self._filling = None
        self.records_count += len(filling.values)
        self.batches_count += 1
        filling.seq_before, filling.attempt = self._seq_sent, self._attempt
        try:
            sent = self._send(filling, filling.seal())
        except GeologError as error:
            sent = answered(answer_of_error(error))
        filling.sent = sent
        if filling.seqs is not None:
            self._seq_sent = filling.seqs.last
        if sent.answer is None:
            self._sent_last = sent
            self._unanswered.append(filling)
            self._unanswered_bytes += filling.sealed_bytes
        else:
            self._take_answer(filling, sent.answer, was_in_flight=False)
            self._count()
            self._window.tell_change()
        filling.sealed.set()

    def _send(self, filling: OpenBatch, sealed: SealedBatch) -> SentBatch:
        filling.seq_required = self._seq_required(filling)
        filling.sealed_bytes = sealed.length_bytes
        return self.sink.append(sealed, filling.terms(self._session), self)

    def _seq_required(self, filling: OpenBatch) -> int:
        """The seq that must be in the log before a batch that is about to be sent.

        Only a writer that numbers its records itself may leave a refused seq out.
        """
        refused, seqs = self._seq_refused, filling.seqs
        if refused is None or seqs is None:
            return self._seq_sent
        if seqs.first <= refused:
            self._seq_refused = None  # It comes again.
            return self._seq_sent
        return self._seq_sent if filling.is_numbered_here else max(self._seq_sent, refused)

    def append_repeats(self, repeats: OpenBatch) -> SentBatch:
        """Send records of which the log has the seqs: they are compared, not appended."""
        return self.sink.append(repeats.seal(), repeats.terms(self._session), None)

    def surely_lacks(self, seq: int) -> bool:
        """Whether the partition certainly has no record of this seq.

        Once the owner has ended, a newer session may have appended seqs above the highest.
        """
        if self.known.is_left_out(seq):
            return True
        return seq > self.seq_highest and self.ended is None

    def _note_seqs(self, batch: OpenBatch) -> None:
        """A batch is in the log, or may be: its seqs are used for good."""
        if batch.seqs is not None:
            self.seq_answered = batch.seqs.last
            self.known.add(batch.seqs.gathered())

    def _free_seqs(self, refused: OpenBatch) -> None:
        """A batch was refused, so nothing of it is in the log, nor of those behind it.

        Batches behind it that are on their way are refused, too; their seqs are free already.
        """
        if refused.seqs is not None:
            self._attempt += 1
            self.seq_highest = self._seq_sent = refused.seq_before
            if self._seq_refused is None or refused.seqs.first < self._seq_refused:
                self._seq_refused = refused.seqs.first
            self._refuse_filling(refused.seqs.first)
            self._window.refusals_count += 1

    def _refuse_filling(self, refused_seq: int) -> None:
        filling, self._filling = self._filling, None
        if filling is None:
            return
        assert filling.seqs is not None
        conflict = ConflictError(
            f"seq {refused_seq} was refused: append it again before seq {filling.seqs.first}"
        )
        filling.sent = answered(AppendRefused(conflict))
        self._note_unheard(filling, conflict)
        filling.sealed.set()

    async def flush(self) -> None:
        """Wait until all collected records are answered.

        Raises what stopped the lane; else, once, the first error of a posted record.
        """
        filling = self._filling
        self.seal()
        if filling is not None:
            await filling.wait_sent()  # It may be held back.
        if self._sent_last is not None:
            await self._sent_last.done.wait()
        self._raise_failure()
        unheard, self._unheard = self._unheard, None
        if unheard is not None:
            raise unheard

    def _raise_failure(self) -> None:
        """Raise the error that stopped the lane, and say how many records are unknown."""
        if self.ended is None:
            return
        failure, count = self.ended.failure, self._unknown_count
        if not count:
            raise failure
        records = "1 unanswered record" if count == 1 else f"{count} unanswered records"
        raise told_as_unknown(failure, f"{failure}; {records} may be in the log")

    async def run_end_watch(self) -> None:
        """Wait for the owner's end: there may be no batch whose answer tells it."""
        self._note_end(await self.sink.wait_ended())
        self.on_answers()

    async def run_linger(self) -> None:
        """Seal batches that do not fill up in time; never returns."""
        while True:
            await self._has_filling.wait()
            self._has_filling = trio.Event()
            filling = self._filling
            if filling is None:
                continue
            await trio.lowlevel.checkpoint()  # Tasks that append in this turn join the batch.
            linger_s = self._linger_s(turn_s=(self._now_us() - filling.begun_us) / 1e6)
            if linger_s > 0:
                with trio.move_on_after(linger_s):
                    await filling.sealed.wait()
            self._is_held = False
            if self._filling is filling:
                self.seal()

    def _linger_s(self, *, turn_s: float) -> float:
        """How long a batch waits for more records, given how long a turn of all tasks took."""
        # A batch costs the processor much the same whatever its size. A long turn means that
        # all tasks wait for the processor: waiting a few turns more makes larger batches, and
        # so more records a second for everyone.
        linger_s = self._config.linger_s if self._unanswered else 0.0
        self._is_held = turn_s >= _BUSY_TURN_S
        if not self._is_held:
            return linger_s
        return max(linger_s, min(_BUSY_LINGER_TURNS * turn_s, _BUSY_LINGER_S))
