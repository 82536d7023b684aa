"""Parts of entries: their places, and the state after them, against the entry's header."""

from collections.abc import Sequence as Several

import attrs
from hypothesis import given
from hypothesis import strategies as st

from geolog.partition.batch_in_flight import (
    BatchInFlight,
    FenceInFlight,
    PartInFlight,
    encode_parts,
    entries_of,
)
from geolog.protocol.batch_seqs import BatchSeqs
from geolog.protocol.ids import DLSN, Sequence
from geolog.protocol.owner_answers import Received
from geolog.protocol.partition_state import PartitionState, WrittenBatch
from geolog.protocol.sequencer import Sequencer
from geolog.protocol.waiting_parts import WaitingParts
from geolog.protocol.writer_standing import WriterFence
from geolog.wire.batch import seal_batch
from geolog.wire.batch_terms import BatchTerms
from geolog.wire.entry import EncodedEntry, EntryKind, WriterStamp, decode_entry
from geolog.wire.writer_fence import seal_fence

WRITERS = (b"till-1", b"till-2", None)


@attrs.define
class Owner:
    """Numbers batches and fences, as an owner does, and puts all that wait into entries."""

    sequencer: Sequencer = attrs.field(factory=lambda: Sequencer(Sequence(0)))
    waiting: WaitingParts[PartInFlight] = attrs.field(factory=WaitingParts)
    seqs: dict[bytes, int] = attrs.field(factory=dict)
    now_us: int = 0

    def batch(self, writer: bytes | None, count: int) -> None:
        self.now_us += 1
        stamp = None
        if writer is not None:
            seq = self.seqs.get(writer, 0)
            self.seqs[writer] = seq + count
            stamp = WriterStamp(writer, 1, BatchSeqs(seq, count), 1)
        first = self.sequencer.sequence_next
        sealed = seal_batch([b"%d" % (first + row) for row in range(count)], created_us=1)
        assigned = self.sequencer.assign(count, now_us=self.now_us)
        self.waiting.push(BatchInFlight(sealed, assigned, 0.0, BatchTerms(writer=stamp)))

    def fence(self, writer: bytes) -> None:
        self.now_us += 1
        sealed = seal_fence(writer, WriterFence(1, 7), now_us=self.now_us)
        assigned = self.sequencer.assign_none(now_us=self.now_us)
        self.waiting.push(FenceInFlight(sealed, assigned, 0.0, writer, WriterFence(1, 7)))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(WRITERS), st.integers(1, 3)),
        st.tuples(st.sampled_from(WRITERS[:2]), st.just(0)),
        st.none(),
    ),
    max_size=30,
)


def entries_from(steps: Several[tuple[bytes | None, int] | None]) -> list[list[PartInFlight]]:
    """What an owner puts into each entry; None sends what waits."""
    owner, entries = Owner(), list[list[PartInFlight]]()
    for step in [*steps, None]:
        match step:
            case None:
                while owner.waiting:
                    entries.append(owner.waiting.take_entry())
            case (bytes() as writer, 0):
                owner.fence(writer)
            case (writer, count):
                owner.batch(writer, count)
    return entries


def encode_all(entries: list[list[PartInFlight]], segment: int) -> list[EncodedEntry]:
    return [
        encode_parts(parts, home_epoch=1, segment=segment, entry=entry)
        for entry, parts in enumerate(entries)
    ]


def naive_state_of(encoded: list[EncodedEntry]) -> PartitionState:
    """The state as a reader of the entries finds it: each record's value is its sequence."""
    state = PartitionState()
    for one in encoded:
        entry = decode_entry(one.join())
        header = entry.header
        if header.kind is EntryKind.CONTROL:
            writer = entry.open(0).key(0) or b""
            state.on_fence(writer, WriterFence(1, 7), header.append_time_us)
            continue
        slot = 0
        for index, line in enumerate(header.lines):
            first = int(entry.open(index).value(0))
            state.on_entry(
                next_sequence=Sequence(first + line.record_count),
                append_time_us=header.append_time_us,
                transaction_id=None,
                batch_bytes=line.length_bytes,
            )
            if line.writer is not None:
                written = WrittenBatch(
                    line.writer.seqs, header.segment, header.entry, slot, Sequence(first),
                    line.header_crc, line.body_crc,
                )  # fmt: skip
                state.on_batch(
                    line.writer.writer_id, 1, written, header.append_time_us, partitions=1
                )
            slot += line.record_count
    return state


@given(STEPS)
def test_the_owners_state_is_the_one_that_a_reader_of_its_entries_finds(
    steps: list[tuple[bytes | None, int] | None],
) -> None:
    entries = entries_from(steps)
    encoded = encode_all(entries, segment=1)
    state = PartitionState()
    for parts in entries:
        for part in parts:
            part.add_to(state)

    assert state == naive_state_of(encoded)


@given(STEPS)
def test_each_batch_is_told_the_place_at_which_its_records_are_read(
    steps: list[tuple[bytes | None, int] | None],
) -> None:
    entries = entries_from(steps)
    for parts, one in zip(entries, encode_all(entries, segment=3), strict=True):
        header = one.header
        read = {
            int(batch.value(row)): DLSN(header.segment, header.entry, slot)
            for slot, batch, row in decode_entry(one.join()).records()
            if header.kind is EntryKind.DATA
        }
        told = {
            part.first_sequence + row: DLSN(place.segment, place.entry, place.slot + row)
            for part in parts
            if isinstance(part, BatchInFlight)
            for place in [part.placed]
            for row in range(part.sealed.record_count)
        }
        assert told == read


@given(STEPS)
def test_the_next_ledger_gets_the_same_entries(
    steps: list[tuple[bytes | None, int] | None],
) -> None:
    entries = entries_from(steps)
    sent = [part for parts in entries for part in parts]
    before = encode_all(entries, segment=1)
    for part in sent:
        part.answer = part.received_there
    again = encode_all(entries_of(sent), segment=2)

    assert entries_of(sent) == entries
    assert [one.header for one in again] == [
        attrs.evolve(one.header, segment=2) for one in before
    ]
    assert [one.buffers[1:] for one in again] == [one.buffers[1:] for one in before]
    answers = [part.answer for part in sent]
    assert [isinstance(one, Received) and one.segment for one in answers] == [2] * len(sent)


def test_append_times_never_fall_from_entry_to_entry() -> None:
    entries = entries_from([(b"till-1", 1), (None, 2), None, (b"till-2", 0), (None, 1)])
    times_us = [one.header.append_time_us for one in encode_all(entries, segment=1)]

    assert times_us == [2, 3, 4]
