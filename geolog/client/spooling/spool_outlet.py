"""The far end of a spool: sends its frames to the log, in sessions of the named writer.

A session ends with any error but that of one record, and another is opened after a pause. An
error that no session can mend stops the spool; its records stay.
"""

import logging
import random
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

import attrs
import trio

from geolog.client.spooling.spool_directory import RefusedRecord
from geolog.client.spooling.spool_facts import (
    SpoolDamagedError,
    SpoolFacts,
    SpoolSeqsTakenError,
)
from geolog.client.spooling.spool_files import SpoolFiles
from geolog.client.spooling.spool_inlet import SpoolInlet
from geolog.client.spooling.spooled_record import InLogAlreadyError, SpooledRecord
from geolog.client.writing.partition_batcher import PartitionBatcher
from geolog.client.writing.record_fields import RecordFields
from geolog.client.writing.writer import Writer
from geolog.client.writing.writer_pending import Pending, Receipt, RepeatedRecord
from geolog.partition.repeated_batch import ForgottenSeqError
from geolog.protocol.session_home import HomeMovedError
from geolog.protocol.spool_queue import SpooledFrame, SpoolQueue
from topology.errors import (
    ConflictError,
    DamagedBytesError,
    GeologError,
    InvalidArgumentError,
    NoSuchStreamError,
    OwnedDirectlyError,
    TooLargeError,
)

_LOGGER = logging.getLogger(__name__)

_WHY_S = 0.2
"""How long a session that failed waits to hear why its partition has ended."""

_PAUSE_FIRST_S = 0.05
_PAUSE_MAX_S = 5.0
_TRIES_MAX = 3
"""Sessions that may fail at one record alone, with no clear answer, before it is kept aside."""

OpenWriter = Callable[[], AbstractAsyncContextManager[Writer]]
"""Opens a session of the named writer."""

_OF_RECORDS = (ConflictError, TooLargeError, InvalidArgumentError)
"""Errors of single records."""


class _NextSessionError(GeologError):
    """A record was refused: the next session sends it alone, or goes on behind it."""

    retriable = True


@attrs.frozen
class _Sent:
    frame: SpooledFrame
    row: int
    fields: RecordFields
    pending: Pending


class SpoolOutlet:
    """Sends frames, takes answers, moves the mark. `run` does all of it."""

    def __init__(
        self,
        files: SpoolFiles,
        queue: SpoolQueue,
        inlet: SpoolInlet,
        *,
        open_writer: OpenWriter,
        rng: random.Random,
    ) -> None:
        self._files = files
        self._queue = queue
        self._inlet = inlet
        self._open_writer = open_writer
        self._rng = rng
        self.failure: GeologError | None = None
        """The error that stopped the spool."""
        self.trouble: GeologError | None = None
        """The last error of a session, while none is open."""
        self.is_open = False
        """Whether a session is open."""
        self.attempts_count = 0
        """Sessions that were opened, or could not be."""
        self.refused: GeologError | None = None
        """The first refusal of a record since `flush` asked."""
        self.refused_count = 0
        self.answered_count = 0
        self._changed = trio.Event()
        self._tries: dict[tuple[int, int], int] = {}  # Of records that were sent alone.
        self._home_due: tuple[int, int] | None = None
        """Up to which frame everything must be answered in the new home, and its epoch."""

    def __repr__(self) -> str:
        return f"SpoolOutlet({self._queue!r}, open: {self.is_open})"

    @property
    def home_epoch(self) -> int:
        """The home epoch of the last session; 0 before the first."""
        return self._files.facts.home_epoch or 0

    def tell_change(self) -> None:
        """Wake the tasks that wait for anything: frames, answers, sessions, room."""
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    async def wait_change(self) -> None:
        """Wait for a frame on disk, an answer, or the begin or end of a session."""
        await self._changed.wait()

    async def run(self) -> None:
        """Send until an error stops the spool."""
        pause_s = _PAUSE_FIRST_S
        while True:
            answered_before = self.answered_count
            try:
                async with self._open_writer() as writer:
                    await self._on_opened(writer)
                    await self._run_session(writer)
            except GeologError as error:
                if _is_final(error, was_open=self.is_open):
                    self._stop(error)
                    return
                _LOGGER.debug("spool %s: %s", self._files.path, error)
                self.trouble = error
            finally:
                self.is_open = False
                self._queue.on_session_ended()
            self.attempts_count += 1
            self.tell_change()
            if self.answered_count > answered_before:
                pause_s = _PAUSE_FIRST_S
            await trio.sleep(pause_s * self._rng.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    def _stop(self, error: GeologError) -> None:
        self.failure = error
        _LOGGER.warning(
            "spool %s: stopped (%s); its %d records without an answer stay on disk",
            self._files.path, error, self._queue.figures().unanswered_records,
        )  # fmt: skip
        self.tell_change()

    # The begin of a session.

    async def _on_opened(self, writer: Writer) -> None:
        session = writer.session
        assert session is not None, "the writer of a spool has an id"
        facts = self._files.facts
        if facts.life is not None and facts.life != session.home.life:
            raise NoSuchStreamError(
                f"{facts.stream} was deleted and created again: the records in spool"
                f" {self._files.path} belong to the stream before. Save them with `geolog"
                " spool export`, then `geolog spool discard`"
            )
        await self._files.learn(lambda facts: _learned(facts, writer, session.home.life))
        self._check_alone(writer)
        if writer.home_epoch != self._files.facts.home_epoch:
            await self._find_lost(writer)
        self._queue.on_session_opened()
        self.is_open, self.trouble = True, None
        self.attempts_count += 1
        self.tell_change()

    def _check_alone(self, writer: Writer) -> None:
        """SpoolSeqsTakenError if a spool that numbers records is not alone with its id."""
        facts = self._files.facts
        if facts.numbering != "own":
            return
        highest = self._files.seq_in_log(self._inlet.seq_written)
        if writer.seq_highest > highest:
            raise SpoolSeqsTakenError(
                f"the log has seq {writer.seq_highest} of writer {facts.writer_id}, and this"
                f" spool ends at {highest}: another program appends under the same id. Save the"
                f" records with `geolog spool export {self._files.path}`, and give the"
                " program a writer id and a spool of its own"
            )

    async def _find_lost(self, writer: Writer) -> None:
        """After a move: find answered records that are still here, but not in the log."""
        lost_count = 0
        self._home_due = self._queue.number_next, writer.home_epoch
        self._queue.on_home_changed(self._files.refused_rows)
        async with self._files.held():
            for frame in self._queue.kept:
                refused = self._files.refused_rows(frame.number)
                lost = [
                    row
                    for row, fields in await self._files.read(frame, range(frame.count))
                    if row not in refused and not _is_appended(writer, fields)
                ]
                self._queue.on_lost(frame.number, lost)
                lost_count += len(lost)
        if lost_count:
            _LOGGER.warning(
                "spool %s: home epoch %d lacks %d records that an earlier home had"
                " acknowledged; they are sent again",
                self._files.path, writer.home_epoch, lost_count,
            )  # fmt: skip

    # A session.

    async def _run_session(self, writer: Writer) -> None:
        for frame, rows in self._queue.lost_to_send():
            await self._send_one_by_one(writer, frame, rows)
        await self._move_mark()
        sent: deque[_Sent] = deque()
        failures: list[GeologError] = []

        async def fail(error: GeologError) -> None:
            failures.append(error)
            if error.outcome == "unknown":  # The end of its sink, which comes too, says why.
                await trio.sleep(_WHY_S)
            nursery.cancel_scope.cancel(reason="the session has failed")

        async def send() -> None:
            try:
                await self._send_frames(writer, sent)
            except GeologError as error:
                await fail(error)

        async def take() -> None:
            try:
                await self._take_answers(sent)
            except GeologError as error:
                await fail(error)

        async def watch_end(lane: PartitionBatcher) -> None:
            # Also while there is nothing to send.
            failures.append((await lane.sink.wait_ended()).failure)
            nursery.cancel_scope.cancel(reason="the session has failed")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            nursery.start_soon(take)
            for lane in writer.lanes:
                nursery.start_soon(watch_end, lane)
        if failures:
            final = (one for one in failures if _is_final(one, was_open=True))
            raise next(final, failures[0])

    async def _send_frames(self, writer: Writer, sent: deque[_Sent]) -> None:
        while True:
            due = self._queue.next_to_send()
            if due is None:
                await self.wait_change()
                continue
            frame, rows = due
            if self._queue.is_careful(frame):
                while sent:  # Nothing else may be on its way.
                    await self.wait_change()
                await self._send_one_by_one(writer, frame, rows)
                continue
            for row, fields in await self._files.read(frame, rows):
                try:
                    pending = await _pushed(writer, fields)
                except ForgottenSeqError as error:
                    await self._on_forgotten(frame, row, fields, error)
                    continue
                except _OF_RECORDS as error:
                    raise self._be_careful(error) from error
                sent.append(_Sent(frame, row, fields, pending))
            self.tell_change()

    async def _take_answers(self, sent: deque[_Sent]) -> None:
        while True:
            while not sent:
                await self.wait_change()
            first = sent[0]
            try:
                await first.pending.wait()
            except GeologError:
                if not first.pending.is_done:
                    raise  # A repeated record that could not be compared.
            while sent and sent[0].pending.is_done:
                one = sent[0]
                try:
                    self._on_answered(
                        one.frame, one.row, one.fields, one.pending.receipt_nowait()
                    )
                except ForgottenSeqError as error:
                    await self._on_forgotten(one.frame, one.row, one.fields, error)
                except _OF_RECORDS as error:
                    raise self._be_careful(error) from error
                sent.popleft()
            await self._move_mark()
            self.tell_change()

    def _be_careful(self, error: GeologError) -> GeologError:
        self._queue.be_careful()
        return _NextSessionError(f"a record was refused: {error}")

    # One by one.

    async def _send_one_by_one(
        self, writer: Writer, frame: SpooledFrame, rows: Sequence[int]
    ) -> None:
        for row, fields in await self._files.read(frame, rows):
            pending: Pending | None = None
            try:
                pending = await _pushed(writer, fields)
                self._on_answered(frame, row, fields, await pending.wait())
            except ForgottenSeqError as error:
                await self._on_forgotten(frame, row, fields, error)
            except _OF_RECORDS as error:
                tries = self._tries.get((frame.number, row), 0) + 1
                if error.outcome == "unknown" and tries < _TRIES_MAX:
                    self._tries[frame.number, row] = tries
                    raise _NextSessionError(f"a record was not answered: {error}") from error
                await self._keep_aside(frame, row, fields, error)
                if pending is not None and not isinstance(pending, RepeatedRecord):
                    # In this session its seq would have to come again before all others.
                    await self._move_mark()
                    raise _NextSessionError(f"a record was refused: {error}") from error
            await self._move_mark()
            self.tell_change()

    # Answers.

    def _on_answered(
        self, frame: SpooledFrame, row: int, fields: RecordFields, receipt: Receipt | None
    ) -> None:
        self._queue.on_answered(frame.number, row)
        self.answered_count += 1
        append = self._awaited(fields)
        if append is not None:
            append.finish(receipt or InLogAlreadyError(f"the log has seq {fields.seq} already"))

    def _awaited(self, fields: RecordFields) -> SpooledRecord | None:
        assert fields.seq is not None
        return self._inlet.finish(self._files.seq_in_frame(fields.seq))

    async def _on_forgotten(
        self, frame: SpooledFrame, row: int, fields: RecordFields, error: ForgottenSeqError
    ) -> None:
        """The log has passed the seq, but does not remember the record."""
        # A spool that numbers records never sends one that the log may have forgotten. The
        # application's own numbers may well be from an earlier run, without this spool.
        is_given = self._files.facts.numbering == "given"
        if error.outcome == "duplicate" or (is_given and error.outcome != "refused"):
            self._on_answered(frame, row, fields, None)
        else:
            await self._keep_aside(frame, row, fields, error)

    async def _keep_aside(
        self, frame: SpooledFrame, row: int, fields: RecordFields, error: GeologError
    ) -> None:
        assert fields.seq is not None
        record = RefusedRecord(
            seq=fields.seq,
            error=str(error),
            value=fields.value,
            key=fields.key,
            headers=dict(fields.headers or {}),
            transaction_id=fields.transaction_id,
        )
        await self._files.keep_aside(frame, row, record)
        self._queue.on_answered(frame.number, row)
        self.answered_count += 1
        self.refused_count += 1
        _LOGGER.warning(
            "spool %s: the log refuses seq %d for good (%s); kept in refused.jsonl",
            self._files.path, fields.seq, error,
        )  # fmt: skip
        append = self._awaited(fields)
        if append is not None:
            append.finish(error)
        elif self.refused is None:
            self.refused = error

    async def _move_mark(self) -> None:
        await self._files.move_mark()
        if self._home_due is not None and self._queue.mark >= self._home_due[0]:
            _, home_epoch = self._home_due
            self._home_due = None
            await self._files.learn(lambda facts: attrs.evolve(facts, home_epoch=home_epoch))


async def _pushed(writer: Writer, fields: RecordFields) -> Pending:
    while True:
        try:
            return writer.append_fields_nowait(fields)
        except trio.WouldBlock:
            await writer.wait_writable()


def _is_final(error: GeologError, *, was_open: bool) -> bool:
    """Whether every further session would meet the error too."""
    if isinstance(error, HomeMovedError | OwnedDirectlyError) or error.retriable:
        return False
    # A proxy that sends garbage is left for another; damage of the spool itself stays.
    is_of_connection = isinstance(error, DamagedBytesError) and was_open
    return not is_of_connection or isinstance(error, SpoolDamagedError)


def _learned(facts: SpoolFacts, writer: Writer, life: str) -> SpoolFacts:
    """The facts, with those that a new session tells."""
    if facts.numbering is None or (facts.numbering == "own" and facts.seq_base is None):
        facts = attrs.evolve(facts, seq_base=writer.seq_highest + 1)
    if facts.home_epoch is None:
        facts = attrs.evolve(facts, home_epoch=writer.home_epoch)
    return attrs.evolve(facts, life=life)


def _is_appended(writer: Writer, fields: RecordFields) -> bool:
    assert fields.seq is not None
    return writer.is_appended(fields.seq, key=fields.key)
