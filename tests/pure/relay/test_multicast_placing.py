"""Entries of the multicast find their places, however they come."""

import random

from hypothesis import given
from hypothesis import strategies as st

from relay.protocol.bridge_messages import RelayedEntry
from relay.protocol.multicast_placing import MulticastPlacing, Offered, PlacingBounds
from relay.protocol.standby_buffer import BufferBounds, StandbyBuffer, Taken
from tests.pure.relay.logs import HomeLog, home_log


def place_all(placing: MulticastPlacing, buffer: StandbyBuffer) -> int:
    placed = 0
    while (entry := placing.next_after(buffer.end)) is not None:
        assert buffer.push(entry, now_s=0) is Taken.NEW
        placed += 1
    return placed


def equal(found: RelayedEntry, expected: RelayedEntry) -> bool:
    return (
        found.watermark == expected.watermark
        and found.previous == expected.previous
        and found.encoded.join() == expected.encoded.join()
    )


def test_an_entry_in_turn_is_placed_as_the_reader_would_have_read_it() -> None:
    log = home_log("3c2")
    buffer, placing = (
        StandbyBuffer(log.entries[0].watermark, BufferBounds()),
        MulticastPlacing(),
    )

    assert placing.on_entry(log.entries[1].encoded, buffer.end) is Offered.KEPT
    found = placing.next_after(buffer.end)
    assert found is not None
    assert equal(found, log.entries[1])


def test_the_first_entry_of_a_segment_is_left_to_the_reader_and_those_behind_it_wait() -> None:
    log = home_log("1|c12")
    buffer, placing = (
        StandbyBuffer(log.entries[0].watermark, BufferBounds()),
        MulticastPlacing(),
    )
    outcomes = [placing.on_entry(one.encoded, buffer.end) for one in log.entries[1:]]

    assert outcomes == [Offered.REFUSED, Offered.KEPT, Offered.KEPT]
    assert place_all(placing, buffer) == 0
    assert buffer.push(log.entries[1], now_s=0) is Taken.NEW
    assert place_all(placing, buffer) == 2
    assert buffer.end == log.end


def test_repeats_are_dropped_and_counted() -> None:
    log = home_log("111")
    placing = MulticastPlacing()
    end = log.entries[1].watermark

    assert placing.on_entry(log.entries[1].encoded, end) is Offered.REPEATED
    assert placing.on_entry(log.entries[2].encoded, end) is Offered.KEPT
    assert placing.on_entry(log.entries[2].encoded, end) is Offered.REPEATED
    assert placing.repeated_count == 2


def test_an_entry_whose_sequence_does_not_fit_is_refused() -> None:
    log, other = home_log("11"), home_log("31")
    placing = MulticastPlacing()
    end = log.entries[0].watermark
    assert placing.on_entry(other.entries[1].encoded, end) is Offered.KEPT

    assert placing.next_after(end) is None
    assert (len(placing), placing.refused_count) == (0, 1)


def test_the_oldest_of_too_many_are_refused() -> None:
    log = home_log("1" * 8)
    placing = MulticastPlacing(PlacingBounds(waiting_max=3))
    for entry in log.entries[2:]:
        placing.on_entry(entry.encoded, log.entries[0].watermark)

    assert (len(placing), placing.refused_count) == (3, 3)
    assert placing.next_after(log.entries[4].watermark) is not None


@given(
    st.text("12c|", min_size=2, max_size=40),
    st.integers(0, 100),
    st.sets(st.integers(0, 40)),
    st.integers(1, 8),
    st.integers(0, 2**32),
)
def test_with_any_loss_and_order_the_buffer_is_the_log(
    shape: str, begin: int, lost: set[int], waiting_max: int, seed: int
) -> None:
    log: HomeLog = home_log(shape)
    if not log.entries:
        return
    at = begin % len(log.entries)
    buffer = StandbyBuffer(log.entries[at].watermark, BufferBounds())
    placing = MulticastPlacing(PlacingBounds(waiting_max=waiting_max))
    rng = random.Random(seed)
    coming = [one for number, one in enumerate(log.entries) if number not in lost] * 2
    rng.shuffle(coming)
    read = 0
    for entry in coming:
        placing.on_entry(entry.encoded, buffer.end)
        place_all(placing, buffer)
        assert len(placing) <= waiting_max
        if rng.random() < 0.3:  # The reader of the log goes on meanwhile, at its own pace.
            for one in log.entries[read : read + 2]:
                assert buffer.push(one, now_s=0) in (Taken.NEW, Taken.REPEATED)
            read += 2
            assert buffer.end is not None
            placing.on_read(buffer.end)
            place_all(placing, buffer)
        position, ahead = log.entries[at].watermark, at + 1
        while (found := buffer.after(position)) is not None:
            assert equal(found, log.entries[ahead])
            position, ahead = found.watermark, ahead + 1
    for one in log.entries[read:]:
        assert buffer.push(one, now_s=0) in (Taken.NEW, Taken.REPEATED)
        assert buffer.end is not None
        placing.on_read(buffer.end)
        place_all(placing, buffer)
    assert buffer.end == log.end
    assert placing.waiting_bytes == 0
