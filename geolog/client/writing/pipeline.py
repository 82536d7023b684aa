"""Appends with many in flight, and takes the answers in order.

One task pushes, another takes answers; both wait only when there is nothing to do. The bound on
what is in flight is the writer's own; what was in the log before is in no window, and has a
bound here.

Of an append on its way nothing is kept but a number in an array. An object for each, tens of
thousands of them, would be looked at by Python's garbage collector again and again: with a
hundred writers in a process that took a quarter of its processor time.
"""

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
from geolog.client.writing.writer_repeats import ForgottenSeqError
from topology.errors import GeologError

REPEATS_MAX = 1024
"""Records that were in the log before, and whose answers were not taken."""


@attrs.frozen
class AnsweredRun:
    """Appends that were answered OK together: neighbours in one batch, or one alone.

    So is one for which no answer was asked.
    """

    first: Receipt | None
    """The place of the first; None where it was not asked for, or is not remembered."""
    started_s: Sequence[float]
    """When each was called, by trio's clock."""
    size_bytes: int
    """Of their values together."""
    is_duplicate: bool = False
    """Whether they were in the log before."""

    def __len__(self) -> int:
        return len(self.started_s)

    def receipt(self, place: int) -> Receipt | None:
        """Where one of them is; `place` counts from 0."""
        first = self.first
        if first is None or place == 0:
            return first
        return first.behind(place)

    def receipts(self) -> Iterator[Receipt | None]:
        """Where each of them is."""
        return map(self.receipt, range(len(self)))


@attrs.define(eq=False)
class _Run:
    """Appends that are answered together: neighbours in one batch, or one alone."""

    first: Pending | None
    """None if there is nothing to wait for."""
    is_duplicate: bool
    is_repeat: bool
    """Whether its writer has it in the log, or had it."""
    is_forgotten_skipped: bool
    """Whether it is a duplicate if it turns out to be appended, and gone."""
    started_s: MutableSequence[float] = attrs.field(factory=partial(array, "d"))
    size_bytes: int = 0

    def goes_on_with(self, pending: Pending | None) -> bool:
        """Whether the next append is answered with these."""
        first = self.first
        return (
            isinstance(pending, NewRecord)
            and isinstance(first, NewRecord)
            and pending.batch is first.batch
            and pending.slot == first.slot + len(self.started_s)
        )

    def add(self, started_s: float, size_bytes: int) -> None:
        """One more."""
        self.started_s.append(started_s)
        self.size_bytes += size_bytes

    @property
    def is_done(self) -> bool:
        """Whether there is nothing to wait for."""
        return self.first is None or self.first.is_done

    def answers_nowait(self) -> AnsweredRun:
        """The answers, which are there. Raises what became of the appends, if they failed."""
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
    """Appends to one writer, with as many in flight as it lets."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._runs: deque[_Run] = deque()
        self._unanswered_count = 0
        self._repeats_count = 0  # Of those.
        self._is_closed = False
        self._changed = trio.Event()
        self._taken = trio.Event()

    def __repr__(self) -> str:
        return f"<Pipeline unanswered={self._unanswered_count} closed={self._is_closed}>"

    @property
    def unanswered_count(self) -> int:
        """How many appends were pushed whose answers were not taken."""
        return self._unanswered_count

    async def push(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        transaction_id: int | None = None,
        seq: int | None = None,
        expect_sequence: int | None = None,
        is_answered: bool = True,
        is_forgotten_skipped: bool = False,
    ) -> Pending | None:
        """Append without waiting for the answer; waits only while there is no room.

        Without `is_answered` its answer does not say where it is. With `is_forgotten_skipped` a
        `seq` that was appended, and is not remembered, is answered as a duplicate. Returns what
        can be waited for beside the answers, if anything can.
        """
        while self._repeats_count >= REPEATS_MAX:
            await self._taken.wait()
        started_s = trio.current_time()
        fields = RecordFields(
            value=value, key=key, headers=headers, transaction_id=transaction_id, seq=seq,
            expect_sequence=expect_sequence,
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
        if not (self._runs and self._runs[-1].goes_on_with(answer)):
            is_repeat = is_duplicate or isinstance(pending, RepeatedRecord)
            self._runs.append(_Run(answer, is_duplicate, is_repeat, is_forgotten_skipped))
            self._repeats_count += is_repeat
        self._runs[-1].add(started_s, len(value))
        self._unanswered_count += 1
        if self._unanswered_count == 1:
            self._wake()
        return answer

    def close(self) -> None:
        """Nothing more will be pushed: the answers end after those that are due."""
        self._is_closed = True
        self._wake()

    async def next_answers(self) -> list[AnsweredRun]:
        """Wait for the next answers; all behind them that are there come too. [] at the end.

        Raises what the first append that failed raises, once the answers before it were taken;
        those behind it stay unanswered.
        """
        while not self._runs:
            if self._is_closed:
                return []
            await self._changed.wait()
        first = self._runs[0].first
        if first is not None:
            with suppress(ForgottenSeqError):  # It is judged below.
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
        """Its answers were taken."""
        self._unanswered_count -= len(run.started_s)
        self._repeats_count -= run.is_repeat
        self._taken.set()
        self._taken = trio.Event()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
