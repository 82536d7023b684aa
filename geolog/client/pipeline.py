"""Appends with many in flight, and takes the answers in order.

One task pushes, another takes answers; both wait only when there is nothing to do. The bound on
what is in flight is the writer's own.
"""

from collections import deque
from collections.abc import Mapping

import attrs
import trio

from geolog.client.writer import Pending, Receipt, Writer


@attrs.frozen
class Answered:
    """One append that was answered OK."""

    receipt: Receipt
    started_s: float
    """When it was called, by trio's clock."""
    size_bytes: int


@attrs.frozen
class _Sent:
    pending: Pending
    started_s: float
    size_bytes: int


class Pipeline:
    """Appends to one writer, with as many in flight as it lets."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._sent: deque[_Sent] = deque()
        self._is_closed = False
        self._changed = trio.Event()

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
    ) -> None:
        """Append without waiting for the answer; waits only while the window is full."""
        started_s = trio.current_time()
        pending = None
        while pending is None:
            try:
                pending = self._writer.append_nowait(
                    value, key=key, headers=headers, transaction_id=transaction_id
                )
            except trio.WouldBlock:
                await self._writer.wait_writable()
        self._sent.append(_Sent(pending, started_s, len(value)))
        if len(self._sent) == 1:
            self._wake()

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
        await self._sent[0].pending.wait()
        answers = []
        while self._sent and self._sent[0].pending.is_done:
            sent = self._sent[0]
            answers.append(
                Answered(sent.pending.receipt_nowait(), sent.started_s, sent.size_bytes)
            )
            self._sent.popleft()
        return answers

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
