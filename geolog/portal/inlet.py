"""Appends on their way from any thread into a writer of the trio thread, and their answers.

Theory of operation. A caller puts a record into the queue; only the first one into an empty
queue wakes the trio thread, which takes all that have gathered by then. Answers come back the
same way: those who wait are woken together, once per batch. What is queued and in flight
counts against one bound of bytes, kept where the callers are, so they wait before the memory
is taken.

Invariants:
1. An append is QUEUED, then SENT or withdrawn; it is sent at most once, in the order of puts.
2. `unanswered_bytes` counts every append that is neither answered nor withdrawn.
3. Once closed, nothing is queued, and every append is done.
"""

import enum
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Generic, TypeVar

import attrs
import trio

from geolog.background import open_background
from geolog.client.writing.record_fields import RecordFields, size_of
from geolog.client.writing.writer import Writer
from geolog.client.writing.writer_pending import Pending, Receipt
from geolog.portal.call import CLOSED
from geolog.portal.trio_thread import TrioThread
from geolog.protocol.append_failure import told_of_record
from topology.errors import ClosedError, GeologError, OutcomeUnknownError, TooLargeError

W = TypeVar("W")

_RECORDS_PER_TURN_MAX = 512
"""So many are handed over before other tasks of the trio thread have their turn."""


class Stage(enum.Enum):
    """How far an append has come."""

    QUEUED = enum.auto()
    SENT = enum.auto()
    DONE = enum.auto()


@attrs.define(eq=False)
class QueuedAppend(Generic[W]):
    """One record, and what becomes of it."""

    fields: RecordFields | None
    """None once the writer has them."""
    size_bytes: int
    is_posted: bool = False
    """Whether nobody waits for its answer."""
    stage: Stage = Stage.QUEUED
    pending: Pending | None = None
    error: GeologError | None = None
    waiters: list[W] = attrs.field(factory=list)

    @property
    def is_answered(self) -> bool:
        """Whether the answer is there, told or not."""
        return self.error is not None or (self.pending is not None and self.pending.is_done)

    @property
    def is_done(self) -> bool:
        """Whether it is answered or was taken back, and those who wait are told."""
        return self.stage is Stage.DONE

    def receipt_nowait(self) -> Receipt:
        """The answer; trio.WouldBlock if it is not there."""
        if self.stage is not Stage.DONE:
            raise trio.WouldBlock
        if self.error is not None:
            raise self.error
        assert self.pending is not None, "an append that is done was sent or has failed"
        return self.pending.receipt_nowait()


class Inlet(Generic[W]):
    """The queue before one writer. W: what a caller waits by; `wake` wakes some of them."""

    def __init__(
        self,
        thread: TrioThread,
        *,
        in_flight_bytes: int,
        wake: Callable[[Sequence[W]], None],
    ) -> None:
        self._thread = thread
        self._in_flight_bytes_max = in_flight_bytes
        self._wake = wake
        self._lock = threading.Lock()
        self._queued: deque[QueuedAppend[W]] = deque()
        self._unanswered_bytes = 0
        self._blocked_bytes = 0  # Of the append that last found no room.
        self._room_waiters: list[W] = []
        self._is_closed = False
        self._refused_post: GeologError | None = None
        self._has_queued = trio.Event()
        self._has_sent = trio.Event()
        self._progress = trio.Event()
        self._sent: deque[QueuedAppend[W]] = deque()

    def __repr__(self) -> str:
        return f"<Inlet {self._unanswered_bytes} of {self._in_flight_bytes_max} bytes>"

    @property
    def unanswered_bytes(self) -> int:
        """Bytes of what was put in and not answered."""
        return self._unanswered_bytes

    # ------------------------------------------------------------ from any thread

    def put_nowait(self, fields: RecordFields, *, is_posted: bool = False) -> QueuedAppend[W]:
        """Put a record in; trio.WouldBlock when there is no room for it.

        TooLargeError, InvalidArgumentError, ClosedError: it was not put in. So it is when this
        raises why a posted record before it was refused.
        """
        self._thread.check_usable()
        size_bytes = size_of(fields)
        if fields.headers is not None:
            fields.headers = dict(fields.headers)  # The caller's may change.
        append: QueuedAppend[W] = QueuedAppend(fields, size_bytes, is_posted)
        with self._lock:
            if self._is_closed:
                raise _closed_before_it_was_sent(fields, CLOSED)
            self._raise_refused_post()
            if self._unanswered_bytes + size_bytes > self._in_flight_bytes_max:
                self._check_fits_window(size_bytes)
                self._blocked_bytes = size_bytes
                raise trio.WouldBlock
            is_first = not self._queued
            self._queued.append(append)
            self._unanswered_bytes += size_bytes
        if is_first:
            with suppress(ClosedError):  # Then the inlet is closed, and the append has failed.
                self._thread.post(self._on_queued)
        return append

    def _check_fits_window(self, size_bytes: int) -> None:
        if size_bytes > self._in_flight_bytes_max:
            raise TooLargeError(
                f"a record of {size_bytes} bytes is over in_flight_bytes, which is"
                f" {self._in_flight_bytes_max}: open the writer with a larger one"
            )

    def withdraw(self, append: QueuedAppend[W]) -> bool:
        """Take an append back that was not sent yet. False: it may be in the log."""
        self._thread.check_usable()
        with self._lock:
            if append.stage is not Stage.QUEUED:
                return False
            append.error = _closed_before_it_was_sent(
                append.fields, "it was taken back before it was sent"
            )
            woken = self._finish([append])
        self._wake(woken)
        return True

    def wait_done(self, append: QueuedAppend[W], waiter: W) -> bool:
        """Have the waiter woken when the append is done. False: it is done."""
        self._thread.check_usable()
        with self._lock:
            if append.stage is Stage.DONE:
                return False
            append.waiters.append(waiter)
            return True

    def wait_room(self, waiter: W) -> bool:
        """Have the waiter woken when there may be room. False: there is, or it is closed."""
        self._thread.check_usable()
        with self._lock:
            needed_bytes = self._unanswered_bytes + self._blocked_bytes
            if self._is_closed or needed_bytes <= self._in_flight_bytes_max:
                return False
            self._room_waiters.append(waiter)
            return True

    def forget(self, waiter: W, append: QueuedAppend[W] | None = None) -> None:
        """The waiter waits no more."""
        self._thread.check_usable()
        waiters = self._room_waiters if append is None else append.waiters
        with self._lock, suppress(ValueError):  # It was woken just now.
            waiters.remove(waiter)

    # ------------------------------------------------------------ in the trio thread

    @asynccontextmanager
    async def open(self, opening: AbstractAsyncContextManager[Writer]) -> AsyncIterator[Writer]:
        """A writer that is fed from here. A block that ends well flushes."""
        try:
            async with opening as writer, open_background() as nursery:
                nursery.start_soon(self._hand_over, writer, name="appends to the writer")
                nursery.start_soon(self._answer, name="answers of the writer")
                yield writer
                await self.flush(writer)
        finally:
            self._close()

    async def flush(self, writer: Writer) -> None:
        """Wait until all that is queued now is acknowledged. Raises what stopped the writer."""
        with self._lock:
            last = (self._queued or self._sent or [None])[-1]
        if last is not None:
            await self._wait_until(lambda: last.stage is not Stage.QUEUED)
        await writer.flush()
        if last is not None:
            await self._wait_until(lambda: last.is_done)
        with self._lock:
            self._raise_refused_post()

    async def _wait_until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            await self._progress.wait()

    def _on_queued(self) -> None:
        self._has_queued.set()

    def _on_progress(self) -> None:
        progress, self._progress = self._progress, trio.Event()
        progress.set()

    async def _hand_over(self, writer: Writer) -> None:
        while True:
            await self._has_queued.wait()
            self._has_queued = trio.Event()
            while await self._hand_over_some(writer):
                await trio.lowlevel.checkpoint()

    async def _hand_over_some(self, writer: Writer) -> bool:
        """Hand over what is queued, or a turn's worth. False: nothing is left."""
        for _ in range(_RECORDS_PER_TURN_MAX):
            append = self._queued[0] if self._queued else None
            if append is None:
                break
            if append.stage is Stage.QUEUED and not self._send(writer, append):
                self._has_sent.set()
                await writer.wait_writable()
                continue
            with self._lock:
                self._queued.popleft()
        self._has_sent.set()
        self._on_progress()
        return bool(self._queued)

    def _send(self, writer: Writer, append: QueuedAppend[W]) -> bool:
        """Give one append to the writer. False: its window is full."""
        with self._lock:  # Nobody withdraws it meanwhile.
            if append.stage is not Stage.QUEUED:
                return True
            assert append.fields is not None, "what is queued has its fields"
            try:
                append.pending = writer.append_fields_nowait(append.fields)
            except trio.WouldBlock:
                return False
            except GeologError as error:
                append.error = error
                if append.is_posted and self._refused_post is None:
                    self._refused_post = error
            append.stage = Stage.SENT
        append.fields = None
        self._sent.append(append)
        return True

    async def _answer(self) -> None:
        while True:
            while not self._sent:
                self._has_sent = trio.Event()
                await self._has_sent.wait()
            await self._settle_first(self._sent[0])
            self._tell_answered()

    async def _settle_first(self, append: QueuedAppend[W]) -> None:
        if append.pending is None:
            return  # The writer has refused it.
        try:
            await append.pending.wait()
        except GeologError as error:
            append.error = error  # It is raised where the caller waits.

    def _tell_answered(self) -> None:
        answered = []
        while self._sent and self._sent[0].is_answered:
            answered.append(self._sent.popleft())
        with self._lock:
            woken = self._finish(answered)
        self._wake(woken)
        self._on_progress()

    def _close(self) -> None:
        """Say of all that is not done what is known of it."""
        with self._lock:
            self._is_closed = True
            for append in self._queued:
                if append.stage is Stage.QUEUED:
                    append.error = _closed_before_it_was_sent(
                        append.fields, "the writer was closed before it was sent"
                    )
            for append in self._sent:
                if not append.is_answered:
                    append.error = OutcomeUnknownError(
                        "the writer was closed before it was answered"
                    )
            left = [one for one in self._queued if one.stage is Stage.QUEUED] + [*self._sent]
            self._queued.clear()
            self._sent.clear()
            woken = self._finish(left)
        self._wake(woken)

    # ------------------------------------------------------------ under the lock

    def _raise_refused_post(self) -> None:
        """A record that nobody waits for was refused: whoever comes next is told."""
        error, self._refused_post = self._refused_post, None
        if error is not None:
            raise error

    def _finish(self, appends: Sequence[QueuedAppend[W]]) -> Sequence[W]:
        """Mark them done; gives all who are to be woken."""
        woken, self._room_waiters = self._room_waiters, []
        for append in appends:
            append.stage = Stage.DONE
            self._unanswered_bytes -= append.size_bytes
            if append.waiters:
                woken.extend(append.waiters)
                append.waiters = []
        return woken


def _closed_before_it_was_sent(fields: RecordFields | None, why: str) -> GeologError:
    """Nothing of the record was sent now. With a number of its own it may be in the log."""
    is_numbered = fields is not None and fields.seq is not None
    return told_of_record(ClosedError(why), is_numbered=is_numbered)
