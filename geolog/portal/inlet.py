"""Queue of appends from any thread to a writer in the trio thread, and of their answers.

Theory of operation. A caller puts a record into the queue. Only a record put into an empty
queue wakes the trio thread, which then takes everything queued so far. Answers return the same
way: all waiting callers are woken together, once per batch. Queued and in-flight records share
one bound in bytes. It is checked in the caller's thread, so a caller waits before its record
takes memory.

Invariants:
1. An append is QUEUED, then SENT or withdrawn; it is sent at most once, in the order of puts.
2. `unanswered_bytes` counts each append until it is answered or withdrawn.
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
from geolog.client.spooling.spooled_writer import SpooledWriter
from geolog.client.writing.record_fields import RecordFields, size_of
from geolog.client.writing.writer import Writer
from geolog.client.writing.writer_pending import Pending, Receipt
from geolog.portal.call import CLOSED
from geolog.portal.trio_thread import TrioThread
from geolog.protocol.append_failure import told_of_record
from topology.errors import ClosedError, GeologError, OutcomeUnknownError, TooLargeError

W = TypeVar("W")

_RECORDS_PER_TURN_MAX = 512
"""Hand over at most this many before other tasks of the trio thread run."""


class Stage(enum.Enum):
    """Stage of an append."""

    QUEUED = enum.auto()
    SENT = enum.auto()
    DONE = enum.auto()


@attrs.define(eq=False)
class QueuedAppend(Generic[W]):
    """One record to append, and its outcome."""

    fields: RecordFields | None
    """None once the writer has them."""
    size_bytes: int
    is_posted: bool = False
    """Whether it was posted, so nobody waits for its answer."""
    stage: Stage = Stage.QUEUED
    pending: Pending | None = None
    error: GeologError | None = None
    waiters: list[W] = attrs.field(factory=list)

    @property
    def is_answered(self) -> bool:
        """Whether the answer has arrived, even if no waiter knows yet."""
        return self.error is not None or (self.pending is not None and self.pending.is_done)

    @property
    def is_done(self) -> bool:
        """Whether it is answered or withdrawn, and its waiters are woken."""
        return self.stage is Stage.DONE

    @property
    def is_durable(self) -> bool:
        """Whether the record is on disk too, or the append has failed."""
        return self.is_done and (self.pending is None or self.pending.is_durable)

    def receipt_nowait(self) -> Receipt:
        """The answer. trio.WouldBlock if it has not arrived."""
        if self.stage is not Stage.DONE:
            raise trio.WouldBlock
        if self.error is not None:
            raise self.error
        assert self.pending is not None, "an append that is done was sent or has failed"
        return self.pending.receipt_nowait()


class Inlet(Generic[W]):
    """The queue in front of one writer. W: type of a waiter; `wake` wakes several waiters."""

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
        """Bytes of the appends that are neither answered nor withdrawn."""
        return self._unanswered_bytes

    # ------------------------------------------------------------ from any thread

    def put_nowait(self, fields: RecordFields, *, is_posted: bool = False) -> QueuedAppend[W]:
        """Queue a record. trio.WouldBlock if there is no room for it.

        TooLargeError, InvalidArgumentError, ClosedError: the record was not queued. If an
        earlier posted record was refused, this raises that error, and queues nothing.
        """
        self._thread.check_usable()
        size_bytes = size_of(fields)
        if fields.headers is not None:
            fields.headers = dict(fields.headers)  # The caller may change its own.
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
            with suppress(ClosedError):  # The inlet is closed, and has failed the append.
                self._thread.post(self._on_queued)
        return append

    def _check_fits_window(self, size_bytes: int) -> None:
        if size_bytes > self._in_flight_bytes_max:
            raise TooLargeError(
                f"the record takes {size_bytes} bytes; in_flight_bytes is"
                f" {self._in_flight_bytes_max}: pass a larger one to open_writer"
            )

    def withdraw(self, append: QueuedAppend[W]) -> bool:
        """Withdraw an append if it was not sent yet. False: it may be in the log."""
        self._thread.check_usable()
        with self._lock:
            if append.stage is not Stage.QUEUED:
                return False
            append.error = _closed_before_it_was_sent(
                append.fields, "the append was withdrawn before it was sent"
            )
            woken = self._finish([append])
        self._wake(woken)
        return True

    def wait_done(self, append: QueuedAppend[W], waiter: W) -> bool:
        """Wake the waiter when the append is done. False: it is done already."""
        self._thread.check_usable()
        with self._lock:
            if append.stage is Stage.DONE:
                return False
            append.waiters.append(waiter)
            return True

    def wait_room(self, waiter: W) -> bool:
        """Wake the waiter when there may be room. False: there is, or the queue is closed."""
        self._thread.check_usable()
        with self._lock:
            needed_bytes = self._unanswered_bytes + self._blocked_bytes
            if self._is_closed or needed_bytes <= self._in_flight_bytes_max:
                return False
            self._room_waiters.append(waiter)
            return True

    def forget(self, waiter: W, append: QueuedAppend[W] | None = None) -> None:
        """Drop a waiter that no longer waits."""
        self._thread.check_usable()
        waiters = self._room_waiters if append is None else append.waiters
        with self._lock, suppress(ValueError):  # It has just been woken.
            waiters.remove(waiter)

    # ------------------------------------------------------------ in the trio thread

    @asynccontextmanager
    async def open(self, opening: AbstractAsyncContextManager[Writer]) -> AsyncIterator[Writer]:
        """Open a writer and feed it from this queue. A block without an error flushes."""
        try:
            async with opening as writer, open_background() as nursery:
                nursery.start_soon(self._hand_over, writer, name="appends to the writer")
                nursery.start_soon(self._answer, name="answers of the writer")
                yield writer
                await self._finish_writer(writer)
        finally:
            self._close()

    async def flush(self, writer: Writer) -> None:
        """Wait until all queued appends are acknowledged. Raises what stopped the writer."""
        last = await self._hand_over_all()
        await writer.flush()
        if last is not None:
            await self._wait_until(lambda: last.is_done)
        with self._lock:
            self._raise_refused_post()

    async def wait_spooled(self, writer: Writer) -> None:
        """Wait until all queued appends are on the local disk. SpoolWriteError."""
        await self._hand_over_all()
        await writer.wait_spooled()

    async def _finish_writer(self, writer: Writer) -> None:
        """Flush; a writer with a spool does so only while the log answers."""
        if not isinstance(writer, SpooledWriter):
            await self.flush(writer)
            return
        last = await self._hand_over_all()
        if await writer.finish() and last is not None:
            await self._wait_until(lambda: last.is_done)

    async def _hand_over_all(self) -> QueuedAppend[W] | None:
        """Wait until the writer has every queued append; the last one."""
        with self._lock:
            last = (self._queued or self._sent or [None])[-1]
        if last is not None:
            await self._wait_until(lambda: last.stage is not Stage.QUEUED)
        return last

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
        """Hand over queued appends, at most one turn's worth. False: none are left."""
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
        """Pass one append to the writer. False: its window is full."""
        with self._lock:  # Nobody can withdraw it meanwhile.
            if append.stage is not Stage.QUEUED:
                return True
            assert append.fields is not None, "a queued append has its fields"
            append.fields.is_posted = append.is_posted and writer.has_spool
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
            return  # The writer refused it.
        try:
            await append.pending.wait_done()
        except GeologError as error:
            append.error = error  # Raised where the caller waits.

    def _tell_answered(self) -> None:
        answered = []
        while self._sent and self._sent[0].is_answered:
            answered.append(self._sent.popleft())
        with self._lock:
            woken = self._finish(answered)
        self._wake(woken)
        self._on_progress()

    def _close(self) -> None:
        """Fail every unfinished append with what is known about it."""
        with self._lock:
            self._is_closed = True
            for append in self._queued:
                if append.stage is Stage.QUEUED:
                    append.error = _closed_before_it_was_sent(
                        append.fields, "the writer was closed before the record was sent"
                    )
            for append in self._sent:
                if not append.is_answered:
                    append.error = OutcomeUnknownError(
                        "the writer was closed before the append was answered"
                    )
            left = [one for one in self._queued if one.stage is Stage.QUEUED] + [*self._sent]
            self._queued.clear()
            self._sent.clear()
            woken = self._finish(left)
        self._wake(woken)

    # ------------------------------------------------------------ under the lock

    def _raise_refused_post(self) -> None:
        """Raise the error of a posted record that was refused, once, in the next call."""
        error, self._refused_post = self._refused_post, None
        if error is not None:
            raise error

    def _finish(self, appends: Sequence[QueuedAppend[W]]) -> Sequence[W]:
        """Mark appends as done; return the waiters to wake."""
        woken, self._room_waiters = self._room_waiters, []
        for append in appends:
            append.stage = Stage.DONE
            self._unanswered_bytes -= append.size_bytes
            if append.waiters:
                woken.extend(append.waiters)
                append.waiters = []
        return woken


def _closed_before_it_was_sent(fields: RecordFields | None, why: str) -> GeologError:
    """Error for an unsent record; a record with a seq may be in the log from an earlier try."""
    is_numbered = fields is not None and fields.seq is not None
    return told_of_record(ClosedError(why), is_numbered=is_numbered)
