"""The home's side of one bridge: sends the logs of its streams to one target.

One task opens a channel for each partition that is relayed to the target; one reads what the
target says; one sends, from `OutgoingLink`, which decides what is next. Channels take entries
from the feed of their partition, which all bridges share. A channel that is further behind than
the feed's buffer reads the log by itself, within the bounds of `LogsReadAhead`.

A target is believed once the home is known to have the entry that it told as its last.

Rules: PROTOCOL B3, B8 to B12, G4 and T8.
"""

import logging
import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from itertools import chain
from typing import assert_never

import attrs
import trio

from geolog.background import open_background
from geolog.protocol.stream_state import PartitionName
from geolog.protocol.watermark import Watermark
from geolog.transport.message_socket import MessageSocket, SocketClosedError
from geolog.transport.seam import ConnectionFailedError
from geolog.wire.session.batches import messages_of
from geolog.wire.session.codes import CLOSE_NORMAL, Code, close_code
from geolog.wire.session.outgoing_messages import JOINED_BYTES_MAX
from relay.bridge.home_feed import HomeFeed, HomeFeeds, TargetStanding
from relay.bridge.home_log import HomeLog, open_home_log
from relay.bridge.read_ahead import LogsReadAhead, ReadTurn
from relay.protocol.bridge_gate import BridgeGate
from relay.protocol.bridge_messages import (
    AskWatermark,
    BridgeHeartbeat,
    BridgeHello,
    BridgeLeaving,
    BridgeRefused,
    ChannelEnded,
    DurableTold,
    FromHome,
    TailTold,
    WatermarkTold,
    WindowTold,
)
from relay.protocol.canary import PARTIAL_MARK
from relay.protocol.outgoing import (
    ChannelState,
    FetchAfter,
    OutgoingChannel,
    OutgoingEffect,
    StopChannel,
    StopFetching,
)
from relay.protocol.outgoing_link import (
    ASKED_PATIENCE,
    LinkBounds,
    LinkBucket,
    MessageSize,
    OutgoingLink,
)
from relay.wire.bridge import decode_from_target, encode_bridge
from topology.errors import DamagedBytesError, FencedError, GeologError, UnavailableError

_log = logging.getLogger(__name__)

HELLO_S = 10.0
"""How long the other side may take to say hello."""

_LOOK_S = 1.0
_BEAT_S = 1.0
_ALARMS_MAX = 16
_WAIT_S_MIN = 0.001
"""The least time to wait for the cap: what is left of it may be too small to be measured."""

TAILS_MAX = 4000
"""Ends of logs in one heartbeat, at most; with more partitions, they take turns."""

_TAIL_BYTES = 100
"""Of the end of one log in a heartbeat, about."""

_BEAT_BYTES_LEAST = 2 << 10
"""Of a heartbeat on the slowest link."""


@attrs.define(eq=False)
class _HomeChannel:
    number: int
    feed: HomeFeed
    standing: TargetStanding
    core: OutgoingChannel
    on_buffered: Callable[[], None] = attrs.field(init=False)
    opened_s: float
    told_s: float | None = None
    live_s: float | None = None
    fetching: trio.CancelScope | None = None
    told: WatermarkTold | None = None
    """The target's answer, until the home is known to have the same entry."""

    @property
    def name(self) -> PartitionName:
        return self.feed.name

    @property
    def question_s(self) -> float | None:
        """How long the target took to tell its watermark."""
        return None if self.told_s is None else self.told_s - self.opened_s

    @property
    def replay_s(self) -> float | None:
        """How long it took from there until the channel was live."""
        if self.told_s is None or self.live_s is None:
            return None
        return self.live_s - self.told_s

    def note_live(self, now_s: float) -> None:
        """Note the time if the channel is live for the first time."""
        if self.live_s is None and self.core.state is ChannelState.LIVE:
            self.live_s = now_s


@attrs.frozen
class ChannelProgress:
    """How far one partition has come on its way to one target."""

    name: PartitionName
    target: str
    state: ChannelState
    sent_count: int
    """Entries sent on this bridge."""
    replayed_count: int
    """Those of them that the target had missed, and that may have been sent before."""
    replayed_bytes: int
    """Bytes of those."""
    position: Watermark | None
    """The last entry sent, or what the target had."""
    durable: Watermark | None
    unanswered_bytes: int
    lag_records: int
    """Records at home that the target has not durably."""
    lag_bytes: int
    lag_s: float
    """Age of the oldest entry that the target lacks; see `HomeFeed.lag_s_of`."""
    question_s: float | None
    """How long the target took to tell its watermark on this bridge."""
    replay_s: float | None
    """How long it took from there until the channel was live."""
    round_trip_s: float | None
    """How long the last canary of the link took to come back; None if none did."""


class HomeBridge:
    """One accepted bridge; `run` serves it until it ends."""

    def __init__(
        self,
        socket: MessageSocket,
        *,
        region: str,
        gate: BridgeGate,
        bounds: LinkBounds,
        now_us: Callable[[], int],
        feeds: HomeFeeds,
        on_admitted: Callable[["HomeBridge"], None],
        buckets: dict[str, LinkBucket] | None = None,
    ) -> None:
        """on_admitted: hears that the target is known; earlier bridges of it give way.

        buckets: of the targets, if the bandwidth has a cap; earlier bridges used them.
        """
        self._socket = socket
        self._feeds = feeds
        self._region = region
        self._gate = gate
        self._bounds = bounds
        self._now_us = now_us
        self._on_admitted = on_admitted
        self._serving = trio.CancelScope()
        self._target = ""
        self._buckets = {} if buckets is None else buckets
        self._link = OutgoingLink(1, bounds, now_s=trio.current_time())
        self._ahead = LogsReadAhead(bounds.ahead_bytes_max)
        self._message_size = MessageSize(JOINED_BYTES_MAX)
        self._beat_size = MessageSize(TAILS_MAX * _TAIL_BYTES, bytes_least=_BEAT_BYTES_LEAST)
        self._is_beat_due = False
        self._has_beaten = False
        """Whether no entry was sent since the last heartbeat."""
        self._channels: dict[int, _HomeChannel] = {}
        self._channel_last = 0
        self._tail_last = 0
        """The channel whose tail was told last."""
        self._outgoing: deque[FromHome] = deque()
        self._awake = trio.Event()
        self._answered = trio.Event()
        self._nursery: trio.Nursery
        self._is_over = False
        """Whether the nursery takes no more tasks, or soon will not."""
        self.fetched_count = 0
        """Entries read from the log because the buffer did not have them."""
        self.refusal = ""
        """Why the target was not let in."""
        self.alarms: list[str] = []
        """Why channels were stopped, the last few."""

    def __repr__(self) -> str:
        return f"HomeBridge({self._region}->{self._target}, {self._link!r})"

    @property
    def target(self) -> str:
        """The region at the other end; empty before its hello."""
        return self._target

    @property
    def link(self) -> OutgoingLink:
        """The channels, and how much of them is unanswered."""
        return self._link

    @property
    def ahead_bytes(self) -> int:
        """Bytes that were read from logs and not sent."""
        return self._ahead.bytes

    async def run(self) -> None:
        """Serve until the bridge ends.

        DamagedBytesError, UnavailableError if it is stuck, FencedError if it gave way.
        """
        if not await self._admit():
            return
        self._on_admitted(self)
        try:
            with self._serving:
                async with open_background() as nursery:
                    self._nursery = nursery
                    nursery.start_soon(self._look)
                    nursery.start_soon(self._send_all)
                    nursery.start_soon(self._beat)
                    try:
                        while True:
                            await self._hear()
                    finally:
                        self._is_over = True
            raise FencedError(f"{self._target} has opened a newer bridge")
        finally:
            self._drop_all()

    def give_way(self) -> None:
        """End, because the target has a newer bridge: what this one tells may be old."""
        self._drop_all()  # The newer one goes on with what this one knows.
        self._serving.cancel(reason="a newer bridge of this target was opened")

    async def _admit(self) -> bool:
        with trio.fail_after(HELLO_S):
            message = await self._socket.receive()
        hello = decode_from_target(_bytes_of(message))
        if not isinstance(hello, BridgeHello):
            raise DamagedBytesError(f"a bridge begins with {type(hello).__name__}, not a hello")
        answer = self._gate.answer(hello)
        await self._socket.send(encode_bridge(answer))
        if isinstance(answer, BridgeRefused):
            self.refusal = f"refused a bridge of {hello.region}: {answer.error}"
            await self._socket.close(close_code(answer.code), answer.error)
            return False
        self._target = hello.region
        self._link.on_window(hello.window_bytes)
        cap = self._bounds.bytes_per_s_max
        if cap is not None:
            fresh = LinkBucket(cap, trio.current_time())
            self._link.go_on_with(self._buckets.setdefault(self._target, fresh))
        return True

    async def rest(self) -> None:
        """Send no further entries, and wait until those that were sent are durable."""
        self._link.rest()
        while self._link.unanswered_bytes:
            self._answered = trio.Event()
            await self._answered.wait()

    async def leave(self) -> None:
        """Say that this side leaves in good order, and close; the target asks the successor."""
        with suppress(SocketClosedError):
            await self._socket.send(encode_bridge(BridgeLeaving()))
            await self._socket.close(CLOSE_NORMAL, "the coordinator leaves")

    def progress(self) -> list[ChannelProgress]:
        """How far each partition has come."""
        return [self._progress_of(channel) for channel in self._channels.values()]

    def _progress_of(self, channel: _HomeChannel) -> ChannelProgress:
        core, feed = channel.core, channel.feed
        durable = feed.standing(self._target).durable
        lag = feed.lag_of(self._target)
        return ChannelProgress(
            channel.name,
            self._target,
            core.state,
            core.sent_count,
            core.replayed_count,
            core.replayed_bytes,
            core.position,
            durable,
            core.unanswered_bytes,
            lag_records=lag.records,
            lag_bytes=lag.bytes,
            lag_s=feed.lag_s_of(self._target, behind_since_us=core.behind_since_us),
            question_s=channel.question_s,
            replay_s=channel.replay_s,
            round_trip_s=self._link.round_trip_s,
        )

    # Streams.

    async def _look(self) -> None:
        """Open channels for what is relayed to the target, and end those of what is not."""
        while True:
            self._open_missing()
            self._ahead.look()
            await trio.sleep(_LOOK_S)

    def _open_missing(self) -> None:
        wanted = {feed.name: feed for feed in self._feeds.feeds_of(self._target)}
        known = {channel.name: channel for channel in self._channels.values()}
        for name, channel in list(known.items()):
            if wanted.get(name) is not channel.feed:
                del known[name]
                self._end(channel, 404, f"{name} is not relayed to {self._target} now")
            elif channel.standing is not channel.feed.standing(self._target):
                del known[name]
                self._end(channel, 404, f"{name} may have another mirror in {self._target}")
        for name, feed in wanted.items():
            if name not in known:
                self._open(feed)

    def _open(self, feed: HomeFeed) -> None:
        self._channel_last += 1
        number = self._channel_last
        standing = feed.standing(self._target)
        channel = _HomeChannel(
            number,
            feed,
            standing,
            OutgoingChannel(feed.buffer, handed=standing.handed),
            opened_s=trio.current_time(),
        )
        standing.handed = None
        channel.on_buffered = partial(self._on_buffered, channel)
        feed.listeners.append(channel.on_buffered)
        self._channels[number] = channel
        self._link.open(number, channel.core, now_s=trio.current_time())
        self._tell(
            AskWatermark(
                channel=number,
                stream=str(feed.name.stream),
                life=feed.name.life,
                partition=feed.name.number,
                home_epoch=feed.record.home_epoch,
            )
        )

    def _on_buffered(self, channel: _HomeChannel) -> None:
        self._perform(channel, channel.core.on_buffered())
        self._go_on(channel)

    def _go_on(self, channel: _HomeChannel) -> None:
        """There may be more to send, or to believe, than there was."""
        self._believe(channel)
        self._link.on_ready(channel.number)
        self._awake.set()

    def _stop(self, channel: _HomeChannel, code: int, error: str) -> None:
        """End a channel that cannot go on, with an alarm; it is asked again a little later."""
        alarm = f"{channel.name} to {self._target}: {error}"
        _log.warning("%s", alarm)
        self.alarms.append(alarm)
        del self.alarms[:-_ALARMS_MAX]
        channel.standing.stop(code, error)
        self._end(channel, code, error)

    def _end(self, channel: _HomeChannel, code: int, error: str) -> None:
        self._drop(channel)
        self._tell(ChannelEnded(channel.number, code, error))

    def _drop_all(self) -> None:
        for channel in list(self._channels.values()):
            self._drop(channel)

    def _drop(self, channel: _HomeChannel) -> None:
        if self._channels.pop(channel.number, None) is not None:
            channel.feed.listeners.remove(channel.on_buffered)
            channel.standing.handed = channel.core.all_sent
        self._link.end(channel.number)
        self._ahead.count(channel.core)
        self._awake.set()  # It may have taken the room of others.
        self._answered.set()
        if channel.fetching is not None:
            channel.fetching.cancel(reason="the channel is over")

    # Reading the log for a target that is further behind than the buffer.

    async def _fetch(
        self, channel: _HomeChannel, scope: trio.CancelScope, fetch: FetchAfter
    ) -> None:
        with scope:
            try:
                async with self._ahead.reading(channel.core):
                    await self._read(channel, fetch)
                    await self._ahead.wait_sent(channel.core)
            except GeologError as error:
                if channel.number in self._channels:
                    gone = channel.core.on_gone(fetch, str(error), error.code)
                    self._perform(channel, gone)

    async def _read(self, channel: _HomeChannel, fetch: FetchAfter) -> None:
        """Read the log in turns, until one that is sealed ends."""

        def on_compared() -> None:
            channel.core.on_compared(fetch)
            self._believe(channel)

        log: HomeLog | None = None
        has_ended = False
        async with AsyncExitStack() as opened:
            while not has_ended:
                await self._ahead.wait_share(channel.core)
                async with self._ahead.turn(channel.core) as turn:
                    if log is None:
                        opening = open_home_log(
                            self._feeds.log.scan_of(channel.feed.record, channel.name),
                            fetch.position,
                            first_sequence=fetch.first_sequence,
                            on_compared=on_compared,
                        )
                        log = await opened.enter_async_context(opening)
                    has_ended = await self._read_turn(channel, fetch, log, turn)
                    log.rest()

    async def _read_turn(
        self, channel: _HomeChannel, fetch: FetchAfter, log: HomeLog, turn: ReadTurn
    ) -> bool:
        """Read while the turn lasts, at least once; whether the log has ended."""
        while True:
            entries = await log.next_entries()
            if not entries:
                return True
            self.fetched_count += len(entries)
            self._perform(channel, channel.core.on_fetched(fetch, entries))
            self._ahead.count(channel.core)
            self._go_on(channel)
            if not await self._ahead.wait_goes_on(turn):
                return False

    def _perform(self, channel: _HomeChannel, effects: list[OutgoingEffect]) -> None:
        has_stopped_fetching = False
        for effect in effects:
            match effect:
                case StopChannel(code, error):
                    self._stop(channel, code, error)
                case FetchAfter() if self._is_over:
                    pass  # The buffer has moved after the bridge ended: nothing more is sent.
                case FetchAfter():
                    channel.fetching = trio.CancelScope()
                    self._nursery.start_soon(self._fetch, channel, channel.fetching, effect)
                case StopFetching():
                    assert channel.fetching is not None
                    channel.fetching.cancel(reason="the buffer has the rest")
                    channel.fetching = None
                    has_stopped_fetching = True
                case _:
                    assert_never(effect)
        if has_stopped_fetching:
            self._go_on(channel)  # The buffer may have the rest; nothing else wakes it.

    # The socket.

    def _tell(self, message: FromHome) -> None:
        self._outgoing.append(message)
        self._awake.set()

    async def _send_all(self) -> None:
        while True:
            self._awake = trio.Event()
            while await self._send_next():
                pass
            held_back_s = self._link.held_back_s
            wait_s = max(held_back_s, _WAIT_S_MIN) if held_back_s else math.inf
            with trio.move_on_after(wait_s):
                await self._awake.wait()

    async def _send_next(self) -> bool:
        """Send what is next; False if nothing is, or the window is full, or the cap forbids it.

        A heartbeat goes before entries, but not twice without any: on a slow link there would
        be time for nothing else.
        """
        if self._outgoing:
            await self._send_messages()
            return True
        if self._is_beat_due and not self._has_beaten:
            await self._send_beat()
            return True
        if await self._send_entries():
            return True
        if self._is_beat_due:
            await self._send_beat()
            return True
        return False

    async def _send_messages(self) -> None:
        encoded: list[bytes] = []
        size_bytes = 0
        while self._outgoing and size_bytes < JOINED_BYTES_MAX:
            encoded.append(encode_bridge(self._outgoing.popleft()))
            size_bytes += len(encoded[-1])
        await self._socket.send(b"".join(encoded))

    async def _send_beat(self) -> None:
        """Send a heartbeat, as it is now: of those that were due earlier, none is sent."""
        self._is_beat_due, self._has_beaten = False, True
        now_us, began_s = max(1, self._now_us()), trio.current_time()
        count_max = min(TAILS_MAX, self._beat_size.bytes // _TAIL_BYTES)
        tails = self._tails(count_max)
        self._link.on_canary_sent(now_us, now_s=began_s)
        await self._socket.send(encode_bridge(BridgeHeartbeat(now_us, tuple(tails))))
        is_full = len(tails) >= count_max
        self._beat_size.on_sent(trio.current_time() - began_s, is_full=is_full)

    async def _send_entries(self) -> bool:
        """Send the entries that are next, in one message; False if there are none."""
        encoded: list[bytes] = []
        size_bytes = 0
        while size_bytes < self._message_size.bytes:
            taken = self._link.take(now_s=trio.current_time())
            if taken is None:
                break
            message, effects = taken
            channel = self._channels[message.channel]
            channel.note_live(trio.current_time())
            self._perform(channel, effects)
            self._ahead.count(channel.core)
            encoded.append(encode_bridge(message))
            size_bytes += len(encoded[-1])
        if not encoded:
            return False
        self._has_beaten = False
        began_s, is_full = trio.current_time(), size_bytes >= self._message_size.bytes
        await self._socket.send(b"".join(encoded))
        self._message_size.on_sent(trio.current_time() - began_s, is_full=is_full)
        return True

    async def _beat(self) -> None:
        """Have it said where the logs end; leave a link on which nothing moves."""
        while True:
            await trio.sleep(_BEAT_S)
            if self._link.is_stuck(now_s=trio.current_time()):
                stuck = (
                    f"the link to {self._target} is stuck: no answer for"
                    f" {self._bounds.stuck_s:g} s"
                )
                for channel in self._channels.values():
                    channel.standing.stop(Code.UNAVAILABLE, stuck)
                    channel.standing.stalls_count += 1
                raise UnavailableError(stuck)
            look = self._link.on_look(now_s=trio.current_time())
            for number, effects in look.stalled:
                self._perform(self._channels[number], effects)
            for number in look.stuck:
                self._stop_stuck(self._channels[number])
            self._is_beat_due = True
            self._awake.set()

    def _stop_stuck(self, channel: _HomeChannel) -> None:
        """End a channel whose mirror takes nothing; the others of the link go on."""
        channel.standing.stalls_count += 1
        failed = f"made nothing durable for {self._bounds.stuck_s:g} s"
        if channel.told_s is None:
            failed = f"has not told its place for {ASKED_PATIENCE * self._bounds.stuck_s:g} s"
        self._stop(
            channel,
            Code.UNAVAILABLE,
            f"the mirror in {self._target} {failed}, although the link is whole",
        )

    def _tails(self, count_max: int) -> list[TailTold]:
        """The ends of so many logs that have one; the next ones the next time."""
        numbers = sorted(self._channels)
        later = bisect_right(numbers, self._tail_last)
        tails: list[TailTold] = []
        for number in chain(numbers[later:], numbers[:later]):
            if len(tails) == count_max:
                break
            channel = self._channels[number]
            self._tail_last = number
            feed = channel.feed
            end = feed.buffer.end
            if end is not None:
                lag_bytes = feed.lag_of(self._target).bytes
                tails.append(
                    TailTold(channel.number, end.sequence_next, feed.tail_us, lag_bytes)
                )
        return tails

    def _believe(self, channel: _HomeChannel) -> None:
        """Take what the target told once the home is known to have the same entry."""
        told = channel.told
        if told is None or not self._is_believed(channel):
            return
        channel.told = None
        channel.feed.on_heard(
            self._target,
            told.watermark,
            relay_epoch=self._gate.relay_epoch,
            first_sequence=told.first_sequence,
        )

    def _is_believed(self, channel: _HomeChannel) -> bool:
        """Whether what the target tells is of the mirror that it has now, and of a copy."""
        is_open = channel.number in self._channels
        is_same = channel.feed.targets.get(self._target) is channel.standing
        return is_open and is_same and channel.core.is_compared

    async def _hear(self) -> None:
        for data in messages_of(_bytes_of(await self._socket.receive())):
            message = decode_from_target(data)
            now_s = trio.current_time()
            match message:
                case WatermarkTold(number, watermark, first_sequence):
                    channel = self._channels.get(number)
                    if channel is not None:
                        channel.told = message
                        effects = self._link.on_told(
                            number, watermark, first_sequence=first_sequence, now_s=now_s
                        )
                        channel.told_s = now_s
                        channel.note_live(now_s)
                        self._perform(channel, effects)
                        self._believe(channel)
                        self._awake.set()
                case DurableTold(number, watermark):
                    channel = self._channels.get(number)
                    if channel is not None:
                        effects = self._link.on_durable(number, watermark, now_s=now_s)
                        self._perform(channel, effects)
                        if channel.core.durable == watermark and self._is_believed(channel):
                            epoch = self._gate.relay_epoch
                            channel.feed.on_heard(self._target, watermark, relay_epoch=epoch)
                        self._awake.set()
                        self._answered.set()
                case WindowTold(window_bytes):
                    self._link.on_window(window_bytes)
                    self._awake.set()
                case ChannelEnded(number, code, error):
                    channel = self._channels.get(number)
                    if channel is not None:
                        channel.core.on_ended(code, error)
                        channel.standing.stop(code, error, is_told=True)
                        self._drop(channel)
                case BridgeHeartbeat(mark_us) if mark_us == PARTIAL_MARK:
                    self._link.on_partial(now_s=now_s)
                case BridgeHeartbeat(mark_us) if mark_us < 0:
                    self._link.on_canary_arrived(-mark_us, now_s=now_s)
                case BridgeHeartbeat(mark_us):
                    self._link.on_canary_back(mark_us, now_s=now_s)
                case BridgeLeaving():  # It closes once all that it was sent is durable.
                    self._link.rest()
                    self._tell(BridgeLeaving())
                case BridgeRefused(code, error):
                    raise ConnectionFailedError(
                        f"{self._target} refused the bridge: {code} {error}"
                    )
                case BridgeHello():
                    raise DamagedBytesError("a second hello on a bridge")
                case _:
                    assert_never(message)


def _bytes_of(message: str | bytes) -> bytes:
    if isinstance(message, str):
        raise DamagedBytesError(f"a text on a bridge: {message[:100]!r}")
    return message
