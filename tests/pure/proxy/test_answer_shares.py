"""Answers that a client does not take are bounded, and leave room for the next client."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regions.proxy.protocol.answer_shares import AnswerShares

MAX = 1000
FRAME = 10

STEPS = st.tuples(st.sampled_from("abcdef"), st.integers(1, 400), st.booleans())


@pytest.mark.parametrize(("clients", "most"), [(1, 500), (2, 333), (3, 250), (9, 100)])
def test_clients_that_take_nothing_share_what_is_left(clients: int, most: int) -> None:
    shares = AnswerShares(MAX, 0.5)
    held = dict.fromkeys(map(str, range(clients)), 0)

    for _ in range(MAX):
        for client in held:
            if not shares.is_full(client):
                shares.take(client, 1)
                held[client] += 1

    assert all(abs(count - most) <= 2 for count in held.values())
    assert not shares.is_full("another")


def test_a_client_behind_which_all_others_are_may_have_everything() -> None:
    shares = AnswerShares(MAX, 1.0)
    shares.take("all", MAX - 1)

    assert not shares.is_full("all")
    shares.take("all", 1)
    assert shares.is_full("all")


@given(st.lists(STEPS, max_size=60))
def test_it_agrees_with_a_count_of_each_client_and_never_passes_the_bound_by_much(
    steps: list[tuple[str, int, bool]],
) -> None:
    shares, held = AnswerShares(MAX, 0.5), dict.fromkeys("abcdef", 0)

    for client, count, is_taken in steps:
        others = sum(held.values()) - held[client]
        if is_taken:
            count = min(count, held[client])
            is_below = shares.give_back(client, count)
            held[client] -= count
            assert not (is_below and shares.is_full(client))
            continue
        assert shares.is_full(client) == (0 < held[client] >= (MAX - others) / 2)
        if shares.is_full(client):
            continue
        shares.take(client, FRAME)
        held[client] += FRAME
        refusal = shares.refusal_of(client, FRAME, count)
        is_alone = held[client] == FRAME
        assert (refusal is None) == (is_alone or held[client] + count <= (MAX - others) / 2)
        if refusal is None:
            shares.take(client, count)
            held[client] += count

    assert shares.bytes == sum(held.values())
    for client, count in held.items():
        shares.give_back(client, count)
    assert repr(shares) == f"AnswerShares(0 of {MAX}: {{}})"


def test_a_client_is_read_on_while_most_of_its_answers_are_due() -> None:
    shares = AnswerShares(MAX, 0.5)
    shares.promise("a", 500)
    shares.take("a", 200)

    assert not shares.is_full("a")
    assert shares.refusal_of("a", FRAME) is not None
    shares.keep("a", 100, 100)
    assert shares.is_full("a")
    assert not shares.give_back("a", 10)
    assert shares.give_back("a", 90)
    assert not shares.is_full("a")
    shares.keep("a", 100, 150)
    assert shares.is_full("a")
    assert shares.withdraw("a", 300)
    shares.give_back("a", 350)
    assert repr(shares) == f"AnswerShares(0 of {MAX}: {{}})"


def test_a_refusal_names_the_client_and_the_bound() -> None:
    shares = AnswerShares(MAX, 0.5)
    shares.take("a", 300)
    shares.take("b", 400)

    assert str(shares.refusal_of("b", FRAME, 1)) == (
        "client b has 400 bytes of answers due or not taken; 350 are allowed: take answers,"
        " then send again"
    )
