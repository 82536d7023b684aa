"""The law that a bridge sends little again compares it with the bridge before it."""

from types import SimpleNamespace
from typing import cast

import attrs
import pytest

from geolog.protocol.ids import Sequence
from geolog.protocol.stream_state import TrimRecord
from geolog.protocol.watermark import Watermark
from relay.protocol.outgoing import OutgoingChannel
from relay.protocol.standby_buffer import BufferBounds, StandbyBuffer
from sim.laws.state.law_22_replays_are_bounded import ReplaysAreBounded
from sim.laws.state.seen import Look, MirrorKey
from sim.world.calls import STREAM
from tests.pure.relay.logs import home_log

LOG = home_log("1" * 8)
WINDOW_ENTRIES = 4


@attrs.define(eq=False)
class Bridge:
    """The parts of a bridge that the law reads."""

    target: str
    _channels: dict[int, SimpleNamespace]


def sending(told: int, sent: int, durable: int = 0) -> OutgoingChannel:
    """A channel whose target had so many entries; this many were sent in all, and durable."""
    buffer = StandbyBuffer(None, BufferBounds())
    for entry in LOG.entries:
        buffer.push(entry, now_s=0)
    channel = OutgoingChannel(buffer)
    channel.on_told(_mark(told))
    for entry in LOG.entries[told:sent]:
        channel.on_sent(entry)
    if durable:
        channel.on_durable(LOG.entries[durable - 1].watermark)
    return channel


def told_of(*channels: OutgoingChannel) -> list[str]:
    """The breaches if these follow each other, each on a bridge of its own."""
    law = ReplaysAreBounded()
    return [words for one in channels for words in law.breaches(look_at(one))]


def look_at(channel: OutgoingChannel, made_again: frozenset[MirrorKey] = frozenset()) -> Look:
    name = SimpleNamespace(stream=STREAM, number=0)
    feed = SimpleNamespace(name=name, record=SimpleNamespace(home_epoch=1))
    bridge = Bridge("eu-west", channels={1: SimpleNamespace(core=channel, feed=feed)})
    relay = SimpleNamespace(ends=SimpleNamespace(served=[bridge]))
    window_bytes = WINDOW_ENTRIES * LOG.entries[0].length_bytes
    place = SimpleNamespace(
        region="us-east",
        relays=[relay],
        config=lambda _: SimpleNamespace(window_bytes=window_bytes),
    )
    world = SimpleNamespace(
        relays={"relay-1": place}, options=SimpleNamespace(knobs=None), wiped=set()
    )
    looked = SimpleNamespace(
        world=world,
        logs={("eu-west", 0): {}},
        log_trims={("eu-west", 0): TrimRecord(first_sequence=Sequence(100))},
        made_again=made_again,
        dropped={},
    )
    return cast("Look", looked)


def ended(channel: OutgoingChannel) -> OutgoingChannel:
    """The same, once its target has ended it."""
    channel.on_ended(503, "its mirror failed")
    return channel


def _mark(count: int) -> Watermark | None:
    return LOG.entries[count - 1].watermark if count else None


def test_a_window_and_one_entry_may_be_sent_again() -> None:
    assert told_of(sending(told=1, sent=6), sending(told=1, sent=8)) == []


def test_more_than_that_is_told() -> None:
    [words] = told_of(sending(told=1, sent=7), sending(told=1, sent=1))

    assert "bytes to eu-west that were sent before" in words


def test_what_the_target_has_got_meanwhile_is_not_sent_again() -> None:
    assert told_of(sending(told=1, sent=7), sending(told=3, sent=8)) == []


def test_a_target_that_forgets_what_it_told_to_be_durable_is_told() -> None:
    [words] = told_of(sending(told=1, sent=5, durable=4), sending(told=2, sent=2))

    assert words.endswith(f"although eu-west had told {_mark(4)}")


@pytest.mark.parametrize(("sent", "breaches_count"), [(6, 0), (7, 1)])
def test_what_a_channel_had_sent_that_its_target_ended_counts(
    sent: int, breaches_count: int
) -> None:
    law, first = ReplaysAreBounded(), sending(told=1, sent=sent)
    assert list(law.breaches(look_at(first))) == []
    assert list(law.breaches(look_at(ended(first)))) == []

    told = list(law.breaches(look_at(sending(told=1, sent=1))))

    assert len(told) == breaches_count


def test_a_mirror_that_was_begun_again_may_be_told_to_have_less() -> None:
    law, made_again = ReplaysAreBounded(), frozenset({("eu-west", 0)})
    assert list(law.breaches(look_at(sending(told=1, sent=5, durable=4)))) == []

    assert list(law.breaches(look_at(sending(told=0, sent=2), made_again))) == []
    assert list(law.breaches(look_at(sending(told=0, sent=5, durable=3)))) == []
    [words] = law.breaches(look_at(sending(told=2, sent=2)))

    assert words.endswith(f"although eu-west had told {_mark(3)}")
