"""The prefix of entries in the memory of ack sets, against a naive count."""

from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.ids import EntryId
from geolog.protocol.received_prefix import ReceivedPrefix
from tests.pure.topology.naive import naive_ack
from tests.pure.topology.notation import quorum_of
from topology.quorum import AckRule

CONFIG = quorum_of("3/3/2 m2")


def prefix_of(count: int, layout: str = "aab") -> ReceivedPrefix:
    prefix = ReceivedPrefix(AckRule(CONFIG, layout), lac=EntryId(-1))
    for _ in range(count):
        prefix.push()
    return prefix


def test_an_entry_counts_when_an_ack_set_has_it_and_all_before_it() -> None:
    prefix = prefix_of(2)
    for slot, entry in [(0, 1), (2, 1), (0, 0)]:
        assert not prefix.on_received(slot, EntryId(entry))

    assert prefix.on_received(2, EntryId(0))
    assert prefix.through == 1


def test_members_of_one_region_are_not_enough() -> None:
    prefix = prefix_of(1)
    prefix.on_received(0, EntryId(0))

    assert not prefix.on_received(1, EntryId(0))


def test_acknowledged_entries_count_as_received() -> None:
    prefix = prefix_of(3)

    assert prefix.on_lac(EntryId(1))
    assert prefix.through == 1
    assert not prefix.on_received(0, EntryId(0))


def test_a_replaced_members_answers_are_dropped_but_no_report_is_taken_back() -> None:
    prefix = prefix_of(2)
    for slot, entry in [(0, 0), (2, 0), (2, 1)]:
        prefix.on_received(slot, EntryId(entry))
    prefix.change(AckRule(CONFIG, "aab"), [2])

    assert prefix.through == 0
    assert not prefix.on_received(0, EntryId(1))
    assert prefix.on_received(2, EntryId(1))


@given(st.lists(st.tuples(st.sampled_from("rlc"), st.integers(0, 2), st.integers(0, 9))))
def test_the_prefix_agrees_with_the_naive_count(steps: list[tuple[str, int, int]]) -> None:
    prefix = prefix_of(10)
    has: list[set[int]] = [set() for _ in range(10)]
    through = -1
    for kind, slot, entry in steps:
        match kind:
            case "r":
                has[entry].add(slot)
                prefix.on_received(slot, EntryId(entry))
            case "l":
                prefix.on_lac(EntryId(entry))
                through = max(through, entry)
            case _:
                for slots in has:
                    slots.discard(slot)
                prefix.change(AckRule(CONFIG, "aab"), [slot])
        while through < 9 and naive_ack(CONFIG, "aab", through + 1, has[through + 1]):
            through += 1

        assert prefix.through == through
