"""The newest entries of a home's relayed streams, in memory: one buffer for each partition.

Each partition has one reader of its log's tail, however many targets there are. Its entries go
into the partition's buffer, and so do those that the owner's multicast brings sooner. The
channels to all targets take theirs from there; a channel whose target is further behind reads
the log by itself until it meets the buffer. The coordinator and its standby both keep feeds, so
a standby that takes over has what its targets may lack.

A feed begins at the tail, or where the target that is furthest behind stands, if that is known.
It is trimmed by what every target has durably, and bounded for each partition and in all.

Rules: PROTOCOL B5, B7, T1, T2, T5, T6, T7 and T8.
"""

import logging
from collections.abc import Callable

import attrs
import trio

from geolog.background import open_background
from geolog.catalog.stream_watch import StreamWatch
from geolog.client.log import Log
from geolog.protocol.stream_state import PartitionName, StreamName, StreamRecord
from geolog.protocol.tail_history import TailHistory, TailLag
from geolog.protocol.watermark import Watermark
from geolog.wire.entry import EncodedEntry
from geolog.wire.session.codes import Code
from relay.bridge.home_log import HomeLog, last_place, open_home_log, open_home_log_at
from relay.protocol.bridge_messages import RelayedEntry
from relay.protocol.link_state import needs_operator
from relay.protocol.multicast_placing import MulticastPlacing, Offered
from relay.protocol.outgoing import AllSent
from relay.protocol.standby_buffer import BufferBounds, StandbyBuffer, Taken
from topology.errors import GeologError, NoSuchStreamError, TrimmedError, first_of

_log = logging.getLogger(__name__)

_LOOK_S = 1.0
_AGAIN_S = 0.5
_IDLE_S = 2.0
"""The feed asks a log without new entries for this long for its end, once."""


@attrs.frozen(kw_only=True)
class FeedConfig:
    """Bounds of the buffers of a home's relayed streams."""

    buffer: BufferBounds = attrs.field(factory=BufferBounds)
    """Of each partition."""

    buffered_bytes_max: int = 256 << 20
    """Bytes in the buffers of all partitions together, with what waits for its place there.
    Above it, a partition drops its oldest entry for each new one, and keeps none waiting;
    targets that lack it are served from the log."""


@attrs.frozen
class TargetHeard:
    """A target's place, as it told a bridge of this member, or of an earlier coordinator."""

    relay_epoch: int
    """Of the one that it told."""
    durable_next: int
    """The first sequence that the target lacks."""


@attrs.define
class TargetStanding:
    """One target of a partition, as far as this member knows."""

    durable: Watermark | None = None
    is_told: bool = False
    """Whether `durable` was told at all; a mirror without entries has None, too."""
    heard: TargetHeard | None = None
    """The last that the target itself told a coordinator; None if this member knows of none."""
    alarm: str | None = None
    """Why its channel was last stopped; None once it has gone on."""
    has_conflicted: bool = False
    """Whether its channel was stopped by a conflict since it last went on."""
    needs_operator: bool = False
    """Whether that reason cannot go by itself."""
    stalls_count: int = 0
    """Links to it that were closed because nothing moved."""
    handed: AllSent | None = None
    """All that was sent by this member, or by a coordinator that left in good order; None if
    another one may have sent more."""
    additions: int = 0
    """How often it had been added to the stream's targets when this began."""

    def stop(self, code: int, error: str, *, is_told: bool = False) -> None:
        """Its channel has ended with an alarm.

        is_told: whether the target said so. Its first conflict may pass: older targets call it
        one if another bridge feeds the mirror. It is not believed until it is asked again, but
        only the next one is shown as lasting, whatever other alarms were between.
        """
        is_conflict = code == Code.CONFLICT
        may_pass = is_told and is_conflict and not self.has_conflicted
        self.has_conflicted = self.has_conflicted or is_conflict
        self.alarm = error
        self.needs_operator = needs_operator(code) and not may_pass
        if needs_operator(code) and code != Code.TRIMMED:
            self.heard = None  # Its mirror may not be a copy; a good one tells it again.


@attrs.define(eq=False)
class HomeFeed:
    """One partition: its buffer, its tail, and how far its targets are."""

    name: PartitionName
    record: StreamRecord
    owner: "HomeFeeds"
    buffer: StandbyBuffer
    history: TailHistory = attrs.field(factory=TailHistory)
    arrivals: TailHistory = attrs.field(factory=TailHistory)
    """Likewise, with the times at which entries came here, by the clock that is never set."""
    targets: dict[str, TargetStanding] = attrs.field(factory=dict)
    listeners: list[Callable[[], None]] = attrs.field(factory=list)
    """Called when the buffer has more."""
    followers: list[Callable[[], None]] = attrs.field(factory=list)
    """Called when the tail has moved, or a target has told its place."""
    held: dict[object, str] = attrs.field(factory=dict)
    """Owners that refuse appends, and the targets because of which they do."""
    failure: str | None = None
    """Why the log cannot be read now."""
    placing: MulticastPlacing = attrs.field(factory=MulticastPlacing)
    multicast_count: int = 0
    """Entries that the multicast brought first."""
    counted_bytes: int = 0
    """Its part of the bytes in all buffers, as `HomeFeeds` counts them."""
    reading: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _tail_us: int = 0
    _filling: tuple[Watermark | None] | None = None
    """Where the buffer was last begun again for a target's sake."""
    _following: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _is_asked: bool = False
    """Whether the log was asked for its end since the last new entry."""

    @property
    def has_begun(self) -> bool:
        """Whether the buffer's beginning is known: before, it covers nothing."""
        return self.buffer.has_begun

    def standing(self, target: str) -> TargetStanding:
        """One target, as far as known."""
        found = self.targets.get(target)
        if found is None:
            found = TargetStanding(additions=self.record.additions_of(target))
            self.targets[target] = found
        return found

    def follow_record(self, record: StreamRecord) -> None:
        """The stream has these settings now: forget targets that have no mirror, or another."""
        self.record = record
        for target, standing in list(self.targets.items()):
            is_same = standing.additions == record.additions_of(target)
            if target not in record.relay_to or not is_same:
                del self.targets[target]

    @property
    def tail_sequence(self) -> int:
        """The sequence behind the home's last known record."""
        return self.history.sequence_next or 0

    @property
    def tail_us(self) -> int:
        """When the last entry was appended that was read here; 0 before any was."""
        return self._tail_us

    def lag_of(self, target: str) -> TailLag:
        """The part of the log that a target lacks; all of it, if it has told nothing yet."""
        durable = self.standing(target).durable
        return self.history.lag_of(0 if durable is None else durable.sequence_next)

    def lag_s_of(self, target: str, *, behind_since_us: int | None = None) -> float:
        """Age of the first record that a target lacks.

        The larger of two: by its append time, which another host gave it, and by the time for
        which it has been here, whatever the clocks of the two hosts say.

        behind_since_us: the append time of another one that is known to be lacking.
        """
        since_us = self.lag_of(target).since_us
        if behind_since_us is not None:
            since_us = min(behind_since_us, since_us or behind_since_us)
        if since_us is None:
            return 0.0
        durable = self.standing(target).durable
        here_us = self.arrivals.lag_of(0 if durable is None else durable.sequence_next).since_us
        here_s = 0.0 if here_us is None else trio.current_time() - here_us / 1e6
        return max(0.0, here_s, (self.owner.now_us() - since_us) / 1e6)

    @property
    def held_target(self) -> str | None:
        """The target because of which the owner refuses appends; None if it takes them."""
        return max(self.held.values(), default=None)

    def on_heard(
        self,
        target: str,
        watermark: Watermark | None,
        *,
        relay_epoch: int,
        first_sequence: int | None = None,
    ) -> None:
        """A target itself told its place; without entries it begins at `first_sequence`."""
        begin = first_sequence or 0
        durable_next = begin if watermark is None else watermark.sequence_next
        self.standing(target).heard = TargetHeard(relay_epoch, durable_next)
        self.on_durable(target, watermark)
        self._tell_followers()

    def on_durable(self, target: str, watermark: Watermark | None) -> None:
        """A target has everything up to here durably; forget what all of them have."""
        standing = self.standing(target)
        if standing.is_told and watermark != standing.durable:
            standing.alarm, standing.has_conflicted = None, False  # It goes on.
        standing.durable, standing.is_told = watermark, True
        if standing.handed is not None and standing.handed.position != watermark:
            standing.handed = None  # It is sent more.
        marks = [
            found.durable
            for one in self.record.relay_to
            if (found := self.targets.get(one)) is not None and found.durable is not None
        ]
        if marks and len(marks) == len(self.record.relay_to):
            self.owner.shrink(self, min(marks))

    @property
    def fill_bytes_max(self) -> int:
        """Bytes that may be read again so that the buffer has what a target lacks.

        Half of what it holds: a buffer that was filled to its bound would drop its beginning
        with the next entry, and be filled again.
        """
        return self.buffer.bounds.bytes_max // 2

    @property
    def held_bytes(self) -> int:
        """Bytes in its buffer, and of entries of the multicast that wait for their place."""
        return self.buffer.bytes_count + self.placing.waiting_bytes

    def fill_from(self, position: Watermark | None) -> None:
        """Begin the buffer again, behind this position: a target lacks what follows it."""
        if self._filling is not None and self._filling == (position,):
            return  # It was tried: the bounds have cut it since.
        self._filling = (position,)
        self.owner.forget(self)
        self.buffer.begin_behind(position)
        self._following.cancel(reason="the buffer begins further back")
        self._tell()

    def covers(self, target: str) -> bool:
        """Whether the buffer has all that a target lacks."""
        standing = self.targets.get(target)
        if standing is None or not standing.is_told or not self.has_begun:
            return False
        begin = self.buffer.begin
        if begin is None:
            return True
        return standing.durable is not None and standing.durable >= begin

    # The tail.

    async def run(self) -> None:
        """Read the tail until the feed is dropped, also of a stream that is sealed."""
        with self.reading:
            while True:
                self._following = trio.CancelScope()
                try:
                    with self._following:
                        await self._read()
                        await trio.sleep_forever()  # There is no more, but to begin again.
                    continue
                except* GeologError as errors:
                    self._on_failed(first_of(errors))
                await trio.sleep(_AGAIN_S)

    def _on_failed(self, error: GeologError) -> None:
        if isinstance(error, TrimmedError):
            self._begin_again(str(error))
            return
        self.failure = str(error)
        if not isinstance(error, NoSuchStreamError):  # Else it is dropped, or made again.
            _log.warning("%s: its tail cannot be read (%s); retrying", self.name, error)

    async def _read(self) -> None:
        """Read on; returns once a sealed stream is read to its end."""
        scan = self.owner.log.scan_of(self.record, self.name)
        if self.has_begun:
            opening = open_home_log(scan, self.buffer.end)
        elif (begin := await last_place(scan)) is not None:
            opening = open_home_log_at(scan, begin)
        else:
            self.buffer.begin_behind(None)
            opening = open_home_log(scan, None)
        async with opening as log:
            await self._follow(log)

    async def _follow(self, log: HomeLog) -> None:
        async with open_background() as nursery:
            nursery.start_soon(self._ask_when_idle)
            while entries := await log.next_entries():
                if self._following.cancel_called:
                    return  # The buffer began elsewhere while this reader had its answer.
                self.failure = None
                self._is_asked = False
                for entry in entries:
                    self._take_read(entry)
                self._tell()

    async def _ask_when_idle(self) -> None:
        """Ask an idle log for its end, once: an owner that has died may have left entries.

        Their acknowledgement is known only to those that the question makes recover the ledger.
        """
        while True:
            end = self.buffer.end
            await trio.sleep(_IDLE_S)
            if self._is_asked or end != self.buffer.end:
                continue
            self._is_asked = True
            try:
                await self.owner.log.scan_of(self.record, self.name).end()
            except GeologError as error:
                self._is_asked = not error.retriable

    def _take_read(self, entry: RelayedEntry) -> None:
        if not self.has_begun:
            self.buffer.begin_behind(entry.watermark)
            for history, since_us in (
                (self.history, entry.encoded.header.append_time_us),
                (self.arrivals, _arrival_us()),
            ):
                history.on_run(
                    entry.watermark.sequence_next,
                    entry.watermark.sequence_next,
                    size_bytes=0,
                    since_us=since_us,
                )
            self._tail_us = entry.encoded.header.append_time_us
            return
        match self._push(entry):
            case Taken.NEW:
                pass
            case Taken.DIFFERENT:
                self._begin_again(f"the log has another entry at {entry.watermark}")
            case Taken.MISSING_BEFORE:
                raise AssertionError(f"{self.name}: {entry.watermark} after {self.buffer.end}")
            case Taken.REPEATED:
                return  # The multicast was faster.
        self._place_waiting()

    # The multicast, which may be faster than the reader.

    def on_multicast(self, encoded: EncodedEntry) -> None:
        """An owner sent an acknowledged entry; `on_multicast_taken` follows."""
        if self.placing.on_entry(encoded, self.buffer.end) is Offered.KEPT:
            self._place_waiting()

    def on_multicast_taken(self) -> None:
        """All entries that came together were offered."""
        self._tell()

    def _place_waiting(self) -> None:
        """Move entries of the multicast behind the buffer's last one."""
        end = self.buffer.end
        if end is not None:
            self.placing.on_read(end)
        while (entry := self.placing.next_after(self.buffer.end)) is not None:
            taken = self._push(entry)
            assert taken is Taken.NEW, f"{self.name}: {entry.watermark} is {taken}"
            self._is_asked = False
            self.multicast_count += 1
        self.owner.on_waiting(self)

    def _push(self, entry: RelayedEntry) -> Taken:
        taken = self.buffer.push(entry, now_s=trio.current_time())
        if taken is not Taken.NEW:
            return taken
        header = entry.encoded.header
        for history, since_us in (
            (self.history, header.append_time_us),
            (self.arrivals, _arrival_us()),
        ):
            history.on_run(
                header.first_sequence,
                header.next_sequence,
                size_bytes=entry.length_bytes,
                since_us=since_us,
            )
        self._tail_us = max(self._tail_us, header.append_time_us)
        self.owner.on_taken(self)
        return taken

    def _begin_again(self, why: str) -> None:
        """Forget the buffer: it is not the run that leads to the log's tail."""
        _log.warning("%s: the buffer begins again at the tail (%s)", self.name, why)
        self.failure = why
        self.owner.forget(self)
        self._tell()

    def _tell(self) -> None:
        for listener in list(self.listeners):
            listener()
        self._tell_followers()

    def _tell_followers(self) -> None:
        for follower in list(self.followers):
            follower()


class HomeFeeds:
    """The feeds of all relayed streams of a region; `run` keeps them."""

    def __init__(
        self,
        *,
        region: str,
        log: Log,
        now_us: Callable[[], int],
        config: FeedConfig | None = None,
    ) -> None:
        self.region = region
        self.log = log
        self.now_us = now_us
        self._config = config or FeedConfig()
        self.damaged_multicasts_count = 0
        """Multicasts of owners that were closed for bytes that are no message."""
        self._buffered_bytes = 0
        self._streams = StreamWatch(log.access.metadata, log.access.paths)
        self.by_name: dict[PartitionName, HomeFeed] = {}
        """By the name of the partition without a region: it has one home at a time."""

    def __repr__(self) -> str:
        return f"HomeFeeds({self.region}, {len(self.by_name)} partitions)"

    @property
    def buffered_bytes(self) -> int:
        """Bytes in all buffers, and of entries that wait for their place in one."""
        return self._buffered_bytes

    def feed_named(self, stream: str, life: str, partition: int) -> HomeFeed | None:
        """The feed of a partition."""
        return self.by_name.get(PartitionName(StreamName.parse(stream), partition, life))

    def feeds_of(self, target: str) -> list[HomeFeed]:
        """The partitions that this target is sent now, in the order of their names."""
        found = [
            one
            for one in self.by_name.values()
            if target in one.record.relay_to and target not in one.record.relay_paused
        ]
        return sorted(found, key=lambda one: str(one.name))

    async def run(self) -> None:
        """Look for relayed streams, and read their tails; never returns."""
        async with trio.open_nursery() as nursery:
            while True:
                try:
                    await self._look(nursery)
                except GeologError as error:
                    if not error.retriable:
                        raise
                await trio.sleep(_LOOK_S)

    async def _look(self, nursery: trio.Nursery) -> None:
        wanted = await self._wanted()
        for name, feed in list(self.by_name.items()):
            latest = wanted.get(name)
            if latest is None or latest.home_epoch != feed.record.home_epoch:
                del self.by_name[name]
                feed.reading.cancel(reason="the partition is not relayed from here any more")
                self.forget(feed)
        for name, record in wanted.items():
            known = self.by_name.get(name)
            if known is not None:
                known.follow_record(record)
                continue
            at_home = record.log_in(self.region, name.number)
            feed = HomeFeed(at_home, record, self, _unbegun(self._config.buffer))
            self.by_name[name] = feed
            nursery.start_soon(feed.run, name=f"tail of {name}")

    async def _wanted(self) -> dict[PartitionName, StreamRecord]:
        wanted: dict[PartitionName, StreamRecord] = {}
        for record in await self._streams.records():
            if record.home == self.region and record.relay_to:
                for number in range(record.partitions):
                    wanted[PartitionName(record.name, number, record.life)] = record
        return wanted

    # The bound of all buffers.

    def on_taken(self, feed: HomeFeed) -> None:
        """A buffer has a new entry, and may have dropped old ones."""
        while self._is_over(feed) and len(feed.buffer) > 1:
            feed.buffer.drop_oldest()

    def on_waiting(self, feed: HomeFeed) -> None:
        """Entries of the multicast may wait for their place in a buffer, or wait no more."""
        while self._is_over(feed) and len(feed.placing):
            feed.placing.refuse_oldest()

    def shrink(self, feed: HomeFeed, durable: Watermark) -> None:
        """Forget what every target has."""
        feed.buffer.trim(durable)
        self._count(feed)

    def forget(self, feed: HomeFeed) -> None:
        """Empty a buffer: where it begins is not known any more."""
        feed.buffer.clear()
        feed.placing.clear()
        self._count(feed)

    def _is_over(self, feed: HomeFeed) -> bool:
        """Whether there is more in all than may be, after a change of this one."""
        self._count(feed)
        return self._buffered_bytes > self._config.buffered_bytes_max

    def _count(self, feed: HomeFeed) -> None:
        self._buffered_bytes += feed.held_bytes - feed.counted_bytes
        feed.counted_bytes = feed.held_bytes


def _arrival_us() -> int:
    return round(trio.current_time() * 1e6)


def _unbegun(bounds: BufferBounds) -> StandbyBuffer:
    return StandbyBuffer(None, bounds, has_begun=False)
