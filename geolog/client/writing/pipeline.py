"""Appends with many in flight, and takes the answers in order.

One task pushes, another takes answers; both wait only when there is nothing to do. The bound on
what is in flight is the writer's own; what was in the log before is in no window, and has a
bound here.
"""

from collections import deque
from collections.abc import Mapping
from contextlib import suppress

import attrs
import trio

from geolog.client.writing.writer import Writer
from geolog.client.writing.writer_pending import Pending, Receipt, RepeatedRecord
from geolog.client.writing.writer_repeats import ForgottenSeqError

REPEATS_MAX = 1024
"""Records that were in the log before, and whose answers were not taken."""


@attrs.frozen
class Answered:
    """One append that was answered OK, or for which no answer was asked."""

    receipt: Receipt | None
    """Its place; None where it was not asked for, or is not remembered."""
    started_s: float
    """When it was called, by trio's clock."""
    size_bytes: int
    is_duplicate: bool = False
    """Whether it was in the log before."""


@attrs.frozen
class _Sent:
    pending: Pending | None
    """None if there is nothing to wait for."""
    is_duplicate: bool
    is_repeat: bool
    """Whether its writer has it in the log, or had it."""
    is_forgotten_skipped: bool
    """Whether it is a duplicate if it turns out to be appended, and gone."""
    started_s: float
    size_bytes: int

    @property
    def is_done(self) -> bool:
        """Whether there is nothing to wait for."""
        return self.pending is None or self.pending.is_done

    def answered_nowait(self) -> Answered:
        """The answer, which is there. Raises what became of the append, if it failed."""
        try:
            receipt = None if self.pending is None else self.pending.receipt_nowait()
        except ForgottenSeqError:
            if not self.is_forgotten_skipped:
                raise
            return Answered(None, self.started_s, self.size_bytes, is_duplicate=True)
        is_duplicate = self.is_duplicate or (receipt is not None and receipt.duplicate)
        return Answered(receipt, self.started_s, self.size_bytes, is_duplicate)


class Pipeline:
    """Appends to one writer, with as many in flight as it lets."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._sent: deque[_Sent] = deque()
        self._repeats_count = 0  # Of those.
        self._is_closed = False
        self._changed = trio.Event()
        self._taken = trio.Event()

    def __repr__(self) -> str:
        return f"<Pipeline unanswered={len(self._sent)} closed={self._is_closed}>"

    @property
    def unanswered_count(self) -> int:
        """How many appends were pushed whose answers were not taken."""
        return len(self._sent)

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
        pending, is_duplicate = None, False
        while pending is None and not is_duplicate:
            try:
                pending = self._writer.append_nowait(
                    value,
                    key=key,
                    headers=headers,
                    transaction_id=transaction_id,
                    seq=seq,
                    expect_sequence=expect_sequence,
                )
            except trio.WouldBlock:
                await self._writer.wait_writable()
            except ForgottenSeqError:
                if not is_forgotten_skipped:
                    raise
                is_duplicate = True
        answer = pending if is_answered else None
        is_repeat = is_duplicate or isinstance(pending, RepeatedRecord)
        self._repeats_count += is_repeat
        self._sent.append(
            _Sent(answer, is_duplicate, is_repeat, is_forgotten_skipped, started_s, len(value))
        )
        if len(self._sent) == 1:
            self._wake()
        return answer

    def close(self) -> None:
        """Nothing more will be pushed: the answers end after those that are due."""
        self._is_closed = True
        self._wake()

    async def next_answers(self) -> list[Answered]:
        """Wait for the next answer; all behind it that are there come too. [] at the end.

        Raises what the first append that failed raises; those behind it stay unanswered.
        """
        while not self._sent:
            if self._is_closed:
                return []
            await self._changed.wait()
        first = self._sent[0].pending
        if first is not None:
            with suppress(ForgottenSeqError):  # It is judged below.
                await first.wait()
        answers = []
        while self._sent and self._sent[0].is_done:
            answers.append(self._sent[0].answered_nowait())
            self._repeats_count -= self._sent.popleft().is_repeat
        self._taken.set()
        self._taken = trio.Event()
        return answers

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
