"""Reads that wait for their turn, against a list that is searched for every one."""

from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.ids import NO_EPOCH, EntryId, InstanceId, LedgerId
from geolog.protocol.messages import Read
from regions.storage.protocol.turns import Turns


def read(request: int, first: int = 0) -> Read:
    return Read(
        request, LedgerId(1), EntryId(first), 1, 1000, 1, NO_EPOCH, InstanceId("a" * 32)
    )


def test_the_newest_of_two_reads_with_one_number_is_dropped() -> None:
    turns = Turns()
    turns.put(read(1, first=5))
    turns.put(read(1, first=6))

    assert turns.drop(1)
    assert not turns.drop(1)
    assert turns.take() == read(1, first=5)
    assert repr(turns) == "Turns(0 reads)"


events = st.one_of(
    st.tuples(st.just("put"), st.just(0)),
    st.tuples(st.just("take"), st.just(0)),
    st.tuples(st.just("drop"), st.integers(0, 30)),
    st.tuples(st.just("clear"), st.just(0)),
)


@given(st.lists(events, max_size=60))
def test_turns_agree_with_the_naive_list(history: list[tuple[str, int]]) -> None:
    turns, naive = Turns(), list[Read]()

    for number, (what, request) in enumerate(history):
        match what:
            case "put":
                turns.put(read(number))
                naive.append(read(number))
            case "take" if naive:
                assert turns.take() == naive.pop(0)
            case "drop":
                assert turns.drop(request) == (read(request) in naive)
                naive = [one for one in naive if one.request != request]
            case "clear":
                turns.clear()
                naive = []
        assert len(turns) == len(naive)
