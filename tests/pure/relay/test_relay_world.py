"""One home and two targets, with everything that can happen between them, in one thread.

The home's log grows; its two members hear of entries by a multicast that loses some; the
coordinator crashes at any step and the standby goes on with its own buffer; connections break
with messages in them; mirrors make entries durable late, and lose the rest when their region's
coordinator crashes. After every step each mirror is a prefix of the home's log (law 18), and
the home believes nothing durable that is not (law 19). In the end all are equal.
"""

from collections import deque

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from geolog.protocol.watermark import Watermark
from relay.protocol.bridge_messages import (
    AskWatermark,
    ChannelEnded,
    DurableTold,
    FromHome,
    FromTarget,
    RelayedEntry,
    SendEntry,
    WatermarkTold,
)
from relay.protocol.incoming import IncomingChannel, PushEntry, Tell
from relay.protocol.outgoing import (
    FetchAfter,
    OutgoingChannel,
    OutgoingEffect,
    StopChannel,
    StopFetching,
)
from relay.protocol.outgoing_link import LinkBounds, OutgoingLink
from relay.protocol.standby_buffer import BufferBounds, StandbyBuffer, Taken
from relay.wire.bridge import decode_from_home, decode_from_target, encode_bridge
from tests.pure.relay.logs import HomeLog

ASKED = AskWatermark(channel=1, stream="shop/carts", life="l", partition=0, home_epoch=1)
BOUNDS = BufferBounds(entries_max=4)
WINDOW_BYTES = 300
"""Of a link; entries are shorter."""


@attrs.define
class NaiveMirror:
    """A list of entries; those beyond `durable_count` are lost in a crash."""

    entries: list[RelayedEntry] = attrs.field(factory=list)
    durable_count: int = 0

    @property
    def watermark(self) -> Watermark | None:
        durable = self.entries[: self.durable_count]
        return durable[-1].watermark if durable else None


@attrs.define
class Reading:
    """A read of the home's log."""

    fetch: FetchAfter
    at: int
    """Index in the home's log of the entry to read next."""


@attrs.define
class Target:
    """A target's region: its mirror, and the bridge while there is one."""

    mirror: NaiveMirror = attrs.field(factory=NaiveMirror)
    incoming: IncomingChannel | None = None
    outgoing: OutgoingLink | None = None
    to_target: deque[bytes] = attrs.field(factory=deque)
    to_home: deque[bytes] = attrs.field(factory=deque)
    reading: Reading | None = None
    """The read of the home's log for this target."""
    stopped: list[Reading] = attrs.field(factory=list)
    """Reads that were told to stop, and may still bring what was on its way."""
    sent: set[Watermark] = attrs.field(factory=set)
    """Entries that any bridge has sent."""
    again_bytes: int = 0
    """Bytes of those that this bridge has sent again."""

    def break_bridge(self) -> None:
        self.incoming = self.outgoing = self.reading = None
        self.stopped.clear()
        self.to_target.clear()
        self.to_home.clear()


class World:
    """The home's members share nothing but the log."""

    def __init__(self, targets: int) -> None:
        self.log = HomeLog()
        self.targets = [Target() for _ in range(targets)]
        self.buffers = [StandbyBuffer(None, BOUNDS), StandbyBuffer(None, BOUNDS)]
        """Of the coordinator, and of the standby."""

    # What may happen.

    def append(self, number: int) -> None:
        if number >= 4:
            self.log.roll(skipped=number % 2)
        for _ in range(1 + number):
            entry = self.log.append(number % 3)
            for member, buffer in enumerate(self.buffers):
                if not number >> member & 1:
                    buffer.push(entry, now_s=0)
        self.on_buffered()

    def read_tail(self, number: int) -> None:
        """A member reads what it missed; a fresh one begins anywhere."""
        buffer = self.buffers[number % 2]
        if buffer.end is None and len(buffer) == 0 and number >= 2 and self.log.entries:
            begin = self.log.entries[number % len(self.log.entries)].watermark
            buffer = self.buffers[number % 2] = StandbyBuffer(begin, BOUNDS)
            if number % 2 == 0:
                self.break_all()  # The channels know the buffer that was there before.
        for entry in self.log.entries:
            assert buffer.push(entry, now_s=0) in (Taken.NEW, Taken.REPEATED)
        self.on_buffered()

    def crash(self, number: int) -> None:
        """The coordinator is gone; the standby goes on, and a fresh member stands by."""
        self.buffers = [self.buffers[1], StandbyBuffer(None, BOUNDS)]
        self.break_all()

    def break_all(self) -> None:
        for target in self.targets:
            target.break_bridge()

    def break_bridge(self, number: int) -> None:
        self.target(number).break_bridge()

    def crash_target(self, number: int) -> None:
        target = self.target(number)
        target.break_bridge()
        del target.mirror.entries[target.mirror.durable_count :]

    def dial(self, number: int) -> None:
        target = self.target(number)
        if target.outgoing is None:
            # The mirror's owner is taken over: what was not durable is gone.
            del target.mirror.entries[target.mirror.durable_count :]
            target.outgoing = OutgoingLink(WINDOW_BYTES, LinkBounds(), now_s=0)
            target.again_bytes = 0
            target.outgoing.open(1, OutgoingChannel(self.buffers[0]), now_s=0)
            target.to_target.append(encode_bridge(ASKED))

    def send(self, number: int) -> None:
        target = self.target(number)
        if target.outgoing is not None:
            taken = target.outgoing.take(now_s=0)
            if taken is not None:
                target.to_target.append(encode_bridge(taken[0]))
                self.note_sent(target, taken[0].entry)
                self.perform(target, taken[1])

    def note_sent(self, target: Target, entry: RelayedEntry) -> None:
        """Entries that a bridge sends again were unanswered on another: within the window."""
        if entry.watermark in target.sent:
            target.again_bytes += entry.length_bytes
        longest_bytes = max(one.length_bytes for one in self.log.entries)
        assert target.again_bytes < WINDOW_BYTES + longest_bytes
        target.sent.add(entry.watermark)

    def arrive_at_target(self, number: int) -> None:
        target = self.target(number)
        if target.to_target:
            self.hear_home(target, decode_from_home(target.to_target.popleft()))

    def arrive_at_home(self, number: int) -> None:
        target = self.target(number)
        if target.to_home:
            self.hear_target(target, decode_from_target(target.to_home.popleft()))

    def make_durable(self, number: int) -> None:
        target = self.target(number)
        mirror = target.mirror
        if mirror.durable_count < len(mirror.entries):
            mirror.durable_count += 1
            assert mirror.watermark is not None
            if target.incoming is not None:
                self.tell_home(target, target.incoming.on_durable(mirror.watermark))

    def fetch(self, number: int) -> None:
        target = self.target(number)
        if target.reading is not None:
            self.bring(target, target.reading)

    def fetch_late(self, number: int) -> None:
        target = self.target(number)
        if target.stopped:
            self.bring(target, target.stopped.pop())

    def bring(self, target: Target, reading: Reading) -> None:
        assert target.outgoing is not None
        channel = target.outgoing.channel(1)
        assert channel is not None
        found = self.log.entries[reading.at : reading.at + 2]
        reading.at += len(found)
        self.perform(target, channel.on_fetched(reading.fetch, found))
        target.outgoing.on_ready(1)

    def trim(self, number: int) -> None:
        """Drop what all targets have told to be durable."""
        told = [target.outgoing.channel(1) for target in self.targets if target.outgoing]
        marks = [None if channel is None else channel.durable for channel in told]
        known = [mark for mark in marks if mark is not None]
        if len(known) == len(self.targets):
            self.buffers[number % 2].trim(min(known))
            self.on_buffered()

    # How the parts answer each other.

    def target(self, number: int) -> Target:
        return self.targets[number % len(self.targets)]

    def on_buffered(self) -> None:
        for target in self.targets:
            if target.outgoing is not None:
                channel = target.outgoing.channel(1)
                assert channel is not None
                self.perform(target, channel.on_buffered())
                target.outgoing.on_ready(1)

    def perform(self, target: Target, effects: list[OutgoingEffect]) -> None:
        for effect in effects:
            match effect:
                case FetchAfter(position):
                    marks = [None, *self.log.watermarks()]
                    target.reading = Reading(effect, marks.index(position))
                case StopFetching():
                    assert target.reading is not None
                    target.stopped.append(target.reading)
                    target.reading = None
                case StopChannel():
                    raise AssertionError(effect)

    def hear_home(self, target: Target, message: FromHome) -> None:
        match message:
            case AskWatermark():
                target.incoming = IncomingChannel(message)
                self.tell_home(
                    target, target.incoming.on_mirror_opened(target.mirror.watermark)
                )
            case SendEntry(_, entry):
                assert target.incoming is not None
                for effect in target.incoming.on_entry(entry):
                    assert isinstance(effect, PushEntry), effect
                    target.mirror.entries.append(effect.entry)
            case _:
                raise AssertionError(message)

    def tell_home(self, target: Target, effects: list[PushEntry | Tell]) -> None:
        for effect in effects:
            assert isinstance(effect, Tell)
            target.to_home.append(encode_bridge(effect.message))

    def hear_target(self, target: Target, message: FromTarget) -> None:
        assert target.outgoing is not None
        match message:
            case WatermarkTold(number, watermark):
                self.perform(target, target.outgoing.on_told(number, watermark, now_s=0))
            case DurableTold(number, watermark):
                self.perform(target, target.outgoing.on_durable(number, watermark, now_s=0))
            case ChannelEnded():
                raise AssertionError(message)
            case _:
                raise AssertionError(message)

    # Laws.

    def check(self) -> None:
        home = self.log.watermarks()
        for target in self.targets:
            mirrored = [entry.watermark for entry in target.mirror.entries]
            assert mirrored == home[: len(mirrored)]
            assert [one.encoded.join() for one in target.mirror.entries] == [
                one.encoded.join() for one in self.log.entries[: len(mirrored)]
            ]
            channel = None if target.outgoing is None else target.outgoing.channel(1)
            if channel is not None and channel.durable is not None:
                assert channel.durable in mirrored[: target.mirror.durable_count]

    def settle(self) -> None:
        """Without further faults, everything arrives."""
        self.read_tail(0)
        for step in range(40 * (len(self.log.entries) + 3)):
            for act in (self.dial, self.fetch, self.send, self.arrive_at_target,
                        self.make_durable, self.arrive_at_home):  # fmt: skip
                act(step)
            self.check()
        for target in self.targets:
            assert target.mirror.watermark == self.log.end


ACTS = {
    "append": World.append, "read": World.read_tail, "crash": World.crash,
    "break": World.break_bridge, "crash target": World.crash_target, "dial": World.dial,
    "send": World.send, "to target": World.arrive_at_target, "to home": World.arrive_at_home,
    "durable": World.make_durable, "fetch": World.fetch, "fetch late": World.fetch_late,
    "trim": World.trim,
}  # fmt: skip
USUAL = ["append", "send", "send", "to target", "to home", "durable", "fetch", "dial", "read"]


@settings(max_examples=max(25, settings().max_examples // 2))
@given(
    st.integers(1, 2),
    st.lists(
        st.tuples(st.sampled_from([*USUAL, *ACTS]), st.integers(0, 5)),
        min_size=30,
        max_size=120,
    ),
)
def test_every_mirror_is_a_prefix_at_all_times_and_equal_in_the_end(
    targets: int, steps: list[tuple[str, int]]
) -> None:
    world = World(targets)
    for name, number in steps:
        ACTS[name](world, number)
        world.check()
    world.settle()
