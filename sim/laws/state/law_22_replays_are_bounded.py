"""Law 22: what a link sends again, once a bridge or its coordinator has ended, is bounded.

The target tells what it has durably, and the new bridge goes on there. Entries that the bridge
before it had sent beyond that are sent twice: at most a window and one entry. The same goes for
a partition whose channel its target ended, which is opened again. And no bridge begins before
what its target had told an earlier one to be durable.
"""

from collections.abc import Iterator

import attrs

from geolog.protocol.watermark import Watermark
from relay.bridge.home_bridge import HomeBridge
from relay.protocol.outgoing import ChannelState, OutgoingChannel
from sim.laws.state.law_19_told_is_durable import is_durable
from sim.laws.state.seen import Look, MirrorKey
from sim.world.calls import STREAM

_Sizes = list[tuple[Watermark, int]]
"""Entries that were sent, and are not told to be durable, with their sizes."""

_Way = tuple[str, int, str, int]
"""A home and its epoch, a target, and a partition."""


@attrs.frozen
class _Opened:
    """A channel that was told where to go on, and its bridge."""

    bridge: HomeBridge
    channel: OutgoingChannel
    host: str
    window_bytes: int
    mirror: MirrorKey


@attrs.define
class ReplaysAreBounded:
    """Keeps the last channel of each way that was told where to go on, of whichever relay.

    A coordinator that was deposed without noticing still has its channels. A mirror that was
    begun again, or whose target was removed, is another one. An owner of the old one may still
    answer, so a channel counts again once it was told something that is true of the new one.
    """

    _last: dict[_Way, _Opened] = attrs.field(factory=dict)
    _seen: set[OutgoingChannel] = attrs.field(factory=set)
    _unanswered: dict[OutgoingChannel, _Sizes] = attrs.field(factory=dict)
    """What each of those last channels had sent when it was last seen going on: one that its
    target has ended forgets it."""
    _again: dict[tuple[HomeBridge, HomeBridge], list[int]] = attrs.field(factory=dict)
    """Sizes of the entries that one bridge has sent, and another one sends again."""
    _present: set[MirrorKey] = attrs.field(factory=set)
    _once_removed: set[MirrorKey] = attrs.field(factory=set)

    def breaches(self, now: Look) -> Iterator[str]:
        """Check the channels that were told since the last look."""
        self._note_removed(now)
        for way, opened in _opened(now):
            mirror, told = opened.mirror, opened.channel.told
            if opened.channel in self._seen:
                continue
            self._seen.add(opened.channel)
            if mirror in self._once_removed and not _is_true(now, mirror, told):
                continue
            before = self._last.get(way)
            self._last[way] = opened
            if before is not None:
                yield from self._too_many(before, opened)
                if mirror[0] not in now.world.wiped:
                    yield from _too_early(before, opened)
        self._unanswered = {
            one.channel: self._unanswered.get(one.channel, [])
            if one.channel.state is ChannelState.STOPPED
            else _unanswered(one.channel)
            for one in self._last.values()
        }

    def _note_removed(self, now: Look) -> None:
        """Forget what was told of mirrors that went, or were begun again."""
        gone = (self._present - set(now.logs)) | now.made_again
        self._present = set(now.logs)
        self._once_removed |= gone
        for way in [one for one, opened in self._last.items() if opened.mirror in gone]:
            del self._last[way]

    def _too_many(self, before: _Opened, opened: _Opened) -> Iterator[str]:
        """The bytes that are sent again: of a bridge, or of a channel that ended alone."""
        told = opened.channel.told
        sent = self._unanswered.get(before.channel, [])
        sizes = [size_bytes for mark, size_bytes in sent if told is None or mark > told]
        if before.channel.state is ChannelState.STOPPED:
            again = sizes
        else:
            again = self._again.setdefault((opened.bridge, before.bridge), [])
            again += before.channel.unanswered_behind(told)
        if sum(again) > opened.window_bytes + max(again, default=0):
            yield (
                f"{opened.host} sends {sum(again)} bytes to {opened.mirror[0]} that were sent"
                f" before; its window is {opened.window_bytes}"
            )


def _too_early(before: _Opened, opened: _Opened) -> Iterator[str]:
    """A channel that begins before what its target had told to be durable."""
    durable, told = before.channel.durable, opened.channel.told
    if told is not None and durable is not None and told < durable:
        region, partition = opened.mirror
        yield (
            f"{opened.host} goes on behind {told} of partition {partition}, although {region}"
            f" had told {durable}"
        )


def _is_true(now: Look, mirror: MirrorKey, told: Watermark | None) -> bool:
    """Whether the mirror that is there now has that, or nothing is told."""
    return mirror in now.logs and (told is None or is_durable(now, mirror, told))


def _unanswered(channel: OutgoingChannel) -> _Sizes:
    return [
        (one.watermark, one.length_bytes)
        for one in channel._unanswered  # noqa: SLF001 - a law looks at the real thing.
    ]


def _opened(now: Look) -> Iterator[tuple[_Way, _Opened]]:
    """The channels of the main stream that know where to go on."""
    for host, place in sorted(now.world.relays.items()):
        window_bytes = place.config(now.world.options.knobs).window_bytes
        for relay in place.relays[-1:]:
            for bridge in () if relay.ends is None else relay.ends.served:
                for one in bridge._channels.values():  # noqa: SLF001 - the real thing.
                    core, feed = one.core, one.feed
                    if str(feed.name.stream) != STREAM or core.state is ChannelState.ASKING:
                        continue
                    epoch, mirror = feed.record.home_epoch, (bridge.target, feed.name.number)
                    opened = _Opened(bridge, core, host, window_bytes, mirror)
                    yield (place.region, epoch, *mirror), opened
