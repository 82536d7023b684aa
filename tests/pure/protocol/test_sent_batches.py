"""Batches over channels that come and go, against a naive log."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.sent_batches import AnswerOutOfOrderError, SentBatches


@attrs.define
class NaiveOwner:
    """Owners in turn: what each took, and the log that outlives them all."""

    log: list[int] = attrs.field(factory=list)
    taken_twice: set[int] = attrs.field(factory=set)

    def take(self, batch: int) -> None:
        if batch in self.log:
            self.taken_twice.add(batch)
        else:
            self.log.append(batch)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("accept"), st.booleans()),
        st.tuples(st.just("take"), st.integers(1, 4)),
        st.tuples(st.just("answer"), st.integers(1, 4)),
        st.tuples(st.just("close"), st.booleans()),
        st.tuples(st.just("open"), st.just(0)),
    ),
    max_size=60,
)


@given(STEPS)
def test_no_batch_is_lost_repeated_or_out_of_order(steps: list[tuple[str, int]]) -> None:
    """Batches have even numbers if a named writer numbered them."""
    sent: SentBatches[int] = SentBatches()
    owner, wire = NaiveOwner(), list[int]()
    taken_count = answered_count = 0
    accepted, answered, unknown = list[int](), list[int](), list[int]()
    is_open = False
    for step, argument in steps:
        if step == "accept":
            batch = 2 * len(accepted) + (0 if argument else 1)
            accepted.append(batch)
            number = sent.accept(batch, is_numbered=bool(argument))
            assert (number is not None) == is_open
            if number is not None:
                assert number == len(wire)
                wire.append(batch)
        elif step == "open" and not is_open:
            wire, taken_count, answered_count, is_open = sent.on_opened(), 0, 0, True
        elif step == "take" and is_open:
            for batch in wire[taken_count : taken_count + argument]:
                owner.take(batch)
                taken_count += 1
        elif step == "answer" and is_open:
            due = range(answered_count, min(taken_count, answered_count + argument))
            answered += [sent.on_answer(number) for number in due]
            answered_count += len(due)
        elif step == "close" and is_open:
            unknown += sent.on_closed(taken_count if argument else None)
            is_open = False
    if is_open:
        unknown += sent.on_closed()
    for batch in sent.on_opened():
        owner.take(batch)
    answered += [sent.on_answer(number) for number in range(len(sent))]

    assert sorted(answered + unknown) == accepted
    assert all(batch % 2 for batch in unknown), "a numbered batch is never given up"
    assert all(batch % 2 == 0 for batch in owner.taken_twice), "others are never sent twice"
    assert set(answered) <= set(owner.log)
    assert answered == sorted(answered)
    assert owner.log == sorted(owner.log)


def test_a_batch_that_the_proxy_did_not_take_is_sent_again() -> None:
    sent: SentBatches[str] = SentBatches()
    sent.on_opened()
    for batch in "abc":
        sent.accept(batch, is_numbered=False)
    sent.on_answer(0)

    assert sent.on_closed(taken_count=2) == ["b"]
    assert sent.on_opened() == ["c"]


def test_an_answer_out_of_order_is_refused() -> None:
    sent: SentBatches[str] = SentBatches()
    sent.on_opened()
    sent.accept("a", is_numbered=False)
    sent.accept("b", is_numbered=False)

    with pytest.raises(AnswerOutOfOrderError, match="batch 1 was answered"):
        sent.on_answer(1)


def test_giving_up_returns_everything_without_an_answer() -> None:
    sent: SentBatches[str] = SentBatches()
    sent.accept("a", is_numbered=True)

    assert sent.give_up() == ["a"]
    assert len(sent) == 0
