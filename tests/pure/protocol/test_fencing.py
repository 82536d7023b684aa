"""The fence against a naive enumeration of write sets, in every order of answers."""

import itertools
from collections.abc import Iterator

import pytest

from geolog.protocol.fencing import FenceRound, FenceTaken
from geolog.protocol.ids import NO_ENTRY, EntryId
from tests.pure.topology.naive import naive_block
from tests.pure.topology.notation import quorum_of
from topology.quorum import AckRule

LAYOUTS = [
    ("1/1/1 m1", "a"),
    ("3/3/2 m1", "abc"),
    ("3/3/2 m2", "aab"),
    ("3/2/2 m2", "abc"),
    ("4/2/1 m1", "abcd"),
    ("4/3/2 m2", "aabb"),
    ("5/3/2 m2", "abcab"),
    ("5/5/4 m2 count", "aabbc"),
]


class OneWriteSetRule(AckRule):
    """Planted bug 37: a fence that blocks one write set only."""

    def blocks_all(self, mask: int) -> bool:
        return self.is_block(0, mask)


def fenced(fence: FenceRound, answers: str) -> list[FenceTaken]:
    """`0:4 1:-1`: slot 0 is fenced and saw LAC 4, then slot 1 is fenced and saw none."""
    pairs = [answer.split(":") for answer in answers.split()]
    return [
        taken for slot, lac in pairs for taken in fence.on_fenced(int(slot), EntryId(int(lac)))
    ]


def orders_that_disagree(
    rule_kind: type[AckRule],
) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Orders of answers in which the fence is taken at the wrong answer."""
    for quorums, layout in LAYOUTS:
        config = quorum_of(quorums)
        entries = range(len(layout))
        for order in itertools.permutations(range(len(layout))):
            fence = FenceRound(rule_kind(config, layout))
            taken = [bool(fence.on_fenced(slot, NO_ENTRY)) for slot in order]
            blocked = [
                all(
                    naive_block(config, layout, entry, set(order[: place + 1]))
                    for entry in entries
                )
                for place in range(len(order))
            ]
            if taken.index(True) != blocked.index(True) or taken.count(True) != 1:
                yield quorums, layout, order


def test_the_fence_is_taken_once_and_as_soon_as_every_write_set_is_blocked() -> None:
    assert list(orders_that_disagree(AckRule)) == []


def test_a_fence_that_blocks_one_write_set_only_is_caught() -> None:
    found = {quorums for quorums, _layout, _order in orders_that_disagree(OneWriteSetRule)}

    assert found == {quorums for quorums, _layout in LAYOUTS if quorums[0] != quorums[2]}


def test_the_fence_gives_the_highest_lac_seen() -> None:
    fence = FenceRound(AckRule(quorum_of("5/5/3 m1"), "abcde"))

    assert fenced(fence, "0:4 1:9 2:-1") == [FenceTaken(EntryId(9))]


def test_answers_after_the_fence_is_taken_have_no_effect() -> None:
    fence = FenceRound(AckRule(quorum_of("3/3/2 m1"), "abc"))
    fenced(fence, "0:1 1:1")

    assert fenced(fence, "2:7 0:1") == []


def test_a_member_that_answers_twice_counts_once() -> None:
    fence = FenceRound(AckRule(quorum_of("3/3/2 m1"), "abc"))

    assert fenced(fence, "0:1 0:1 0:1") == []


@pytest.mark.parametrize(("quorums", "layout"), LAYOUTS)
def test_before_any_answer_the_fence_is_not_taken(quorums: str, layout: str) -> None:
    assert not AckRule(quorum_of(quorums), layout).blocks_all(0)
