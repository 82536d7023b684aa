"""Partitions are divided evenly among readers, and few of them move."""

from itertools import combinations_with_replacement, permutations

from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.cursor_sharing import divide

READERS = st.lists(st.sampled_from("abcde"), min_size=1, max_size=4, unique=True)
READ_BY = st.dictionaries(st.integers(0, 6), st.sampled_from(["", *"abcdexy"]))


def sizes(given_to: dict[int, str], readers: list[str]) -> list[int]:
    return [sum(one == reader for one in given_to.values()) for reader in readers]


def most_kept(count: int, readers: list[str], read_by: dict[int, str]) -> int:
    """The naive answer: try all even shares, in every order of readers."""
    least, more = divmod(count, len(readers))
    shares = [least + (i < more) for i in range(len(readers))]
    has = [sum(read_by.get(number) == one for number in range(count)) for one in readers]
    return max(
        sum(min(share, had) for share, had in zip(order, has, strict=True))
        for order in set(permutations(shares))
    )


@given(st.integers(0, 7), READERS, READ_BY)
def test_a_division_is_even_and_moves_as_few_partitions_as_possible(
    count: int, readers: list[str], read_by: dict[int, str]
) -> None:
    found = divide(count, readers, read_by)

    assert sorted(found) == list(range(count))
    assert max(sizes(found, readers)) - min(sizes(found, readers)) <= 1
    kept = sum(read_by.get(number) == reader for number, reader in found.items())
    assert kept == most_kept(count, readers, read_by)


@given(st.integers(0, 7), READERS, READ_BY)
def test_all_readers_find_the_same_division_and_keep_it(
    count: int, readers: list[str], read_by: dict[int, str]
) -> None:
    found = divide(count, readers, read_by)

    assert divide(count, reversed(readers), read_by) == found
    assert divide(count, readers, found) == found


def test_a_reader_beyond_the_number_of_partitions_is_a_spare() -> None:
    for count, more in combinations_with_replacement(range(1, 4), 2):
        readers = [f"r{number}" for number in range(count + more)]

        found = divide(count, readers, {})

        assert sizes(found, readers) == [1] * count + [0] * more


def test_nobody_reads_without_readers() -> None:
    assert divide(3, [], {0: "a"}) == {}
