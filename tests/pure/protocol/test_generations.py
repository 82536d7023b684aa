"""A seq always goes by the number of partitions of its first append."""

from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.generations import Generation, WriterDivision, with_seq


def division(partitions: int, *found: str) -> WriterDivision:
    """`found`: for each partition the highest seq under each number, e.g. `1:9 4:12`."""
    return WriterDivision(
        [
            tuple(Generation(*map(int, one.split(":"))) for one in text.split())
            for text in found
        ],
        partitions,
    )


def test_a_seq_never_appended_goes_by_the_current_number() -> None:
    assert division(4, "", "").partitions_of(0) == 4
    assert division(4, "1:9").partitions_of(10) == 4


def test_a_seq_that_may_have_been_appended_goes_by_its_former_number() -> None:
    found = division(7, "1:9 4:12", "4:20")

    assert [found.partitions_of(seq) for seq in (0, 9, 10, 20, 21)] == [1, 1, 4, 4, 7]


def test_an_old_record_that_comes_late_changes_nothing_for_others() -> None:
    """Seq 10 was lost under 2, then appended by a later session where 2 says it belongs."""
    found = division(4, "2:8 4:10", "2:11")

    assert [found.partitions_of(seq) for seq in (8, 10, 11, 12)] == [2, 2, 2, 4]


def test_a_batch_addressed_to_its_partition_adds_no_generation() -> None:
    assert with_seq((), 0, 5) == ()
    assert with_seq((Generation(3, 4),), 0, 5) == (Generation(3, 4),)


sessions = st.lists(
    st.tuples(
        st.integers(0, 3),  # New partitions.
        st.integers(0, 6),  # How far back the session begins.
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), max_size=12),
    ),
    max_size=8,
)


@given(sessions)
def test_each_seq_goes_where_it_went_first_whatever_is_lost(
    story: list[tuple[int, int, list[tuple[int, int]]]],
) -> None:
    """The naive model remembers for each seq the number under which it was appended.

    Each step skips seqs, and gives the partition that the record's key chose. A partition's
    owner appends only seqs above all that the partition has.
    """
    first_number: dict[int, int] = {}
    generations: dict[int, tuple[Generation, ...]] = {}
    highest_in: dict[int, int] = {}
    partitions = 1
    for more, back, steps in story:
        partitions += more
        divided = WriterDivision(generations.values(), partitions)
        for seq, number in first_number.items():
            assert divided.partitions_of(seq) == number
        seq = max(first_number, default=-1) - back
        for gap, key in steps:
            seq = max(0, seq + 1 + gap)
            number = divided.partitions_of(seq)
            place = key % number
            if seq > highest_in.get(place, -1):
                highest_in[place] = seq
                first_number.setdefault(seq, number)
                generations[place] = with_seq(generations.get(place, ()), partitions, seq)
