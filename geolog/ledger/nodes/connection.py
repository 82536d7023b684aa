"""One connection to one storage node: requests with answers, and a pipeline of adds.

A request may have several answers, one after another. They are kept until the caller takes
them; their maximum number is part of the request.

Every request gets exactly one last answer. A caller that leaves before it has come cancels the
request. Its number stays as a tombstone until the last answer, which is dropped like those
before it; numbers only rise, so it can reach no other caller. A node that answers a number that
is not open has lost track, and is disconnected.

Adds are numbered as they are sent and answered cumulatively, so an answer costs the same for
one add as for a thousand. Outcomes go to the sender's `AddSink`, at once and in order, from the
receiving task: there is no task, timer or channel per add. A message is sent directly by the
caller if the socket takes it; the sending task sends only the rest. When the connection ends,
every waiting caller gets ConnectionFailedError, and each sink learns once that its adds are
lost.

Rules: PROTOCOL N15, N17.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

import attrs
import trio

from geolog.ledger.nodes.bell import Bell
from geolog.protocol.ids import EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.messages import (
    AddRefused,
    AddsReceived,
    AddsSynced,
    Cancel,
    Cancellable,
    Hello,
    HelloAnswer,
    Message,
    PushLac,
    Reason,
    Refused,
)
from geolog.transport.seam import ByteStream, ConnectionFailedError
from geolog.wire.codec import PROTOCOL_VERSION, decode, encode, encode_add_front
from geolog.wire.entry import EncodedEntry
from geolog.wire.frame import FrameReader
from topology.errors import DamagedBytesError, FencedError, GeologError, UnavailableError

_SEND_BYTES_MAX = 1 << 20
_SEND_BUFFERS_MAX = 512

A = TypeVar("A")


class NodeRefusedError(UnavailableError):
    """A node refuses the request, for a reason that the message gives."""

    def __init__(self, message: str, reason: Reason) -> None:
        super().__init__(message)
        self.reason = reason


class AddSink(Protocol):
    """A sender of adds, which gets their outcomes. Called from the receiving task."""

    def on_add_synced(self, slot: int, entry: EntryId) -> None:
        """The entry is on disk at this sink's node `slot`."""
        ...

    def on_add_received(self, slot: int, entry: EntryId) -> None:
        """The entry is in that node's memory; called only if the add asked for it."""
        ...

    def on_add_refused(self, slot: int, entry: EntryId, refused: AddRefused) -> None:
        """The node has not stored the entry, and will not."""
        ...

    def on_slot_lost(self, slot: int) -> None:
        """The connection is gone; the node may or may not store unanswered adds."""
        ...


class AnswerSink(Protocol):
    """A sender of a standing question. One of these is called, once, unless it is cancelled."""

    def on_answer(self, message: Message) -> None:
        """The node's answer, which may be a refusal. Called from the receiving task."""
        ...

    def on_end(self) -> None:
        """The connection has ended before an answer came."""
        ...


class RoomWaiter(Protocol):
    """A sender that holds adds back until the connection takes more."""

    def on_room(self, slot: int) -> None:
        """Half of the send buffer is free again."""
        ...


@attrs.frozen(kw_only=True)
class ConnectionConfig:
    """Limits of one connection to a storage node."""

    unsent_bytes_max: int = 32 * 1024 * 1024
    """Bytes that may wait to be sent, over all writers. Writers hold back beyond that; if the
    limit is exceeded all the same, the node is too slow and the connection is closed."""

    connect_timeout_s: float = 2.0
    """How long a node may take to accept a connection and identify itself."""

    answer_timeout_s: float = 5.0
    """Close the connection if a request, cancelled or not, gets no answer for this long, or if
    adds are in flight and none is answered."""

    abandoned_max: int = 8192
    """Requests that were given up and may still be answered. If there would be more, the node
    answers too little, and the connection is closed."""


class NodeConnection:
    """An open connection, made by `NodePool`.

    Invariants: ordinals of adds rise by one from 1; `_adds` holds, in order, the adds that were
    sent and not answered, and the first of them has ordinal `_ordinal_first`.
    """

    def __init__(self, stream: ByteStream, config: ConnectionConfig, peer: str) -> None:
        self._stream = stream
        self._config = config
        self._peer = peer
        self._reader = FrameReader()
        self._unsent: deque[bytes | memoryview] = deque()
        self._unsent_bytes = 0
        self._is_sending = False
        self._has_unsent = trio.Event()
        self._adds: deque[tuple[AddSink, int, EntryId, float]] = deque()
        self._ordinal_first = 1
        self._received_through = 0
        self._refused: set[int] = set()
        self._sinks: dict[tuple[AddSink, int], None] = {}
        self._room_waiters: dict[tuple[RoomWaiter, int], None] = {}
        self._progress_s = -math.inf  # Time of the last answer to adds.
        self._request_last = 0
        self._questions: dict[int, PendingQuestion] = {}
        self._standing: dict[int, AnswerSink] = {}
        self._abandoned: dict[int, _Tombstone] = {}
        self._broken: ConnectionFailedError | None = None
        self._ended = trio.Event()
        self.unwanted_count = 0
        """Answers that came although their requests were given up."""
        self.node: HelloAnswer | None = None
        self.greeting_s = math.nan
        """How long the node took to say hello: a round trip."""

    def __repr__(self) -> str:
        return (
            f"NodeConnection({self._peer}, {len(self._adds)} adds and {len(self._questions)}"
            f" questions open, {len(self._abandoned)} abandoned, {self._unsent_bytes} bytes"
            " unsent)"
        )

    @property
    def instance(self) -> InstanceId:
        """The instance that the node identified itself as."""
        assert self.node is not None, "the node has not said hello"
        return self.node.instance

    @property
    def is_broken(self) -> bool:
        """Whether the connection has ended."""
        return self._broken is not None

    @property
    def broken_why(self) -> str:
        """Why the connection ended; empty while it is open."""
        return "" if self._broken is None else str(self._broken)

    def has_room(self, size_bytes: int) -> bool:
        """Whether an add of this size may be sent now, or should be held back.

        A quarter of the buffer is reserved for everything that is not held back.
        """
        unsent_bytes = self._unsent_bytes
        return not unsent_bytes or unsent_bytes + size_bytes <= (
            self._config.unsent_bytes_max * 3 // 4
        )

    def tell_room(self, waiter: RoomWaiter, slot: int) -> None:
        """Call the waiter once when there is room again; never if the connection ends."""
        self._room_waiters[waiter, slot] = None

    def attach(self, sink: AddSink, slot: int) -> None:
        """Notify this sink when the connection ends, even if it has no adds in flight."""
        self._sinks[sink, slot] = None

    def detach(self, sink: AddSink, slot: int) -> None:
        """Stop notifying the sink; answers to its adds in flight are dropped."""
        self._sinks.pop((sink, slot), None)

    def add_nowait(
        self,
        sink: AddSink,
        slot: int,
        *,
        ledger: LedgerId,
        entry: EntryId,
        epoch: Epoch,
        lac: EntryId,
        is_recovery: bool,
        encoded: EncodedEntry,
        wants_received: bool = False,
    ) -> None:
        """Send an add; its outcome goes to the sink. Does nothing on a broken connection."""
        if self._broken is not None:
            return
        ordinal = self._ordinal_first + len(self._adds)
        self._adds.append((sink, slot, entry, trio.current_time()))
        front = encode_add_front(
            ordinal=ordinal,
            ledger=ledger,
            entry=entry,
            epoch=epoch,
            lac=lac,
            is_recovery=is_recovery,
            wants_received=wants_received,
            instance=self.instance,
            body_bytes=encoded.length_bytes,
            body_crc=encoded.crc,
        )
        self._send_nowait([front, *encoded.buffers])

    def push_lac_nowait(self, ledger: LedgerId, epoch: Epoch, lac: EntryId) -> None:
        """Send the node the LAC, when no add will carry it soon."""
        if self._broken is None:
            self._send_nowait(encode(PushLac(ledger, epoch, lac, self.instance)))

    async def ask(self, make: Callable[[int], Message], kind: type[A]) -> A:
        """Send the request that `make` builds from a request number, and wait for its answer.

        ConnectionFailedError if the connection ends first; FencedError or NodeRefusedError if
        the node refuses.
        """
        with self.asking(make) as question:
            return await question.answer(kind)

    @contextmanager
    def asking(
        self,
        make: Callable[[int], Message],
        *,
        answers_max: int = 1,
        bell: Bell | None = None,
    ) -> Iterator["PendingQuestion"]:
        """Send the request that `make` builds from a request number, and keep its answers.

        There may be at most `answers_max` answers: a node that sends more is disconnected.
        A block that ends before the last answer cancels a read, follow or probe; answers that
        still come are dropped. ConnectionFailedError if the connection has ended.
        """
        if self._broken is not None:
            raise self._broken
        self._request_last += 1
        request = self._request_last
        message = make(request)
        buffers = encode(message)
        question = self._questions[request] = PendingQuestion(self, answers_max, bell)
        try:
            self._send_nowait(buffers)
            yield question
        finally:
            del self._questions[request]
            if not question.is_answered:
                self._abandon(request, message, question)

    def ask_nowait(
        self, make: Callable[[int], Message], sink: AnswerSink
    ) -> "StandingQuestion | None":
        """Send a request that may stay unanswered for long; its one answer goes to `sink`.

        None if the connection has ended before. If it ends in this call, `sink` is told.
        """
        if self._broken is not None:
            return None
        self._request_last += 1
        request = self._request_last
        self._standing[request] = sink
        self._send_nowait(encode(make(request)))
        return StandingQuestion(self, request)

    def cancel_nowait(self, request: int) -> None:
        """Drop a standing question; nothing happens if it was answered."""
        if self._standing.pop(request, None) is not None:
            self._bury(request, 1)
            self._send_nowait(encode(Cancel(request)))

    def _abandon(self, request: int, message: Message, question: "PendingQuestion") -> None:
        self._bury(request, question.answers_left)
        if question.is_to_be_cancelled and isinstance(message, Cancellable):
            self._send_nowait(encode(Cancel(request)))

    def _bury(self, request: int, answers_left: int) -> None:
        if len(self._abandoned) >= self._config.abandoned_max:
            self.break_off(f"{len(self._abandoned)} abandoned requests are unanswered")
            return
        self._abandoned[request] = _Tombstone(answers_left, trio.current_time())

    def ended_why(self) -> ConnectionFailedError:
        """The error for callers that wait on an ended connection."""
        return self._broken or ConnectionFailedError(f"connection to {self._peer} ended")

    @property
    def peer(self) -> str:
        """The node's address, for people."""
        return self._peer

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits on the connection."""
        return not (
            self._questions
            or self._standing
            or self._abandoned
            or self._adds
            or self._sinks
            or self._unsent
        )

    @property
    def abandoned_count(self) -> int:
        """Number of requests that were given up and not answered yet."""
        return len(self._abandoned)

    def break_off(self, why: str) -> None:
        """End the connection now, and notify everything that waits on it."""
        if self._broken is not None:
            return
        self._broken = ConnectionFailedError(f"connection to {self._peer} ended: {why}")
        self._stream.close()
        self._ended.set()
        self._has_unsent.set()
        self._unsent.clear()
        for question in self._questions.values():
            question.end()
        standing, self._standing = self._standing, {}
        self._abandoned.clear()
        self._adds.clear()
        self._room_waiters.clear()
        sinks, self._sinks = self._sinks, {}
        for sink, slot in sinks:
            sink.on_slot_lost(slot)
        for waiting in standing.values():
            waiting.on_end()

    def oldest_open_s(self) -> float | None:
        """When the longest-waiting request, or all adds, began to wait; by trio's clock.

        For an abandoned request, since it was abandoned or last answered.
        """
        times = [
            question.waiting_since_s
            for question in self._questions.values()
            if not question.is_answered
        ]
        times += [tombstone.waiting_since_s for tombstone in self._abandoned.values()]
        if self._adds:
            times.append(max(self._adds[0][3], self._progress_s))
        return min(times, default=None)

    def break_off_if_late(self) -> None:
        """End the connection if the node leaves something unanswered for too long."""
        oldest_s = self.oldest_open_s()
        if oldest_s is not None:
            waited_s = trio.current_time() - oldest_s
            if waited_s > self._config.answer_timeout_s:
                self.break_off(f"no answer for {waited_s:.1f} s")

    def _send_nowait(self, buffers: list[bytes | memoryview]) -> None:
        if not self._unsent and not self._is_sending:
            try:
                sent_bytes = self._stream.send_nowait(buffers)
            except ConnectionFailedError as error:
                self.break_off(str(error))
                return
            buffers = _after(buffers, sent_bytes)
            if not buffers:
                return
        self._unsent.extend(buffers)
        self._unsent_bytes += sum(len(buffer) for buffer in buffers)
        if self._unsent_bytes > self._config.unsent_bytes_max:
            self.break_off(f"too slow: {self._unsent_bytes} bytes are waiting to be sent")
            return
        self._has_unsent.set()

    async def run(self, *, cluster: str, on_ready: Callable[["NodeConnection"], None]) -> None:
        """Greet the node, call `on_ready` once it answers; return when the connection ends."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run_sender, name=f"send to {self._peer}")
            nursery.start_soon(self._run_receiver, name=f"receive from {self._peer}")
            try:
                await self._greet(cluster)
                if self._broken is None:
                    on_ready(self)
                await self._ended.wait()
            finally:
                self.break_off("closed here")
                nursery.cancel_scope.cancel(reason="connection ended")

    async def _greet(self, cluster: str) -> None:
        with trio.move_on_after(self._config.connect_timeout_s) as patience:
            asked_s = trio.current_time()
            try:
                self.node = await self.ask(
                    lambda request: Hello(request, PROTOCOL_VERSION, cluster), HelloAnswer
                )
                self.greeting_s = trio.current_time() - asked_s
            except GeologError as error:
                self.break_off(str(error))
        if patience.cancelled_caught:
            self.break_off(
                f"the node did not identify itself within {self._config.connect_timeout_s:g} s"
            )

    async def _run_sender(self) -> None:
        while self._broken is None:
            if not self._unsent:
                self._has_unsent = trio.Event()
                await self._has_unsent.wait()
                continue
            buffers: list[bytes | memoryview] = []
            size_bytes = 0
            while (
                self._unsent
                and len(buffers) < _SEND_BUFFERS_MAX
                and size_bytes < _SEND_BYTES_MAX
            ):
                buffers.append(self._unsent.popleft())
                size_bytes += len(buffers[-1])
            self._is_sending = True
            try:
                await self._stream.send(buffers)
            except ConnectionFailedError as error:
                self.break_off(str(error))
            finally:
                self._is_sending = False
            self._unsent_bytes -= size_bytes
            self._tell_room_if_any()

    def _tell_room_if_any(self) -> None:
        if self._room_waiters and self._unsent_bytes <= self._config.unsent_bytes_max // 2:
            waiters, self._room_waiters = self._room_waiters, {}
            for waiter, slot in waiters:
                waiter.on_room(slot)

    async def _run_receiver(self) -> None:
        try:
            while self._broken is None:
                count = await self._stream.receive_into(self._reader.buffer())
                if count == 0:
                    self.break_off("closed by the node")
                    return
                self._reader.received(count)
                for frame in self._reader.frames():
                    self._on_message(decode(frame))
        except (ConnectionFailedError, DamagedBytesError) as error:
            self.break_off(str(error))

    def _on_message(self, message: Message) -> None:
        match message:
            case AddsSynced(through):
                self._on_synced(through)
            case AddsReceived(through):
                self._on_received(through)
            case AddRefused() as refused:
                self._on_refused(refused)
            case _:
                request = getattr(message, "request", 0)
                question = self._questions.get(request)
                if question is not None:
                    question.take(message)
                else:
                    self._on_other_answer(request, message)

    def _on_other_answer(self, request: int, message: Message) -> None:
        sink = self._standing.pop(request, None)
        if sink is not None:
            sink.on_answer(message)
        else:
            self._on_unwanted(request, message)

    def _on_unwanted(self, request: int, message: Message) -> None:
        tombstone = self._abandoned.get(request)
        if tombstone is None:
            self.break_off(f"the node answered request {request}, which is not open")
            return
        self.unwanted_count += not isinstance(message, Refused)
        tombstone.take(message)
        if not tombstone.answers_left:
            del self._abandoned[request]

    def _on_synced(self, through: int) -> None:
        if through >= self._ordinal_first + len(self._adds):
            self.break_off(f"the node confirmed add {through}, which was never sent")
            return
        if through >= self._ordinal_first:  # A repeated answer is not progress.
            self._progress_s = trio.current_time()
        while self._ordinal_first <= through:
            sink, slot, entry, _ = self._adds.popleft()
            is_refused = self._ordinal_first in self._refused
            self._refused.discard(self._ordinal_first)
            self._ordinal_first += 1
            if not is_refused and (sink, slot) in self._sinks:
                sink.on_add_synced(slot, entry)
            if self._broken is not None:
                return  # The sink ended the connection.
        self._drop_refused()

    def _on_received(self, through: int) -> None:
        if through >= self._ordinal_first + len(self._adds):
            self.break_off(f"the node confirmed add {through}, which was never sent")
            return
        first = max(self._received_through + 1, self._ordinal_first)
        if through < first:
            return  # Reported already, or synced since.
        self._received_through = through
        places = slice(first - self._ordinal_first, through + 1 - self._ordinal_first)
        for place, (sink, slot, entry, _) in enumerate(list(self._adds)[places]):
            if first + place not in self._refused and (sink, slot) in self._sinks:
                sink.on_add_received(slot, entry)

    def _drop_refused(self) -> None:
        """Drop refused adds at the front of the queue: they are fully answered."""
        while self._adds and self._ordinal_first in self._refused:
            self._refused.discard(self._ordinal_first)
            self._adds.popleft()
            self._ordinal_first += 1

    def _on_refused(self, refused: AddRefused) -> None:
        place = refused.ordinal - self._ordinal_first
        if not 0 <= place < len(self._adds):
            self.break_off(f"the node refused add {refused.ordinal}, which is not in flight")
            return
        sink, slot, entry, _ = self._adds[place]
        self._refused.add(refused.ordinal)
        self._drop_refused()
        if (sink, slot) in self._sinks:
            sink.on_add_refused(slot, entry, refused)


class PendingQuestion:
    """A request that was sent, with the answers that were received but not taken yet.

    Its bell rings when an answer comes, and when the connection ends.
    """

    def __init__(
        self, connection: NodeConnection, answers_max: int, bell: Bell | None = None
    ) -> None:
        self._connection = connection
        self.answers_left = answers_max
        """Number of answers that may still come."""
        self._answers: deque[Message] = deque()
        self.bell = bell or Bell()
        self.waiting_since_s = trio.current_time()
        """Time of the request, or of its last answer."""
        self.asked_s = self.waiting_since_s
        self.first_answer_s = math.nan
        """Time of the first answer."""
        self.answers_count = 0
        """Number of answers so far."""
        self.taken_count = 0
        """Number of answers that the caller took."""
        self.is_to_be_cancelled = True
        """Whether the node is told if the caller leaves before the last answer."""

    @property
    def is_answered(self) -> bool:
        """Whether no further answer is expected."""
        return self.answers_left == 0

    @property
    def is_received(self) -> bool:
        """Whether the last answer has come, over a connection that is still up."""
        return self.is_answered and not self._connection.is_broken

    async def answer(self, kind: type[A]) -> A:
        """Wait for the next answer, and take it.

        ConnectionFailedError if the connection ends first; FencedError or NodeRefusedError if
        the node refuses.
        """
        while (answer := self.answer_nowait(kind)) is None:
            await self.bell.wait()
        return answer

    def answer_nowait(self, kind: type[A]) -> A | None:
        """Take the next answer; None if it has not come. Raises what `answer` raises."""
        if not self._answers:
            if self._connection.is_broken:
                raise self._connection.ended_why()
            return None
        answer = self._answers.popleft()
        self.taken_count += 1
        if isinstance(answer, kind):
            return answer
        if isinstance(answer, Refused):
            raise _refusal_error(self._connection.peer, answer)
        self._connection.break_off("the node sent an answer of the wrong kind")
        raise self._connection.ended_why()

    def take(self, message: Message) -> None:
        """Keep an answer that has come."""
        if not self.answers_left:
            self._connection.break_off("the node sent more answers than requested")
            return
        self.answers_left = _left_after(message, self.answers_left)
        self._answers.append(message)
        self.waiting_since_s = trio.current_time()
        if not self.answers_count:
            self.first_answer_s = self.waiting_since_s
        self.answers_count += 1
        self.bell.ring()

    def end(self) -> None:
        """The connection ended: received answers can still be taken, no more will come."""
        self.answers_left = 0
        self.bell.ring()


@attrs.frozen(eq=False)
class StandingQuestion:
    """A request that waits at the node, for as long as the node lets it."""

    _connection: NodeConnection
    _request: int

    def cancel(self) -> None:
        """Want no answer any more."""
        self._connection.cancel_nowait(self._request)


@attrs.define
class _Tombstone:
    """The rest of a request that was given up: how many answers may still come."""

    answers_left: int
    waiting_since_s: float

    def take(self, message: Message) -> None:
        """Count an answer, and drop it."""
        self.answers_left = _left_after(message, self.answers_left)
        self.waiting_since_s = trio.current_time()


def _left_after(message: Message, answers_left: int) -> int:
    """How many answers may follow this one."""
    is_last = isinstance(message, Refused) or getattr(message, "is_last", True)
    return 0 if is_last else answers_left - 1


def _after(buffers: list[bytes | memoryview], sent_bytes: int) -> list[bytes | memoryview]:
    """The buffers without their first `sent_bytes` bytes."""
    for place, buffer in enumerate(buffers):
        if sent_bytes < len(buffer):
            return [memoryview(buffer)[sent_bytes:], *buffers[place + 1 :]]
        sent_bytes -= len(buffer)
    return []


def _refusal_error(peer: str, refused: Refused) -> GeologError:
    text = f"{peer} refused ({refused.reason.name.lower()}): {refused.message}"
    if refused.reason is Reason.FENCED:
        return FencedError(text)
    return NodeRefusedError(text, refused.reason)
