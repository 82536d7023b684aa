"""Batches over channels that come and go, against a naive log."""

from typing import TypeVar

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.sent_batches import (
    UNANSWERED_MAX,
    AnswerOutOfOrderError,
    SentBatches,
)

T = TypeVar("T")


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


SIZE_BYTES = 10


@given(STEPS, st.integers(0, 4))
def test_no_batch_is_lost_repeated_or_out_of_order(
    steps: list[tuple[str, int]], batches_of_credit: int
) -> None:
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
            sent.accept(batch, is_numbered=bool(argument), size_bytes=SIZE_BYTES)
        elif step == "open" and not is_open:
            sent.on_opened(credit_bytes=batches_of_credit * SIZE_BYTES)
            wire, taken_count, answered_count, is_open = [], 0, 0, True
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
        send_all(sent, wire)
        if is_open:
            left_count = len(accepted) - len(answered) - len(unknown)
            wire_count = len(wire) - answered_count
            assert wire_count == min(left_count, max(1, batches_of_credit))
    if is_open:
        unknown += sent.on_closed()
    sent.on_opened(credit_bytes=1000 * SIZE_BYTES)
    for batch in send_all(sent, []):
        owner.take(batch)
    answered += [sent.on_answer(number) for number in range(len(sent))]

    assert sorted(answered + unknown) == accepted
    assert all(batch % 2 for batch in unknown), "a numbered batch is never given up"
    assert all(batch % 2 == 0 for batch in owner.taken_twice), "others are never sent twice"
    assert set(answered) <= set(owner.log)
    assert answered == sorted(answered)
    assert owner.log == sorted(owner.log)


def send_all(sent: SentBatches[T], wire: list[T]) -> list[T]:
    """Put all batches that may be sent now on the wire of the open channel."""
    while (due := sent.next_to_send()) is not None:
        number, batch = due
        assert number == len(wire)
        wire.append(batch)
    return wire


def test_a_batch_that_the_proxy_did_not_take_is_sent_again() -> None:
    sent: SentBatches[str] = SentBatches()
    sent.on_opened(credit_bytes=100)
    for batch in "abc":
        sent.accept(batch, is_numbered=False, size_bytes=1)
    assert send_all(sent, []) == ["a", "b", "c"]
    sent.on_answer(0)

    assert sent.on_closed(taken_count=2) == ["b"]
    sent.on_opened(credit_bytes=100)
    assert send_all(sent, []) == ["c"]


def test_a_batch_that_was_never_sent_is_not_in_doubt() -> None:
    sent: SentBatches[str] = SentBatches()
    sent.on_opened(credit_bytes=1)
    for batch in "ab":
        sent.accept(batch, is_numbered=False, size_bytes=1)
    assert send_all(sent, []) == ["a"]

    assert sent.on_closed() == ["a"]
    sent.on_opened(credit_bytes=1)
    assert send_all(sent, []) == ["b"]


def test_few_batches_wait_for_answers_whatever_their_sizes() -> None:
    sent: SentBatches[int] = SentBatches()
    sent.on_opened(credit_bytes=1 << 30)
    for batch in range(UNANSWERED_MAX + 1):
        sent.accept(batch, is_numbered=False, size_bytes=1)
    wire = send_all(sent, [])
    assert len(wire) == UNANSWERED_MAX

    sent.on_answer(0)
    assert send_all(sent, wire)[-1] == UNANSWERED_MAX


def test_an_answer_out_of_order_is_refused() -> None:
    sent: SentBatches[str] = SentBatches()
    sent.on_opened(credit_bytes=100)
    sent.accept("a", is_numbered=False, size_bytes=1)
    sent.accept("b", is_numbered=False, size_bytes=1)
    assert send_all(sent, []) == ["a", "b"]

    with pytest.raises(AnswerOutOfOrderError, match="batch 1 was answered"):
        sent.on_answer(1)


def test_giving_up_returns_everything_without_an_answer() -> None:
    sent: SentBatches[str] = SentBatches()
    sent.accept("a", is_numbered=True, size_bytes=1)

    assert sent.give_up() == ["a"]
    assert len(sent) == 0
