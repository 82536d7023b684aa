"""Reads all streams of a pattern: one task per partition, and one that looks for new streams.

Theory of operation. Metadata tells when streams are made, deleted, or get more partitions;
nothing is asked again that has not changed. `Subscription` decides which partitions to read,
and from where; each is read by a reader of its own, and the runs of all go through one short
queue to the application.

Memory stays bounded however many streams there are. A partition that is behind needs a turn to
read, and there are few turns; they are given in the order in which they were asked for. It
gives the turn back after some bytes if others wait, and when it has caught up: then it costs
nothing until records come. If they come while the queue is full, it needs a turn again; if
there is none, it drops what it has read and waits for one. So no stream starves the others.

While the subscription follows, a partition that cannot be read now is tried again, less and
less often, and the log tells of it; the others go on. An error that no retry can mend ends the
subscription, with the partition's name. Without following, any error does.
"""

import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import attrs
import trio

from geolog.background import open_background
from geolog.client.reading.reader import Reader
from geolog.client.reading.record import Gap, RecordBatch
from geolog.client.reading.subscription_reader import SubscriptionReader
from geolog.protocol.asking_pace import AskingPace
from geolog.protocol.ids import Position
from geolog.protocol.stream_state import StreamName, StreamRecord
from geolog.protocol.subscription import (
    JoinPartition,
    LeavePartition,
    SeenStream,
    SubscribedPartition,
    Subscription,
)
from topology.errors import GeologError, NoSuchStreamError

_log = logging.getLogger("geolog.client")


@attrs.frozen(kw_only=True)
class SubscriptionConfig:
    """Bounds of a subscription."""

    turns_max: int = 16
    """Partitions that read what they are behind at the same time; others wait."""

    turn_bytes: int = 4 << 20
    """Unpacked bytes of a turn; then the partition waits for the next one, if others wait."""

    ahead_runs: int = 16
    """Runs of records to read ahead of the application, of all partitions together."""

    look_s: float = 0.5
    """How often to look whether metadata has told of a change."""

    retry_delay_s: float = 1.0
    """Pause before a partition that failed is tried again."""

    retry_delay_s_max: float = 30.0
    """The pause doubles up to this."""


@attrs.frozen
class OpenedPartition:
    """A reader of one partition."""

    reader: Reader
    end: int
    """The sequence after the last record, as the reader was opened: from there on it waits."""


OpenPartition = Callable[
    [StreamRecord, SubscribedPartition, Position | None],
    AbstractAsyncContextManager[OpenedPartition],
]
"""Opens a reader of a partition from this position on; None: from its first record."""

_Arrived = tuple[SubscribedPartition, RecordBatch | Gap] | GeologError


class _Runs:
    """The runs of all partitions, as they come: a `SubscribedRuns`."""

    def __init__(
        self,
        received: trio.MemoryReceiveChannel[_Arrived],
        home_epoch_of: Callable[[SubscribedPartition], int],
    ) -> None:
        self._received = received
        self._partition: SubscribedPartition | None = None
        self.home_epoch_of = home_epoch_of

    @property
    def partition(self) -> SubscribedPartition:
        assert self._partition is not None, "there was a run"
        return self._partition

    async def next_run(self) -> RecordBatch | Gap:
        try:
            arrived = await self._received.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None
        if isinstance(arrived, GeologError):
            raise arrived
        self._partition, run = arrived
        return run

    def close(self) -> None:
        self._received.close()


@asynccontextmanager
async def open_subscription(
    what: str,
    *,
    subscription: Subscription,
    streams: Sequence[StreamRecord],
    look: Callable[[], Awaitable[Sequence[StreamRecord]]],
    open_partition: OpenPartition,
    is_following: bool,
    rng: random.Random,
    config: SubscriptionConfig,
) -> AsyncIterator[Reader]:
    """Read these streams; with `is_following` also those that `look` finds later, for ever."""
    send, receive = trio.open_memory_channel[_Arrived](config.ahead_runs)
    async with open_background() as nursery:
        reading = _Reading(
            subscription, open_partition, send, nursery, rng, config, is_following=is_following
        )
        reading.on_streams(streams)
        if is_following:
            nursery.start_soon(reading.watch, look, name=f"streams of {what}")
        else:
            send.close()
        reader = SubscriptionReader(what, _Runs(receive, reading.home_epoch_of), subscription)
        try:
            yield reader
        finally:
            reader.close()


class _Turn:
    """A partition's right to read what it is behind."""

    def __init__(self, turns: trio.CapacityLimiter) -> None:
        self._turns = turns
        self.is_held = False

    async def take(self) -> None:
        """Wait for it, behind those that wait already."""
        await self._turns.acquire_on_behalf_of(self)
        self.is_held = True

    def take_nowait(self) -> bool:
        """Take it if there is one; whether it was taken."""
        try:
            self._turns.acquire_on_behalf_of_nowait(self)
        except trio.WouldBlock:
            return False
        self.is_held = True
        return True

    def give_back(self) -> None:
        """The partition is not behind any more, or others have their turn."""
        if self.is_held:
            self.is_held = False
            self._turns.release_on_behalf_of(self)

    @property
    def is_wanted(self) -> bool:
        """Whether another partition waits for one."""
        return self._turns.statistics().tasks_waiting > 0


class _Reading:
    """The tasks that read, one for each partition that is joined."""

    def __init__(
        self,
        subscription: Subscription,
        open_partition: OpenPartition,
        send: trio.MemorySendChannel[_Arrived],
        nursery: trio.Nursery,
        rng: random.Random,
        config: SubscriptionConfig,
        *,
        is_following: bool,
    ) -> None:
        self._subscription = subscription
        self._open_partition = open_partition
        self._send = send
        self._nursery = nursery
        self._rng = rng
        self._config = config
        self._is_following = is_following
        self._turns = trio.CapacityLimiter(config.turns_max)
        self._records: dict[StreamName, StreamRecord] = {}
        self._scopes: dict[SubscribedPartition, trio.CancelScope] = {}

    def home_epoch_of(self, partition: SubscribedPartition) -> int:
        """The home epoch of its stream, as last seen."""
        return self._records[partition.stream].home_epoch

    async def watch(self, look: Callable[[], Awaitable[Sequence[StreamRecord]]]) -> None:
        """Join and leave partitions as streams come and go; never returns."""
        async with self._send:
            while True:
                await trio.sleep(self._config.look_s)
                try:
                    self.on_streams(await look())
                except GeologError as error:
                    if not error.retriable:
                        await self._send.send(error)
                        return

    def on_streams(self, records: Sequence[StreamRecord]) -> None:
        """Read what is new, and stop reading what is gone."""
        for record in records:  # Those that are gone stay: runs of them may be under way.
            self._records[record.name] = record
        seen = [SeenStream(one.name, one.life, one.partitions) for one in records]
        for effect in self._subscription.on_streams(seen):
            match effect:
                case JoinPartition(partition):
                    scope = self._scopes[partition] = trio.CancelScope()
                    record = self._records[partition.stream]
                    self._nursery.start_soon(
                        self._read, record, partition, scope, self._send.clone(), name=partition
                    )
                case LeavePartition(partition):
                    reading = self._scopes.get(partition)
                    if reading is not None:  # Else it has failed, and the reader is told.
                        reading.cancel(reason="the stream is gone")

    async def _read(
        self,
        record: StreamRecord,
        partition: SubscribedPartition,
        scope: trio.CancelScope,
        send: trio.MemorySendChannel[_Arrived],
    ) -> None:
        try:
            async with send:
                with scope:
                    await self._read_in_turns(record, partition, send)
        finally:
            del self._scopes[partition]

    async def _read_in_turns(
        self,
        record: StreamRecord,
        partition: SubscribedPartition,
        send: trio.MemorySendChannel[_Arrived],
    ) -> None:
        pace = AskingPace(
            pause_s_first=self._config.retry_delay_s,
            pause_s_max=self._config.retry_delay_s_max,
            rng=self._rng,
        )
        is_over = False
        while not is_over:
            turn = _Turn(self._turns)
            try:
                await turn.take()
                is_over = await self._read_some(record, partition, send, turn, pace)
            except NoSuchStreamError as error:
                if not self._is_following:
                    await send.send(_named(partition, error))
                is_over = True
            except GeologError as error:
                if not self._is_following or not error.retriable:
                    await send.send(_named(partition, error))
                    return
                _log.warning("%s: cannot be read now (%s); trying again", partition, error)
                pace.on_failed(now_s=trio.current_time())
            finally:
                turn.give_back()
            await trio.sleep_until(max(pace.due_s, trio.current_time()))
        self._subscription.on_over(partition)

    async def _read_some(
        self,
        record: StreamRecord,
        partition: SubscribedPartition,
        send: trio.MemorySendChannel[_Arrived],
        turn: _Turn,
        pace: AskingPace,
    ) -> bool:
        """Read until the partition ends (True), or is to wait for its next turn (False)."""
        begin = self._subscription.place_of(partition)
        latest = self._records[partition.stream]
        record = latest if latest.life == partition.life else record  # Its home may have moved.
        bytes_left = self._config.turn_bytes
        async with self._open_partition(record, partition, begin) as opened:
            position = begin or Position(record.home_epoch, 0)
            while True:
                if self._is_following and position.sequence >= opened.end:
                    turn.give_back()
                run = await anext(opened.reader.runs(), None)
                if run is None:
                    return True
                if turn.is_held or turn.take_nowait():
                    await send.send((partition, run))
                else:
                    try:
                        send.send_nowait((partition, run))
                    except trio.WouldBlock:
                        return False
                pace.on_answered()
                position = _position_after(run, record.home_epoch).reached_from(position)
                self._subscription.on_read(partition, position)
                bytes_left -= 0 if isinstance(run, Gap) else run.batch.header.raw_bytes
                if self._is_following and bytes_left <= 0 and turn.is_held and turn.is_wanted:
                    return False


def _position_after(run: RecordBatch | Gap, home_epoch: int) -> Position:
    if isinstance(run, Gap):
        return Position(home_epoch if run.epoch is None else run.epoch, run.sequence_next)
    return Position(run.epoch, run.end_sequence)


def _named(partition: SubscribedPartition, error: GeologError) -> GeologError:
    """The error, with the stream that it is about."""
    if str(partition.stream) not in str(error):
        error.args = (f"{partition}: {error}",)
    return error


def check_some(pattern: str, found: Sequence[StreamRecord], hint: str) -> None:
    """NoSuchStreamError if a read that does not wait for streams would read none."""
    if not found:
        raise NoSuchStreamError(
            f"no stream matches {pattern!r} (a read that follows waits for streams){hint}"
        )
