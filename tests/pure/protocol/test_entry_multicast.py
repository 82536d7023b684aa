"""The owner's multicast: what leaves, in which order, and what is dropped."""

from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.entry_multicast import MulticastQueue, SentEntries


def test_entries_leave_once_they_are_acknowledged_and_in_order() -> None:
    sent: SentEntries[str] = SentEntries()
    for number, entry in enumerate("abcd"):
        sent.on_sent(number, entry)

    assert sent.on_acknowledged(1) == ["a", "b"]
    assert sent.on_acknowledged(1) == []
    assert sent.on_acknowledged(3) == ["c", "d"]


def test_what_was_not_acknowledged_in_a_ledger_leaves_from_the_next_one_alone() -> None:
    sent: SentEntries[str] = SentEntries()
    sent.on_sent(0, "a")
    sent.on_sent(1, "b")
    assert sent.on_acknowledged(0) == ["a"]
    sent.on_ledger()
    sent.on_sent(0, "b again")

    assert sent.on_acknowledged(0) == ["b again"]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(1, 60)),
        st.tuples(st.just("take"), st.integers(1, 80)),
        st.tuples(st.just("drop"), st.just(0)),
    ),
    max_size=80,
)


@given(st.integers(1, 100), STEPS)
def test_a_queue_keeps_the_newest_entries_that_fit(
    bytes_max: int, steps: list[tuple[str, int]]
) -> None:
    queue: MulticastQueue[int] = MulticastQueue(bytes_max)
    kept: list[tuple[int, int]] = []
    taken_all: list[int] = []
    for number, (act, size) in enumerate(steps):
        if act == "push":
            queue.push(number, size)
            kept.append((number, size))
            while sum(one for _, one in kept) > bytes_max and len(kept) > 1:
                del kept[0]
        elif act == "take":
            naive: list[tuple[int, int]] = []
            while kept and (not naive or sum(b for _, b in [*naive, kept[0]]) <= size):
                naive.append(kept.pop(0))
            taken = queue.take(size)
            assert taken == [one for one, _ in naive]
            taken_all += taken
        else:
            queue.drop_all()
            kept.clear()
        told = queue.statistics()
        assert (told.queued_count, told.queued_bytes) == (len(kept), sum(b for _, b in kept))
    pushed = sum(act == "push" for act, _ in steps)
    told = queue.statistics()
    assert pushed == told.queued_count + told.taken_count + told.dropped_count
    assert taken_all == sorted(taken_all)
