"""A partition's range holds the records and gaps that a read wants, and no others."""

from collections.abc import Sequence as Several

from geolog.client.reading.gone import TrimmedRun
from geolog.client.reading.partition_range import PartitionRange
from geolog.client.reading.read_range import Begin, Until
from geolog.client.reading.record import Gap
from geolog.ledger.reading.ledger_reader import FetchedEntry
from geolog.protocol.ids import EntryId, Epoch, InstanceId, LedgerId, Sequence
from geolog.protocol.ledger_state import Member
from geolog.protocol.stream_state import PartitionName, SegmentRecord, StreamName
from geolog.wire.batch import seal_batch
from geolog.wire.entry import decode_entry, encode_entry
from topology.location import Location

NAME = PartitionName(StreamName("shop", "orders"))
NODE = Member(InstanceId("aa"), "a-1", Location("a", "r1"))
SEGMENT = SegmentRecord(
    segment=1,
    ledger=LedgerId(7),
    home_epoch=1,
    first_sequence=Sequence(0),
    owner_epoch=Epoch(1),
    activated_us=0,
)


def entry_at(
    sequence: int, *, time_us: int = 0, ids: Several[int | None] = (None,)
) -> FetchedEntry:
    """An entry with a record for each transaction id."""
    sealed = seal_batch([b"value"] * len(ids), created_us=0, transaction_ids=ids)
    encoded = encode_entry(
        [sealed],
        home_epoch=1,
        segment=1,
        entry=sequence,
        first_sequence=sequence,
        append_time_us=time_us,
    )
    return FetchedEntry(EntryId(sequence), decode_entry(encoded.join()), NODE)


def told(wanted: PartitionRange, *found: FetchedEntry | TrimmedRun) -> list[str]:
    """Sequences of records, and gaps as FROM..TO, in the order in which a reader gets them."""
    items: list[str] = []
    for one in found:
        if isinstance(one, TrimmedRun):
            gap = wanted.gap_of(one)
            items += [] if gap is None else [words_of(gap)]
            continue
        for run in wanted.batches_of(SEGMENT, one):
            if isinstance(run, Gap):
                items.append(words_of(run))
            else:
                items += [str(record.sequence) for record in run]
    last = wanted.take_held()
    return items if last is None else [*items, words_of(last)]


def words_of(gap: Gap) -> str:
    return f"{gap.from_sequence}..{gap.to_sequence}"


def test_a_gap_before_the_first_sequence_is_left_out() -> None:
    wanted = PartitionRange(NAME, Begin(sequence=35), Until())

    items = told(wanted, TrimmedRun(21, 26), entry_at(34), entry_at(35))

    assert items == ["35"]


def test_a_gap_is_reported_from_the_first_sequence_of_the_range() -> None:
    wanted = PartitionRange(NAME, Begin(sequence=35), Until())

    assert told(wanted, TrimmedRun(21, 40), entry_at(40)) == ["35..40", "40"]


def test_a_gap_is_reported_from_the_requested_sequence_though_it_was_trimmed() -> None:
    wanted = PartitionRange(NAME, Begin(sequence=26, trimmed_from=5), Until())

    items = told(wanted, TrimmedRun(5, 26), TrimmedRun(26, 30), entry_at(30))

    assert items == ["5..26", "26..30", "30"]


def test_a_gap_whose_start_is_unknown_is_reported() -> None:
    wanted = PartitionRange(NAME, Begin(sequence=26, trimmed_from=-1), Until())

    assert told(wanted, TrimmedRun(-1, 26), entry_at(26)) == ["None..26", "26"]


def test_a_gap_ends_where_the_range_ends() -> None:
    wanted = PartitionRange(NAME, Begin(), Until(10))

    assert told(wanted, TrimmedRun(3, 20)) == ["3..10"]


def test_a_gap_before_the_start_time_is_left_out() -> None:
    wanted = PartitionRange(NAME, Begin(time_us=100), Until())

    items = told(
        wanted, TrimmedRun(21, 26), entry_at(26, time_us=99), entry_at(27, time_us=100)
    )

    assert items == ["27"]


def test_a_gap_that_may_hold_the_start_time_is_reported_once_the_next_record_is_known() -> None:
    wanted = PartitionRange(NAME, Begin(time_us=100), Until())

    items = told(
        wanted, TrimmedRun(21, 26), TrimmedRun(26, 30), entry_at(30, time_us=100), entry_at(31)
    )

    assert items[:2] == ["21..30", "30"]


def test_a_gap_with_no_record_after_it_is_reported_at_the_end() -> None:
    wanted = PartitionRange(NAME, Begin(time_us=100), Until())

    assert told(wanted, TrimmedRun(21, 26)) == ["21..26"]


def test_a_gap_before_the_start_transaction_is_left_out() -> None:
    wanted = PartitionRange(NAME, Begin(transaction_id=7), Until())

    items = told(wanted, TrimmedRun(21, 26), entry_at(26, ids=[6, None, 7, None]))

    assert items == ["28", "29"]


def test_a_gap_before_a_record_without_transaction_id_is_reported_with_that_record() -> None:
    wanted = PartitionRange(NAME, Begin(transaction_id=7), Until())

    items = told(wanted, TrimmedRun(21, 26), entry_at(26, ids=[None, 8]))

    assert items == ["21..26", "26", "27"]


def test_the_record_after_a_gap_decides_even_in_the_middle_of_a_batch() -> None:
    wanted = PartitionRange(NAME, Begin(transaction_id=7), Until())

    items = told(wanted, TrimmedRun(21, 27), entry_at(26, ids=[6, 7]))

    assert items == ["21..27", "27"]
