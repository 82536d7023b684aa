"""Reports of a home's coordinator: the state of each stream on its way to each target.

A task looks at all feeds and bridges several times a second; `LinkStateCore` decides when the
state shown changes, and each change is an event. Everyone who opens the path `/relay/report` is
sent a report at once, and another every second; a listener that does not read is waited for by
its own task alone.

Rules: PROTOCOL T2, T3 and G4.
"""

from collections import deque
from collections.abc import Callable, Sequence

import attrs
import trio

from geolog.protocol.relay_report import LinkState, RelayedStreamReport, RelayEvent, RelayReport
from geolog.protocol.stream_state import PartitionName
from geolog.transport.message_socket import MessageSocket, SocketClosedError
from geolog.wire.relay_report import encode_report
from relay.bridge.home_bridge import ChannelProgress, HomeBridge
from relay.bridge.home_feed import HomeFeed, HomeFeeds
from relay.protocol.link_state import LinkObservation, LinkStateBounds, LinkStateCore
from relay.protocol.outgoing import ChannelState
from relay.protocol.standby_buffer import BufferCoverage

_LOOK_S = 0.25
REPORT_S = 1.0
_EVENTS_MAX = 1024

_Way = tuple[PartitionName, str]
"""A partition, and a target."""


@attrs.define(eq=False)
class _Watched:
    core: LinkStateCore
    alarm: str | None = None


class RelayReports:
    """What one coordinator tells of the streams of its region."""

    def __init__(
        self,
        feeds: HomeFeeds,
        bridges: Sequence[HomeBridge],
        *,
        coordinator: str,
        relay_epoch: int,
        standby: Callable[[], str | None],
        bounds: LinkStateBounds | None = None,
    ) -> None:
        """`bridges`: those open now; the caller changes the list."""
        self._feeds = feeds
        self._bridges = bridges
        self._coordinator = coordinator
        self._relay_epoch = relay_epoch
        self._standby = standby
        self._bounds = bounds or LinkStateBounds()
        self._watched: dict[_Way, _Watched] = {}
        self._events: deque[RelayEvent] = deque(maxlen=_EVENTS_MAX)
        self._events_count = 0
        self._is_resting = False
        self._due = trio.Event()
        self._untold: set[object] = set()
        """Listeners that have not been told that the bridges rest."""
        self._all_told = trio.Event()

    def __repr__(self) -> str:
        return f"RelayReports({self._feeds.region}, {len(self._watched)} watched)"

    async def run(self) -> None:
        """Look several times a second; never returns."""
        while True:
            self._look(trio.current_time())
            await trio.sleep(_LOOK_S)

    async def serve(self, socket: MessageSocket) -> None:
        """Send reports until the other side leaves."""
        told_count = 0
        listener = object()
        self._untold.add(listener)
        try:
            while True:
                due, is_resting = self._due, self._is_resting
                report = self.report(events_after=told_count)
                told_count = self._events_count
                await socket.send(encode_report(report))
                if is_resting:
                    self._note_told(listener)
                with trio.move_on_after(REPORT_S):
                    await due.wait()
        except SocketClosedError:
            pass
        finally:
            self._note_told(listener)

    async def rest(self) -> None:
        """Tell all listeners at once that the bridges send nothing more."""
        self._is_resting = True
        due, self._due = self._due, trio.Event()
        due.set()
        if self._untold:
            await self._all_told.wait()

    def _note_told(self, listener: object) -> None:
        self._untold.discard(listener)
        if not self._untold:
            self._all_told.set()
            self._all_told = trio.Event()

    def report(self, *, events_after: int = 0) -> RelayReport:
        """All that is known now, and the events with higher numbers than this."""
        self._look(trio.current_time())
        progress = self._progress()
        return RelayReport(
            region=self._feeds.region,
            coordinator=self._coordinator,
            standby=self._standby(),
            relay_epoch=self._relay_epoch,
            streams=tuple(
                self._report_of(feed, target, progress.get((feed.name, target)))
                for feed in self._in_order()
                for target in feed.record.relay_to
            ),
            events=tuple(one for one in self._events if one.number > events_after),
            is_resting=self._is_resting,
        )

    def ahead_bytes(self) -> dict[str, int]:
        """Bytes that were read from logs and not sent yet, by target."""
        found: dict[str, int] = {}
        for bridge in self._bridges:
            if bridge.target:
                found[bridge.target] = found.get(bridge.target, 0) + bridge.ahead_bytes
        return found

    def _in_order(self) -> list[HomeFeed]:
        return sorted(self._feeds.by_name.values(), key=lambda feed: str(feed.name))

    def _progress(self) -> dict[_Way, ChannelProgress]:
        found = {}
        for bridge in self._bridges:  # A later bridge to the same target counts.
            for one in bridge.progress():
                found[(one.name, one.target)] = one
        return found

    def _lag_s(self, feed: HomeFeed, target: str, progress: ChannelProgress | None) -> float:
        return feed.lag_s_of(target) if progress is None else progress.lag_s

    def _look(self, now_s: float) -> None:
        progress = self._progress()
        seen: set[_Way] = set()
        for feed in self._in_order():
            for target in feed.record.relay_to:
                seen.add((feed.name, target))
                self._look_at(feed, target, progress.get((feed.name, target)), now_s)
        for gone in [way for way in self._watched if way not in seen]:
            del self._watched[gone]

    def _look_at(
        self, feed: HomeFeed, target: str, progress: ChannelProgress | None, now_s: float
    ) -> None:
        way = feed.name, target
        if way not in self._watched:
            self._watched[way] = _Watched(LinkStateCore(self._bounds, now_s=now_s))
        watched, standing = self._watched[way], feed.standing(target)
        is_live = progress is not None and progress.state is ChannelState.LIVE
        if is_live and progress is not None and progress.lag_records == 0:
            standing.alarm = None
        if standing.alarm != watched.alarm and standing.alarm is not None:
            self._tell("alarm", way, "", standing.alarm)
        watched.alarm = standing.alarm
        before = watched.core.shown
        look = LinkObservation(
            None if progress is None else progress.state,
            is_stopped=standing.alarm is not None and standing.needs_operator,
            is_failing=standing.alarm is not None and not standing.needs_operator,
            lag_s=self._lag_s(feed, target, progress),
            is_paused=target in feed.record.relay_paused,
        )
        after = watched.core.on_look(look, now_s=now_s)
        if after is not None:
            self._tell("state", way, before.value, after.value)

    def _tell(self, kind: str, way: _Way, before: str, after: str) -> None:
        name, target = way
        self._events_count += 1
        self._events.append(
            RelayEvent(
                number=self._events_count,
                time_us=self._feeds.now_us(),
                kind=kind,
                home=self._feeds.region,
                target=target,
                stream=str(name.stream),
                partition=name.number,
                before=before,
                after=after,
                coordinator=self._coordinator,
                relay_epoch=self._relay_epoch,
            )
        )

    def _report_of(
        self, feed: HomeFeed, target: str, progress: ChannelProgress | None
    ) -> RelayedStreamReport:
        standing, lag = feed.standing(target), feed.lag_of(target)
        durable = standing.durable
        position = durable if progress is None else progress.position
        coverage = feed.buffer.coverage
        begin = 0 if coverage.begin is None else coverage.begin.sequence_next
        known = self._watched.get((feed.name, target))
        return RelayedStreamReport(
            stream=str(feed.name.stream),
            partition=feed.name.number,
            home=self._feeds.region,
            target=target,
            state=LinkState.CONNECTING if known is None else known.core.shown,
            coordinator=self._coordinator,
            standby=self._standby(),
            relay_epoch=self._relay_epoch,
            sent_records=0 if position is None else position.sequence_next,
            durable_records=(durable.sequence_next if durable else 0)
            if standing.is_told
            else None,
            tail_records=feed.tail_sequence,
            lag_records=lag.records,
            lag_bytes=lag.bytes,
            lag_s=self._lag_s(feed, target, progress),
            buffered_records=_records_in(coverage) if feed.has_begun else 0,
            buffered_bytes=coverage.bytes_count,
            buffer_begin=begin if feed.has_begun else None,
            is_covered=feed.covers(target),
            replayed_count=0 if progress is None else progress.replayed_count,
            replayed_bytes=0 if progress is None else progress.replayed_bytes,
            stalls_count=standing.stalls_count,
            question_s=None if progress is None else progress.question_s,
            replay_s=None if progress is None else progress.replay_s,
            round_trip_s=None if progress is None else progress.round_trip_s,
            duplicates_count=feed.placing.repeated_count,
            refused_count=feed.placing.refused_count,
            heard_epoch=None if standing.heard is None else standing.heard.relay_epoch,
            heard_next=0 if standing.heard is None else standing.heard.durable_next,
            is_held=feed.held_target == target,
            life=feed.name.life,
            additions=standing.additions,
            durable=durable,
            alarm=standing.alarm or feed.failure,
        )


def coverage_report(feeds: HomeFeeds, member: str) -> RelayReport:
    """Coverage of the buffers of a member that does not coordinate."""
    streams = []
    for feed in feeds.by_name.values():
        coverage = feed.buffer.coverage
        begin = 0 if coverage.begin is None else coverage.begin.sequence_next
        streams += [
            RelayedStreamReport(
                stream=str(feed.name.stream),
                partition=feed.name.number,
                home=feeds.region,
                target=target,
                state=LinkState.CONNECTING,
                life=feed.name.life,
                buffered_records=_records_in(coverage) if feed.has_begun else 0,
                buffered_bytes=coverage.bytes_count,
                buffer_begin=begin if feed.has_begun else None,
                is_covered=feed.covers(target),
            )
            for target in feed.record.relay_to
        ]
    return RelayReport(
        region=feeds.region,
        coordinator="",
        standby=member,
        relay_epoch=0,
        streams=tuple(streams),
        is_of_buffers=True,
    )


def _records_in(coverage: BufferCoverage) -> int:
    begin = 0 if coverage.begin is None else coverage.begin.sequence_next
    return 0 if coverage.end is None else coverage.end.sequence_next - begin
