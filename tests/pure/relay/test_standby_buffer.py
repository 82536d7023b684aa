"""The buffer of one partition: it is a window on the log, and says so."""

import attrs
from hypothesis import given
from hypothesis import strategies as st

from relay.protocol.bridge_messages import RelayedEntry
from relay.protocol.standby_buffer import BufferBounds, StandbyBuffer, Taken
from tests.pure.relay.logs import HomeLog, home_log, marked

WIDE = BufferBounds()


def buffer_of(log: HomeLog, bounds: BufferBounds = WIDE) -> StandbyBuffer:
    buffer = StandbyBuffer(None, bounds)
    for entry in log.entries:
        assert buffer.push(entry, now_s=0) is Taken.NEW
    return buffer


def everything_after(buffer: StandbyBuffer, entry: RelayedEntry | None) -> list[RelayedEntry]:
    found = []
    position = None if entry is None else entry.watermark
    while (next_one := buffer.after(position)) is not None:
        found.append(next_one)
        position = next_one.watermark
    return found


def test_it_gives_what_follows_a_place_across_segments_and_control_entries() -> None:
    log = home_log("c3|c11")

    buffer = buffer_of(log)

    assert everything_after(buffer, None) == log.entries
    assert everything_after(buffer, log.entries[1]) == log.entries[2:]
    assert everything_after(buffer, log.entries[-1]) == []


def test_an_entry_behind_a_hole_is_not_taken() -> None:
    log = home_log("111")
    buffer = StandbyBuffer(None, WIDE)
    buffer.push(log.entries[0], now_s=0)

    assert buffer.push(log.entries[2], now_s=0) is Taken.MISSING_BEFORE
    assert buffer.end == log.entries[0].watermark
    assert buffer.push(log.entries[1], now_s=0) is Taken.NEW
    assert buffer.push(log.entries[2], now_s=0) is Taken.NEW


def test_a_repeat_is_dropped_and_another_entry_at_its_place_is_told() -> None:
    log, other = home_log("11"), HomeLog()
    buffer = buffer_of(log)
    other.append(payload=b"another")

    assert buffer.push(log.entries[0], now_s=0) is Taken.REPEATED
    assert buffer.push(other.entries[0], now_s=0) is Taken.DIFFERENT
    assert buffer.repeated_count == 1


def test_a_place_with_another_checksum_is_not_covered() -> None:
    buffer = buffer_of(home_log("11"))

    assert not buffer.covers(marked(1, 0, crc=1))
    assert buffer.after(marked(1, 0, crc=1)) is None


def test_entries_that_every_target_has_are_forgotten() -> None:
    log = home_log("11|1")
    buffer = buffer_of(log)

    buffer.trim(log.entries[1].watermark)

    assert buffer.begin == log.entries[1].watermark
    assert not buffer.covers(log.entries[0].watermark)
    assert everything_after(buffer, log.entries[1]) == log.entries[2:]


def test_a_buffer_that_was_trimmed_to_its_end_goes_on_from_there() -> None:
    log = home_log("11")
    buffer = buffer_of(log)
    buffer.trim(log.entries[1].watermark)

    assert len(buffer) == 0
    assert buffer.push(log.append(), now_s=0) is Taken.NEW
    assert buffer.push(log.entries[1], now_s=0) is Taken.REPEATED


def test_one_entry_over_the_bound_of_bytes_is_kept_alone() -> None:
    buffer = buffer_of(home_log("22"), BufferBounds(bytes_max=1))

    assert len(buffer) == 1


@attrs.define
class NaiveBuffer:
    """Keeps every entry of the log, and filters for each answer."""

    bounds: BufferBounds
    came: list[tuple[RelayedEntry, float]] = attrs.field(factory=list)
    begin: int = 0
    """Entries before this one were dropped."""

    def expire(self, now_s: float) -> None:
        while (kept := self.came[self.begin :]) and (
            len(kept) > self.bounds.entries_max
            or (len(kept) > 1 and self.size(kept) > self.bounds.bytes_max)
            or kept[0][1] < now_s - self.bounds.age_s_max
        ):
            self.begin += 1

    def size(self, kept: list[tuple[RelayedEntry, float]]) -> int:
        return sum(entry.length_bytes for entry, _ in kept)


@given(
    st.text("c12|", max_size=30),
    st.lists(st.tuples(st.integers(0, 29), st.sampled_from(["push", "trim", "wait"]))),
    st.integers(1, 8),
    st.integers(100, 1000),
)
def test_the_buffer_agrees_with_the_naive_one(
    shape: str, steps: list[tuple[int, str]], entries_max: int, bytes_max: int
) -> None:
    log = home_log(shape)
    bounds = BufferBounds(entries_max=entries_max, bytes_max=bytes_max, age_s_max=5)
    buffer, naive = StandbyBuffer(None, bounds), NaiveBuffer(bounds)
    now_s = 0.0
    for number, what in steps:
        at = min(number, len(log.entries) - 1)
        if at < 0 or what == "wait":
            now_s += number / 10
            buffer.expire(now_s=now_s)
        elif what == "trim":
            buffer.trim(log.entries[at].watermark)
            naive.begin = max(naive.begin, min(at + 1, len(naive.came)))
        else:
            taken = buffer.push(log.entries[at], now_s=now_s)
            count = len(naive.came)
            expected = {-1: Taken.REPEATED, 0: Taken.NEW, 1: Taken.MISSING_BEFORE}
            assert taken is expected[(at > count) - (at < count)]
            if taken is Taken.NEW:
                naive.came.append((log.entries[at], now_s))
        naive.expire(now_s)

        kept = [entry for entry, _ in naive.came[naive.begin :]]
        assert len(buffer) == len(kept)
        assert buffer.coverage.bytes_count == sum(one.length_bytes for one in kept)
        begins = naive.came[naive.begin - 1][0] if naive.begin else None
        assert buffer.begin == (None if begins is None else begins.watermark)
        assert everything_after(buffer, begins) == kept
        for place, entry in enumerate(log.entries):
            is_covered = naive.begin - 1 <= place < len(naive.came)
            assert buffer.covers(entry.watermark) == is_covered


def test_a_buffer_whose_beginning_is_not_known_covers_nothing_until_it_begins() -> None:
    log = home_log("11")
    buffer = StandbyBuffer(None, WIDE, has_begun=False)

    assert not buffer.covers(None)
    assert buffer.after(None) is None

    buffer.begin_behind(None)
    buffer.push(log.entries[0], now_s=0)
    assert everything_after(buffer, None) == log.entries[:1]

    buffer.clear()
    assert not buffer.has_begun
    assert not buffer.covers(None)
