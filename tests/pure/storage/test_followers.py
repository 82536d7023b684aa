"""Followers of a LAC, against a list that is searched for every question."""

import math
from collections.abc import Iterable

import attrs
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.ids import EntryId, InstanceId, LedgerId
from geolog.protocol.messages import Follow
from regions.storage.protocol.followers import TICK_S, Followers, WaitingFollow

HERE = InstanceId("a" * 32)
ONE, OTHER = LedgerId(1), LedgerId(2)


def followers(
    *, waiters_max: int = 100, per_client: int = 100, wait_s_max: float = 60.0
) -> Followers[str]:
    return Followers(
        waiters_max=waiters_max, waiters_max_per_client=per_client, wait_s_max=wait_s_max
    )


def follow(
    first: int, *, request: int = 1, wait_s: float = 10.0, ledger: LedgerId = ONE
) -> Follow:
    return Follow(request, ledger, EntryId(first), 10, 1000, int(wait_s * 1000), HERE)


def clients_of(waiters: Iterable[WaitingFollow[str]]) -> str:
    return "".join(waiter.client for waiter in waiters)


def test_a_lac_wakes_the_waiters_it_serves_ordered_by_entry() -> None:
    waiting = followers()
    waiting.wait("b", follow(6), 0.0)
    waiting.wait("a", follow(5), 0.0)
    waiting.wait("c", follow(7), 0.0)
    waiting.wait("d", follow(5), 0.0)

    assert clients_of(waiting.on_lac(ONE, EntryId(4), 99)) == ""
    assert clients_of(waiting.on_lac(ONE, EntryId(6), 99)) == "adb"
    assert clients_of(waiting.on_lac(ONE, EntryId(6), 99)) == ""
    assert len(waiting) == 1


def test_another_ledger_wakes_nobody() -> None:
    waiting = followers()
    waiting.wait("a", follow(0), 0.0)

    assert OTHER not in waiting
    assert waiting.on_lac(OTHER, EntryId(9), 99) == []
    assert waiting.on_end(OTHER, 99) == []
    assert ONE in waiting


def test_the_end_of_a_ledger_wakes_all() -> None:
    waiting = followers()
    waiting.wait("a", follow(5), 0.0)
    waiting.wait("b", follow(500), 0.0)

    assert clients_of(waiting.on_end(ONE, 99)) == "ab"
    assert ONE not in waiting


def test_a_wait_ends_at_most_a_tick_late_and_never_early() -> None:
    waiting = followers()
    waiting.wait("a", follow(0, wait_s=1.02), 100.0)

    assert 101.02 <= waiting.next_due_s <= 101.02 + TICK_S
    assert waiting.on_time(101.01, 99) == []
    assert clients_of(waiting.on_time(waiting.next_due_s, 99)) == "a"
    assert waiting.next_due_s == math.inf


def test_a_crowd_is_given_in_slices() -> None:
    waiting = followers()
    for client in "abcde":
        waiting.wait(client, follow(0), 0.0)

    assert clients_of(waiting.on_lac(ONE, EntryId(0), 2)) == "ab"
    assert clients_of(waiting.on_end(ONE, 1)) == "c"
    assert clients_of(waiting.on_time(99.0, 1)) == "d"
    assert clients_of(waiting.on_time(99.0, 2)) == "e"
    assert waiting.on_time(99.0, 2) == []


def test_nobody_waits_longer_than_allowed() -> None:
    waiting = followers(wait_s_max=5.0)
    waiting.wait("a", follow(0, wait_s=4_000_000), 0.0)

    assert waiting.next_due_s == 5.0


def test_waiters_are_bounded_for_each_client_and_for_all() -> None:
    waiting = followers(waiters_max=3, per_client=2)

    assert waiting.wait("a", follow(0), 0.0)
    assert waiting.wait("a", follow(0), 0.0)
    assert not waiting.wait("a", follow(0), 0.0)
    assert waiting.wait("b", follow(0), 0.0)
    assert not waiting.wait("c", follow(0), 0.0)
    waiting.forget("a")
    assert waiting.wait("c", follow(0), 0.0)


def test_repeated_follows_take_no_more_room() -> None:
    waiting = followers()
    for _ in range(1000):
        waiting.wait("a", follow(0), 0.0)
        waiting.on_lac(ONE, EntryId(0), 99)

    assert len(waiting) == 0
    assert repr(waiting) == "Followers(0 of 0 ledgers)"
    assert clients_of(waiting.on_time(1e6, 99)) == ""


@attrs.define
class NaiveFollowers:
    """One list, in order of arrival."""

    waiting: list[tuple[str, Follow, float]] = attrs.field(factory=list)

    def take(self, ledger: LedgerId, lac: int) -> list[tuple[str, Follow]]:
        return self._taken(
            [one for one in self.waiting if one[1].ledger == ledger and one[1].first <= lac]
        )

    def take_due(self, now_s: float) -> list[tuple[str, Follow]]:
        return self._taken([one for one in self.waiting if one[2] <= now_s])

    def cancel(self, client: str, request: int) -> bool:
        return bool(
            self._taken(
                [one for one in self.waiting if (one[0], one[1].request) == (client, request)]
            )
        )

    def forget(self, client: str) -> None:
        self.waiting = [one for one in self.waiting if one[0] != client]

    def _taken(self, gone: list[tuple[str, Follow, float]]) -> list[tuple[str, Follow]]:
        self.waiting = [one for one in self.waiting if one not in gone]
        return [(client, asked) for client, asked, _ in gone]


clients = st.sampled_from("abc")
ledgers = st.sampled_from([ONE, OTHER])
events = st.one_of(
    st.tuples(st.just("follow"), clients, ledgers, st.integers(0, 5), st.integers(1, 8)),
    st.tuples(st.just("lac"), st.just(""), ledgers, st.integers(-1, 5), st.just(0)),
    st.tuples(st.just("end"), st.just(""), ledgers, st.just(0), st.just(0)),
    st.tuples(st.just("time"), st.just(""), st.just(ONE), st.just(0), st.integers(1, 8)),
    st.tuples(st.just("gone"), clients, st.just(ONE), st.just(0), st.just(0)),
    st.tuples(st.just("cancel"), clients, st.just(ONE), st.integers(0, 20), st.just(0)),
)


@given(st.lists(events, max_size=50))
def test_followers_agree_with_the_naive_list(
    history: list[tuple[str, str, LedgerId, int, int]],
) -> None:
    waiting, naive, now_s = followers(), NaiveFollowers(), 0.0

    for number, (what, client, ledger, first, seconds) in enumerate(history):
        woken: list[WaitingFollow[str]] = []
        expected: list[tuple[str, Follow]] = []
        match what:
            case "follow":
                asked = follow(first, request=number, wait_s=seconds, ledger=ledger)
                assert waiting.wait(client, asked, now_s)
                naive.waiting.append((client, asked, now_s + seconds))
            case "lac":
                woken = waiting.on_lac(ledger, EntryId(first), 99)
                expected = naive.take(ledger, first)
            case "end":
                woken = waiting.on_end(ledger, 99)
                expected = naive.take(ledger, 1 << 60)
            case "time":
                now_s += seconds
                woken = waiting.on_time(now_s, 99)
                expected = naive.take_due(now_s)
            case "cancel":
                assert waiting.cancel(client, first) == naive.cancel(client, first)
            case _:
                waiting.forget(client)
                naive.forget(client)
        # Whole seconds are whole ticks, so both agree when time is up.
        found = [(waiter.client, waiter.follow) for waiter in woken]
        assert sorted(found, key=repr) == sorted(expected, key=repr)
        assert len(waiting) == len(naive.waiting)
        assert all(
            (ledger in waiting) == _is_waited_for(naive, ledger) for ledger in (ONE, OTHER)
        )


def _is_waited_for(naive: NaiveFollowers, ledger: LedgerId) -> bool:
    return any(asked.ledger == ledger for _, asked, _ in naive.waiting)
