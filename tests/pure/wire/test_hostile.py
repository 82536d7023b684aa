"""Bytes with right checksums and lying content: refused, before memory is allocated.

A checksum finds damage, but neither malice nor a faulty writer. So each rule of a layout is
broken here under matching checksums.
"""

import struct
import tracemalloc
from collections.abc import Callable

import lz4.block
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from geolog.wire.batch import Codec, SealedBatch, open_batch, peek_batch_header
from geolog.wire.entry import decode_entry, decode_entry_header
from geolog.wire.frame import FrameReader
from geolog.wire.limits import BATCH_BYTES_MAX, ENTRY_BYTES_MAX
from tests.pure.wire.samples import batch_of_all_columns, batch_of_values, entry_of
from topology.errors import DamagedBytesError, TooLargeError


def batch_bytes(
    body: bytes,
    *,
    version: int = 1,
    codec: int = Codec.NONE,
    flags: int = 0,
    count: int = 1,
    stored: int | None = None,
    raw: int | None = None,
    reserved: int = 0,
) -> bytes:
    """Give a batch whose checksums are right."""
    checked = struct.pack(
        "<BBHIIIII",
        version,
        codec,
        flags,
        count,
        len(body) if stored is None else stored,
        len(body) if raw is None else raw,
        crc32c(body),
        reserved,
    )
    return b"GLBA" + struct.pack("<I", crc32c(checked)) + checked + body


def resealed(batch: SealedBatch, body: bytes) -> bytes:
    header = peek_batch_header(batch.data)
    return batch_bytes(body, flags=header.columns, count=header.record_count)


def body_of(batch: SealedBatch) -> bytes:
    return bytes(batch.data[32:])


def peak_bytes_of(read: Callable[[bytes], object], data: bytes) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(DamagedBytesError):
            read(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def message_alone(parameter: str | bytes) -> str:
    return parameter if isinstance(parameter, str) else ""


TIMES = struct.pack("<q", 5)
ONE_VALUE = TIMES + struct.pack("<ii", 0, 3) + b"abc" + bytes(5)


def test_the_forger_of_these_tests_can_write_a_good_batch() -> None:
    assert open_batch(batch_bytes(ONE_VALUE)).value(0) == b"abc"
    assert bytes(batch_of_all_columns().data) == resealed(
        batch_of_all_columns(), body_of(batch_of_all_columns())
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (batch_bytes(ONE_VALUE, version=2), "version 2"),
        (batch_bytes(ONE_VALUE, codec=2), "codec 2"),
        (batch_bytes(ONE_VALUE, flags=8), "flags 0x8"),
        (batch_bytes(ONE_VALUE, reserved=1), "unknown"),
        (batch_bytes(ONE_VALUE, count=0), "0 records do not fit"),
        (batch_bytes(ONE_VALUE, count=2), "2 records do not fit"),
        (batch_bytes(ONE_VALUE, count=0xFFFF_FFFF), "4294967295 records do not fit"),
        (batch_bytes(ONE_VALUE, flags=1), "a column ends at byte"),
        (batch_bytes(ONE_VALUE, flags=4), "a column ends at byte"),
        (batch_bytes(ONE_VALUE, stored=16), "cannot hold a batch"),
        (batch_bytes(ONE_VALUE, raw=BATCH_BYTES_MAX + 8), "over the limit"),
        (batch_bytes(ONE_VALUE, stored=1 << 31, raw=1 << 31), "over the limit"),
        (batch_bytes(ONE_VALUE, stored=48, raw=48), "56 bytes, its header says 80"),
        (batch_bytes(ONE_VALUE + bytes(8), stored=24, raw=24), "64 bytes, its header says 56"),
        (batch_bytes(ONE_VALUE + bytes(8)), "8 bytes follow the last column"),
        (batch_bytes(ONE_VALUE[:-1] + b"x"), "padding at byte 19 of a body is not zero"),
        (batch_bytes(TIMES + struct.pack("<ii", 1, 3) + b"abc\0\0\0\0\0"), "rise from 0"),
        (batch_bytes(TIMES + struct.pack("<ii", 0, -1) + bytes(8)), "rise from 0"),
        (batch_bytes(TIMES + struct.pack("<ii", 0, 9) + bytes(8)), "column ends at byte 32"),
        (batch_bytes(TIMES + struct.pack("<ii", 0, 1 << 20)), "a column ends at byte"),
        (batch_bytes(bytes(8) + struct.pack("<ii", 0, (1 << 20) + 8) + bytes((1 << 20) + 8)),
         "a record of 1048584 bytes is over the limit"),
        (batch_bytes(ONE_VALUE + b"\x03" + bytes(7 + 8), flags=1), "bits past its last row"),
        (batch_bytes(ONE_VALUE, codec=Codec.LZ4, raw=24), "cannot hold a batch of 24"),
        (batch_bytes(ONE_VALUE, codec=Codec.LZ4, raw=32), "not an LZ4 block"),
        (batch_bytes(lz4.block.compress(bytes(40), store_size=False), codec=Codec.LZ4, raw=64),
         "unpacks to 40 bytes instead of 64"),
        (batch_bytes(lz4.block.compress(bytes(65), store_size=False), codec=Codec.LZ4, raw=64),
         "not an LZ4 block"),
    ],
    ids=message_alone,
)  # fmt: skip
def test_a_batch_that_breaks_a_rule_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(DamagedBytesError, match=message):
        open_batch(data)


@pytest.mark.parametrize("name", [b"\xff\xfe", b"\xc3", b"\xed\xa0\x80"])
def test_a_header_whose_name_is_not_text_is_refused(name: bytes) -> None:
    good = batch_of_all_columns()
    body = body_of(good).replace("größe".encode(), b"gr" + name.ljust(5, b"-"))

    with pytest.raises(DamagedBytesError, match="not UTF-8"):
        open_batch(resealed(good, body))


def test_a_character_split_over_two_names_is_refused() -> None:
    good = batch_of_all_columns()
    offsets = struct.pack("<4i", 0, 5, 12, 13)
    assert body_of(good).count(offsets) == 1
    split = struct.pack("<4i", 0, 8, 12, 13)

    with pytest.raises(DamagedBytesError, match="not UTF-8"):
        open_batch(resealed(good, body_of(good).replace(offsets, split)))


@given(st.data())
def test_any_body_is_damage_or_can_be_read_to_its_end(data: st.DataObject) -> None:
    good = batch_of_all_columns()
    body = bytearray(body_of(good))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))

    try:
        batch = open_batch(resealed(good, bytes(body)))
    except DamagedBytesError:
        return
    for row in range(len(batch)):
        batch.value(row), batch.key(row), batch.headers(row)
        batch.transaction_id(row), batch.created_us(row)


@pytest.mark.parametrize(
    "data",
    [
        batch_bytes(b"", codec=Codec.LZ4, stored=1 << 31, raw=BATCH_BYTES_MAX),
        batch_bytes(bytes(100), codec=Codec.LZ4, raw=BATCH_BYTES_MAX),
        batch_bytes(bytes(100), codec=Codec.LZ4, raw=1 << 31),
        batch_bytes(ONE_VALUE, count=300_000, raw=BATCH_BYTES_MAX),
    ],
    ids=["stored length", "raw length", "raw length over the limit", "record count"],
)
def test_a_batch_that_lies_about_a_length_takes_no_memory(data: bytes) -> None:
    assert peak_bytes_of(open_batch, data) < 50_000


def test_an_lz4_bomb_takes_no_more_than_its_header_says() -> None:
    bomb = lz4.block.compress(bytes(100 << 20), store_size=False)
    says = len(bomb) + 8 & ~7

    honest_limit = batch_bytes(bomb, codec=Codec.LZ4, raw=BATCH_BYTES_MAX)
    small = batch_bytes(bomb, codec=Codec.LZ4, raw=says)

    assert peak_bytes_of(open_batch, honest_limit) < BATCH_BYTES_MAX + 50_000
    assert peak_bytes_of(open_batch, small) < says + 50_000


# ---------------------------------------------------------------- entries


def entry_bytes(
    lines: bytes,
    body: bytes = b"",
    *,
    version: int = 1,
    kind: int = 1,
    reserved: int = 0,
    header_bytes: int | None = None,
    body_bytes: int | None = None,
    records: int = 1,
    batches: int = 1,
    segment: int = 1,
    first_sequence: int = 0,
) -> bytes:
    """Give an entry whose header's checksum is right."""
    checked = (
        struct.pack(
            "<BBHIIIIIQQQQq",
            version,
            kind,
            reserved,
            72 + len(lines) if header_bytes is None else header_bytes,
            len(body) if body_bytes is None else body_bytes,
            records,
            batches,
            0,
            1,
            segment,
            0,
            first_sequence,
            0,
        )
        + lines
    )
    return b"GLEN" + struct.pack("<I", crc32c(checked)) + checked + body


def line_bytes(
    batch: SealedBatch,
    *,
    length: int | None = None,
    records: int | None = None,
    writer: tuple[int, int, bytes] = (0, -1, b""),
    gaps: bytes = b"",
    padding: bytes = b"",
) -> bytes:
    epoch, seq, writer_id = writer
    data = struct.pack(
        "<IIIIQqB",
        batch.length_bytes if length is None else length,
        batch.record_count if records is None else records,
        batch.header_crc,
        batch.body_crc,
        epoch + (len(gaps) << 32),
        seq,
        len(writer_id),
    )
    data += writer_id + gaps + padding
    return data + bytes(-len(data) % 8)


def placeholder_bytes(entry: bytes) -> bytes:
    return b"GLEP" + entry[4:]


ONE = batch_of_values(b"abc")
BODY = bytes(ONE.data)
TWO = batch_of_values(b"abc", b"d")
TILL = (1, 0, b"till-7")
LINE = line_bytes(ONE)


def test_the_forger_of_these_tests_can_write_a_good_entry() -> None:
    decode_entry(entry_bytes(LINE, BODY)).verify()
    decode_entry(entry_bytes(line_bytes(ONE, writer=(1, 0, b"w" * 7)), BODY)).verify()
    gapped = line_bytes(TWO, writer=TILL, gaps=b"\x09")
    decode_entry(entry_bytes(gapped, bytes(TWO.data), records=2)).verify()
    decode_entry(entry_bytes(LINE, BODY, reserved=1)).verify()
    local_only = entry_bytes(LINE, b"", body_bytes=len(BODY), reserved=1)
    decode_entry(placeholder_bytes(local_only)).verify()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (entry_bytes(LINE, BODY, version=2), "version 2"),
        (entry_bytes(LINE, BODY, kind=0), "kind 0"),
        (entry_bytes(LINE, BODY, kind=3), "kind 3"),
        (entry_bytes(LINE, BODY, reserved=2), "flags 2"),
        (entry_bytes(LINE, BODY, reserved=1, kind=2), "only an entry of records can be local"),
        (placeholder_bytes(entry_bytes(LINE, b"", body_bytes=len(BODY))), "only a local-only"),
        (placeholder_bytes(entry_bytes(LINE, BODY, reserved=1)), "its header says 112"),
        (entry_bytes(LINE, b"", reserved=1, body_bytes=len(BODY)), "its header says 168"),
        (entry_bytes(LINE, BODY, segment=0), "segment 0"),
        (entry_bytes(LINE, BODY, segment=1 << 63), "not valid for an entry"),
        (entry_bytes(LINE, BODY, first_sequence=(1 << 63) - 1), "not valid for an entry"),
        (entry_bytes(LINE, BODY, batches=2), "2 batches describes 1"),
        (entry_bytes(LINE, BODY, batches=1 << 31), "describes 1"),
        (entry_bytes(LINE, BODY, records=2), "do not add up to its record count"),
        (entry_bytes(LINE, BODY, body_bytes=8), "do not add up to the length of its body"),
        (entry_bytes(LINE, BODY, body_bytes=ENTRY_BYTES_MAX), "over the limit"),
        (entry_bytes(LINE, BODY, header_bytes=72), "impossible header length .* 72 bytes"),
        (entry_bytes(LINE, BODY, header_bytes=1 << 31), "impossible"),
        (entry_bytes(LINE, BODY + b"x", body_bytes=len(BODY)), "its header says 168"),
        (entry_bytes(line_bytes(ONE, length=len(BODY) - 1), BODY), "do not add up"),
        (entry_bytes(line_bytes(ONE, records=2), BODY, records=2), "does not match its line"),
        (entry_bytes(line_bytes(batch_of_values(b"abd")), BODY), "does not match its line"),
        (entry_bytes(line_bytes(ONE, padding=b"x"), BODY), "bad padding"),
        (entry_bytes(LINE[:-8], BODY), "truncated"),
        (entry_bytes(LINE + bytes(8), BODY), "truncated"),
        (entry_bytes(line_bytes(ONE, writer=(1, 0, b"")), BODY), "invalid writer stamp"),
        (entry_bytes(line_bytes(ONE, writer=(0, -1, b"w")), BODY), "invalid writer stamp"),
        (entry_bytes(line_bytes(ONE, writer=(1 << 63, 0, b"w")), BODY), "invalid writer stamp"),
        (entry_bytes(line_bytes(ONE, writer=(1 << 32, 0, b"w")), BODY), "invalid writer stamp"),
        (entry_bytes(LINE[:32] + b"\xff" + LINE[33:], BODY), "bad padding"),
        (entry_bytes(line_bytes(ONE, gaps=b"\x09"), BODY), "invalid writer stamp"),
        (entry_bytes(line_bytes(ONE, writer=TILL, gaps=b"\x09"), BODY), "expected 0"),
        (entry_bytes(line_bytes(TWO, writer=TILL, gaps=b"\x00"), BODY, records=2), "all zero"),
        (entry_bytes(line_bytes(TWO, writer=TILL, gaps=b"\x89"), BODY, records=2), "cut off"),
        (entry_bytes(line_bytes(ONE, writer=TILL, gaps=b"\x01" * 8193), BODY), "writer stamp"),
        (entry_bytes(LINE[:20] + b"\xff\xff" + LINE[22:], BODY), "bad padding"),
    ],
    ids=message_alone,
)  # fmt: skip
def test_an_entry_that_breaks_a_rule_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(DamagedBytesError, match=message):
        decode_entry(data)


def test_an_entry_that_lies_about_a_length_takes_no_memory() -> None:
    for data in (
        entry_bytes(LINE, BODY, header_bytes=1 << 31),
        entry_bytes(LINE, BODY, batches=1 << 31),
        entry_bytes(LINE, BODY, body_bytes=1 << 31),
        entry_bytes(line_bytes(ONE, length=1 << 31), BODY),
    ):
        assert peak_bytes_of(decode_entry, data) < 50_000


# ---------------------------------------------------------------- anything at all


@pytest.mark.parametrize(
    ("read", "beginning"),
    [
        (open_batch, b"GLBA"),
        (peek_batch_header, b"GLBA"),
        (decode_entry, b"GLEN"),
        (decode_entry_header, b"GLEN"),
    ],
    ids=["open_batch", "peek_batch_header", "decode_entry", "decode_entry_header"],
)
@given(noise=st.binary(max_size=300))
def test_noise_is_damage(
    read: Callable[[bytes], object], beginning: bytes, noise: bytes
) -> None:
    for data in (noise, beginning + noise):
        with pytest.raises(DamagedBytesError):
            read(data)


@given(noise=st.binary(min_size=1, max_size=300))
def test_noise_on_a_connection_is_damage_or_not_yet_a_frame(noise: bytes) -> None:
    for data in (noise, b"GLF\x01" + noise):
        reader = FrameReader()
        reader.buffer()[: len(data)] = data
        reader.received(len(data))
        try:
            assert list(reader.frames()) == []
        except (DamagedBytesError, TooLargeError):
            continue
        assert len(reader.buffer()) > 0
        with pytest.raises(DamagedBytesError):
            reader.end()


def test_an_entry_in_the_place_of_a_batch_is_damage() -> None:
    entry = entry_of(batch_of_values(b"a")).join()

    with pytest.raises(DamagedBytesError, match="begins with"):
        open_batch(entry)
