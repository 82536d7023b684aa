"""Every flipped bit and every truncation is detected, in each of the formats.

Exhaustive on small samples, one per feature; random on large ones. Bytes that are not intact
must never give the value of intact ones.
"""

import random
from collections.abc import Callable, Iterator

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.wire.batch import SealedBatch, open_batch, seal_batch, verify_batch
from geolog.wire.entry import decode_entry, decode_entry_header
from geolog.wire.frame import FrameReader
from tests.pure.wire.samples import (
    add_of,
    batch_of_all_columns,
    batch_of_values,
    entry_of,
    frame_bytes,
    one_of_each_message,
)
from topology.errors import DamagedBytesError


@attrs.frozen
class Format:
    """Bytes of a format, and their reader: it raises unless they are unchanged."""

    name: str
    intact: bytes
    read: Callable[[bytes], object]


def read_frame(data: bytes) -> None:
    """Read one frame from a stream that ends after it."""
    reader = FrameReader()
    buffer = reader.buffer()
    assert len(data) <= len(buffer), "samples fit the first buffer"
    buffer[: len(data)] = data
    reader.received(len(data)) if data else None
    frames = list(reader.frames())
    reader.end()
    if len(frames) != 1:
        raise DamagedBytesError(f"{len(frames)} frames instead of one")


def read_entry(data: bytes) -> None:
    decode_entry(data).verify()


def open_all(data: bytes) -> None:
    for _slot, batch, row in decode_entry(data).records():
        batch.value(row)


def bytes_of(batch: SealedBatch) -> bytes:
    return bytes(batch.data)


def large_batch(*, compress: bool) -> SealedBatch:
    rng = random.Random(1)
    values = [rng.choice([b"abc" * 30, rng.randbytes(700)]) for _ in range(400)]
    return seal_batch(values, created_us=range(400), keys=values[::-1], compress=compress)


SMALL = [
    Format("batch", bytes_of(batch_of_all_columns()), open_batch),
    Format("batch, compressed", bytes_of(batch_of_all_columns(compress=True)), open_batch),
    Format("batch, verified only", bytes_of(batch_of_all_columns()), verify_batch),
    Format(
        "entry", entry_of(batch_of_all_columns(), batch_of_values(b"a", b"")).join(), read_entry
    ),
    Format(
        "entry, opened", entry_of(batch_of_values(b"a"), batch_of_values(b"b")).join(), open_all
    ),
    Format(
        "entry's header", bytes(entry_of(batch_of_values(b"a")).buffers[0]), decode_entry_header
    ),
    Format("frame of an add", frame_bytes(add_of(entry_of(batch_of_values(b"a")))), read_frame),
    *(
        Format(f"frame of {type(message).__name__}", frame_bytes(message), read_frame)
        for message in one_of_each_message()
    ),
]
LARGE = [
    Format("batch", bytes_of(large_batch(compress=False)), open_batch),
    Format("batch, compressed", bytes_of(large_batch(compress=True)), open_batch),
    Format(
        "entry",
        entry_of(large_batch(compress=True), large_batch(compress=False)).join(),
        read_entry,
    ),
]


def is_found(damaged: bytes, read: Callable[[bytes], object]) -> bool:
    try:
        read(damaged)
    except DamagedBytesError:
        return True
    return False


def flips(intact: bytes) -> Iterator[bytes]:
    for bit in range(8 * len(intact)):
        yield flipped(intact, bit)


def flipped(intact: bytes, bit: int) -> bytes:
    damaged = bytearray(intact)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


small = pytest.mark.parametrize("format_", SMALL, ids=lambda format_: format_.name)
large = st.sampled_from(LARGE)


@pytest.mark.parametrize("format_", SMALL + LARGE, ids=lambda format_: format_.name)
def test_intact_bytes_are_read(format_: Format) -> None:
    format_.read(format_.intact)


@small
def test_every_flipped_bit_is_found(format_: Format) -> None:
    missed = [
        damaged for damaged in flips(format_.intact) if not is_found(damaged, format_.read)
    ]

    assert missed == []


@small
def test_every_truncation_is_found(format_: Format) -> None:
    missed = [
        length
        for length in range(len(format_.intact))
        if not is_found(format_.intact[:length], format_.read)
    ]

    assert missed == []


@small
def test_bytes_that_were_added_are_found(format_: Format) -> None:
    tails = [b"\x00", b"\xff", bytes(8), b"GLBA", b"GLF\x01", format_.intact]

    missed = [tail for tail in tails if not is_found(format_.intact + tail, format_.read)]

    # An entry's header is read from the front of an entry.
    assert missed == (tails if format_.read is decode_entry_header else [])


@given(large, st.data())
def test_flipped_bits_of_large_ones_are_found(format_: Format, data: st.DataObject) -> None:
    bit = data.draw(st.integers(0, 8 * len(format_.intact) - 1))

    assert is_found(flipped(format_.intact, bit), format_.read)


@given(large, st.data())
def test_truncations_of_large_ones_are_found(format_: Format, data: st.DataObject) -> None:
    length = data.draw(st.integers(0, len(format_.intact) - 1))

    assert is_found(format_.intact[:length], format_.read)


@given(large, st.data())
def test_bytes_that_moved_are_found(format_: Format, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(format_.intact) - 1))
    end = data.draw(st.integers(start, len(format_.intact)))
    shift = data.draw(st.integers(1, 4096))
    damaged = bytearray(format_.intact)
    damaged[start:end] = (format_.intact + format_.intact)[start + shift : end + shift]

    if damaged != format_.intact:
        assert is_found(bytes(damaged), format_.read)
