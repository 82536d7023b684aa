"""Batches on their way to a partition's owner over channels that come and go.

Theory of operation. Batches are sent in order on the open channel, numbered from 0, and
answered in the same order. The channel has credit: a batch that exceeds it waits for answers to
those before it, unless there are none. When the channel ends, each batch without an answer is
one of three:

- The proxy did not take it: it is certainly not in the log, and is sent again.
- The proxy took it, and a named writer numbered its records: it is sent again, because the
  owner recognises what the log has already.
- The proxy took it, and its records have no numbers: it may be in the log, so its outcome is
  unknown. It is never sent again.

Batches that are sent again go first on the next channel, in the same order.

Invariants: no batch is answered twice; a batch without numbers is taken by at most one owner;
batches are sent in the order in which they were accepted; no more is unanswered on a channel
than its credit, or one batch.

Rules: PROTOCOL S23 and S30.
"""

from collections import deque
from typing import Generic, TypeVar

import attrs

from topology.errors import DamagedBytesError

T = TypeVar("T")


class AnswerOutOfOrderError(DamagedBytesError):
    """An answer came for another batch than the first that has none."""


@attrs.define(eq=False)
class _Kept(Generic[T]):
    batch: T
    is_numbered: bool
    size_bytes: int


UNANSWERED_MAX = 1024
"""Batches that a channel may have without an answer, whatever their sizes."""


class SentBatches(Generic[T]):
    """The batches without an answer, and which of them are on the open channel."""

    def __init__(self) -> None:
        self._unanswered: deque[_Kept[T]] = deque()
        self._is_open = False
        self._answered_count = 0  # On the open channel.
        self._sent_count = 0  # On the open channel, answered ones included.
        self._credit_bytes = 0
        self._sent_bytes = 0  # On the open channel, without an answer.

    def __repr__(self) -> str:
        return f"SentBatches({len(self._unanswered)} unanswered, open: {self._is_open})"

    def __len__(self) -> int:
        return len(self._unanswered)

    def accept(self, batch: T, *, is_numbered: bool, size_bytes: int) -> None:
        """Take a batch in; `next_to_send` says when to send it."""
        self._unanswered.append(_Kept(batch, is_numbered, size_bytes))

    def next_to_send(self) -> tuple[int, T] | None:
        """The number of the next batch to send now, and the batch; ask again until None.

        It counts as sent. Ask when a batch was accepted or answered, or a channel opened.
        """
        place = self._sent_count - self._answered_count
        if not self._is_open or not place < min(len(self._unanswered), UNANSWERED_MAX):
            return None
        kept = self._unanswered[place]
        if place and self._sent_bytes + kept.size_bytes > self._credit_bytes:
            return None
        self._sent_bytes += kept.size_bytes
        self._sent_count += 1
        return self._sent_count - 1, kept.batch

    def on_opened(self, *, credit_bytes: int) -> None:
        """A channel is open, with this credit."""
        assert not self._is_open, "another channel is open"
        self._is_open = True
        self._answered_count = self._sent_count = self._sent_bytes = 0
        self._credit_bytes = credit_bytes

    def on_answer(self, number: int) -> T:
        """The answer to a batch has come: the batch. AnswerOutOfOrderError."""
        if not self._is_open or number != self._answered_count or number >= self._sent_count:
            raise AnswerOutOfOrderError(
                f"batch {number} was answered; the next answer is due for"
                f" {self._answered_count} of {self._sent_count}"
            )
        self._answered_count += 1
        kept = self._unanswered.popleft()
        self._sent_bytes -= kept.size_bytes
        return kept.batch

    def on_closed(self, taken_count: int | None = None) -> list[T]:
        """The channel has ended: the batches whose outcome is unknown, now and for ever.

        taken_count: how many batches of this channel the proxy took; None if it did not tell,
        so that it may have taken all.
        """
        assert self._is_open, "no channel is open"
        self._is_open = False
        if taken_count is None:
            taken_count = self._sent_count
        in_doubt = max(0, min(taken_count, self._sent_count) - self._answered_count)
        unknown: list[T] = []
        left: deque[_Kept[T]] = deque()
        for place, kept in enumerate(self._unanswered):
            if place < in_doubt and not kept.is_numbered:
                unknown.append(kept.batch)
            else:
                left.append(kept)
        self._unanswered = left
        return unknown

    def give_up(self) -> list[T]:
        """No channel will be opened any more: all batches without an answer."""
        given_up = [kept.batch for kept in self._unanswered]
        self._unanswered.clear()
        self._is_open = False
        return given_up
