"""Owners shown in a session: every living one, and none that has left."""

import math
import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from geolog.protocol.owner_presence import (
    PAUSE_S_MAX,
    PAUSE_S_MIN,
    PAUSE_SHARE,
    REFUSED_PAUSE_S_MAX,
    SHOWN_AT_ONCE_MAX,
    Ask,
    OwnerPresence,
    Release,
    Show,
)

TIMEOUT_S = 6.0


def presence_of(*owners: str, shown_in: int = 1) -> OwnerPresence:
    presence = OwnerPresence(random.Random(0))
    for owner in owners:
        presence.on_claimed(owner)
        presence.on_taken(owner, shown_in)
    return presence


def miss(presence: OwnerPresence, now_s: float, timeout_s: float = 6.0) -> None:
    presence.on_missed(["a"], now_s, session_timeout_s=timeout_s)


def test_an_owner_is_shown_in_each_session_that_its_node_was_not_made_in() -> None:
    presence = presence_of("a", shown_in=1)

    assert presence.due(1, 0.0) == []
    assert presence.due(2, 0.0) == [Show(["a"])]
    presence.on_shown(["a"], 2)
    assert presence.due(2, 9.0) == []


def test_an_owner_with_unknown_session_is_shown() -> None:
    assert presence_of("a", shown_in=0).due(1, 0.0) == [Show(["a"])]


def test_a_thousand_owners_are_shown_in_few_concurrent_requests() -> None:
    asked = presence_of(*(f"{number}" for number in range(1000))).due(2, 0.0)

    sizes = [len(ask.owners) for ask in asked if isinstance(ask, Show)]
    assert sum(sizes) == 1000
    assert len(sizes) == 16
    assert max(sizes) == SHOWN_AT_ONCE_MAX


def test_an_owner_that_has_left_is_released_and_never_shown_again() -> None:
    presence = presence_of("a", "b")
    presence.on_left("a")

    assert presence.due(2, 0.0) == [Show(["b"]), Release("a")]
    presence.on_released("a")
    assert len(presence) == 1


def test_a_release_waits_for_the_showing_under_way() -> None:
    presence = presence_of("a")
    presence.due(2, 0.0)
    presence.on_left("a")

    assert presence.due(2, 0.0) == []
    presence.on_shown(["a"], 2)
    assert presence.due(2, 0.0) == [Release("a")]


def test_a_failing_release_is_repeated_less_and_less_often() -> None:
    presence = presence_of("a")
    presence.on_left("a")
    tried_s = []
    for tenths in range(1200):
        if presence.due(2, tenths / 10):
            tried_s.append(tenths / 10)
            miss(presence, tenths / 10)
    pauses_s = [later - earlier for earlier, later in pairwise(tried_s)]

    assert pauses_s[0] <= PAUSE_S_MIN + 0.1
    assert max(pauses_s) <= PAUSE_S_MAX + 0.1
    assert 120 / PAUSE_S_MAX <= len(tried_s) <= 120 / (PAUSE_S_MAX / 2) + 8


def test_a_new_session_resets_the_pauses() -> None:
    presence = presence_of("a")
    for _ in range(8):
        presence.due(2, 0.0)
        miss(presence, 0.0)

    assert presence.due(2, 0.0) == []
    assert presence.due(3, 0.0) == [Show(["a"])]


@pytest.mark.parametrize("timeout_s", [2.0, 6.0, 30.0])
def test_an_owner_is_not_hidden_for_long_once_it_can_be_shown(timeout_s: float) -> None:
    """This holds whatever failed before, because readers wait only half a time-out."""
    presence = presence_of("a")
    now_s = 0.0
    for _ in range(12):
        while not presence.due(2, now_s):
            now_s += 0.01
        miss(presence, now_s, timeout_s)

    assert presence.next_due_s(2) - now_s <= min(PAUSE_SHARE * timeout_s, PAUSE_S_MAX)


def test_a_connection_that_comes_back_resets_the_pauses() -> None:
    presence = presence_of("a")
    for _ in range(12):
        presence.due(2, 1000.0)
        presence.on_missed(["a"], 0.0, session_timeout_s=60.0)
    presence.on_connected(0.0)

    assert presence.next_due_s(2) <= PAUSE_S_MIN
    assert presence.due(2, PAUSE_S_MIN) == [Show(["a"])]


def test_owners_that_were_missed_together_are_shown_together() -> None:
    presence = presence_of("a", "b")
    presence.due(2, 0.0)
    presence.on_missed(["a", "b"], 0.0, session_timeout_s=TIMEOUT_S)

    assert presence.due(2, presence.next_due_s(2)) == [Show(["a", "b"])]


def test_a_claim_is_neither_shown_nor_released_until_its_outcome_is_known() -> None:
    presence = OwnerPresence(random.Random(0))
    presence.on_claimed("a")

    assert presence.due(2, 0.0) == []
    assert presence.next_due_s(2) == math.inf


def test_a_claim_in_doubt_is_released_and_never_shown() -> None:
    presence = OwnerPresence(random.Random(0))
    presence.on_claimed("a")
    presence.on_in_doubt("a")

    assert presence.due(2, 0.0) == [Release("a")]
    presence.on_released("a")
    assert len(presence) == 0


def test_a_refused_release_is_repeated_seldom_and_never_given_up() -> None:
    presence = presence_of("a")
    presence.on_left("a")
    now_s, tried_s = 0.0, []
    for _ in range(12):
        now_s = presence.next_due_s(1)
        assert presence.due(1, now_s) == [Release("a")]
        tried_s.append(now_s)
        presence.on_refused_release("a", now_s)
    pauses_s = [later - earlier for earlier, later in pairwise(tried_s)]

    assert REFUSED_PAUSE_S_MAX / 2 <= pauses_s[-1] <= REFUSED_PAUSE_S_MAX


def test_an_owner_that_could_not_be_shown_is_released_without_a_pause() -> None:
    presence = presence_of("a")
    presence.due(2, 0.0)
    miss(presence, 0.0)
    presence.on_left("a")

    assert presence.due(2, 0.0) == [Release("a")]


class ShownInTheEnd(RuleBasedStateMachine):
    """Sessions end, and answers fail or are lost; the plain model only knows who lives."""

    def __init__(self) -> None:
        super().__init__()
        self.presence = OwnerPresence(random.Random(0))
        self.session = 1
        self.now_s = 0.0
        self.store: dict[str, int] = {}
        self.living: set[str] = set()
        self.left: set[str] = set()
        self.under_way: list[tuple[Ask, int]] = []
        self.count = 0

    @rule(is_known=st.booleans())
    def take(self, is_known: bool) -> None:  # noqa: FBT001 - Hypothesis draws it.
        self.count += 1
        owner = f"{self.count}"
        self.store[owner] = self.session
        self.living.add(owner)
        self.presence.on_claimed(owner)
        self.presence.on_taken(owner, self.session if is_known else 0)

    @rule(is_met=st.booleans())
    def claim_in_vain(self, is_met: bool) -> None:  # noqa: FBT001 - Hypothesis draws it.
        """The outcome stays unknown, so an owner that may be there must go."""
        self.count += 1
        owner = f"{self.count}"
        if is_met:
            self.store[owner] = self.session
        self.left.add(owner)
        self.presence.on_claimed(owner)
        self.presence.on_in_doubt(owner)

    @rule()
    def claim_what_another_has(self) -> None:
        self.count += 1
        self.presence.on_claimed(f"{self.count}")
        self.presence.on_refused(f"{self.count}")

    @rule()
    def come_back(self) -> None:
        """The connection comes back in the same session."""
        self.presence.on_connected(self.now_s)

    def miss(self, owners: Sequence[str]) -> None:
        self.presence.on_missed(owners, self.now_s, session_timeout_s=TIMEOUT_S)

    @precondition(lambda self: self.living)
    @rule(rng=st.randoms(use_true_random=False))
    def leave(self, rng: random.Random) -> None:
        owner = rng.choice(sorted(self.living))
        self.living.discard(owner)
        self.left.add(owner)
        self.presence.on_left(owner)

    @rule()
    def lose_session(self) -> None:
        self.store = {owner: one for owner, one in self.store.items() if one != self.session}
        self.session += 1

    @rule(after_s=st.sampled_from([0.0, 0.1, 1.0, 5.0]))
    def ask(self, after_s: float) -> None:
        self.now_s += after_s
        for ask in self.presence.due(self.session, self.now_s):
            asked = ask.owners if isinstance(ask, Show) else [ask.owner]
            assert set(asked) <= (self.living if isinstance(ask, Show) else self.left)
            self.under_way.append((ask, self.session))
        named = [
            owner
            for ask, _ in self.under_way
            for owner in (ask.owners if isinstance(ask, Show) else [ask.owner])
        ]
        assert len(named) == len(set(named)), "an owner is in two requests"

    @precondition(lambda self: self.under_way)
    @rule(outcome=st.sampled_from(["done", "done", "lost", "failed"]))
    def answer(self, outcome: str) -> None:
        ask, session = self.under_way.pop(0)
        is_done = outcome != "failed" and session == self.session
        is_told = is_done and outcome == "done"
        match ask:
            case Show(owners):
                if is_done:
                    self.store |= dict.fromkeys(owners, session)
                if is_told:
                    self.presence.on_shown(owners, session)
                else:
                    self.miss(owners)
            case Release(owner):
                if is_done:
                    self.store.pop(owner, None)
                if is_told:
                    self.presence.on_released(owner)
                    self.left.discard(owner)
                else:
                    self.miss([owner])

    @invariant()
    def all_is_well_in_the_end(self) -> None:
        """Once requests are answered, the store holds exactly the living owners."""
        if self.under_way or self.count % 4:
            return
        self.now_s += PAUSE_S_MAX
        self.ask(0.0)
        while self.under_way:
            self.answer("done")
        assert self.store == dict.fromkeys(self.living, self.session)


TestShownInTheEnd = ShownInTheEnd.TestCase
TestShownInTheEnd.settings = settings(stateful_step_count=30)
