"""A session that appends to a partition or a stream: frames in, answers out in the same order.

Theory of operation. One task takes frames in and hands their records to a writer, which shares
the partition's owner with all other sessions. The other sends the answers, in the order of the
frames. The first stops taking frames while `credit_bytes` are unanswered, or many answers are
not sent, so a client that does not read its answers is held back. Its answers are kept for it,
up to a bound (`UntakenAnswers`); it loses its session if it takes none for half a minute, or
longer if these are long.
Appends at ack level `received` are answered when they are in memory, at the proxy that owns the
partition.

A frame is admitted or refused once it has come, before it is looked at: when the partition, the
client or the proxy has too much unanswered in all its sessions, it is refused, see
`AppendAdmission`; so it is when too many answers to the client are due. Sessions append their
admitted frames in turns of about a millisecond. So frames count before their turn comes, and
none waits unseen. Frames that come before their client was told to send again are left unread
until then, for two seconds at most, unless there is room for them.

An append may have a time limit, which runs from its arrival. It is heeded until the first of
its records is handed to the writer: before that nothing of it is in the log, later nobody
knows.

A frame that is no message, or an append that is refused, is answered like any other, and the
session goes on. It ends when its target is lost, e.g. to another proxy: a last frame, without
an id, says where. If it goes on at another target instead, it goes there once the first one has
answered all that it was given, so that answers and records keep their order.

Rules: PROTOCOL S33.
"""

import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import ClassVar

import attrs
import trio

from geolog.background import open_background
from geolog.client.writing.record_fields import RecordFields, plain_size_bytes, size_of
from geolog.client.writing.writer import Writer
from geolog.client.writing.writer_pending import Pending, Receipt
from geolog.protocol.append_failure import told_as_unknown
from geolog.protocol.owner_answers import lease_over
from geolog.transport.message_socket import ServedSocket, SocketClosedError
from geolog.wire.session.codes import CLOSE_RESTART
from geolog.wire.session.documents import (
    AppendHead,
    BadFrameError,
    Document,
    head_of,
    message_of,
)
from geolog.wire.session.early_heads import early_head
from geolog.wire.session.frames import FrameCodec
from geolog.wire.session.messages import (
    Ack,
    AckPosition,
    AppendId,
    AppendRequest,
    ErrorAnswer,
    Goaway,
    RecordContent,
    SessionHello,
)
from regions.proxy.append_targets import AppendTarget
from regions.proxy.changes import Changes
from regions.proxy.protocol.append_admission import WRITERS_MAX, RefusedSeqs
from regions.proxy.session_host import SessionHost, failure_of, send_answer, send_answers
from regions.proxy.traffic import AppendOutcome
from topology.errors import (
    ConflictError,
    GeologError,
    InvalidArgumentError,
    OverCapacityError,
)

UNANSWERED_MAX = 10_000
"""Frames that a session may have unanswered, whatever their size."""

OUTGOING_BYTES_MAX = 1 << 20
"""A session takes no more frames while so many bytes of its answers are not sent."""

GOAWAY_S = 1.0
"""How long a client may take to leave a draining proxy by itself."""

HELD_S_MAX = 2.0
"""How long a frame may be left unread that a client sends before it may come back."""

_TURN_COST = 100
"""A session lets others run once it has done as much as it takes to append so many records."""
_FRAME_COST = 8
"""Cost of a frame besides its records."""
_COST_BYTES = 256
"""Bytes that cost as much as a record."""
_REFUSAL_PART = 8
"""The bytes of a frame that is refused cost this part."""
_ANSWER_BYTES = 160
_POSITION_BYTES = 80
"""Bytes of an answer until it is known: for its frame, and for each of its further records."""
_REFUSED_BYTES = 512
"""A frame that was refused counts so many bytes, and its id, until that is answered."""
_AHEAD_COUNT_MAX = 1000
"""Frames that are judged before others run."""
_RECORDS_AT_ONCE = 500
"""Records of one frame that are handed over, or of all that are answered, before others run."""
_JOINED_BYTES = 16 << 10
"""Answers that are known are sent together until they have so many bytes."""


class TimeLimitError(GeologError):
    """The proxy could not begin an append in its time: nothing of it is in the log. Retry."""

    code: ClassVar[int] = 504
    retriable: ClassVar[bool] = True


@attrs.define(eq=False)
class _Unanswered:
    """A frame that was taken in, and what its answer needs."""

    frame: str | bytes | None
    """As it came; None once it was read."""
    partition: str
    """The partition or stream that it counts for."""
    size_bytes: int
    arrived_s: float
    head: AppendHead | None = None
    """None if there is none, because the frame cannot be read."""
    append: AppendRequest | None = None
    """None if it was refused before it was looked at, or is no append. Its records are dropped
    once the writer has them: as they are in memory, they may be many times the frame."""
    records_count: int = 0
    pendings: list[Pending] = attrs.field(factory=list)
    error: GeologError | None = None
    id: AppendId | None = None
    is_shared: bool = False
    """Whether it counts for its partition and client, too."""
    is_forgotten: bool = False
    """Whether it was refused, and counts as that."""
    is_called_back: bool = False
    """Whether it was refused, and its answer tells when the session may come back."""
    answer_bytes: int = _ANSWER_BYTES
    """Bytes that its answer counts."""


class AppendSession:
    """One session over one socket. `run` serves it."""

    def __init__(
        self,
        socket: ServedSocket,
        codec: FrameCodec,
        host: SessionHost,
        target: AppendTarget,
        writer_id: str | None,
        *,
        client: str,
        holds_back: bool = True,
    ) -> None:
        """Serve a client. holds_back: whether to leave unread what it sends too soon."""
        self._holds_back = holds_back
        self._socket = socket
        self._codec = codec
        self._host = host
        self._target = target
        self._writer_id = writer_id
        self._client = client
        self._refused = RefusedSeqs()
        self._writers: dict[str | None, Writer] = {}
        self._comeback = host.in_flight.take_comeback(client)
        self._told_until_s = -math.inf
        """When the client may come back, as far as it was told."""
        self._ahead: deque[_Unanswered] = deque()
        """Frames that were admitted or refused, and wait for their turn."""
        self._in_hand: _Unanswered | None = None
        """The frame that is being appended."""
        self._unanswered: deque[_Unanswered] = deque()
        """Frames that were appended or refused."""
        self._unanswered_bytes = 0
        """Of all of these."""
        self._refused_count = 0
        """Frames that were refused, of all of these."""
        self._outgoing: deque[tuple[str | bytes, int]] = deque()
        """Answers that are known and not sent yet, and what they count."""
        self._outgoing_bytes = 0
        self._due_bytes = 0
        self._known_bytes = 0
        """Bytes that answers count that are due, and that are known and not sent."""
        self._free_s = -math.inf
        """Until when the session itself was the reason that frames waited."""
        self._turn_cost = 0
        self._ahead_count = 0
        """Frames that were judged ahead since others ran."""
        self._taken_count = 0
        self.begun_end = 0
        """How many frames came up to the last one that it has begun to append, with that one.
        Those that were refused before count as well."""
        self._changed = Changes()

    def __repr__(self) -> str:
        return f"AppendSession({self._target}, {len(self._unanswered)} unanswered)"

    async def run(self) -> None:
        """Serve until the client leaves, the partition moves, or the proxy drains."""
        try:
            await self._serve()
        finally:
            if self._in_hand is not None:
                self._free(self._in_hand)
            for one in (*self._ahead, *self._unanswered):
                self._free(one)
            self._host.answers.withdraw(self._client, self._due_bytes)
            self._host.answers.give_back(self._client, self._known_bytes)
            self._host.in_flight.leave_comeback(self._client, self._comeback)

    async def _serve(self) -> None:
        async with open_background() as nursery, AsyncExitStack() as stack:
            writer_epoch, writer_seq = await self._open_first(stack)
            await self._send(
                SessionHello(
                    session=self._host.new_session_id(),
                    region=self._host.config.region,
                    owner=self._target.owner,
                    epoch=self._target.epoch,
                    writer_epoch=writer_epoch,
                    writer_seq=writer_seq,
                    max_frame_bytes=self._host.config.frame_bytes_max,
                    credit_bytes=self._host.config.credit_bytes,
                )
            )
            nursery.start_soon(self._watch_drain)
            nursery.start_soon(self._answer_all)
            nursery.start_soon(self._send_answers)
            with suppress(SocketClosedError):
                # This task owns the writers, so it is the one that opens them.
                await self._take_frames(stack)

    async def _send(self, message: SessionHello | Ack | ErrorAnswer | Goaway) -> None:
        await send_answer(self._socket, self._codec.encode(message))

    # Writers.

    async def _open_first(self, stack: AsyncExitStack) -> tuple[int | None, int | None]:
        writer = await self._writer_of(stack, self._writer_id)
        if writer.session is None:
            return None, None
        return writer.session.epoch, writer.seq_highest

    async def _writer_of(self, stack: AsyncExitStack, writer_id: str | None) -> Writer:
        writer = self._writers.get(writer_id)
        if writer is None:
            if len(self._writers) >= WRITERS_MAX:
                raise InvalidArgumentError(
                    f"this session has {WRITERS_MAX} writers already: open another session"
                )
            writer = self._writers[writer_id] = await stack.enter_async_context(
                self._target.open_writer(writer_id)
            )
            self._free_s = trio.current_time()
        return writer

    async def _go_on_elsewhere(self, stack: AsyncExitStack) -> None:
        """Leave the target, which has answered everything, for its successor."""
        self._writers = {}
        try:
            await stack.aclose()
        except* GeologError:  # Why the writers cannot go on: that is known.
            pass
        self._target = await self._target.open_successor(stack)

    # Frames in.

    async def _take_frames(self, stack: AsyncExitStack) -> None:
        """Take frames in until the client leaves: SocketClosedError."""
        while True:
            if not self._ahead:
                await self._wait_credit()
                await self._wait_comeback()
                self._admit(*await self._host.in_flight.next_message(self._socket))
            while self._may_read_ahead():
                self._ahead_count += 1
                self._admit(*await self._host.in_flight.next_message(self._socket))
            await self._take(stack, self._ahead.popleft())
            if self._turn_cost >= _TURN_COST:
                self._turn_cost = self._ahead_count = 0
                await trio.lowlevel.checkpoint()

    def _may_read_ahead(self) -> bool:
        """Whether a frame can be judged now that has come while others wait for their turn."""
        now_s = trio.current_time()
        if not self._has_credit():
            self._free_s = now_s
            return False
        return (
            self._turn_cost < _TURN_COST
            and self._ahead_count < _AHEAD_COUNT_MAX
            and not self._comes_too_soon(now_s)
            and self._host.in_flight.has_next(self._socket)
        )

    def _has_credit(self) -> bool:
        return (
            self._unanswered_bytes < self._host.config.credit_bytes
            and len(self._unanswered) + len(self._ahead) < UNANSWERED_MAX
            and self._outgoing_bytes < OUTGOING_BYTES_MAX
            and not self._host.answers.is_full(self._client)
            and not (
                self._refused_count
                and not self._host.in_flight.has_room_for_refused(self._client)
            )
        )

    async def _wait_credit(self) -> None:
        while not self._has_credit():
            if self._host.answers.is_full(self._client):
                await self._host.answers.wait_room(self._client)
            else:
                await self._changed.wait()
            self._free_s = trio.current_time()

    async def _wait_comeback(self) -> None:
        """Leave alone what the client sends although it was told to wait, but not for long."""
        await self._socket.wait_message()
        if self._comes_too_soon(trio.current_time()):
            await trio.sleep_until(self._held_until_s())
            self._free_s = trio.current_time()

    def _comes_too_soon(self, now_s: float) -> bool:
        """Whether the client was told to wait still, and there is a reason to."""
        return (
            now_s < self._told_until_s
            and now_s < self._held_until_s()
            and not self._host.in_flight.is_calm(self._target.counted_as, self._client)
        )

    def _held_until_s(self) -> float:
        """Until when the next message is left alone: what came together goes on together."""
        arrived_s = self._socket.next_arrived_s
        if arrived_s is None:
            return self._told_until_s
        return min(self._told_until_s, arrived_s + HELD_S_MAX)

    def _admit(self, frame: str | bytes, arrived_s: float) -> None:
        """Admit a frame, which counts from now on, or refuse it; its turn comes later."""
        taken = _Unanswered(frame, self._target.counted_as, len(frame), arrived_s)
        self._promise(_ANSWER_BYTES)
        taken.error = self._host.in_flight.refusal_of(
            taken.partition,
            self._client,
            taken.size_bytes,
            waited_s=trio.current_time() - max(arrived_s, self._free_s),
            comeback=self._comeback,
        )
        if taken.error is None:
            taken.error = self._host.answers.refusal_of(self._client, _ANSWER_BYTES)
            if taken.error is not None:
                self._host.in_flight.put_off(self._comeback)
        if taken.error is None:
            self._share(taken)
        else:
            taken.is_called_back = True
            self._turn_cost += _FRAME_COST + len(frame) // _COST_BYTES // _REFUSAL_PART
            head = early_head(frame) if isinstance(frame, str) else None
            if head is not None:
                taken.frame, taken.head, taken.id = None, head, head.id
            else:
                with suppress(BadFrameError):  # Told in its turn.
                    self._read(taken)
            self._forget(taken)
        self._ahead.append(taken)
        self._unanswered_bytes += taken.size_bytes

    def _read(self, taken: _Unanswered) -> Document:
        """Read the frame up to its head. BadFrameError."""
        assert taken.frame is not None, "it is read once"
        frame, taken.frame = taken.frame, None
        try:
            document = self._codec.parse(frame)
        except BadFrameError as error:
            taken.error, taken.is_called_back = error, False
            raise
        taken.head = head_of(document)
        taken.id = taken.head.id
        return document

    async def _take(self, stack: AsyncExitStack, taken: _Unanswered) -> None:
        """Append a frame that was admitted, and have it answered."""
        self._in_hand = taken
        self._taken_count += 1
        if taken.error is None:
            await self._take_admitted(stack, taken)
        elif taken.is_called_back:
            self._note_refused(taken)
        if taken.error is not None:
            taken.error.__traceback__ = None  # It has this frame: the two would be a cycle.
        self._in_hand = None
        self._unanswered.append(taken)
        self._changed.tell()

    async def _take_admitted(self, stack: AsyncExitStack, taken: _Unanswered) -> None:
        size_bytes = taken.size_bytes
        try:
            document = self._read(taken)
            taken.error = self._overtaking(taken)
            if taken.error is None:
                self.begun_end = self._taken_count
                taken.append = _append_of(document)
                taken.records_count = len(taken.append.records)
                self._turn_cost += taken.records_count
                self._promise_answer(taken)
                await self._append(stack, taken.append, taken)
        except BadFrameError as error:
            taken.error = error
            self._note_taken(taken)
        except GeologError as error:
            taken.error = error
            self._free_s = trio.current_time()  # A wait may have ended with it.
            if not error.retriable:
                self._note_taken(taken)
            elif not taken.pendings:
                self._note_refused(taken)
        else:
            if taken.error is None:
                self._note_taken(taken)
            else:
                self._note_refused(taken)
        if taken.append is not None:
            taken.append = AppendRequest(
                id=taken.append.id,
                records=(),
                is_list=taken.append.is_list,
                ack=taken.append.ack,
            )
        self._turn_cost += _FRAME_COST + size_bytes // _COST_BYTES

    def _promise(self, count: int) -> None:
        self._due_bytes += count
        self._host.answers.promise(self._client, count)

    def _promise_answer(self, taken: _Unanswered) -> None:
        """Count the positions of all records; OverCapacityError if they are too many."""
        more_bytes = _POSITION_BYTES * (taken.records_count - 1)
        if more_bytes > 0:
            refusal = self._host.answers.refusal_of(
                self._client, taken.answer_bytes, more_bytes
            )
            if refusal is not None:
                raise refusal
            taken.answer_bytes += more_bytes
            self._promise(more_bytes)

    def _overtaking(self, taken: _Unanswered) -> OverCapacityError | None:
        """Why not to append a frame yet: an earlier one of its writer was refused.

        It is not raised, as it must not cost a traceback.
        """
        numbered = self._numbered(taken)
        refusal = None if numbered is None else self._refused.refusal_of(*numbered)
        taken.is_called_back = (
            refusal is not None and self._comeback.until_s > trio.current_time()
        )
        return refusal

    def _share(self, taken: _Unanswered) -> None:
        """Count it for its partition and client."""
        taken.is_shared = True
        self._host.in_flight.take_share(taken.partition, self._client, taken.size_bytes)

    def _note_refused(self, taken: _Unanswered) -> None:
        """Nothing of the frame is kept, and later numbers of its writer have to wait."""
        self._unanswered_bytes -= taken.size_bytes
        self._forget(taken)
        self._unanswered_bytes += taken.size_bytes
        numbered = self._numbered(taken)
        if numbered is not None:
            self._refused.on_refused(*numbered)

    def _forget(self, taken: _Unanswered) -> None:
        """Count only what the answer needs."""
        self._free(taken)
        id_bytes = len(taken.id) if isinstance(taken.id, str) else 0
        taken.size_bytes, taken.is_forgotten = _REFUSED_BYTES + id_bytes, True
        self._refused_count += 1
        self._host.in_flight.take_refused(self._client, taken.size_bytes)

    def _note_taken(self, taken: _Unanswered) -> None:
        """The frame is judged for good, so later numbers of its writer need not wait for it."""
        numbered = self._numbered(taken)
        if numbered is not None:
            self._refused.on_taken(*numbered, max(1, taken.records_count))

    def _note_failed(self, unanswered: _Unanswered, answer: ErrorAnswer) -> None:
        """Have later numbers of its writer wait, if the frame may come again to be stored.

        Its owner would refuse the later ones itself; the next one does not know of it.
        """
        is_lost = answer.outcome == "unknown" and answer.code != ConflictError.code
        if answer.outcome != "duplicate" and (answer.retriable or is_lost):
            numbered = self._numbered(unanswered)
            if numbered is not None:
                self._refused.on_refused(*numbered)

    def _numbered(self, taken: _Unanswered) -> tuple[str, int] | None:
        """The writer and first seq of an append, if it has them."""
        head = taken.head
        if head is None or head.seq is None:
            return None
        writer_id = head.writer if head.writer is not None else self._writer_id
        return None if writer_id is None else (writer_id, head.seq)

    def _free(self, one: _Unanswered) -> None:
        if one.is_forgotten:
            self._refused_count -= 1
            self._host.in_flight.give_back_refused(self._client, one.size_bytes)
        elif one.is_shared:
            self._host.in_flight.give_back_share(one.partition, self._client, one.size_bytes)
        else:
            self._host.in_flight.give_back(one.size_bytes)

    async def _append(
        self, stack: AsyncExitStack, append: AppendRequest, taken: _Unanswered
    ) -> None:
        """Hand the records to the writer; none of them if one can be refused at once."""
        writer_id = append.writer if append.writer is not None else self._writer_id
        if append.seq is not None and writer_id is None:
            raise InvalidArgumentError("seq needs a writer: name it in the frame or the path")
        due_s = math.inf if append.timeout_s is None else taken.arrived_s + append.timeout_s
        while self._target.successor is not None:
            if not self._unanswered:
                await self._go_on_elsewhere(stack)
                refusal = self._overtaking(taken)  # Of one that the last owner has refused.
                if refusal is not None:
                    raise refusal
                break
            await _wait_until(self._changed.wait, due_s)
            self._free_s = trio.current_time()
        writer = await self._writer_of(stack, writer_id)
        is_nameless = writer_id is None and append.expect_sequence is None
        wanted: list[RecordFields | int] = []
        """Of records with no more than a value and a key, which most are, the size."""
        for place, record in enumerate(append.records):
            size_bytes = _plain_size(record) if is_nameless else None
            if size_bytes is not None:
                wanted.append(size_bytes)
            else:
                fields = _fields_of(append, place)
                size_of(fields)  # Raises what can be known of each record at once.
                wanted.append(fields)
            if len(wanted) % _RECORDS_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        if append.ack == "received":
            self._target.want_received()
        _check_time(due_s)
        for place, one in enumerate(wanted):
            pending: Pending | None = None
            if isinstance(one, int):
                record = append.records[place]
                pending = writer.append_plain_nowait(record.value, record.key, one)
            if pending is None:
                fields = _fields_of(append, place) if isinstance(one, int) else one
                pending = await self._taken_in(writer, fields, due_s)
            taken.pendings.append(pending)
            due_s = math.inf  # From here on, the append is under way.
            if len(taken.pendings) % _RECORDS_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()

    async def _taken_in(self, writer: Writer, fields: RecordFields, due_s: float) -> Pending:
        """Hand one record to the writer once there is room for it. TimeLimitError."""
        while True:
            try:
                return writer.append_fields_nowait(fields)
            except trio.WouldBlock:
                await _wait_until(writer.wait_writable, due_s)
                self._free_s = trio.current_time()

    # Answers out.

    async def _answer_all(self) -> None:
        """Answer frames in order. Raises why the partition is lost, once all are answered.

        A frame counts for its partition until its outcome is known. From then on its answer
        counts alone, until the client takes it.
        """
        lost: GeologError | None = None
        cost = 0
        while True:
            while not self._unanswered:
                await self._changed.wait()
            unanswered = self._unanswered[0]
            cost += _FRAME_COST + len(unanswered.pendings)
            if cost >= _RECORDS_AT_ONCE:
                cost = 0
                await trio.lowlevel.checkpoint()
            answer = await self._answer_of(unanswered)
            latency_s = trio.current_time() - unanswered.arrived_s
            self._host.traffic.frames.note(_outcome_of(answer), latency_s)
            if isinstance(answer, ErrorAnswer) and not unanswered.is_forgotten:
                self._note_failed(unanswered, answer)
            self._unanswered.popleft()
            self._unanswered_bytes -= unanswered.size_bytes
            self._free(unanswered)
            self._push_answer(answer, unanswered.answer_bytes)
            has_lost = self._target.failure is not None and self._target.successor is None
            if has_lost and lost is None and not self._unanswered:
                lost = await self._target.why_lost()
            if lost is not None:
                while self._outgoing:
                    await self._changed.wait()
                if not self._unanswered:  # Frames may have come meanwhile.
                    raise lost

    def _push_answer(self, answer: Ack | ErrorAnswer, due_bytes: int) -> None:
        frame = self._codec.encode(answer)
        counted_bytes = max(due_bytes, len(frame))
        self._due_bytes -= due_bytes
        self._known_bytes += counted_bytes
        self._host.answers.keep(self._client, due_bytes, counted_bytes)
        self._outgoing.append((frame, counted_bytes))
        self._outgoing_bytes += len(frame)
        self._changed.tell()

    async def _send_answers(self) -> None:
        """Send answers as the client takes them, which must not last.

        Those that are known together are sent together.
        """
        while True:
            while not self._outgoing:
                await self._changed.wait()
            frames: list[str | bytes] = []
            frames_bytes = counted_bytes = 0
            for frame, count in self._outgoing:
                frames.append(frame)
                counted_bytes += count
                frames_bytes += len(frame)
                if frames_bytes >= _JOINED_BYTES:
                    break
            await send_answers(self._socket, frames)
            for _ in frames:
                self._outgoing.popleft()
            self._outgoing_bytes -= frames_bytes
            self._known_bytes -= counted_bytes
            self._host.answers.give_back(self._client, counted_bytes)
            self._changed.tell()

    async def _answer_of(self, unanswered: _Unanswered) -> Ack | ErrorAnswer:
        receipts = await _receipts_of(unanswered)
        if isinstance(receipts, GeologError):
            if unanswered.is_called_back and isinstance(receipts, OverCapacityError):
                receipts.retry_after_s = self._comeback.after_s(trio.current_time())
                if self._holds_back:
                    self._told_until_s = self._comeback.until_s
            return failure_of(receipts, unanswered.id)
        append = unanswered.append
        assert append is not None
        valid_ms = valid_ms_of(receipts)
        if valid_ms is not None and valid_ms <= 0:
            return failure_of(lease_over("the append"), unanswered.id)
        return Ack(
            id=append.id,
            positions=tuple(_position(one) for one in receipts),
            is_list=append.is_list,
            provisional=any(one.provisional for one in receipts),
            valid_ms=valid_ms,
        )

    async def _watch_drain(self) -> None:
        """Ask the client to go when the proxy drains, and then leave in any case.

        A client that goes by itself, once it has its answers, has none that is unknown.
        """
        await self._host.draining.wait()
        await self._send(Goaway())
        await trio.sleep(GOAWAY_S)
        while self._unanswered or self._ahead or self._outgoing or self._in_hand is not None:
            await self._changed.wait()
        await self._socket.close(CLOSE_RESTART, "the proxy is going away")


def _append_of(document: Document) -> AppendRequest:
    message = message_of(document)
    if not isinstance(message, AppendRequest):
        raise InvalidArgumentError("credits and commits are for reads; this session appends")
    return message


def _plain_size(record: RecordContent) -> int | None:
    """The size of a record with no more than a value and a key, if it is small."""
    if record.headers or record.transaction_id is not None or record.local_only:
        return None
    return plain_size_bytes(record.value, record.key)


def _fields_of(append: AppendRequest, place: int) -> RecordFields:
    record = append.records[place]
    return RecordFields(
        value=record.value,
        key=record.key,
        headers=record.headers,
        transaction_id=record.transaction_id,
        local_only=record.local_only,
        seq=None if append.seq is None else append.seq + place,
        expect_sequence=append.expect_sequence if place == 0 else None,
    )


async def _wait_until(wait: Callable[[], Awaitable[None]], due_s: float) -> None:
    with trio.move_on_at(due_s):
        await wait()
    _check_time(due_s)


def _check_time(due_s: float) -> None:
    if due_s < math.inf and trio.current_time() >= due_s:
        raise TimeLimitError("the append was not begun within its timeout_s")


async def _receipts_of(unanswered: _Unanswered) -> list[Receipt] | GeologError:
    """The receipts of all records; else an error that tells how many of them are in the log."""
    receipts: list[Receipt] = []
    errors: list[GeologError] = []
    is_early = unanswered.append is not None and unanswered.append.ack == "received"
    for one in unanswered.pendings:
        try:
            if one.is_done if is_early else one.is_durable:
                receipts.append(one.receipt_nowait())  # Without letting others run each time.
            else:
                receipts.append(await (one.wait() if is_early else one.wait_durable()))
        except GeologError as failure:
            errors.append(failure.with_traceback(None))  # Else it would hold this list.
    if unanswered.error is not None:
        errors.append(unanswered.error)
    if not errors:
        return receipts
    error = errors[0]
    if not receipts and len({one.outcome for one in errors}) == 1:
        return error
    assert unanswered.append is not None, "records without a frame"
    told = f"{error}; {len(receipts)} of {unanswered.records_count} records were appended"
    return told_as_unknown(error, told)


def valid_ms_of(receipts: Sequence[Receipt]) -> int | None:
    """How long these receipts still count, by the owner's lease; None without one."""
    ends_s = [one.valid_until_s for one in receipts if one.valid_until_s is not None]
    return int(1e3 * (min(ends_s) - trio.current_time())) if ends_s else None


def _outcome_of(answer: Ack | ErrorAnswer) -> AppendOutcome:
    if isinstance(answer, ErrorAnswer):
        return answer.outcome
    is_old = all(position.duplicate for position in answer.positions)
    return "duplicate" if is_old else "stored"


def _position(receipt: Receipt) -> AckPosition:
    return AckPosition(
        dlsn=receipt.dlsn,
        epoch=receipt.epoch,
        sequence=receipt.sequence,
        partition=receipt.partition,
        duplicate=receipt.duplicate,
    )
