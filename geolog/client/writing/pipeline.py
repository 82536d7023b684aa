"""Appends with many records in flight, and takes the answers in order.

One task pushes records, another takes answers; each waits only when it has nothing to do. The
writer's window bounds the appends in flight. Repeats of records in the log are in no window, so
they have a bound here.
"""

# An append in flight costs one number in an array, not an object. Python's garbage collector
# would visit tens of thousands of objects again and again: with a hundred writers in a process
# that took a quarter of its processor time.

from array import array
from collections import deque
from collections.abc import Iterator, Mapping, MutableSequence, Sequence
from contextlib import suppress
from functools import partial

import attrs
import trio

from geolog.client.writing.record_fields import RecordFields
from geolog.client.writing.writer import Writer
from geolog.client.writing.writer_pending import NewRecord, Pending, Receipt, RepeatedRecord
from geolog.partition.repeated_batch import ForgottenSeqError
from topology.errors import GeologError

REPEATS_MAX = 1024
"""Bound of repeated records whose answers nobody has taken."""


@attrs.frozen
class AnsweredRun:
    """Appends that succeeded together: neighbours in one batch, or a single one.

    Appends without an answer count as neighbours.
    """

    first: Receipt | None
    """The place of the first append; None if it was not requested or is forgotten."""
    started_s: Sequence[float]
    """When each append was called, on trio's clock."""
    size_bytes: int
    """Total size of the values."""
    is_duplicate: bool = False
    """Whether the log had them before."""

    def __len__(self) -> int:
        return len(self.started_s)

    def receipt(self, place: int) -> Receipt | None:
        """The receipt of append number `place`, from 0."""
        first = self.first
        if first is None or place == 0:
            return first
        return first.behind(place)

    def receipts(self) -> Iterator[Receipt | None]:
        """The receipts of all appends."""
        return map(self.receipt, range(len(self)))


@attrs.define(eq=False)
class _Run:
    """Appends that are answered together: neighbours in one batch, or a single one."""

    first: Pending | None
    """None if nobody waits for an answer."""
    is_duplicate: bool
    is_repeat: bool
    """Whether its writer has or had the record in the log."""
    is_forgotten_skipped: bool
    """Whether a forgotten record counts as a duplicate."""
    started_s: MutableSequence[float] = attrs.field(factory=partial(array, "d"))
    size_bytes: int = 0

    def goes_on_with(self, pending: Pending | None) -> bool:
        """Whether the next append will be answered with these."""
        first = self.first
        return (
            isinstance(pending, NewRecord)
            and isinstance(first, NewRecord)
            and pending.batch is first.batch
            and pending.slot == first.slot + len(self.started_s)
        )

    @property
    def is_done(self) -> bool:
        """Whether the answers have arrived."""
        return self.first is None or self.first.is_done

    def answers_nowait(self) -> AnsweredRun:
        """The answers. Raises the error of the appends if they failed."""
        receipt, is_duplicate = None, self.is_duplicate
        try:
            receipt = None if self.first is None else self.first.receipt_nowait()
        except ForgottenSeqError:
            if not self.is_forgotten_skipped:
                raise
            is_duplicate = True
        is_duplicate = is_duplicate or (receipt is not None and receipt.duplicate)
        return AnsweredRun(receipt, self.started_s, self.size_bytes, is_duplicate)


class Pipeline:
    """Appends to one writer, with as many records in flight as its window allows."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._runs: deque[_Run] = deque()
        self._unanswered_count = 0
        self._repeats_count = 0  # How many of those are repeats.
        self._is_closed = False
        self._changed = trio.Event()
        self._taken = trio.Event()

    def __repr__(self) -> str:
        return f"<Pipeline unanswered={self._unanswered_count} closed={self._is_closed}>"

    @property
    def unanswered_count(self) -> int:
        """How many pushed appends have answers that nobody has taken."""
        return self._unanswered_count

    async def push(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        transaction_id: int | None = None,
        local_only: bool = False,
        seq: int | None = None,
        expect_sequence: int | None = None,
        is_answered: bool = True,
        is_forgotten_skipped: bool = False,
    ) -> Pending | None:
        """Append without waiting for the answer; wait only while there is no room.

        Without `is_answered` the answer has no place. With `is_forgotten_skipped` a seq that
        was appended and forgotten counts as a duplicate. Returns the append, to wait for it
        separately; None if it has no answer.
        """
        while self._repeats_count >= REPEATS_MAX:
            await self._taken.wait()
        started_s = trio.current_time()
        is_numbered = transaction_id is not None or seq is not None
        if headers is None and expect_sequence is None and not (is_numbered or local_only):
            plain = self._writer.append_plain_nowait(value, key)
            if plain is not None:
                return self._add(plain if is_answered else None, started_s, len(value))
        fields = RecordFields(
            value=value, key=key, headers=headers, transaction_id=transaction_id, seq=seq,
            expect_sequence=expect_sequence, local_only=local_only,
        )  # fmt: skip
        pending, is_duplicate = None, False
        while pending is None and not is_duplicate:
            try:
                pending = self._writer.append_fields_nowait(fields)
            except trio.WouldBlock:
                await self._writer.wait_writable()
            except ForgottenSeqError:
                if not is_forgotten_skipped:
                    raise
                is_duplicate = True
        answer = pending if is_answered else None
        is_repeat = is_duplicate or isinstance(pending, RepeatedRecord)
        return self._add(
            answer, started_s, len(value),
            is_duplicate=is_duplicate, is_repeat=is_repeat,
            is_forgotten_skipped=is_forgotten_skipped,
        )  # fmt: skip

    def _add(
        self,
        answer: Pending | None,
        started_s: float,
        size_bytes: int,
        *,
        is_duplicate: bool = False,
        is_repeat: bool = False,
        is_forgotten_skipped: bool = False,
    ) -> Pending | None:
        """Note an append that is in flight; return its answer."""
        runs = self._runs
        if not (runs and runs[-1].goes_on_with(answer)):
            runs.append(_Run(answer, is_duplicate, is_repeat, is_forgotten_skipped))
            self._repeats_count += is_repeat
        run = runs[-1]
        run.started_s.append(started_s)
        run.size_bytes += size_bytes
        self._unanswered_count += 1
        if self._unanswered_count == 1:
            self._wake()
        return answer

    def close(self) -> None:
        """End the pushes; the answers end after those still due."""
        self._is_closed = True
        self._wake()

    async def next_answers(self) -> list[AnsweredRun]:
        """Wait for the next answers, and take all that have arrived. [] at the end.

        Raises the error of the first append that failed, once the answers before it are taken;
        later appends stay unanswered.
        """
        while not self._runs:
            if self._is_closed:
                return []
            await self._changed.wait()
        first = self._runs[0].first
        if first is not None:
            with suppress(ForgottenSeqError):  # Handled below.
                await first.wait()
        answers: list[AnsweredRun] = []
        while self._runs and self._runs[0].is_done:
            try:
                answers.append(self._runs[0].answers_nowait())
            except GeologError:
                if not answers:
                    raise
                break
            self._forget(self._runs.popleft())
        return answers

    def _forget(self, run: _Run) -> None:
        """Drop a run whose answers were taken."""
        self._unanswered_count -= len(run.started_s)
        self._repeats_count -= run.is_repeat
        self._taken.set()
        self._taken = trio.Event()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
