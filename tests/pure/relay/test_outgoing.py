"""A home sends to one target in order, from buffer or log, and never with a hole."""

import attrs
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.ids import Sequence
from relay.protocol.bridge_messages import RelayedEntry
from relay.protocol.outgoing import (
    AllSent,
    ChannelState,
    FetchAfter,
    OutgoingChannel,
    OutgoingEffect,
    StopChannel,
    StopFetching,
)
from relay.protocol.outgoing_link import (
    MESSAGE_BYTES_LEAST,
    LinkBounds,
    MessageSize,
    OutgoingLink,
)
from relay.protocol.standby_buffer import BufferBounds, StandbyBuffer
from tests.pure.relay.logs import HomeLog, home_log


def buffer_with(log: HomeLog, *, after: int = 0) -> StandbyBuffer:
    """A buffer that has the log from this entry on."""
    begin = log.entries[after - 1].watermark if after else None
    buffer = StandbyBuffer(begin, BufferBounds())
    for entry in log.entries[after:]:
        buffer.push(entry, now_s=0)
    return buffer


def sent_by(channel: OutgoingChannel) -> list[RelayedEntry]:
    found = []
    while (entry := channel.next_entry()) is not None:
        channel.on_sent(entry)
        found.append(entry)
    return found


def fetch_of(effects: list[OutgoingEffect]) -> FetchAfter:
    """The read of the log that these effects ask for, and nothing else."""
    (fetch,) = effects
    assert isinstance(fetch, FetchAfter)
    return fetch


def test_nothing_is_sent_before_the_watermark_is_told() -> None:
    channel = OutgoingChannel(buffer_with(home_log("11")))

    assert channel.next_entry() is None
    assert channel.state is ChannelState.ASKING


def test_what_a_mirror_lacks_is_replayed_from_the_buffer() -> None:
    log = home_log("1c1|1")
    channel = OutgoingChannel(buffer_with(log))

    assert channel.on_told(log.entries[0].watermark) == []
    assert sent_by(channel) == log.entries[1:]
    assert channel.state is ChannelState.LIVE
    assert channel.replayed_count == 3


def test_what_the_buffer_lacks_is_read_from_the_log_until_they_meet() -> None:
    log = home_log("11111")
    channel = OutgoingChannel(buffer_with(log, after=3))

    fetch = fetch_of(channel.on_told(None))
    assert (fetch.position, fetch.first_sequence) == (None, 0)
    channel.on_fetched(fetch, log.entries[:2])
    assert sent_by(channel) == log.entries[:2]
    channel.on_fetched(fetch, log.entries[2:5])
    assert channel.next_entry() is log.entries[2]
    assert channel.on_sent(log.entries[2]) == []
    assert channel.next_entry() is log.entries[3]
    assert channel.on_sent(log.entries[3]) == [StopFetching()]
    assert sent_by(channel) == log.entries[4:]
    assert channel.state is ChannelState.LIVE


def test_a_channel_at_the_edge_of_the_buffer_goes_on_with_the_log() -> None:
    log = home_log("111111")
    buffer = buffer_with(log, after=2)
    channel = OutgoingChannel(buffer)
    fetch = fetch_of(channel.on_told(None))

    effects = channel.on_fetched(fetch, log.entries[:4])
    for entry in log.entries[:3]:
        assert channel.next_entry() is entry
        effects += channel.on_sent(entry)

    assert effects == []
    assert buffer.covers(channel.position)
    assert channel.on_sent(log.entries[3]) == [StopFetching()]


def test_what_a_stopped_read_of_the_log_still_brings_is_not_taken() -> None:
    log = home_log("11111")
    buffer = buffer_with(log, after=1)
    channel = OutgoingChannel(buffer)
    first = fetch_of(channel.on_told(None))
    channel.on_fetched(first, log.entries[:3])
    assert sent_by(channel) == log.entries
    (late,) = home_log("111111").entries[5:]
    buffer.push(late, now_s=0)
    buffer.trim(late.watermark)
    second = fetch_of(channel.on_buffered())

    assert channel.on_fetched(first, log.entries[3:]) == []
    assert channel.on_gone(first, "trimmed") == []
    assert channel.next_entry() is None
    channel.on_fetched(second, [late])
    assert sent_by(channel) == [late]


def test_a_log_that_is_gone_does_not_matter_if_the_buffer_has_the_rest() -> None:
    log = home_log("1111")
    channel = OutgoingChannel(buffer_with(log, after=1))
    fetch = fetch_of(channel.on_told(None))
    channel.on_fetched(fetch, log.entries[:1])
    sent = [channel.next_entry()]
    channel.on_sent(log.entries[0])

    assert channel.on_gone(fetch, "trimmed") == [StopFetching()]
    assert sent + sent_by(channel) == log.entries


def test_a_live_channel_that_falls_out_of_the_buffer_reads_the_log_again() -> None:
    log = home_log("111")
    buffer = buffer_with(log)
    channel = OutgoingChannel(buffer)
    channel.on_told(log.entries[0].watermark)

    buffer.trim(log.entries[1].watermark)

    assert fetch_of(channel.on_buffered()).position == log.entries[0].watermark
    assert channel.state is ChannelState.REPLAYING


def test_a_channel_whose_log_is_gone_stops_and_skips_nothing() -> None:
    log = home_log("111")
    channel = OutgoingChannel(buffer_with(log, after=2))
    fetch = fetch_of(channel.on_told(None))

    assert channel.on_gone(fetch, "trimmed") == [StopFetching(), StopChannel(410, "trimmed")]
    assert channel.next_entry() is None
    assert channel.on_buffered() == []


def test_a_target_that_tells_more_than_it_was_sent_is_not_believed() -> None:
    log = home_log("111")
    channel = OutgoingChannel(buffer_with(log))
    channel.on_told(None)
    entry = channel.next_entry()
    assert entry is not None
    channel.on_sent(entry)

    (stop,) = channel.on_durable(log.entries[1].watermark)

    assert isinstance(stop, StopChannel)
    assert channel.durable is None
    assert channel.state is ChannelState.STOPPED


def link_of(*buffers: StandbyBuffer, window_bytes: int = 1 << 20) -> OutgoingLink:
    link = OutgoingLink(window_bytes, LinkBounds(), now_s=0)
    for number, buffer in enumerate(buffers, 1):
        link.open(number, OutgoingChannel(buffer), now_s=0)
    return link


def taken(link: OutgoingLink, *, now_s: float = 0) -> list[tuple[int, RelayedEntry]]:
    found = []
    while (one := link.take(now_s=now_s)) is not None:
        found.append((one[0].channel, one[0].entry))
    return found


def test_a_link_sends_no_more_than_its_window_until_it_is_answered() -> None:
    log = home_log("1111")
    link = link_of(buffer_with(log), window_bytes=log.entries[0].length_bytes + 1)
    link.on_told(1, None, now_s=0)

    assert taken(link) == [(1, log.entries[0]), (1, log.entries[1])]
    link.on_durable(1, log.entries[1].watermark, now_s=0)
    assert link.unanswered_bytes == 0
    assert [entry for _, entry in taken(link)] == log.entries[2:]


@given(
    entries_count=st.integers(1, 40),
    window_entries=st.integers(1, 12),
    answered=st.lists(st.integers(0, 12), max_size=6),
)
def test_the_coordinator_after_one_that_ended_repeats_at_most_a_window_and_an_entry(
    entries_count: int, window_entries: int, answered: list[int]
) -> None:
    log = home_log("1" * entries_count)
    longest_bytes = max(entry.length_bytes for entry in log.entries)
    window_bytes = window_entries * longest_bytes
    ended = link_of(buffer_with(log), window_bytes=window_bytes)
    ended.on_told(1, None, now_s=0)
    sent = taken(ended)
    durable_count = 0
    for more in answered:
        durable_count = min(durable_count + more, len(sent))
        if durable_count:
            ended.on_durable(1, log.entries[durable_count - 1].watermark, now_s=0)
            sent += taken(ended)
    told = log.entries[durable_count - 1].watermark if durable_count else None

    successor = link_of(buffer_with(log), window_bytes=1 << 20)
    successor.on_told(1, told, now_s=0)
    sent_again = taken(successor)

    assert [entry for _, entry in sent_again] == log.entries[durable_count:]
    repeated = [one for one in sent_again if one in sent]
    assert sum(entry.length_bytes for _, entry in repeated) < window_bytes + longest_bytes


def test_channels_take_turns_and_live_ones_go_first() -> None:
    one, other, late = home_log("1111"), home_log("11"), home_log("1")
    live = buffer_with(late)
    link = link_of(buffer_with(one), buffer_with(other), live)
    link.on_told(3, late.end, now_s=0)
    link.on_told(1, None, now_s=0)
    link.on_told(2, None, now_s=0)

    first = [link.take(now_s=0) for _ in range(3)]
    live.push(late.append(), now_s=0)
    link.on_ready(3)

    assert [found[0].channel for found in first if found is not None] == [1, 2, 1]
    assert [channel for channel, _ in taken(link)] == [3, 2, 1, 1]


def test_a_cap_spreads_entries_over_time() -> None:
    log = home_log("1" * 50)
    size_bytes = log.entries[0].length_bytes
    bounds = LinkBounds(bytes_per_s_max=10 * size_bytes)
    link = OutgoingLink(1 << 20, bounds, now_s=0)
    link.open(1, OutgoingChannel(buffer_with(log)), now_s=0)
    link.on_told(1, None, now_s=0)

    count = sum(len(taken(link, now_s=step / 100)) for step in range(201))

    assert 19 <= count <= 22
    assert link.take(now_s=2.0) is None
    assert 0 < link.held_back_s <= 0.1


def test_a_link_is_stuck_once_nothing_moves_while_an_answer_is_due() -> None:
    log = home_log("11")
    link = link_of(buffer_with(log))

    assert not link.is_stuck(now_s=9)
    assert link.is_stuck(now_s=10)
    link.on_told(1, log.end, now_s=12)
    assert not link.is_stuck(now_s=100), "an idle link is not stuck"


def test_time_without_work_does_not_count_as_stuck() -> None:
    log = home_log("11")
    buffer = buffer_with(log)
    link = link_of(buffer)
    link.on_told(1, log.end, now_s=0)
    buffer.push(log.append(), now_s=100)
    link.on_ready(1)
    link.take(now_s=100)

    assert not link.is_stuck(now_s=109)
    assert link.is_stuck(now_s=110)


def test_the_room_of_a_channel_that_ended_is_free_again() -> None:
    log = home_log("11")
    link = link_of(buffer_with(log))
    link.on_told(1, None, now_s=0)
    taken(link)

    link.end(1)

    assert link.unanswered_bytes == 0
    assert not link.is_waiting


def test_the_room_of_a_channel_that_its_target_gave_up_is_free_again() -> None:
    log = home_log("11")
    link = link_of(buffer_with(log))
    link.on_told(1, None, now_s=0)
    taken(link)
    channel = link.channel(1)
    assert channel is not None

    channel.on_ended(503, "the mirror begins again")
    link.end(1)

    assert link.unanswered_bytes == 0
    assert not link.is_waiting


def test_a_question_that_is_never_answered_is_over_with_its_channel() -> None:
    link = link_of(buffer_with(home_log("11")))
    channel = link.channel(1)
    assert channel is not None

    channel.on_ended(404, "there is no such stream")
    link.end(1)

    assert not link.is_waiting


def test_a_canary_that_comes_back_stands_for_no_answer_that_is_due() -> None:
    link = link_of(buffer_with(home_log("1")))
    for second in range(1, 11):
        link.on_canary_sent(second, now_s=second)
        link.on_canary_back(second, now_s=second + 0.25)

    assert link.round_trip_s == 0.25
    assert not link.is_stuck(now_s=9)
    assert link.is_stuck(now_s=10.5)


def test_an_idle_link_is_stuck_once_its_canaries_stay_away() -> None:
    link = link_of()
    link.on_canary_sent(1, now_s=1)
    assert not link.is_stuck(now_s=100), "a target of an older version sends none back"

    link.on_canary_back(1, now_s=100)
    link.on_canary_sent(2, now_s=101)

    assert not link.is_stuck(now_s=110)
    assert link.is_stuck(now_s=111)


def test_an_empty_mirror_that_is_to_begin_later_is_sent_nothing_of_what_is_before() -> None:
    log = home_log("11|c1")
    channel = OutgoingChannel(buffer_with(log))
    late = [attrs.evolve(log.entries[2], previous=None), log.entries[3]]

    fetch = fetch_of(channel.on_told(None, first_sequence=Sequence(2)))
    assert (fetch.position, fetch.first_sequence) == (None, 2)
    assert channel.next_entry() is None
    channel.on_fetched(fetch, late[:1])
    assert channel.next_entry() is late[0]
    assert channel.on_sent(late[0]) == [StopFetching()]
    assert sent_by(channel) == late[1:]
    assert channel.state is ChannelState.LIVE


def test_bytes_that_may_have_been_sent_before_are_counted() -> None:
    log = home_log("1c1|1")
    sent_before = AllSent(log.entries[2].watermark)
    unknown = OutgoingChannel(buffer_with(log))
    known = OutgoingChannel(buffer_with(log), handed=sent_before)

    for channel in (unknown, known):
        channel.on_told(log.entries[0].watermark)
        sent_by(channel)

    sizes = [entry.length_bytes for entry in log.entries]
    assert (unknown.replayed_bytes, known.replayed_bytes) == (sum(sizes[1:]), sum(sizes[1:3]))
    assert known.unanswered_behind(log.entries[2].watermark) == sizes[3:]


def large_log(count: int) -> HomeLog:
    log = home_log("")
    for _ in range(count):
        log.append(payload=bytes(300_000))
    return log


def test_a_mirror_that_takes_nothing_is_left_out_of_the_window_and_ends_alone() -> None:
    stuck, other = large_log(8), large_log(8)
    link = link_of(buffer_with(stuck), buffer_with(other), window_bytes=16 << 20)
    link.on_told(1, None, now_s=0)
    filled = taken(link)
    link.on_told(2, None, now_s=0)

    link.on_canary_sent(1, now_s=1)
    assert (len(filled), taken(link)) == (4, []), "it has the whole window"
    assert link.on_look(now_s=5).stuck == []
    assert taken(link) == [], "its entries may still be on their way"

    link.on_canary_arrived(1, now_s=6)
    assert link.on_look(now_s=7.9).stuck == []
    assert taken(link) == []
    assert link.on_look(now_s=8).stuck == []
    link.on_ready(1)
    assert [channel for channel, _ in taken(link)] == [2] * 4
    link.on_durable(2, other.entries[3].watermark, now_s=8.1)
    assert [channel for channel, _ in taken(link)] == [2] * 4
    assert link.on_look(now_s=15.9).stuck == []
    assert link.on_look(now_s=16).stuck == [1]
    link.end(1)
    assert link.unanswered_bytes == sum(one.length_bytes for one in other.entries[4:])


def test_nothing_is_read_from_the_log_for_a_mirror_that_takes_nothing_until_it_goes_on() -> (
    None
):
    log = home_log("11111")
    buffer = buffer_with(log, after=4)
    link = link_of(buffer)
    fetch = fetch_of(link.on_told(1, None, now_s=0))
    channel = link.channel(1)
    assert channel is not None
    channel.on_fetched(fetch, log.entries[:1])
    link.on_ready(1)
    sent = taken(link)
    channel.on_fetched(fetch, log.entries[1:3])
    link.on_canary_sent(1, now_s=1)
    link.on_canary_arrived(1, now_s=2)

    assert link.on_look(now_s=4).stalled == [(1, [StopFetching()])]
    assert channel.fetched_bytes == 0
    assert channel.on_buffered() == []
    assert channel.on_fetched(fetch, log.entries[3:]) == []
    again = fetch_of(link.on_durable(1, sent[0][1].watermark, now_s=5))
    assert again.position == log.entries[0].watermark
    channel.on_fetched(again, log.entries[1:])
    link.on_ready(1)
    assert [entry for _, entry in taken(link, now_s=5)] == log.entries[1:]


def test_a_mirror_that_goes_on_is_sent_more_at_once() -> None:
    log = large_log(8)
    link = link_of(buffer_with(log), window_bytes=16 << 20)
    link.on_told(1, None, now_s=0)
    filled = taken(link)
    link.on_canary_sent(1, now_s=1)
    link.on_canary_arrived(1, now_s=2)
    assert link.on_look(now_s=9).stuck == []
    link.on_durable(1, filled[1][1].watermark, now_s=10)

    assert len(taken(link, now_s=10)) == 2
    assert link.on_look(now_s=100).stuck == [], "a later canary must arrive first"


def test_a_canary_that_was_sent_before_an_entry_says_nothing_of_it() -> None:
    log = home_log("1")
    link = link_of(buffer_with(log))
    link.on_told(1, None, now_s=0)
    link.on_canary_sent(1, now_s=1)
    taken(link, now_s=2)
    link.on_canary_arrived(1, now_s=3)

    assert link.on_look(now_s=60).stuck == []
    assert not link.is_stuck(now_s=12)


def test_a_channel_owns_a_quarter_of_what_the_target_takes_and_more_while_it_is_alone() -> None:
    one, other = home_log("1" * 40), home_log("1" * 40)
    longest_bytes = max(entry.length_bytes for entry in one.entries)
    buffer = buffer_with(other)
    link = link_of(buffer_with(one), buffer, window_bytes=32 * longest_bytes)
    link.on_told(1, None, now_s=0)
    link.on_told(2, other.end, now_s=0)

    alone = taken(link)
    assert 24 <= len(alone) <= 25, "three quarters of 32"
    buffer.push(other.append(), now_s=0)
    link.on_ready(2)
    assert [channel for channel, _ in taken(link)] == [2]
    link.on_durable(1, alone[-1][1].watermark, now_s=1)
    shared = taken(link)
    assert 8 <= len(shared) <= 9, "a quarter, while the other is owed an answer"
    link.on_durable(2, other.entries[-1].watermark, now_s=2)
    link.on_ready(1)
    assert len(taken(link)) == 40 - len(alone) - len(shared)


def test_bytes_of_a_message_that_is_on_its_way_are_progress() -> None:
    log = home_log("1")
    link = link_of(buffer_with(log))
    link.on_told(1, None, now_s=0)
    taken(link)
    for now_s in range(2, 60, 2):
        link.on_partial(now_s=now_s)

    assert not link.is_stuck(now_s=67)
    assert link.is_stuck(now_s=68)


def test_messages_grow_while_the_connection_takes_them_at_once_and_shrink_again() -> None:
    size = MessageSize(256 << 10)
    grown = []
    for _ in range(6):
        size.on_sent(0.0, is_full=True)
        grown.append(size.bytes >> 10)
    size.on_sent(0.0, is_full=False)
    for took_s in (0.3, 0.6, 3.0, 9.0, 9.0, 9.0):
        size.on_sent(took_s, is_full=True)

    assert grown == [32, 64, 128, 256, 256, 256]
    assert size.bytes == MESSAGE_BYTES_LEAST
