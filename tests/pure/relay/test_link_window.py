"""The window of a link: it fills the link, and goes back from what brings nothing."""

import heapq

import attrs
from hypothesis import given
from hypothesis import strategies as st

from relay.protocol.link_window import RETRY_S, WINDOW_BYTES_MIN, LinkWindow

MB = 1_000_000
ENTRY_BYTES = 64 << 10


@attrs.frozen
class Link:
    """A link that is a queue in front of a pipe."""

    bytes_per_s: float
    round_trip_s: float


@attrs.frozen
class Sent:
    """The outcome of a load."""

    bytes_per_s: float
    window: LinkWindow
    queued_s: float
    """How long the last entry waited in front of the pipe."""


def send(
    link: Link,
    *,
    seconds: float,
    window: LinkWindow | None = None,
    offered_bytes_per_s: float | None = None,
    begun_s: float = 0.0,
) -> Sent:
    """Send as fast as the window allows, or at a rate, and answer each entry in turn.

    What became durable in the last half of the time counts.
    """
    window = window or LinkWindow(256 << 20)
    answers: list[float] = []
    now_s, free_s, unanswered, queued_s = begun_s, begun_s, 0, 0.0
    end_s, sent_count, late_bytes = begun_s + seconds, 0, 0
    while now_s < end_s:
        due_s = begun_s
        if offered_bytes_per_s is not None:
            due_s = begun_s + sent_count * ENTRY_BYTES / offered_bytes_per_s
        if unanswered < window.bytes and due_s <= now_s:
            queued_s = max(0.0, free_s - now_s)
            free_s = max(free_s, now_s) + ENTRY_BYTES / link.bytes_per_s
            heapq.heappush(answers, free_s + link.round_trip_s)
            unanswered += ENTRY_BYTES
            sent_count += 1
            continue
        if due_s > now_s:
            window.on_idle()
        else:
            window.on_full(now_s)
        if due_s > now_s and (not answers or due_s < answers[0]):
            now_s = due_s
            continue
        now_s = heapq.heappop(answers)
        unanswered -= ENTRY_BYTES
        window.on_durable(ENTRY_BYTES, now_s)
        if now_s >= begun_s + seconds / 2:
            late_bytes += ENTRY_BYTES
    return Sent(late_bytes / (seconds / 2), window, queued_s)


def test_a_window_begins_small_and_never_passes_what_the_target_takes() -> None:
    assert LinkWindow(256 << 20).bytes == WINDOW_BYTES_MIN
    assert LinkWindow(1000).bytes == 1000

    sent = send(Link(1000 * MB, 0.2), seconds=10, window=LinkWindow(3 << 20))

    assert sent.window.bytes == 3 << 20


@given(
    bytes_per_s=st.floats(2 * MB, 200 * MB),
    round_trip_s=st.floats(0.005, 0.3),
)
def test_a_link_of_any_bandwidth_and_length_is_filled(
    bytes_per_s: float, round_trip_s: float
) -> None:
    link = Link(bytes_per_s, round_trip_s)

    sent = send(link, seconds=8 + 30 * round_trip_s)

    assert sent.bytes_per_s >= 0.85 * bytes_per_s


@given(
    bytes_per_s=st.floats(2 * MB, 200 * MB),
    round_trip_s=st.floats(0.005, 0.3),
)
def test_what_is_live_waits_for_a_few_round_trips_at_the_most(
    bytes_per_s: float, round_trip_s: float
) -> None:
    link = Link(bytes_per_s, round_trip_s)

    sent = send(link, seconds=RETRY_S - 1 + 30 * round_trip_s)

    least_s = WINDOW_BYTES_MIN / bytes_per_s
    assert sent.queued_s <= max(4 * round_trip_s, least_s) + 2 * ENTRY_BYTES / bytes_per_s


def test_a_sender_with_little_to_send_does_not_widen_the_window() -> None:
    sent = send(Link(100 * MB, 0.1), seconds=20, offered_bytes_per_s=5 * MB)

    assert sent.window.bytes == WINDOW_BYTES_MIN
    assert sent.bytes_per_s > 4.9 * MB


def test_a_link_that_has_become_wider_is_filled_again() -> None:
    before = send(Link(5 * MB, 0.1), seconds=20)

    after = send(Link(50 * MB, 0.1), seconds=30, window=before.window, begun_s=20)

    assert before.bytes_per_s > 4.2 * MB
    assert after.bytes_per_s > 42 * MB


def test_a_target_that_takes_less_is_obeyed_at_once() -> None:
    window = send(Link(50 * MB, 0.2), seconds=10).window
    assert window.bytes > 4 << 20

    window.limit(2 << 20)
    is_less = window.bytes
    window.limit(100)
    is_least = window.bytes
    window.limit(64 << 20)

    assert (is_less, is_least, window.bytes) == (2 << 20, 100, WINDOW_BYTES_MIN)
