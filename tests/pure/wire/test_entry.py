"""The entry: the values its owner assigned, and the batches in it, as sealed."""

import attrs
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.batch_seqs import BatchSeqs, RisingSeqs
from geolog.wire.batch import SealedBatch, seal_batch
from geolog.wire.entry import (
    EncodedEntry,
    EntryKind,
    WriterStamp,
    decode_entry,
    decode_entry_header,
    encode_entry,
)
from geolog.wire.limits import BATCHES_PER_ENTRY_MAX, ENTRY_BYTES_MAX, INT64_MAX
from tests.pure.wire.samples import batch_of_all_columns, batch_of_values, entry_of
from topology.errors import DamagedBytesError, InvalidArgumentError, TooLargeError

naturals = st.integers(0, INT64_MAX - 1000)
ONE = BatchSeqs(0, 1)
"""Variants of a batch of one record."""
batches = st.lists(st.binary(max_size=20), min_size=1, max_size=4).map(
    lambda values: batch_of_values(*values)
)


@st.composite
def stamps(draw: st.DrawFn, record_count: int) -> WriterStamp:
    """Its seqs have gaps or none, small ones and large ones."""
    seqs = RisingSeqs(draw(st.integers(0, 2**50)))
    for _ in range(record_count - 1):
        seqs.add(seqs.last + 1 + draw(st.just(0) | st.integers(0, 300) | st.integers(0, 2**60)))
    return WriterStamp(
        draw(st.binary(min_size=1, max_size=255)),
        draw(st.integers(0, 2**32 - 1)),
        seqs.gathered(),
        draw(st.integers(0, 2**15 - 1)),
    )


@st.composite
def entries(draw: st.DrawFn) -> EncodedEntry:
    sealed = draw(st.lists(batches, min_size=1, max_size=5))
    return encode_entry(
        sealed,
        kind=draw(st.sampled_from(EntryKind)),
        home_epoch=draw(naturals),
        segment=draw(st.integers(1, INT64_MAX - 1000)),
        entry=draw(naturals),
        first_sequence=draw(naturals),
        append_time_us=draw(st.integers(-INT64_MAX, INT64_MAX)),
        writers=[draw(st.none() | stamps(one.record_count)) for one in sealed],
    )


@given(entries())
def test_a_decoded_entry_equals_the_encoded_one(encoded: EncodedEntry) -> None:
    data = encoded.join()

    decoded = decode_entry(data)

    decoded.verify()
    assert decoded.header == encoded.header
    assert list(decoded.batch_views) == list(encoded.buffers[1:])
    assert len(data) == encoded.length_bytes
    assert crc32c(data) == encoded.crc


@given(entries(), st.binary(max_size=50))
def test_the_header_is_read_without_the_rest(encoded: EncodedEntry, following: bytes) -> None:
    assert decode_entry_header(bytes(encoded.buffers[0]) + following) == encoded.header


def test_slots_count_through_all_batches() -> None:
    entry = decode_entry(entry_of(batch_of_values(b"a", b"b"), batch_of_values(b"c")).join())

    found = [(slot, row, batch.value(row)) for slot, batch, row in entry.records()]

    assert found == [(0, 0, b"a"), (1, 1, b"b"), (2, 0, b"c")]


def test_the_batches_are_not_copied_into_an_entry() -> None:
    sealed = batch_of_values(b"a")

    assert entry_of(sealed).buffers[1] is sealed.data


def test_a_control_entry_takes_no_sequence() -> None:
    numbers = {
        "home_epoch": 1,
        "segment": 1,
        "entry": 0,
        "first_sequence": 7,
        "append_time_us": 0,
    }
    sealed = [batch_of_values(b"a", b"b")]

    data = encode_entry(sealed, **numbers)  # type: ignore[arg-type]
    control = encode_entry(sealed, kind=EntryKind.CONTROL, **numbers)  # type: ignore[arg-type]

    assert data.header.next_sequence == 9
    assert control.header.next_sequence == 7


def test_the_checksum_tells_entries_apart_that_hold_equal_batches() -> None:
    sealed = batch_of_all_columns()

    checksums = {entry_of(sealed, entry=number).crc for number in range(1000)}

    assert len(checksums) == 1000


def test_an_intact_batch_of_another_entry_is_detected() -> None:
    one, other = batch_of_values(b"aaaa"), batch_of_values(b"bbbb")
    data = entry_of(one).join()

    with pytest.raises(
        DamagedBytesError, match="does not match its line in the entry's header"
    ):
        decode_entry(data.replace(one.data, other.data))


def test_a_damaged_body_is_found_when_its_batch_is_opened() -> None:
    data = bytearray(entry_of(batch_of_values(b"a"), batch_of_values(b"intact")).join())
    data[data.index(b"intact")] ^= 1

    entry = decode_entry(memoryview(data))

    assert entry.open(0).value(0) == b"a"
    with pytest.raises(DamagedBytesError):
        entry.open(1)
    with pytest.raises(DamagedBytesError):
        entry.verify()


@pytest.mark.parametrize(
    "changed",
    [
        {"home_epoch": -1},
        {"segment": 0},
        {"entry": -1},
        {"entry": INT64_MAX + 1},
        {"first_sequence": INT64_MAX},
        {"append_time_us": INT64_MAX + 1},
        {"batches": []},
        {"batches": [batch_of_values(b"a")] * (BATCHES_PER_ENTRY_MAX + 1)},
        {"writers": [WriterStamp(b"", 0, ONE)]},
        {"writers": [WriterStamp(bytes(256), 0, ONE)]},
        {"writers": [WriterStamp(b"w", -1, ONE)]},
        {"writers": [WriterStamp(b"w", 0, BatchSeqs(-1, 1))]},
        {"writers": [WriterStamp(b"w", 1 << 32, ONE)]},
        {"writers": [WriterStamp(b"w", 0, ONE, 1 << 15)]},
        {"writers": [WriterStamp(b"w", 0, BatchSeqs(0, 2))]},
        {"writers": [WriterStamp(b"w", 0, BatchSeqs(0, 2, b"\x01"))]},
    ],
    ids=str,
)
def test_impossible_numbers_are_refused(changed: dict[str, object]) -> None:
    arguments: dict[str, object] = {
        "batches": [batch_of_values(b"a")],
        "home_epoch": 1,
        "segment": 1,
        "entry": 0,
        "first_sequence": 0,
        "append_time_us": 0,
    }

    with pytest.raises(InvalidArgumentError):
        encode_entry(**(arguments | changed))  # type: ignore[arg-type]


def test_an_entry_over_its_limit_is_refused() -> None:
    sealed = seal_batch([bytes(1 << 20)] * 3, created_us=0, compress=False)

    with pytest.raises(TooLargeError, match=f"limit of {ENTRY_BYTES_MAX}"):
        entry_of(sealed, sealed, sealed)


@given(batches, naturals)
def test_a_placeholder_has_all_but_the_batches(batch: SealedBatch, first_sequence: int) -> None:
    encoded = encode_entry(
        [batch],
        home_epoch=1,
        segment=3,
        entry=4,
        first_sequence=first_sequence,
        append_time_us=5,
        is_local_only=True,
    )
    whole = decode_entry(encoded.join())

    relayed = encoded.as_relayed()
    placeholder = decode_entry(relayed.join())

    placeholder.verify()
    assert relayed.as_relayed() is relayed
    assert relayed.crc == crc32c(relayed.join())
    assert len(relayed.join()) == relayed.length_bytes == whole.header.header_bytes
    assert placeholder.header == relayed.header
    assert placeholder.header == attrs.evolve(whole.header, is_placeholder=True)
    assert placeholder.header_crc == relayed.header_crc == whole.header_crc
    assert placeholder.is_same_as(whole)
    assert whole.is_same_as(placeholder)
    assert list(placeholder.records()) == []
    assert placeholder.highest_transaction_id() is None
    assert decode_entry(whole.data).is_same_as(whole)


def test_a_placeholder_of_other_records_is_another_entry() -> None:
    one, other = (
        encode_entry(
            [batch_of_values(value)],
            home_epoch=1,
            segment=3,
            entry=4,
            first_sequence=0,
            append_time_us=5,
            is_local_only=True,
        )
        for value in (b"a", b"b")
    )

    placeholder = decode_entry(one.as_relayed().join())

    assert not placeholder.is_same_as(decode_entry(other.join()))
    assert not placeholder.is_same_as(decode_entry(other.as_relayed().join()))


@given(entries())
def test_an_entry_that_is_not_local_only_is_relayed_whole(encoded: EncodedEntry) -> None:
    assert encoded.as_relayed() is encoded
