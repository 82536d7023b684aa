"""A session of geolog's own clients: channels that append sealed batches to partitions.

Theory of operation. Each channel is a task: it opens the partition's owner, hands batches to
it, and sends the answers in order. One task reads the socket and never waits for a channel,
because no channel may have more unanswered than its credit; a client that exceeds it loses the
channel. Batches of a partition that has too much unanswered wait with their channel, and hold
up no other, as long as few bytes do; the session itself waits at that bound, and at those of
its client and of the proxy (`InFlightBytes`). One task sends, from a queue. Answers to
comparisons are as large as a batch may have rows. So they count as answers that are not taken
(`UntakenAnswers`), and are made once the client has taken earlier ones. Meanwhile what is known
counts for the client alone, so that it cannot keep its partition full.

A batch is opened and checked before the owner gets it: what readers could not read is never
journaled.

Rules: PROTOCOL S23 and S28.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import assert_never

import attrs
import trio

from geolog.background import open_background
from geolog.partition.batch_admission import FenceRefusedError
from geolog.partition.batch_sink import SentBatch
from geolog.partition.partition_writer import PartitionWriter
from geolog.protocol.owner_answers import (
    AppendRefused,
    OwnerAnswer,
    OwnerEnded,
    Placed,
    Received,
    Repeated,
    RepeatedRecords,
    Unknown,
    lease_over,
)
from geolog.protocol.sent_batches import UNANSWERED_MAX
from geolog.protocol.stream_state import StreamName, StreamRecord
from geolog.transport.message_socket import ServedSocket
from geolog.wire.session.batch_checks import fault_of_batch
from geolog.wire.session.batches import (
    BadBatchError,
    BatchesFromClient,
    BatchesFromProxy,
    decode_from_client,
    encode_batches,
    messages_of,
)
from geolog.wire.session.channel_messages import (
    AskStanding,
    BatchCompared,
    BatchPlaced,
    BatchRefused,
    ChannelClosed,
    ChannelOpened,
    CloseChannel,
    DescribeRequest,
    FirstPlaceTold,
    OpenChannel,
    RequestRefused,
    SendBatch,
    SessionGoaway,
    StandingTold,
    StreamTold,
    ToldError,
)
from geolog.wire.session.outgoing_messages import OutgoingMessages
from geolog.wire.session.told_errors import told
from regions.proxy.changes import Changes
from regions.proxy.held_partitions import MovedError
from regions.proxy.session_host import SessionHost, send_answer
from regions.proxy.traffic import AppendOutcome
from topology.errors import (
    DamagedBytesError,
    GeologError,
    HandedOverError,
    InvalidArgumentError,
    NoSuchStreamError,
    OverCapacityError,
    RestingError,
    UnavailableError,
)

CHANNELS_MAX = 10_000
"""Channels of one session."""

_REQUESTS_MAX = 64
"""Requests of one session that are under way; more wait for their turn."""

REQUESTS_WAITING_MAX = 1000
OUTGOING_BYTES_MAX = 1 << 20
"""Beyond so many requests, or bytes of answers that the client has not taken, a session takes
no more messages: what a client asks for and does not take would fill the memory."""

_COMPARED_MAX = 16
"""Repeated batches of one session that are compared at the same time."""

_TURN_MESSAGES = 100
"""Messages that a session takes before other tasks have a turn."""

Answer = Callable[[], Awaitable[BatchesFromProxy]]
"""Waits for what one answer needs, and makes it."""

BatchAnswer = Callable[[], Awaitable[BatchesFromProxy | None]]
"""Likewise; None if the partition's owner cannot answer any more: it has failed, or moves."""


@attrs.define(eq=False)
class _HandedOn:
    """A batch without an answer that its partition's owner has got."""

    size_bytes: int
    came_s: float
    answer: BatchAnswer
    known: trio.Event | None
    """Set once its outcome is known; None if it was known at once."""
    partition: str | None
    """The one that it counts for; None once its outcome is known and its answer has to wait."""


@attrs.define(eq=False)
class _Channel:
    """One channel: its partition's owner, and the batches without an answer, in order."""

    number: int
    compare: Callable[["_Channel", SendBatch, RepeatedRecords], Awaitable[BatchCompared]]
    """Makes the answer to a repeated batch, once there is room for it."""
    partition: str = ""
    """The name for which its batches count."""
    owner: PartitionWriter | None = None
    answers: deque[_HandedOn] = attrs.field(factory=deque)
    waiting: deque[tuple[int, float, SendBatch | BadBatchError]] = attrs.field(factory=deque)
    """Batches behind those, until the partition has room; the owner has not got them."""
    changed: Changes = attrs.field(factory=Changes)
    """Told when a batch comes to wait or is handed on, and when the owner gets no more."""
    unanswered_bytes: int = 0
    taken_count: int = 0
    answered_count: int = 0
    has_answers: trio.Event = attrs.field(factory=trio.Event)
    woken: trio.Event = attrs.field(factory=trio.Event)
    """Set when the client wants a channel whose partition rests."""
    is_resting: bool = False
    """Whether its partition was given up, because nobody appended."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)


class BatchSession:
    """One session over one socket. `run` serves it."""

    def __init__(self, socket: ServedSocket, host: SessionHost, *, client: str) -> None:
        self._socket = socket
        self._host = host
        self._client = client
        self._channels: dict[int, _Channel] = {}
        self._outgoing = OutgoingMessages()
        self._has_outgoing = trio.Event()
        self._in_hand_bytes = 0
        """Of the message that is being taken in."""
        self._compared_bytes = 0
        """Of answers to comparisons that are not sent yet."""
        self._requests = trio.CapacityLimiter(_REQUESTS_MAX)
        self._requests_count = 0
        """Requests without an answer."""
        self._comparing = trio.CapacityLimiter(_COMPARED_MAX)
        self._has_less = Changes()
        """Told when there is less to answer or to send."""

    def __repr__(self) -> str:
        return f"BatchSession({len(self._channels)} channels)"

    async def run(self) -> None:
        """Serve until the client leaves: SocketClosedError. DamagedBytesError ends it, too."""
        try:
            await self._serve()
        finally:
            self._put_down(self._in_hand_bytes)
            self._host.answers.give_back(self._client, self._compared_bytes)

    async def _serve(self) -> None:
        async with open_background() as nursery:
            nursery.start_soon(self._send_all)
            nursery.start_soon(self._watch_drain)
            while True:
                message = await self._host.in_flight.next_of(self._socket, self._client)
                self._in_hand_bytes = len(message)
                if isinstance(message, str):
                    raise InvalidArgumentError("text frames are not part of geolog.v1.batches")
                for number, one in enumerate(messages_of(message), 1):
                    await self._wait_less()
                    await self._take_encoded(nursery, one)
                    self._put_down(len(one))  # A batch in it counts by itself now.
                    if number % _TURN_MESSAGES == 0:
                        await trio.lowlevel.checkpoint()
                self._put_down(self._in_hand_bytes)

    async def _wait_less(self) -> None:
        while (
            self._requests_count >= REQUESTS_WAITING_MAX
            or self._outgoing.size_bytes >= OUTGOING_BYTES_MAX
        ):
            await self._has_less.wait()

    async def _compare(
        self, channel: _Channel, message: SendBatch, records: RepeatedRecords
    ) -> BatchCompared:
        async with open_background() as nursery, self._comparing:
            nursery.start_soon(self._free_partition, channel)
            while True:
                if self._host.answers.is_full(self._client):
                    await self._host.answers.wait_room(self._client)
                elif self._outgoing.size_bytes >= OUTGOING_BYTES_MAX:
                    await self._has_less.wait()
                else:
                    return await _compared(message, records)

    async def _free_partition(self, channel: _Channel) -> None:
        """While an answer waits, count what is known behind it for its client alone.

        The client decides how long that is: all others of the partition go on meanwhile.
        """
        place = 0
        while True:
            while place == len(channel.answers):
                await channel.changed.wait()
            one = channel.answers[place]
            if one.known is not None:
                await one.known.wait()
            if one.partition is not None:
                self._host.in_flight.take(one.size_bytes)
                self._host.in_flight.take_share(None, self._client, one.size_bytes)
                self._free_batch(one)
                one.partition = None
            place += 1

    # Out.

    def _tell(self, message: BatchesFromProxy) -> None:
        frame = encode_batches(message)
        counted_bytes = 0
        if isinstance(message, BatchCompared):
            counted_bytes = len(frame)
            self._compared_bytes += counted_bytes
            self._host.answers.take(self._client, counted_bytes)
        self._outgoing.push(frame, counted_bytes=counted_bytes)
        self._has_outgoing.set()

    async def _send_all(self) -> None:
        while True:
            await self._has_outgoing.wait()
            self._has_outgoing = trio.Event()
            while self._outgoing:
                frames, counted_bytes = self._outgoing.take()
                await send_answer(self._socket, frames)
                self._has_less.tell()
                if counted_bytes:
                    self._compared_bytes -= counted_bytes
                    self._host.answers.give_back(self._client, counted_bytes)

    async def _watch_drain(self) -> None:
        await self._host.draining.wait()
        self._tell(SessionGoaway())

    # In.

    async def _take_encoded(self, nursery: trio.Nursery, message: bytes) -> None:
        try:
            decoded = decode_from_client(message)
            if isinstance(decoded, SendBatch):
                await self._wait_room(decoded.channel)
            self._take(nursery, decoded)
        except BadBatchError as error:
            await self._wait_room(error.channel)
            self._come(error, len(message))
        except DamagedBytesError as error:
            raise InvalidArgumentError(f"the message is damaged: {error}") from error

    def _take(self, nursery: trio.Nursery, message: BatchesFromClient) -> None:
        match message:
            case SendBatch():
                self._come(message, message.sealed.length_bytes)
            case OpenChannel():
                self._open(nursery, message)
            case CloseChannel(number):
                channel = self._channels.pop(number, None)
                if channel is not None:
                    channel.scope.cancel(reason="the client closed the channel")
            case AskStanding():
                self._requests_count += 1
                nursery.start_soon(
                    self._answer_in_turn,
                    message.channel,
                    message.request,
                    partial(self._ask_standing, message),
                    self._due_of(message.channel),
                )
            case DescribeRequest():
                self._requests_count += 1
                describe = partial(self._describe, message)
                nursery.start_soon(self._answer_request, 0, message.request, describe)
            case _:
                assert_never(message)

    async def _wait_room(self, number: int) -> None:
        """With a batch in hand, wait for its partition if too many bytes wait already."""
        channel = self._channels.get(number)
        if (
            channel is not None
            and channel.owner is not None
            and not self._host.in_flight.may_wait(self._client)
        ):
            await self._host.in_flight.wait_partition(channel.partition)

    def _due_of(self, number: int) -> int:
        """The number of the next batch on a channel."""
        channel = self._channels.get(number)
        return 0 if channel is None else channel.taken_count + len(channel.waiting)

    async def _answer_in_turn(
        self, number: int, request: int, answer: Answer, due: int
    ) -> None:
        """Answer behind the batches of the channel that came before, up to number `due`."""
        channel = self._channels.get(number)
        while channel is not None and channel.taken_count < due and channel.owner is not None:
            await channel.changed.wait()
        await self._answer_request(number, request, answer)

    async def _answer_request(self, channel: int, request: int, answer: Answer) -> None:
        async with self._requests:
            try:
                self._tell(await answer())
            except FenceRefusedError as error:
                self._tell(RequestRefused(channel, request, told(error), error.epoch))
            except GeologError as error:
                self._tell(RequestRefused(channel, request, told(error)))
        self._requests_count -= 1
        self._has_less.tell()

    async def _describe(self, message: DescribeRequest) -> BatchesFromProxy:
        stream = await self._host.find_stream(
            StreamName.parse(message.stream), client=self._client, is_latest=True
        )
        return StreamTold(
            request=message.request,
            life=stream.life,
            partitions=stream.partitions,
            home_epoch=stream.home_epoch,
            session_epoch=stream.session_epoch,
        )

    async def _ask_standing(self, message: AskStanding) -> BatchesFromProxy:
        channel = self._channels.get(message.channel)
        if channel is not None and channel.is_resting:
            channel.woken.set()
            raise UnavailableError(f"channel {message.channel} rests: open another one")
        if channel is None:
            raise InvalidArgumentError(f"channel {message.channel} is not open")
        if channel.owner is None:  # The partition was lost just now, and the channel closes.
            raise UnavailableError(f"channel {message.channel} has no owner: ask the next one")
        standing = await channel.owner.hello(message.writer_id, message.fence)
        return StandingTold(message.channel, message.request, standing)

    # Channels.

    def _open(self, nursery: trio.Nursery, message: OpenChannel) -> None:
        if message.channel in self._channels or len(self._channels) >= CHANNELS_MAX:
            error = OverCapacityError(
                f"channel {message.channel} is open already, or this session has"
                f" {CHANNELS_MAX} channels"
            )
            self._tell(ChannelClosed(channel=message.channel, error=told(error)))
            return
        refusal = self._host.channels.take(self._client)
        if refusal is not None:
            self._tell(ChannelClosed(channel=message.channel, error=told(refusal)))
            return
        channel = self._channels[message.channel] = _Channel(message.channel, self._compare)
        nursery.start_soon(self._run_channel, channel, message)

    async def _run_channel(self, channel: _Channel, message: OpenChannel) -> None:
        """Serve one channel until the client, or the partition's owner, ends it."""
        try:
            closed = await self._end_of_channel(channel, message)
        finally:
            self._host.channels.give_back(self._client)
            for one in channel.answers:
                self._free_batch(one)
            waiting_bytes = sum(size_bytes for size_bytes, *_ in channel.waiting)
            self._host.in_flight.give_back_waiting(self._client, waiting_bytes)
            channel.answers.clear()
            channel.waiting.clear()
            self._take_no_more(channel)
        if self._channels.get(channel.number) is channel:
            del self._channels[channel.number]
        if closed is not None:
            self._tell(closed)

    async def _end_of_channel(
        self, channel: _Channel, message: OpenChannel
    ) -> ChannelClosed | None:
        """Serve a channel to its end: what to tell of it, if it was not the client's."""
        with channel.scope:
            try:
                stream = await self._stream_of(message)
                async with self._host.held.use(
                    stream, message.partition, avoid=message.avoid
                ) as owner:
                    await self._serve_channel(channel, owner)
            except GeologError as error:
                if isinstance(error, RestingError):
                    await self._rest(channel)
                location = None
                if isinstance(error, MovedError):
                    location = str(error.address)
                    self._host.traffic.redirects_count += 1
                return ChannelClosed(
                    channel=channel.number,
                    error=told(error),
                    location=location,
                    answered_count=channel.answered_count,
                    taken_count=channel.taken_count,
                )
        return None

    async def _rest(self, channel: _Channel) -> None:
        """Wait until the client needs the partition, which was given up for want of appends.

        It then opens another channel, and sends what the owner has refused meanwhile again.
        """
        has_refused = bool(channel.answers or channel.waiting)
        channel.taken_count, channel.is_resting = channel.answered_count, True
        if not has_refused:
            await channel.woken.wait()

    def _put_down(self, count: int) -> None:
        """So many bytes of the message in hand are done with."""
        self._in_hand_bytes -= count
        self._host.in_flight.give_back_share(None, self._client, count)

    def _count_batch(self, channel: _Channel, count: int) -> None:
        self._host.in_flight.take(count)
        self._host.in_flight.take_share(channel.partition, self._client, count)

    def _free_batch(self, one: _HandedOn) -> None:
        self._host.in_flight.give_back_share(one.partition, self._client, one.size_bytes)

    async def _stream_of(self, message: OpenChannel) -> StreamRecord:
        stream = await self._host.find_stream(
            StreamName.parse(message.stream), client=self._client
        )
        if stream.life != message.life or message.partition >= stream.partitions:
            stream = await self._host.find_stream(
                stream.name, client=self._client, is_latest=True
            )
        if stream.life != message.life:
            raise NoSuchStreamError(
                f"stream {str(stream.name)!r} was deleted; another one has its name now"
            )
        return stream

    async def _serve_channel(self, channel: _Channel, owner: PartitionWriter) -> None:
        """Answer batches in order; raise why the partition is lost, once all are answered."""
        channel.owner, channel.partition = owner, str(owner.name)
        self._tell(
            ChannelOpened(
                channel=channel.number,
                epoch=owner.epoch,
                home_epoch=owner.opened.home_epoch,
                session_epoch=owner.opened.session_epoch,
                forks=owner.opened.lineage.forks,
                transaction_id=owner.opened.transaction_id,
                credit_bytes=self._host.config.credit_bytes,
            )
        )
        async with open_background() as nursery:
            nursery.start_soon(self._watch_owner, channel, owner)
            nursery.start_soon(self._hand_on_waiting, channel)
            while owner.failure is None or channel.answers:
                while channel.answers:
                    one = channel.answers[0]
                    answered = await one.answer()
                    if answered is None:
                        raise await self._why_over(channel, owner)
                    channel.answers.popleft()
                    channel.unanswered_bytes -= one.size_bytes
                    self._free_batch(one)
                    channel.answered_count += 1
                    latency_s = trio.current_time() - one.came_s
                    self._host.traffic.batches.note(_outcome_of(answered), latency_s)
                    self._tell(answered)
                if owner.failure is None:
                    await channel.has_answers.wait()
                    channel.has_answers = trio.Event()
            # Before the block ends, which lets other tasks run: they take no more batches.
            raise await self._why_over(channel, owner)

    async def _why_over(self, channel: _Channel, owner: PartitionWriter) -> GeologError:
        """Why the channel ends; from now on it takes nothing more."""
        self._take_no_more(channel)
        if isinstance(owner.failure, RestingError):
            return owner.failure
        return await self._host.why_lost(owner)

    async def _watch_owner(self, channel: _Channel, owner: PartitionWriter) -> None:
        await owner.wait_ended()
        channel.has_answers.set()

    def _take_no_more(self, channel: _Channel) -> None:
        """The owner gets nothing more; requests that wait behind batches are answered."""
        channel.owner = None
        channel.changed.tell()

    async def _hand_on_waiting(self, channel: _Channel) -> None:
        """Hand batches that wait to the owner, as the partition has room."""
        while True:
            while not channel.waiting:
                await channel.changed.wait()
            await self._host.in_flight.wait_partition(channel.partition)
            if channel.owner is None:  # The channel ends, and its client is told of these.
                return
            size_bytes, came_s, batch = channel.waiting.popleft()
            self._host.in_flight.give_back_waiting(self._client, size_bytes)
            self._count_batch(channel, size_bytes)
            self._hand_on(channel, batch, size_bytes, came_s)

    def _come(self, batch: SendBatch | BadBatchError, size_bytes: int) -> None:
        """Hand a batch to the channel's owner, or keep it until its partition has room.

        A batch for a channel that has ended is dropped: the client is told how many were taken.
        """
        channel = self._channel_taking(batch.channel, batch.number, size_bytes)
        if channel is None:
            return
        came_s = trio.current_time()
        if channel.waiting or self._host.in_flight.is_partition_full(channel.partition):
            self._host.in_flight.take_waiting(self._client, size_bytes)
            channel.waiting.append((size_bytes, came_s, batch))
            channel.changed.tell()
        else:
            self._count_batch(channel, size_bytes)
            self._hand_on(channel, batch, size_bytes, came_s)

    def _hand_on(
        self,
        channel: _Channel,
        batch: SendBatch | BadBatchError,
        size_bytes: int,
        came_s: float,
    ) -> None:
        """Have the owner answer a batch; in its turn, refuse one that was sealed wrongly."""
        assert channel.owner is not None
        channel.taken_count += 1
        known: trio.Event | None = None
        if isinstance(batch, BadBatchError):
            answer: BatchAnswer = partial(_refused, batch, batch)
        else:
            answer, known = self._answer_to(batch, channel, channel.owner)
        channel.answers.append(_HandedOn(size_bytes, came_s, answer, known, channel.partition))
        channel.has_answers.set()
        channel.changed.tell()

    def _channel_taking(self, channel: int, number: int, size_bytes: int) -> _Channel | None:
        """The channel, if it takes a batch of this number and size."""
        found = self._channels.get(channel)
        if found is None:
            return None
        if found.owner is None:
            found.woken.set()
            return None
        due = found.taken_count + len(found.waiting)
        if number != due:
            self._end_channel(
                found,
                InvalidArgumentError(
                    f"batch {number} on channel {channel} is out of order: the next one is"
                    f" {due}"
                ),
            )
            return None
        found.unanswered_bytes += size_bytes
        limit_bytes = self._host.config.credit_bytes + size_bytes
        unanswered_count = len(found.answers) + len(found.waiting)
        if found.unanswered_bytes > limit_bytes or unanswered_count >= UNANSWERED_MAX:
            self._end_channel(
                found,
                OverCapacityError(
                    f"channel {channel} has {found.unanswered_bytes} bytes unanswered; its"
                    f" credit is {self._host.config.credit_bytes}"
                ),
            )
            return None
        return found

    def _end_channel(self, channel: _Channel, error: GeologError) -> None:
        channel.scope.cancel(reason=str(error))
        del self._channels[channel.number]
        self._tell(
            ChannelClosed(
                channel=channel.number,
                error=told(error),
                answered_count=channel.answered_count,
                taken_count=channel.taken_count,
            )
        )

    def _answer_to(
        self, message: SendBatch, channel: _Channel, owner: PartitionWriter
    ) -> tuple[BatchAnswer, trio.Event | None]:
        fault = fault_of_batch(message.sealed.data, message.terms)
        if fault is not None:
            return partial(_refused, message, fault), None
        sent = owner.append(message.sealed, message.terms, None)
        if _is_moving(sent.answer):
            # The client sends this one again elsewhere, and all behind it. The owner may go on,
            # if nobody takes the partition: it must get none of them here.
            self._take_no_more(channel)
        return partial(_answered, message, channel, owner, sent), sent.done


def _is_moving(answer: OwnerAnswer | None) -> bool:
    """Whether the owner takes nothing more, because the partition moves."""
    return isinstance(answer, AppendRefused) and isinstance(answer.error, HandedOverError)


async def _answered(
    message: SendBatch, channel: _Channel, owner: PartitionWriter, sent: SentBatch
) -> BatchesFromProxy | None:
    """Wait for the owner's answer, and put it into a message."""
    if not sent.done.is_set():  # Answers that come together are told in one turn.
        await sent.done.wait()
    answer = sent.answer
    match answer:
        case Placed(segment, entry, slot, first, until_s):
            valid_ms = _valid_ms(until_s)
            if valid_ms is not None and valid_ms <= 0:
                return await _refused(message, lease_over(owner.name))
            return BatchPlaced(
                message.channel, message.number, segment, entry, slot, first, valid_ms
            )
        case Repeated(records):
            compared = await channel.compare(channel, message, records)
            # An owner that has failed does not know; the next one does.
            return None if owner.failure is not None and _is_in_doubt(compared) else compared
        case AppendRefused(error=HandedOverError()) | OwnerEnded(failure=HandedOverError()):
            # The owner had answered all that it took: this batch and later ones came too late.
            channel.taken_count = message.number
            return None
        case AppendRefused(error=error) | Unknown(error=error):
            return await _refused(message, error)
        case OwnerEnded():
            return None
        case None | Received():
            raise AssertionError(f"{answer} is not the last answer")
        case _:
            assert_never(answer)


def _is_in_doubt(compared: BatchCompared) -> bool:
    return any(isinstance(row, ToldError) and row.outcome == "unknown" for row in compared.rows)


def _outcome_of(answer: BatchesFromProxy) -> AppendOutcome:
    match answer:
        case BatchRefused(error=error):
            return error.outcome
        case BatchCompared():
            return "duplicate"
        case _:
            return "stored"


async def _refused(message: SendBatch | BadBatchError, error: GeologError) -> BatchesFromProxy:
    return BatchRefused(message.channel, message.number, told(error))


def _valid_ms(until_s: float | None) -> int | None:
    """How long an answer still counts, by the owner's lease; None: for good."""
    return None if until_s is None else int(1e3 * (until_s - trio.current_time()))


async def _compared(message: SendBatch, records: RepeatedRecords) -> BatchCompared:
    rows: list[FirstPlaceTold | ToldError] = []
    for row in range(message.sealed.record_count):
        try:
            first = await records.answer(row)
        except GeologError as error:
            rows.append(told(error))
        else:
            rows.append(
                FirstPlaceTold(first.dlsn, first.sequence, _valid_ms(first.valid_until_s))
            )
    return BatchCompared(message.channel, message.number, tuple(rows))
