"""Heartbeats that come back show that the whole way of a link is open."""

from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.watermark import Watermark
from relay.protocol.canary import SentCanaries, TakenCanary
from tests.pure.relay.logs import home_log

MARKS = home_log("111111").watermarks()


def test_a_canary_is_timed_from_its_sending() -> None:
    sent = SentCanaries()
    sent.sent(70, 1.0)

    assert not sent.is_waiting, "a target of an older version sends none back"
    assert sent.came_back(70, 1.25)
    assert sent.round_trip_s == 0.25
    assert not sent.is_waiting
    sent.sent(80, 2.0)
    assert sent.is_waiting


def test_a_later_canary_answers_for_those_before_it() -> None:
    sent = SentCanaries()
    for second in range(5):
        sent.sent(second, second)

    assert sent.came_back(3, 4.5)
    assert sent.round_trip_s == 1.5
    assert not sent.came_back(2, 5)
    assert sent.is_waiting
    assert sent.came_back(4, 5)


def test_a_canary_that_was_not_sent_says_nothing() -> None:
    sent = SentCanaries()
    sent.sent(7, 0)

    assert not sent.came_back(8, 1)
    assert sent.round_trip_s is None


def test_a_canary_goes_back_at_once_where_nothing_is_owed() -> None:
    assert TakenCanary().take(7, {}) == 7


def test_a_canary_waits_for_each_channel_until_it_is_durable_or_ends() -> None:
    canary = TakenCanary()

    assert canary.take(7, {1: MARKS[2], 2: MARKS[4], 3: MARKS[0]}) is None
    assert canary.take(8, {}) is None, "one at a time"
    assert canary.on_durable(1, MARKS[1]) is None
    assert canary.on_durable(1, MARKS[3]) is None
    assert canary.on_ended(2) is None
    assert canary.on_durable(3, MARKS[0]) == 7
    assert canary.on_durable(3, MARKS[1]) is None
    assert canary.take(9, {}) == 9


def test_a_canary_waits_for_the_answer_to_a_question() -> None:
    canary = TakenCanary()

    assert canary.take(7, {1: None, 2: MARKS[1]}) is None
    assert canary.on_durable(2, MARKS[1]) is None
    assert canary.on_durable(1, MARKS[5]) is None, "nothing was sent on it yet"
    assert canary.on_told(1) == 7
    assert canary.on_told(1) is None


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.lists(st.integers(0, 5), min_size=3, max_size=3)),
            st.tuples(st.just("durable"), st.tuples(st.integers(0, 2), st.integers(0, 5))),
            st.tuples(st.just("end"), st.integers(0, 2)),
        )
    )
)
def test_no_canary_goes_back_before_what_was_received_with_it_is_done(
    steps: list[tuple[str, object]],
) -> None:
    """A naive count of what is left of the canary that waits decides."""
    canary = TakenCanary()
    waiting: tuple[int, dict[int, Watermark | None]] | None = None
    for number, (kind, given_) in enumerate(steps):
        if kind == "take":
            assert isinstance(given_, list)
            owed: dict[int, Watermark | None] = {
                channel: MARKS[mark] for channel, mark in enumerate(given_) if mark
            }
            back = canary.take(number, owed)
            waiting = waiting or (number, owed)
        elif kind == "durable":
            assert isinstance(given_, tuple)
            channel, mark = given_
            back = canary.on_durable(channel, MARKS[mark])
            owes = None if waiting is None else waiting[1].get(channel)
            if waiting is not None and owes is not None and owes <= MARKS[mark]:
                del waiting[1][channel]
        else:
            assert isinstance(given_, int)
            back = canary.on_ended(given_)
            if waiting is not None:
                waiting[1].pop(given_, None)
        expected = waiting[0] if waiting is not None and not waiting[1] else None
        assert back == expected
        if expected is not None:
            waiting = None
