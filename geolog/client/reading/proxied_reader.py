"""Reads a stream through write proxies: one read session per partition, resumed elsewhere.

Theory of operation. Each partition has a task with a WebSocket to some proxy, which reads for
it. The task grants credit for as many records as it has room for. When the session ends before
the read does, the task goes on at another proxy after the last record that it received, with a
random back-off, and for at most `PATIENCE_S` without an answer.

A read without `stop` ends at the end that its last proxy found when it was asked.
"""

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import attrs
import trio

from geolog.background import open_background
from geolog.client.proxies.remote_partition import (
    BACK_OFF_FIRST_S,
    BACK_OFF_MAX_S,
    PATIENCE_S,
)
from geolog.client.proxies.routes import ProxyRoutes
from geolog.client.reading.bounds import (
    AtSequence,
    Bound,
    LastRecords,
    Latest,
    bound_text,
    check_order,
)
from geolog.client.reading.reader import Reader
from geolog.client.reading.record import Gap, GapReason, RecordBatch
from geolog.client.reading.stream_reader import check_one_partition
from geolog.protocol.ids import DLSN
from geolog.protocol.stream_state import StreamName
from geolog.transport.message_socket import MessageSocket, MessageTransport, SocketClosedError
from geolog.transport.seam import Address
from geolog.wire.batch import open_batch, seal_batch
from geolog.wire.limits import FRAME_BYTES_MAX
from geolog.wire.session.channel_messages import ToldError
from geolog.wire.session.documents import Document
from geolog.wire.session.frames import MSGPACK_FRAMES, credit_frame, read_document
from geolog.wire.session.paths import ReadPath
from geolog.wire.session.told_errors import error_of
from topology.errors import DamagedBytesError, GeologError, UnavailableError

AHEAD_RECORDS = 256
"""Records of each partition that the application has not taken yet."""

_CREDIT_RECORDS = AHEAD_RECORDS // 2
"""Credit is granted for so many records at once."""

_FAILED_MAX = 8
"""Proxies to ask last, because they have failed just now."""

ANSWER_S = 15.0
"""How long a proxy may take to answer the first time."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Received = RecordBatch | Gap | GeologError


class _Arrivals:
    """Records and gaps received by the tasks of all partitions: a `RunSource`."""

    def __init__(self, received: trio.MemoryReceiveChannel[Received]) -> None:
        self._received = received

    async def next_run(self) -> RecordBatch | Gap:
        """The next record or gap. StopAsyncIteration at the end."""
        try:
            received = await self._received.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None
        if isinstance(received, GeologError):
            raise received
        return received

    def close(self) -> None:
        """Drop what was received."""
        self._received.close()


@asynccontextmanager
async def open_proxied_reader(
    stream: StreamName,
    numbers: Sequence[int],
    *,
    start: Bound,
    stop: Bound | None,
    is_following: bool,
    routes: ProxyRoutes,
    messages: MessageTransport,
    rng: random.Random,
) -> AsyncIterator[Reader]:
    """Read these partitions of the stream in the block. Arguments: as of `Log.open_reader`."""
    what = str(stream) if len(numbers) > 1 else f"{stream}#{numbers[0]}"
    check_one_partition(str(stream), len(numbers), start)
    check_one_partition(str(stream), len(numbers), stop)
    check_order(start, stop)
    send, receive = trio.open_memory_channel[Received](AHEAD_RECORDS)
    async with open_background() as nursery, send:
        for number in numbers:
            path = ReadPath(
                stream=stream,
                partition=number,
                start=bound_text(start),
                stop=None if stop is None else bound_text(stop),
                is_following=is_following,
                credit=AHEAD_RECORDS,
            )
            one = ProxiedRead(path, stop, routes, messages, rng, send.clone())
            nursery.start_soon(one.run, name=f"read of {stream}#{number} through a proxy")
        send.close()
        reader = Reader(what, _Arrivals(receive))
        try:
            yield reader
        finally:
            reader.close()


@attrs.define(eq=False)
class ProxiedRead:
    """A read of one partition; `ProxiedCursorRead` is one by a cursor."""

    path: ReadPath
    stop: Bound | None
    routes: ProxyRoutes
    messages: MessageTransport
    rng: random.Random
    send: trio.MemorySendChannel[Received]
    back_off_s: float = BACK_OFF_FIRST_S
    deadline_s: float | None = None
    """When to give up; None while the read makes progress."""
    has_received: bool = False

    async def run(self) -> None:
        """Read to the end, at one proxy after the other; send the error if that fails."""
        failed: list[Address] = []
        async with self.send:
            try:
                while not await self._read_at_some(failed):
                    await trio.sleep(self.back_off_s * self.rng.uniform(0.5, 1.0))
                    self.back_off_s = min(2 * self.back_off_s, BACK_OFF_MAX_S)
            except GeologError as error:
                await self.send.send(error)

    async def _read_at_some(self, failed: list[Address]) -> bool:
        """Whether the read has ended. GeologError if it cannot go on."""
        started_s, address = trio.current_time(), None
        try:
            address = await self.routes.any(failed=failed)
            return await self._read_at(address)
        except GeologError as error:
            if address is not None:
                failed[:] = [*failed, address][-_FAILED_MAX:]
            self._check_resumable(error, lasted_s=trio.current_time() - started_s)
            return False

    def _check_resumable(self, error: GeologError, *, lasted_s: float) -> None:
        """Raise the error of a session that lasted so long, unless another may go on."""
        if not error.retriable:
            raise error
        now_s = trio.current_time()
        if self.deadline_s is None or lasted_s > PATIENCE_S:  # It waited for new records.
            self.deadline_s = now_s + PATIENCE_S
        if now_s + self.back_off_s > self.deadline_s:
            raise UnavailableError(
                f"no proxy went on with the read for {PATIENCE_S:g} s: {error}"
            ) from error
        if self.has_received and isinstance(self.stop, Latest | LastRecords):
            raise UnavailableError(
                f"the read was interrupted ({error}), and {bound_text(self.stop)}, where it was"
                " to stop, may be elsewhere by now: read again"
            ) from error

    async def _read_at(self, address: Address) -> bool:
        """Read at this proxy; whether the read ended there. GeologError."""
        async with self.messages.open(
            address,
            self.path.text(),
            subprotocols=(MSGPACK_FRAMES.subprotocol,),
            message_bytes_max=FRAME_BYTES_MAX,
        ) as socket:
            try:
                return await self._take_all(socket)
            except SocketClosedError as error:
                raise UnavailableError(f"proxy {address} ended the read: {error}") from error

    async def _take_all(self, socket: MessageSocket) -> bool:
        with trio.move_on_after(ANSWER_S) as scope:
            message = read_document(await socket.receive())
        if scope.cancelled_caught:
            raise UnavailableError(f"a proxy did not answer within {ANSWER_S:g} s")
        taken_count = 0
        while True:
            match message.get("type"):
                case "record":
                    await self._take(_record_of(message))
                    taken_count += 1
                case "gap":
                    await self._take(_gap_of(message))
                case "end":
                    await self._end(socket)
                    return True
                case "error" if "id" not in message:
                    raise self._error_of(message)
                case "goaway":
                    raise UnavailableError("the proxy is going away")
                case _:  # The hello, answers to commits, and what later proxies may add.
                    self._take_answer(message)
            if taken_count == _CREDIT_RECORDS:
                await socket.send(credit_frame(taken_count))
                taken_count = 0
            message = read_document(await socket.receive())

    async def _end(self, socket: MessageSocket) -> None:
        """The range ended."""

    def _error_of(self, message: Document) -> GeologError:
        """The error that a message tells."""
        return error_told(message)

    def _take_answer(self, message: Document) -> None:
        """Neither a part of the range nor its end."""

    async def _take(self, run: RecordBatch | Gap) -> None:
        """Hand it to the reader, and remember where to go on."""
        await self.send.send(run)
        if isinstance(run, Gap):
            after = AtSequence(run.sequence_next, run.epoch)
        else:
            after = AtSequence(run.end_sequence, run.epoch)
        self.path = attrs.evolve(self.path, start=bound_text(after))
        self.has_received = True
        self.back_off_s = BACK_OFF_FIRST_S
        self.deadline_s = None


def _record_of(message: Document) -> RecordBatch:
    """A batch of the one record. A proxy does not tell when the record was created."""
    fields = _Fields(message)
    dlsn = DLSN.parse(fields.text("dlsn"))
    moment = datetime.fromisoformat(fields.text("timestamp"))
    timestamp_us = (moment - _EPOCH) // _MICROSECOND
    key, transaction_id = message.get("key"), message.get("transaction_id")
    headers = message.get("headers")
    if key is not None and not isinstance(key, bytes):
        raise fields.fault("key")
    if transaction_id is not None and not isinstance(transaction_id, int):
        raise fields.fault("transaction_id")
    if not isinstance(headers, dict):
        raise fields.fault("headers")
    value = message.get("value")
    if not isinstance(value, bytes):
        raise fields.fault("value")
    sealed = seal_batch(
        [value],
        keys=[key],
        headers=[headers],
        transaction_ids=[transaction_id],
        created_us=timestamp_us,
    )
    return RecordBatch(
        stream=fields.text("stream"),
        partition=fields.number("partition"),
        epoch=fields.number("epoch"),
        segment=dlsn.segment,
        entry=dlsn.entry,
        first_slot=dlsn.slot,
        first_sequence=fields.number("sequence"),
        timestamp_us=timestamp_us,
        served_region=fields.text("served_region"),
        batch=open_batch(sealed.data),
        end_row=1,
        hedged=message.get("hedged") is True,
        origin=None if message.get("origin") is None else fields.text("origin"),
        is_local_only=message.get("local_only") is True,
    )


def _gap_of(message: Document) -> Gap:
    fields = _Fields(message)
    first, epoch = message.get("from"), message.get("epoch")
    return Gap(
        stream=fields.text("stream"),
        partition=fields.number("partition"),
        reason=GapReason(fields.text("reason")),
        from_sequence=first if isinstance(first, int) else None,
        to_sequence=fields.number("to"),
        epoch=epoch if isinstance(epoch, int) else None,
    )


def error_told(message: Document) -> GeologError:
    """The error that a proxy's message tells."""
    fields = _Fields(message)
    return error_of(ToldError(code=fields.number("code"), error=fields.text("error")))


@attrs.frozen
class _Fields:
    """The fields of a proxy's message. DamagedBytesError for one of a wrong type."""

    message: Document

    def text(self, name: str) -> str:
        """A field that is a text."""
        found = self.message.get(name)
        if not isinstance(found, str):
            raise self.fault(name)
        return found

    def number(self, name: str) -> int:
        """A field that is a whole number."""
        found = self.message.get(name)
        if not isinstance(found, int):
            raise self.fault(name)
        return found

    def fault(self, name: str) -> DamagedBytesError:
        """The error for a field of a wrong type."""
        found = self.message.get(name)
        return DamagedBytesError(f"a proxy's message has {name} {found!r:.60}")
