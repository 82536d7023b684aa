"""One partition's share of a writer: records gather in a batch, which is sealed and sent.

A batch is sealed when it is full, when `linger_s` has passed, or at once when nothing is in
flight: so one append alone waits for nobody, and under load batches fill by themselves while
others are on their way. While the processor is busy (a hundred streams, say) batches wait
somewhat longer, for fewer and larger ones cost less.

A named writer has no more batches unanswered than the log remembers of it, so that all of them
can be told from new ones when they come again. One more is held back until one is answered.

Rules: PROTOCOL S6.
"""

import math
from collections.abc import Callable
from typing import Protocol

import attrs
import trio

from geolog.client.writing.open_batch import OpenBatch, Placed, WriterSession
from geolog.client.writing.record_fields import RecordFields
from geolog.partition.batch_in_flight import BatchTerms
from geolog.protocol.append_failure import told_as_unknown
from geolog.protocol.ids import Epoch
from geolog.protocol.partition_state import BATCHES_REMEMBERED, PartitionState
from geolog.protocol.stream_state import PartitionName
from geolog.wire.batch import SealedBatch, seal_batch
from geolog.wire.limits import BATCH_BYTES_MAX
from topology.errors import ConflictError, GeologError, InvalidArgumentError

_BATCH_SPARE_BYTES = 1024
"""What the columns of a batch need besides their rows: ends and padding, generously."""


_BUSY_TURN_S = 0.005
"""A turn of the event loop that takes so long means that the processor is busy."""

_BUSY_LINGER_TURNS = 3
_BUSY_LINGER_S = 0.05
"""How long a batch waits at most because the processor is busy."""


class BatchSink(Protocol):
    """Where sealed batches go: the owner in this process, or a session with a proxy."""

    @property
    def name(self) -> PartitionName:
        """The partition."""
        ...

    @property
    def epoch(self) -> Epoch:
        """The owner epoch under which appends are answered."""
        ...

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of batches that are not answered."""
        ...

    @property
    def in_flight_count(self) -> int:
        """How many batches are not answered."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in flight."""
        ...

    @property
    def failure(self) -> GeologError | None:
        """Why nothing more can be appended, if so."""
        ...

    @property
    def unknown_count(self) -> int:
        """Records that may be in the log, and were not answered when it failed."""
        ...

    @property
    def acknowledged(self) -> PartitionState:
        """The partition after all that is answered."""
        ...

    def append_nowait(self, sealed: SealedBatch, terms: BatchTerms) -> Placed:
        """Take a batch in. ConflictError if it cannot have what its terms ask for."""
        ...


@attrs.frozen(kw_only=True)
class WriterConfig:
    """How records gather into batches, and how many may be in flight."""

    linger_s: float = 0.001
    """How long a batch may wait for more records while others are in flight."""

    batch_bytes: int = 256 * 1024
    """Bytes at which a batch is sealed. Larger ones cost less per record and wait longer."""

    in_flight_bytes: int = 32 * 1024 * 1024
    """Bytes that may be gathered, sent and not yet answered; beyond it appends wait."""

    def __attrs_post_init__(self) -> None:
        if not 0 <= self.linger_s < math.inf:
            raise InvalidArgumentError(f"linger_s is {self.linger_s}; it is a time from 0 on")
        largest = BATCH_BYTES_MAX - _BATCH_SPARE_BYTES
        if not 0 < self.batch_bytes <= largest:
            raise InvalidArgumentError(
                f"batch_bytes is {self.batch_bytes}; it lies between 1 and {largest}"
            )
        if self.in_flight_bytes < self.batch_bytes:
            raise InvalidArgumentError(
                f"in_flight_bytes {self.in_flight_bytes} is below batch_bytes"
                f" {self.batch_bytes}: no batch could ever be sent"
            )


class PartitionBatcher:
    """Fills, seals and sends batches for one partition.

    `seq_highest` is the highest seq of the session's writer that was taken in; the batch that
    is filled counts.
    """

    def __init__(
        self,
        taker: BatchSink,
        config: WriterConfig,
        *,
        session: WriterSession | None,
        now_us: Callable[[], int],
        on_refused: Callable[[], None],
    ) -> None:
        """`on_refused`: told when the taker refuses a batch, whose room is free then."""
        self.taker = taker
        self._config = config
        self._session = session
        self._now_us = now_us
        self._tell_refused = on_refused
        state = taker.acknowledged
        self._transaction_id = state.transaction_id
        self.seq_highest = (
            -1 if session is None else state.writer(session.writer_id).seq_highest
        )
        self._seq_taken = self.seq_highest  # By the owner; what is being filled does not count.
        self._refused_seq: int | None = None  # It comes again before any that is higher.
        self._filling: OpenBatch | None = None
        self.is_held_back = False
        """Whether the batch that is filled was to be sealed, and waits for an answer first."""
        self._has_filling = trio.Event()
        self._is_held = False  # The batch that is filled waits for the processor's sake.
        self._placed_last: Placed | None = None
        self.records_count = 0
        self.batches_count = 0

    def __repr__(self) -> str:
        return f"PartitionBatcher({self.taker.name}, {self.in_flight_bytes} bytes in flight)"

    @property
    def is_waiting(self) -> bool:
        """Whether it takes nothing in before an answer comes; other lanes say nothing of it."""
        return self.is_held_back and self.taker.failure is None

    @property
    def in_flight_bytes(self) -> int:
        """Bytes that are gathered, or sent and not answered."""
        filling_bytes = self._filling.size_bytes if self._filling is not None else 0
        return self.taker.in_flight_bytes + filling_bytes

    def check(self, fields: RecordFields) -> None:
        """ConflictError if the record's numbers go back."""
        number, highest = fields.transaction_id, self._transaction_id
        if number is not None and highest is not None and number < highest:
            raise ConflictError(
                f"transaction id {number} goes back: {self.taker.name} has {highest} already"
            )
        if fields.seq is not None and fields.seq <= self.seq_highest:
            raise ConflictError(
                f"seq {fields.seq} goes back: {self.seq_highest} was appended to"
                f" {self.taker.name} already"
            )
        if fields.seq is not None:
            self._check_refused(fields.seq)

    def _check_refused(self, seq: int) -> None:
        """ConflictError if one before it was refused: that one could never be appended."""
        if self._refused_seq is not None and seq > self._refused_seq:
            raise ConflictError(
                f"seq {self._refused_seq} was refused: append it again before seq {seq}"
            )

    def has_room(self, fields: RecordFields, size_bytes: int) -> bool:
        """Whether the record can be taken in before another batch is answered."""
        if self._may_send() or self._filling is None:
            return True
        return self._filling.goes_on_with(fields, size_bytes, self._config.batch_bytes)

    def _may_send(self) -> bool:
        """Whether one more batch would be remembered with all that are unanswered."""
        return self._session is None or self.taker.in_flight_count < BATCHES_REMEMBERED

    def gather(self, fields: RecordFields, size_bytes: int) -> tuple[OpenBatch, int]:
        """Take in a record that was checked, and has room: its batch, and its slot in it."""
        filling = self._filling
        if filling is not None and not filling.goes_on_with(
            fields, size_bytes, self._config.batch_bytes
        ):
            self.seal()
            filling = None
        if filling is None:
            filling = self._filling = OpenBatch(fields.expect_sequence)
        slot = filling.add(fields, created_us=self._now_us(), size_bytes=size_bytes)
        if fields.transaction_id is not None:
            self._transaction_id = fields.transaction_id
        if fields.seq is not None:
            self.seq_highest = fields.seq
        if filling.size_bytes >= self._config.batch_bytes:
            self.seal()
        return filling, slot

    def send_soon(self) -> None:
        """Seal the batch that is filled when nothing is in flight, or after a while."""
        self._has_filling.set()

    def on_answered(self) -> None:
        """Batches were answered: one that was held back goes, or one that nothing is before."""
        if self.is_held_back:
            self.seal()
        else:
            self.seal_if_idle()

    def seal_if_idle(self) -> bool:
        """Seal the batch that is filled if nothing is in flight to wait behind."""
        if self._is_held or not self.taker.is_idle:
            return False
        self.seal()
        return True

    def seal(self) -> None:
        """Seal the batch that is filled, and send it, now or once one is answered."""
        filling = self._filling
        self.is_held_back = filling is not None and not self._may_send()
        if filling is None or self.is_held_back:
            return
        self._filling = None
        self.records_count += len(filling.values)
        self.batches_count += 1
        try:
            if filling.seqs is not None:
                self._check_refused(filling.seqs.first)
            sealed = seal_batch(
                filling.values,
                created_us=filling.created_us,
                keys=filling.keys,
                transaction_ids=filling.transaction_ids,
                headers=filling.headers,
            )
            filling.placed = self._placed_last = self.taker.append_nowait(
                sealed, filling.terms(self._session)
            )
        except GeologError as error:
            filling.error = error
            self._on_refused(filling)
            self._tell_refused()
        else:
            self._on_taken(filling)
        filling.values = []  # The sealed bytes have them.
        filling.sealed.set()

    def _on_taken(self, taken: OpenBatch) -> None:
        if taken.seqs is not None:
            self._refused_seq = None
            self._seq_taken = taken.seqs.last

    def _on_refused(self, refused: OpenBatch) -> None:
        """Nothing of a batch is in the log: its seqs are free, and the first of them is due."""
        if refused.seqs is None:
            return
        if self._refused_seq is None or refused.seqs.first < self._refused_seq:
            self._refused_seq = refused.seqs.first
        self.seq_highest = self._seq_taken

    async def flush(self) -> None:
        """Wait until all that was gathered is answered. Raises what stopped the lane, if so."""
        filling = self._filling
        self.seal()
        placed = self._placed_last
        if filling is not None:
            if not filling.sealed.is_set():  # It is held back.
                await filling.sealed.wait()
            placed = filling.placed or placed
        if placed is not None:
            await placed.done.wait()
        self._raise_failure()

    def _raise_failure(self) -> None:
        """Raise what stopped the lane, if so, with what is not known of all that was sent."""
        failure, count = self.taker.failure, self.taker.unknown_count
        if failure is None:
            return
        if not count:
            raise failure
        records = "1 record that was" if count == 1 else f"{count} records that were"
        raise told_as_unknown(failure, f"{failure}; {records} not answered may be in the log")

    async def run_linger(self) -> None:
        """Seal batches that do not fill up by themselves; never returns."""
        while True:
            await self._has_filling.wait()
            self._has_filling = trio.Event()
            filling = self._filling
            if filling is None:
                continue
            await trio.lowlevel.checkpoint()  # Who appends in this same turn joins the batch.
            linger_s = self._linger_s(turn_s=(self._now_us() - filling.created_us[0]) / 1e6)
            if linger_s > 0:
                with trio.move_on_after(linger_s):
                    await filling.sealed.wait()
            self._is_held = False
            if self._filling is filling:
                self.seal()

    def _linger_s(self, *, turn_s: float) -> float:
        """How long a batch waits for more records, when a turn of all tasks takes so long.

        A batch costs the processor much the same whatever is in it. A long turn means that all
        wait for the processor: then a few turns more make larger batches, and so more records a
        second for everybody.
        """
        linger_s = 0.0 if self.taker.is_idle else self._config.linger_s
        self._is_held = turn_s >= _BUSY_TURN_S
        if not self._is_held:
            return linger_s
        return max(linger_s, min(_BUSY_LINGER_TURNS * turn_s, _BUSY_LINGER_S))
