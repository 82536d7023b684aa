"""The frame reader: whole frames from bytes in arbitrary pieces, in bounded memory."""

import random
import tracemalloc

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from geolog.wire.frame import (
    HEADER_BYTES,
    Frame,
    FrameReader,
    FrameTooLargeError,
    encode_frame_front,
)
from geolog.wire.limits import FRAME_BYTES_MAX
from topology.errors import DamagedBytesError, TooLargeError

Plain = tuple[int, bytes, bytes]

plain_frames = st.tuples(
    st.integers(0, 0xFFFF), st.binary(max_size=40), st.binary(max_size=100)
)


def frame_of(type_: int, fields: bytes, body: bytes) -> bytes:
    return encode_frame_front(type_, fields, len(body), crc32c(body)) + body


def feed(
    reader: FrameReader, data: bytes | memoryview, piece_bytes: int = 1 << 30
) -> list[Frame]:
    """Feed a reader some bytes, in pieces of limited size, and take the frames."""
    left = memoryview(data)
    frames: list[Frame] = []
    while left:
        buffer = reader.buffer()
        count = min(len(buffer), len(left), piece_bytes)
        buffer[:count] = left[:count]
        left = left[count:]
        reader.received(count)
        frames += reader.frames()
    return frames


def plain(frames: list[Frame]) -> list[Plain]:
    return [(frame.type, bytes(frame.fields), bytes(frame.body)) for frame in frames]


@given(st.lists(plain_frames, max_size=20), st.integers(1, 300))
def test_frames_come_whole_however_their_bytes_arrive(
    frames: list[Plain], piece_bytes: int
) -> None:
    reader = FrameReader()

    received = feed(reader, b"".join(frame_of(*frame) for frame in frames), piece_bytes)

    assert plain(received) == frames
    assert [frame.body_crc for frame in received] == [crc32c(body) for _, _, body in frames]
    reader.end()


@pytest.mark.parametrize("piece_bytes", [1000, 65_536, 1 << 30])
def test_frames_larger_than_any_buffer_come_whole(piece_bytes: int) -> None:
    rng = random.Random(piece_bytes)
    sizes = [0, 15_000, 17_000, 3_000_000, 1, 5_000_000, 70_000, 1_100_000, 20]
    frames = [(size % 60_000, b"f", rng.randbytes(size)) for size in sizes]

    received = feed(FrameReader(), b"".join(frame_of(*frame) for frame in frames), piece_bytes)

    assert plain(received) == frames


def test_a_returned_frame_never_changes() -> None:
    rng = random.Random(3)
    frames = [(1, b"", rng.randbytes(rng.randrange(9000))) for _ in range(300)]

    received = feed(FrameReader(), b"".join(frame_of(*frame) for frame in frames), 5000)

    assert plain(received) == frames


def test_bodies_stay_where_they_were_received() -> None:
    reader = FrameReader()
    buffer = reader.buffer()

    (frame,) = feed(reader, frame_of(1, b"", b"body"))

    assert frame.body.obj is buffer.obj


def test_there_is_always_room_for_more_than_a_crumb() -> None:
    reader = FrameReader()

    for _ in range(2000):
        feed(reader, frame_of(1, b"", bytes(81)))
        assert len(reader.buffer()) >= 4096


def test_a_large_frame_moves_only_when_its_buffer_is_full() -> None:
    reader = FrameReader()
    data = frame_of(1, b"", bytes(900_000))
    buffers: list[object] = []

    for start in range(0, len(data), 1000):
        if not buffers or reader.buffer().obj is not buffers[-1]:
            buffers.append(reader.buffer().obj)
        feed(reader, data[start : start + 1000])

    assert len(buffers) <= 4


@pytest.mark.parametrize("piece_bytes", [5000, 200_000, 1 << 30])
def test_large_frames_are_received_where_they_stay(piece_bytes: int) -> None:
    reader = FrameReader()
    frame = frame_of(1, b"fields", bytes(800_000))
    stream = memoryview(frame * 12)
    begun = 2 * len(frame) + HEADER_BYTES
    feed(reader, stream[:begun], piece_bytes)

    bodies = [each.body for each in feed(reader, stream[begun:], piece_bytes)]

    own_bytes = len(frame) + HEADER_BYTES  # With the header of the frame after it.
    assert [len(memoryview(body.obj)) for body in bodies] == [own_bytes] * 10


def test_a_reader_shows_how_far_it_is() -> None:
    reader = FrameReader()
    feed(reader, frame_of(1, b"", bytes(100))[:30])

    assert repr(reader) == "FrameReader(30 of 120 bytes of a frame, buffer of 16384)"


def test_frames_not_taken_are_returned_the_next_time() -> None:
    reader = FrameReader()
    data = frame_of(1, b"", b"a" * 9000) + frame_of(2, b"", b"b" * 7000)
    buffer = reader.buffer()
    buffer[: len(data)] = data
    reader.received(len(data))

    first = next(reader.frames())
    rest = feed(reader, frame_of(3, b"", b"c" * 9000))

    assert plain([first, *rest]) == [
        (1, b"", b"a" * 9000),
        (2, b"", b"b" * 7000),
        (3, b"", b"c" * 9000),
    ]


def test_the_frames_before_the_damage_are_returned_first() -> None:
    reader = FrameReader()
    data = frame_of(1, b"x", b"y") + frame_of(2, b"", b"") + b"GET / HTTP/1.1\r\nHost: x\r\n"
    reader.buffer()[: len(data)] = data
    reader.received(len(data))

    frames = reader.frames()

    assert plain([next(frames), next(frames)]) == [(1, b"x", b"y"), (2, b"", b"")]
    with pytest.raises(DamagedBytesError, match="GET "):
        next(frames)
    with pytest.raises(DamagedBytesError):
        list(reader.frames())


def test_a_stream_that_ends_within_a_frame_says_so() -> None:
    data = frame_of(1, b"fields", b"body")

    for length in range(len(data)):
        reader = FrameReader()
        assert feed(reader, data[:length]) == []
        if length:
            with pytest.raises(DamagedBytesError, match=f"ended {length} bytes into a frame"):
                reader.end()


def test_a_frame_over_the_limit_is_refused_on_both_sides() -> None:
    fits = encode_frame_front(1, b"", FRAME_BYTES_MAX - HEADER_BYTES)

    assert feed(FrameReader(), fits) == []
    with pytest.raises(FrameTooLargeError):
        encode_frame_front(1, b"", FRAME_BYTES_MAX - HEADER_BYTES + 1)
    with pytest.raises(FrameTooLargeError, match="over the limit of 1000"):
        feed(FrameReader(frame_bytes_max=1000), frame_of(1, b"", bytes(1000)))


def test_too_large_a_frame_is_an_error_of_both_kinds() -> None:
    assert issubclass(FrameTooLargeError, TooLargeError)
    assert issubclass(FrameTooLargeError, DamagedBytesError)


def test_a_promise_of_a_large_body_pins_little_memory() -> None:
    promise = encode_frame_front(1, b"", FRAME_BYTES_MAX - HEADER_BYTES)
    tracemalloc.start()

    reader = FrameReader()
    feed(reader, frame_of(2, b"", b"before it") + promise)
    reader.buffer()
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak_bytes < 100_000


def test_memory_stays_flat_over_a_long_stream() -> None:
    reader = FrameReader()
    data = frame_of(1, b"fields", bytes(50_000)) * 20
    feed(reader, data * 4)
    tracemalloc.start()

    for _ in range(30):
        feed(reader, data)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    # A piece of data whose frames are held by the caller, and the buffers that they lie in.
    assert peak_bytes < 6 << 20
