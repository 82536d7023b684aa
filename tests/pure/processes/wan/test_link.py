"""When bytes arrive: bandwidth, delay, order, and the bounds on bytes in flight."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.processes.wan.conditions import Conditions
from sim.processes.wan.link import (
    HEADER_BYTES,
    QUEUE_S,
    WINDOW_BYTES_MIN,
    Ended,
    Lane,
    Link,
    Piece,
    size_bytes_of,
)

FAR_S = 1e9


def link_of(seed: int = 0, **conditions: float) -> Link:
    return Link(Conditions(**conditions), random.Random(seed))  # type: ignore[arg-type]


def bytes_of(size_bytes: int) -> bytes:
    """A piece that counts for this many bytes."""
    return bytes(size_bytes - HEADER_BYTES)


def test_a_piece_arrives_when_it_has_entered_and_travelled() -> None:
    lane = Lane(link_of(delay_s=0.04, bandwidth_bytes_per_s=1e6))

    lane.put(bytes_of(10_000), now_s=1.0)

    assert lane.due_s == pytest.approx(1.0 + 0.010 + 0.040)
    assert lane.take_due(1.049) == []
    assert len(lane.take_due(1.051)) == 1


def test_connections_of_a_link_share_its_bandwidth() -> None:
    link = link_of(bandwidth_bytes_per_s=1e6)
    first, second = Lane(link), Lane(link)

    first.put(bytes_of(10_000), now_s=0.0)
    second.put(bytes_of(10_000), now_s=0.0)

    assert first.due_s == pytest.approx(0.010)
    assert second.due_s == pytest.approx(0.020)


def test_an_idle_link_accumulates_no_credit() -> None:
    link = link_of(bandwidth_bytes_per_s=1e6)

    assert link.carry(10_000, now_s=0.0) == pytest.approx(0.010)
    assert link.carry(10_000, now_s=5.0) == pytest.approx(5.010)


def test_the_queue_before_a_link_has_room_again_when_it_is_short() -> None:
    link = link_of(bandwidth_bytes_per_s=1e6)

    link.carry(100_000, now_s=0.0)

    assert link.room_at_s == pytest.approx(0.100 - QUEUE_S)


def test_a_stalled_piece_delays_only_its_own_connection() -> None:
    stalled = link_of(stall_rate=1.0, stall_s=0.2)
    first, second = Lane(stalled), Lane(stalled)
    first.put(b"held up", now_s=0.0)

    stalled.conditions = Conditions()
    first.put(b"behind it", now_s=0.001)
    second.put(b"elsewhere", now_s=0.001)

    assert second.take_due(0.01) == [b"elsewhere"]
    assert first.take_due(0.19) == []
    assert first.take_due(0.21) == [b"held up", b"behind it"]


def test_a_shorter_delay_lets_nothing_overtake() -> None:
    link = link_of(delay_s=0.1)
    lane = Lane(link)
    lane.put(b"early", now_s=0.0)

    link.conditions = Conditions(delay_s=0.001)
    lane.put(b"late", now_s=0.01)

    assert lane.take_due(0.09) == []
    assert lane.take_due(0.11) == [b"early", b"late"]


def test_after_a_cut_pieces_in_flight_travel_again() -> None:
    lane = Lane(link_of(delay_s=0.04))
    lane.put(b"lost and sent again", now_s=0.0)

    lane.send_again(now_s=10.0)

    assert lane.due_s == pytest.approx(10.04)
    assert lane.take_due(10.03) == []
    assert lane.take_due(10.05) == [b"lost and sent again"]


def test_the_window_is_bandwidth_times_delay_and_the_queue() -> None:
    link = link_of(delay_s=0.1, bandwidth_bytes_per_s=10e6)

    assert link.window_bytes == pytest.approx(10e6 * (0.1 + QUEUE_S))
    assert link_of().window_bytes >= WINDOW_BYTES_MIN


def test_a_lane_is_full_at_its_window_and_has_room_when_some_arrived() -> None:
    lane = Lane(link_of(delay_s=0.001, bandwidth_bytes_per_s=1e6))
    pieces_count = 0
    while lane.has_room:
        lane.put(bytes_of(1000), now_s=0.0)
        pieces_count += 1

    assert pieces_count == -(-lane.link.window_bytes // 1000)
    lane.take_due(FAR_S)
    assert lane.held_bytes == 0


def test_tiny_pieces_count_their_headers_so_that_they_are_bounded_too() -> None:
    lane = Lane(link_of())
    lane.put(b"x", now_s=0.0)
    lane.put(Ended.FINISHED, now_s=0.0)

    assert lane.held_bytes == 1 + 2 * HEADER_BYTES


def test_pieces_that_a_receiver_did_not_take_come_first_again() -> None:
    lane = Lane(link_of())
    for piece in (b"a", b"b", b"c"):
        lane.put(piece, now_s=0.0)
    held_bytes = lane.held_bytes
    taken = lane.take_due(1.0)

    lane.give_back(taken[1:], now_s=1.0)

    assert lane.held_bytes == held_bytes - size_bytes_of(b"a")
    assert lane.take_due(1.0) == [b"b", b"c"]


@given(
    seed=st.integers(0, 99),
    gaps_s=st.lists(st.floats(0, 0.05), min_size=1, max_size=60),
    jitter_s=st.floats(0, 0.04),
    stall_rate=st.sampled_from([0.0, 0.1, 1.0]),
)
def test_pieces_arrive_once_in_order_and_never_too_early(
    seed: int, gaps_s: list[float], jitter_s: float, stall_rate: float
) -> None:
    lane = Lane(link_of(seed, delay_s=0.04, jitter_s=jitter_s, stall_rate=stall_rate))
    sent: list[Piece] = []
    arrived: list[Piece] = []
    now_s = 0.0
    for number, gap_s in enumerate(gaps_s):
        now_s += gap_s
        sent.append(f"{number}".encode())
        lane.put(sent[-1], now_s)
        due_s = lane.due_s
        assert due_s is not None
        arrived += lane.take_due(now_s)
        # Nothing may arrive before it has travelled for the shortest time there is.
        assert len(arrived) < len(sent) or jitter_s >= 0.04 - 1e-6

    arrived += lane.take_due(FAR_S)
    assert arrived == sent
    assert lane.held_bytes == 0


@given(st.integers(0, 1000))
def test_jitter_is_even_about_the_delay(seed: int) -> None:
    link = link_of(seed, delay_s=0.04, jitter_s=0.01, bandwidth_bytes_per_s=1e9)

    arrivals_s = [link.carry(0, now_s=float(second)) - second for second in range(200)]

    assert 0.03 - 1e-9 <= min(arrivals_s) <= max(arrivals_s) <= 0.05 + 1e-6
    assert sum(arrivals_s) / 200 == pytest.approx(0.04, abs=0.003)
