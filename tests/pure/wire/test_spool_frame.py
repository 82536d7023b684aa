"""Frames of a spool: whole, cut off, damaged; and marks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.batch_seqs import BatchSeqs, RisingSeqs
from geolog.wire.batch import open_batch, seal_batch
from geolog.wire.spool_frame import (
    SpoolMark,
    decode_frame,
    decode_marks,
    encode_frame,
    encode_mark,
    scan_frames,
)
from topology.errors import DamagedBytesError


def seqs_of(numbers: list[int]) -> BatchSeqs:
    seqs = RisingSeqs(numbers[0])
    for number in numbers[1:]:
        seqs.add(number)
    return seqs.gathered()


def frame_of(number: int, *seqs: int) -> bytes:
    values = [b"record %d" % seq for seq in seqs]
    return encode_frame(number, seqs_of(list(seqs)), seal_batch(values, created_us=7))


FRAMES = [frame_of(0, 0, 1, 2), frame_of(1, 3, 7), frame_of(2, 9)]
FILE = b"".join(FRAMES)


def test_a_frame_is_read_as_it_was_written() -> None:
    frame = decode_frame(FRAMES[1])

    assert (frame.number, list(frame.seqs)) == (1, [3, 7])
    assert open_batch(frame.sealed).values() == [b"record 3", b"record 7"]


@given(st.integers(0, len(FILE)))
def test_a_file_that_is_cut_off_anywhere_has_the_frames_before(end: int) -> None:
    scan = scan_frames(FILE[:end])

    ends = [sum(map(len, FRAMES[:count])) for count in range(4)]
    whole = max(count for count in range(4) if ends[count] <= end)
    assert [frame.number for frame in scan.frames] == list(range(whole))
    assert scan.whole_bytes == ends[whole]
    assert (scan.fault is None) == (end == ends[whole])
    assert scan.is_torn == (end != ends[whole])


@given(st.integers(0, len(FILE) - 1), st.integers(1, 255))
def test_any_changed_byte_is_noticed(place: int, change: int) -> None:
    data = bytearray(FILE)
    data[place] ^= change
    scan = scan_frames(bytes(data))

    assert scan.fault is not None
    is_in_last = place >= len(FILE) - len(FRAMES[2])
    assert scan.is_torn == is_in_last
    assert len(scan.frames) == 2


def test_a_torn_value_full_of_magic_is_scanned_without_copying_the_file_each_time() -> None:
    scan = scan_frames(FILE + b"GLSP" * (1 << 18))  # A copy each would be 256 GB.

    assert (len(scan.frames), scan.is_torn) == (3, True)


@given(st.binary(max_size=200))
def test_other_bytes_are_damage_and_nothing_else(data: bytes) -> None:
    with pytest.raises(DamagedBytesError):
        decode_frame(data)


@given(st.integers(0, 2**40), st.integers(0, 2**20), st.binary(min_size=24, max_size=24))
def test_a_mark_outlives_another_slot_that_a_crash_has_spoiled(
    frame: int, row: int, garbage: bytes
) -> None:
    mark = SpoolMark(frame, row)

    assert decode_marks(encode_mark(mark) + garbage) == mark
    assert decode_marks(garbage + encode_mark(mark)) == mark
    assert decode_marks(encode_mark(SpoolMark(0, 0)) + encode_mark(mark)) == mark
    assert decode_marks(b"") == SpoolMark()
