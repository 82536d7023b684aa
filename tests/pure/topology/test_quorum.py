"""Answers that make an entry durable, by brute force over every small layout."""

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.topology.naive import naive_ack, naive_block, naive_write_set
from tests.pure.topology.notation import quorum_of
from topology.errors import InvalidArgumentError
from topology.quorum import AckRule, Durability, QuorumConfig, ack_quorum_smallest


def slots_in(mask: int) -> set[int]:
    return {slot for slot in range(64) if mask >> slot & 1}


def every_config(ensemble_size: int) -> Iterator[QuorumConfig]:
    for write, ack, regions in itertools.product(range(1, ensemble_size + 1), repeat=3):
        if write >= ack >= regions:
            yield quorum_of(f"{ensemble_size}/{write}/{ack} m{regions}")


def shares(total: int, parts: int) -> list[int]:
    """`total` dealt as evenly as it goes: 15 in 2 parts is 8 and 7."""
    return [total // parts + (part < total % parts) for part in range(parts)]


@pytest.mark.parametrize("layout", ["a", "ab", "aab", "abc", "aabb", "abca", "aabcb", "abcabc"])
def test_each_ack_set_meets_each_blocking_set_in_every_write_set(layout: str) -> None:
    for config in every_config(len(layout)):
        rule = AckRule(config, layout)
        masks = range(1 << len(layout))
        for entry in range(len(layout)):
            write_mask = rule.write_mask(entry)
            acks = [
                mask for mask in masks if mask & ~write_mask == 0 and rule.is_ack(entry, mask)
            ]
            blocks = [
                mask for mask in masks if mask & ~write_mask == 0 and rule.is_block(entry, mask)
            ]

            assert all(ack & block for ack in acks for block in blocks)


def every_layout(size: int) -> list[str]:
    """All layouts of regions over this many slots; those that differ only in names are one."""
    return [
        "".join(layout)
        for layout in itertools.product("abcdef"[:size], repeat=size)
        if all(
            ord(region) <= ord(max(layout[:slot], default="`")) + 1
            for slot, region in enumerate(layout)
        )
    ]


@pytest.mark.parametrize("size", range(1, 7))
def test_no_layout_of_up_to_six_nodes_has_disjoint_ack_and_blocking_sets(size: int) -> None:
    # If a set acks, or blocks, so does every larger one: testing the complement of an ack set
    # is enough. Write sets of later entries are those of entry 0 in a rotated layout.
    for layout, config in itertools.product(every_layout(size), every_config(size)):
        rule = AckRule(config, layout)
        write_mask = rule.write_mask(0)
        for mask in range(1 << config.write_quorum):
            assert not (rule.is_ack(0, mask) and rule.is_block(0, write_mask & ~mask))


@pytest.mark.parametrize("layout", ["a", "ab", "aba", "abc", "aabb", "abbca", "aabbcc"])
def test_ack_and_block_agree_with_the_naive_count_for_every_set_of_slots(layout: str) -> None:
    for config in every_config(len(layout)):
        rule = AckRule(config, layout)
        for entry, mask in itertools.product(range(len(layout)), range(1 << len(layout))):
            slots = slots_in(mask)

            assert rule.is_ack(entry, mask) == naive_ack(config, layout, entry, slots)
            assert rule.is_block(entry, mask) == naive_block(config, layout, entry, slots)


@given(st.data())
def test_all_write_sets_at_once_agree_with_one_at_a_time(data: st.DataObject) -> None:
    layout = data.draw(st.text("abc", min_size=1, max_size=6))
    config = data.draw(st.sampled_from(list(every_config(len(layout)))))
    mask = data.draw(st.integers(0, (1 << len(layout)) - 1))
    rule = AckRule(config, layout)
    entries = range(len(layout))

    assert rule.acks_all(mask) == all(rule.is_ack(entry, mask) for entry in entries)
    assert rule.blocks_all(mask) == all(rule.is_block(entry, mask) for entry in entries)
    assert [slots_in(mask) for mask in rule.write_masks()] == [
        naive_write_set(config, entry) for entry in entries
    ]


def test_a_write_set_goes_round_the_ring_from_the_entry() -> None:
    rule = AckRule(quorum_of("4/3/2 m1"), "abcd")

    assert rule.write_set(3) == (3, 0, 1)
    assert rule.write_set(4) == rule.write_set(0) == (0, 1, 2)


def test_slots_outside_the_write_set_count_neither_for_ack_nor_for_block() -> None:
    rule = AckRule(quorum_of("4/2/2 m1"), "abcd")

    assert not rule.is_ack(0, 0b1101)
    assert not rule.is_block(0, 0b1100)


@pytest.mark.parametrize(
    ("min_regions", "write_quorum", "smallest"),
    [(2, 3, 3), (2, 4, 3), (2, 5, 4), (2, 6, 4), (2, 9, 6), (2, 15, 9), (3, 3, 3), (3, 7, 6)],
)
def test_the_smallest_ack_quorum_that_counting_allows(
    min_regions: int, write_quorum: int, smallest: int
) -> None:
    assert ack_quorum_smallest(write_quorum, min_regions, Durability.COUNT) == smallest


def test_counting_asks_for_more_than_the_fullest_regions_hold_when_only_m_are_left() -> None:
    for write, regions in itertools.product(range(1, 31), repeat=2):
        if regions > write:
            continue
        # Maximally degraded: m regions share the write set as evenly as possible.
        in_fewer_regions = sum(shares(write, regions)[: regions - 1])

        assert ack_quorum_smallest(write, regions, Durability.COUNT) == in_fewer_regions + 1


def test_where_counting_is_legal_no_ack_set_lies_in_fewer_regions_by_brute_force() -> None:
    for write, regions in itertools.product(range(1, 9), range(1, 4)):
        if regions > write:
            continue
        ack = ack_quorum_smallest(write, regions, Durability.COUNT)
        for available in range(regions, min(write, 5) + 1):
            layout = "".join(
                name * share
                for name, share in zip("abcde", shares(write, available), strict=False)
            )
            spans = {len(set(nodes)) for nodes in itertools.combinations(layout, ack)}

            assert min(spans) >= regions, f"W {write} A {ack} over {layout}"


def test_one_ack_fewer_than_counting_allows_fits_in_too_few_regions() -> None:
    for write, regions in itertools.product(range(2, 9), range(2, 4)):
        if regions > write:
            continue
        ack = ack_quorum_smallest(write, regions, Durability.COUNT) - 1
        layout = "".join(
            name * share for name, share in zip("abc", shares(write, regions), strict=False)
        )

        assert min(len(set(nodes)) for nodes in itertools.combinations(layout, ack)) < regions


def test_three_copies_of_which_two_regions_answer_are_legal_where_regions_are_counted() -> None:
    rule = AckRule(quorum_of("3/3/2 m2"), "aab")

    assert not rule.is_ack(0, 0b011)
    assert rule.is_ack(0, 0b101)


def test_regions_count_also_where_the_ack_quorum_should_have_seen_to_it() -> None:
    rule = AckRule(quorum_of("4/4/3 m2 count"), "aaab")

    assert not rule.is_ack(0, 0b0111)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("15/15/8 m2 count", "the smallest is 9, the largest 15"),
        ("3/3/1 m2", "the smallest is 2, the largest 3"),
        ("3/3/4 m2", "the smallest is 2, the largest 3"),
        ("3/3/2 m2 count", "the smallest is 3, the largest 3"),
        ("2/3/2 m1", "the smallest ensemble that can hold it is 3"),
        ("3/2/2 m3", "the smallest write quorum that can is 3"),
        ("0/0/0 m0", "ensemble_size must be >= 1, got 0"),
        ("3/3/0 m1", "ack_quorum must be >= 1, got 0"),
        ("65/3/2 m1", "ensemble_size must be <= 64, got 65"),
    ],
)
def test_impossible_quorums_are_refused_with_the_smallest_possible(
    text: str, named: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=named):
        quorum_of(text)


@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 8), st.sampled_from(Durability))
def test_the_smallest_ack_quorum_is_taken_and_one_less_is_not(
    ensemble: int, write: int, regions: int, kind: Durability
) -> None:
    write, regions = min(write, ensemble), min(regions, write, ensemble)
    smallest = ack_quorum_smallest(write, regions, kind)

    taken = quorum_of(f"{ensemble}/{write}/{smallest} m{regions} {kind.value}")

    assert taken.ack_quorum == smallest
    with pytest.raises(InvalidArgumentError):
        quorum_of(f"{ensemble}/{write}/{smallest - 1} m{regions} {kind.value}")


def test_an_ensemble_may_have_64_members() -> None:
    assert quorum_of("64/3/2 m1").ensemble_size == 64


def test_one_region_is_enough_unless_more_are_requested() -> None:
    assert QuorumConfig(ensemble_size=3, write_quorum=3, ack_quorum=2).min_regions == 1


def test_a_rule_needs_a_region_for_each_slot() -> None:
    with pytest.raises(InvalidArgumentError, match="2 nodes for an ensemble of 3"):
        AckRule(quorum_of("3/3/2 m1"), "ab")


def test_quorums_print_on_one_line() -> None:
    assert str(quorum_of("6/6/4 m2")) == "E 6 W 6 A 4 m 2 (regions)"
