"""Walk a file of records, whole and with holes in it."""

from hypothesis import given
from hypothesis import strategies as st

from regions.storage.protocol.records import (
    DATA_OFFSET,
    MARK,
    RECORD_HEADER_BYTES,
    RECORD_MAGIC,
    Body,
    FileHeader,
    JournalRecord,
    RecordCodec,
)
from regions.storage.protocol.scan import HeaderGap, JournalWalk
from tests.pure.storage.journals import IDENTITY, entry_record

CODEC = RecordCodec(5, b"saltsalt")

# Bodies that look like the beginning of records could mislead a search.
bodies = st.lists(
    st.sampled_from([b"x", RECORD_MAGIC, RECORD_MAGIC * 20, bytes(100), b"gJ"]), max_size=4
).map(b"".join)


def file_of(drawn: list[bytes | None]) -> tuple[bytes, list[int]]:
    """A file with an entry for each body, a mark for each None; and where each record is."""
    records: list[tuple[JournalRecord, Body]] = [
        (MARK, b"") if body is None else (entry_record(7, number, body), body)
        for number, body in enumerate(drawn)
    ]
    buffers, body_offsets, _ = CODEC.pack_all(DATA_OFFSET, records)
    offsets = [offset - RECORD_HEADER_BYTES for offset in body_offsets]
    return bytes(DATA_OFFSET) + b"".join(buffers), offsets


def walked(content: bytes, window_bytes: int) -> JournalWalk:
    walk = JournalWalk(CODEC, DATA_OFFSET, len(content))
    while (window := walk.window()) is not None:
        offset, length = window
        walk.take(offset, content[offset : offset + min(length, window_bytes)])
    return walk


@given(st.lists(st.none() | bodies), st.integers(RECORD_HEADER_BYTES, 400))
def test_a_whole_file_is_walked_through_windows_of_any_size(
    drawn: list[bytes | None], window_bytes: int
) -> None:
    content, offsets = file_of(drawn)

    walk = walked(content, window_bytes)

    assert [offset for offset, _ in walk.records()] == offsets
    assert walk.gaps == []
    marks = [offset for offset, body in zip(offsets, drawn, strict=True) if body is None]
    assert walk.mark_offset == max(marks, default=DATA_OFFSET)


@given(
    st.lists(st.none() | bodies, min_size=1),
    st.integers(RECORD_HEADER_BYTES, 400),
    st.data(),
)
def test_records_behind_damage_are_found_and_the_damage_is_a_gap(
    drawn: list[bytes | None], window_bytes: int, data: st.DataObject
) -> None:
    content, offsets = file_of(drawn)
    hit = data.draw(st.integers(0, len(offsets) - 1))
    end = offsets[hit + 1] if hit + 1 < len(offsets) else len(content)
    place = offsets[hit] + data.draw(st.integers(0, RECORD_HEADER_BYTES - 1))
    damaged = bytearray(content)
    damaged[place] ^= 1 << data.draw(st.integers(0, 7))

    walk = walked(bytes(damaged), window_bytes)

    assert [offset for offset, _ in walk.records()] == offsets[:hit] + offsets[hit + 1 :]
    assert walk.gaps == [HeaderGap(offsets[hit], end)]


@given(st.lists(st.none() | bodies, min_size=1), st.data())
def test_a_file_cut_short_gives_the_records_before_the_cut(
    drawn: list[bytes | None], data: st.DataObject
) -> None:
    content, offsets = file_of(drawn)
    length = data.draw(st.integers(DATA_OFFSET, len(content)))

    walk = walked(content[:length], 1 << 20)

    whole_headers = [offset for offset in offsets if offset + RECORD_HEADER_BYTES <= length]
    assert [offset for offset, _ in walk.records()] == whole_headers


@given(
    st.lists(st.none() | bodies),
    st.integers(0, 300),
    st.binary(max_size=60),
    st.integers(0, 300),
    st.integers(RECORD_HEADER_BYTES, 400),
)
def test_all_records_are_within_the_content_and_only_zeros_follow(
    drawn: list[bytes | None], hole: int, garbage: bytes, unwritten: int, window_bytes: int
) -> None:
    records, _ = file_of(drawn)
    content = records + bytes(hole) + garbage + bytes(unwritten)

    walk = walked(content, window_bytes)

    assert not any(content[walk.content_end :])
    assert min(len(records), len(content)) <= walk.content_end
    if unwritten > RECORD_HEADER_BYTES:
        walk = walked(content, 1 << 20)
        assert walk.content_end <= len(content) - unwritten


def test_a_file_header_is_read_from_its_second_copy_when_the_first_is_damaged() -> None:
    header = FileHeader(9, IDENTITY.instance, IDENTITY.cluster_id, b"saltsalt", 8, 4711, 99)
    page = bytearray(header.encode())
    page[20] ^= 1

    assert FileHeader.decode(bytes(page)) == header
