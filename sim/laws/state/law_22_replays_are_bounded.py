"""Law 22: what a link sends again, once a bridge or its coordinator has ended, is bounded.

The target tells what it has durably, and the new bridge goes on there. Entries that the bridge
before it had sent beyond that are sent twice: at most a window and one entry. And no bridge
begins before what its target had told an earlier one to be durable.
"""

from collections.abc import Iterator

import attrs

from relay.bridge.home_bridge import HomeBridge
from relay.protocol.outgoing import ChannelState, OutgoingChannel
from sim.laws.state.seen import Look, MirrorKey
from sim.world.calls import STREAM

_Way = tuple[str, int, str, int]
"""A home and its epoch, a target, and a partition."""


@attrs.define
class ReplaysAreBounded:
    """Keeps the last channel of each way that was told where to go on, of whichever relay.

    A coordinator that was deposed without noticing still has its channels.
    """

    _last: dict[_Way, tuple[HomeBridge, OutgoingChannel]] = attrs.field(factory=dict)
    _seen: set[OutgoingChannel] = attrs.field(factory=set)
    _again: dict[tuple[HomeBridge, HomeBridge], list[int]] = attrs.field(factory=dict)
    """Sizes of the entries that one bridge has sent, and another one sends again."""
    _present: set[MirrorKey] = attrs.field(factory=set)
    _once_removed: set[MirrorKey] = attrs.field(factory=set)

    def breaches(self, now: Look) -> Iterator[str]:
        """Check the channels that were told since the last look."""
        self._once_removed |= (self._present - set(now.logs)) | now.made_again
        self._present = set(now.logs)
        for host, window_bytes, way, bridge, channel in _channels(now):
            if channel in self._seen:
                continue
            self._seen.add(channel)
            before = self._last.get(way)
            self._last[way] = bridge, channel
            if before is None:
                continue
            _, _, target, partition = way
            again = self._again.setdefault((bridge, before[0]), [])
            again += before[1].unanswered_behind(channel.told)
            if sum(again) > window_bytes + max(again, default=0):
                yield (
                    f"{host} sends {sum(again)} bytes to {target} that were sent before; its"
                    f" window is {window_bytes}"
                )
            durable, told = before[1].durable, channel.told
            is_same_mirror = (
                target not in now.world.wiped and (target, partition) not in self._once_removed
            )
            if is_same_mirror and told is not None and durable is not None and told < durable:
                yield (
                    f"{host} goes on behind {told} of partition {partition}, although {target}"
                    f" had told {durable}"
                )


def _channels(now: Look) -> Iterator[tuple[str, int, _Way, HomeBridge, OutgoingChannel]]:
    """The channels of the main stream that know where to go on."""
    for host, place in sorted(now.world.relays.items()):
        window_bytes = place.config(now.world.options.knobs).window_bytes
        for relay in place.relays[-1:]:
            for bridge in () if relay.ends is None else relay.ends.served:
                for one in bridge._channels.values():  # noqa: SLF001 - the real thing.
                    core, feed = one.core, one.feed
                    if str(feed.name.stream) != STREAM or core.state is ChannelState.ASKING:
                        continue
                    epoch = feed.record.home_epoch
                    way = place.region, epoch, bridge.target, feed.name.number
                    yield host, window_bytes, way, bridge, core
