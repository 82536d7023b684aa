"""A process is shown in each session, and every owner that has left is released."""

import math
import random
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from geolog.protocol.owner_presence import (
    NO_SESSION,
    PAUSE_S_MAX,
    PAUSE_S_MIN,
    PAUSE_SHARE,
    REFUSED_PAUSE_S_MAX,
    Ask,
    Confirm,
    OwnerPresence,
    Release,
    Show,
)

TIMEOUT_S = 6.0


def presence_of(*owners: str, shown_in: int = 1) -> OwnerPresence:
    """A process with these owners, shown and confirmed in that session."""
    presence = OwnerPresence(random.Random(0))
    presence.on_wanted()
    presence.on_shown(shown_in)
    for owner in owners:
        presence.on_claimed(owner)
        presence.on_taken(owner, shown_in)
    return presence


def show(presence: OwnerPresence, session: int, now_s: float = 0.0) -> None:
    """Carry out a `Show` that is under way."""
    presence.on_shown(session)
    end_show(presence, now_s, is_done=True)


def end_show(
    presence: OwnerPresence,
    now_s: float,
    *,
    is_done: bool = False,
    timeout_s: float = TIMEOUT_S,
) -> None:
    presence.on_show_ended(now_s, is_done=is_done, session_timeout_s=timeout_s)


def test_a_process_is_shown_once_it_wants_to_claim_a_partition() -> None:
    presence = OwnerPresence(random.Random(0))

    assert presence.due(1, 0.0) == []
    assert presence.next_due_s(1) == math.inf
    presence.on_wanted()
    assert presence.due(1, 0.0) == [Show()]


def test_a_process_is_shown_in_each_session_by_one_request() -> None:
    presence = presence_of(*(f"{number}" for number in range(1000)))

    assert presence.due(1, 0.0) == []
    assert presence.due(2, 0.0) == [Show()]
    show(presence, 2)
    assert presence.due(2, 0.0) == [Confirm([f"{number}" for number in range(1000)])]
    presence.on_confirmed([f"{number}" for number in range(1000)], 2)
    assert presence.due(2, 9.0) == []


def test_a_process_without_owners_stays_shown() -> None:
    presence = presence_of("a")
    presence.on_left("a")
    assert presence.due(1, 0.0) == [Release("a")]
    presence.on_released("a")

    assert presence.due(2, 0.0) == [Show()]


def test_a_node_that_may_be_gone_is_made_again() -> None:
    presence = presence_of("a")
    presence.on_absent()

    assert presence.is_hidden(1)
    assert presence.due(1, 0.0) == [Show()]


def test_owners_are_confirmed_only_once_the_process_is_shown() -> None:
    """Readers count the time until then."""
    presence = presence_of("a")
    presence.due(2, 0.0)
    end_show(presence, 0.0)

    assert presence.due(2, PAUSE_S_MIN) == [Show()]


def test_an_owner_with_unknown_session_is_confirmed() -> None:
    presence = presence_of()
    presence.on_claimed("a")
    presence.on_taken("a", NO_SESSION)

    assert presence.due(1, 0.0) == [Confirm(["a"])]


def test_an_owner_that_has_left_is_released_and_never_confirmed_again() -> None:
    presence = presence_of("a", "b")
    presence.on_left("a")

    assert presence.due(2, 0.0) == [Show(), Release("a")]
    show(presence, 2)
    presence.on_released("a")
    assert presence.due(2, 0.0) == [Confirm(["b"])]


def test_a_release_waits_for_the_confirmation_under_way() -> None:
    presence = presence_of("a")
    presence.on_shown(2)
    assert presence.due(2, 0.0) == [Confirm(["a"])]
    presence.on_left("a")

    assert presence.due(2, 0.0) == []
    presence.on_confirmed(["a"], 2)
    assert presence.due(2, 0.0) == [Release("a")]


def test_a_failing_release_is_repeated_less_and_less_often() -> None:
    presence = presence_of("a")
    presence.on_left("a")
    tried_s = []
    for tenths in range(1200):
        if presence.due(1, tenths / 10):
            tried_s.append(tenths / 10)
            presence.on_missed(["a"], tenths / 10)
    pauses_s = [later - earlier for earlier, later in pairwise(tried_s)]

    assert pauses_s[0] <= PAUSE_S_MIN + 0.1
    assert max(pauses_s) <= PAUSE_S_MAX + 0.1
    assert 120 / PAUSE_S_MAX <= len(tried_s) <= 120 / (PAUSE_S_MAX / 2) + 8


def test_a_new_session_resets_the_pauses() -> None:
    presence = presence_of("a")
    presence.on_left("a")
    for _ in range(8):
        presence.due(2, 0.0)
        end_show(presence, 0.0)
        presence.on_missed(["a"], 0.0)

    assert presence.due(2, 0.0) == []
    assert presence.due(3, 0.0) == [Show(), Release("a")]


@pytest.mark.parametrize("timeout_s", [2.0, 6.0, 30.0])
def test_a_process_is_not_hidden_for_long_once_it_can_be_shown(timeout_s: float) -> None:
    """This holds whatever failed before, because readers wait only half a time-out."""
    presence = presence_of("a")
    now_s = 0.0
    for _ in range(12):
        while not presence.due(2, now_s):
            now_s += 0.01
        end_show(presence, now_s, timeout_s=timeout_s)

    assert presence.next_due_s(2) - now_s <= min(PAUSE_SHARE * timeout_s, PAUSE_S_MAX)


def test_a_connection_that_comes_back_resets_the_pauses() -> None:
    presence = presence_of("a")
    for _ in range(12):
        presence.due(2, 1000.0)
        end_show(presence, 0.0, timeout_s=60.0)
    presence.on_connected(0.0)

    assert presence.next_due_s(2) <= PAUSE_S_MIN
    assert presence.due(2, PAUSE_S_MIN) == [Show()]


def test_owners_that_were_missed_together_are_confirmed_together() -> None:
    presence = presence_of("a", "b")
    presence.on_shown(2)
    presence.due(2, 0.0)
    presence.on_missed(["a", "b"], 0.0)

    assert presence.due(2, presence.next_due_s(2)) == [Confirm(["a", "b"])]


def test_a_claim_is_neither_confirmed_nor_released_until_its_outcome_is_known() -> None:
    presence = presence_of()
    presence.on_claimed("a")
    presence.on_shown(2)

    assert presence.due(2, 0.0) == []
    assert presence.next_due_s(2) == math.inf


def test_a_claim_in_doubt_is_released_and_never_confirmed() -> None:
    presence = presence_of()
    presence.on_claimed("a")
    presence.on_in_doubt("a")

    assert presence.due(1, 0.0) == [Release("a")]
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


def test_an_owner_that_could_not_be_confirmed_is_released_without_a_pause() -> None:
    presence = presence_of("a")
    presence.on_shown(2)
    presence.due(2, 0.0)
    presence.on_missed(["a"], 0.0)
    presence.on_left("a")

    assert presence.due(2, 0.0) == [Release("a")]


class ShownInTheEnd(RuleBasedStateMachine):
    """Sessions end, and answers fail or are lost; the plain model is metadata itself."""

    def __init__(self) -> None:
        super().__init__()
        self.presence = OwnerPresence(random.Random(0))
        self.session = 1
        self.now_s = 0.0
        self.count = 0
        self.node_session: int | None = None
        """The session whose node metadata has."""
        self.records: set[str] = set()
        """Owners whose records name the node."""
        self.living: set[str] = set()
        self.deposed: set[str] = set()
        """Owners that live, as far as they know, without a record."""
        self.left: set[str] = set()
        self.under_way: list[tuple[Ask, int]] = []

    def new_owner(self) -> str:
        self.count += 1
        self.presence.on_claimed(f"{self.count}")
        return f"{self.count}"

    def make_node(self, *, is_told: bool = True) -> None:
        self.node_session = self.session
        if is_told:
            self.presence.on_shown(self.session)

    @rule(is_known=st.booleans())
    def take(self, is_known: bool) -> None:  # noqa: FBT001 - Hypothesis draws it.
        self.presence.on_wanted()
        if self.presence.is_hidden(self.session):
            self.make_node()
        owner = self.new_owner()
        self.records.add(owner)
        self.living.add(owner)
        self.presence.on_taken(owner, self.session if is_known else NO_SESSION)

    @rule(is_met=st.booleans())
    def claim_in_vain(self, is_met: bool) -> None:  # noqa: FBT001 - Hypothesis draws it.
        """The outcome stays unknown, so an owner that may be there must go."""
        self.presence.on_wanted()
        owner = self.new_owner()
        if is_met:
            self.records.add(owner)
        self.left.add(owner)
        self.presence.on_in_doubt(owner)

    @rule()
    def claim_what_another_has(self) -> None:
        self.presence.on_refused(self.new_owner())

    @precondition(lambda self: self.living)
    @rule(rng=st.randoms(use_true_random=False))
    def lose_partition(self, rng: random.Random) -> None:
        owner = rng.choice(sorted(self.living))
        self.records.discard(owner)
        self.deposed.add(owner)

    @rule()
    def come_back(self) -> None:
        """The connection comes back in the same session."""
        self.presence.on_connected(self.now_s)

    @precondition(lambda self: self.living)
    @rule(rng=st.randoms(use_true_random=False))
    def leave(self, rng: random.Random) -> None:
        self.make_leave(rng.choice(sorted(self.living)))

    @precondition(lambda self: self.living - self.deposed)
    @rule(rng=st.randoms(use_true_random=False))
    def give(self, rng: random.Random) -> None:
        """A successor's claim replaces the owner's; an answer may be under way."""
        owner = rng.choice(sorted(self.living - self.deposed))
        self.living.discard(owner)
        self.records.discard(owner)
        self.presence.on_given(owner)

    def make_leave(self, owner: str) -> None:
        self.living.discard(owner)
        self.deposed.discard(owner)
        self.left.add(owner)
        self.presence.on_left(owner)

    @rule()
    def lose_session(self) -> None:
        if self.node_session == self.session:
            self.node_session = None
        self.session += 1

    @rule()
    def lose_node(self) -> None:
        """An operator deletes it, and a claim finds that out."""
        self.node_session = None
        self.presence.on_absent()

    @rule(after_s=st.sampled_from([0.0, 0.1, 1.0, 5.0]))
    def ask(self, after_s: float) -> None:
        self.now_s += after_s
        for ask in self.presence.due(self.session, self.now_s):
            match ask:
                case Show():
                    assert self.presence.is_hidden(self.session)
                case Confirm(owners):
                    assert set(owners) <= self.living
                case Release(owner):
                    assert owner in self.left
            self.under_way.append((ask, self.session))
        named = [name for ask, _ in self.under_way for name in names_of(ask)]
        assert len(named) == len(set(named)), "two requests for one thing"

    @precondition(lambda self: self.under_way)
    @rule(outcome=st.sampled_from(["done", "done", "lost", "failed"]))
    def answer(self, outcome: str) -> None:
        ask, session = self.under_way.pop(0)
        is_done = outcome != "failed" and session == self.session
        is_told = is_done and outcome == "done"
        match ask:
            case Show():
                if is_done:
                    self.make_node(is_told=is_told)
                end_show(self.presence, self.now_s, is_done=is_told)
            case Confirm(owners) if is_told:
                for owner in self.deposed.intersection(owners):
                    self.make_leave(owner)
                self.presence.on_confirmed(owners, session)
            case Release(owner) if is_done:
                self.records.discard(owner)
                if is_told:
                    self.presence.on_released(owner)
                    self.left.discard(owner)
                else:
                    self.presence.on_missed([owner], self.now_s)
            case Confirm() | Release():
                self.presence.on_missed(names_of(ask), self.now_s)

    @invariant()
    def all_is_well_in_the_end(self) -> None:
        """Once requests are answered, metadata shows exactly the living owners."""
        if self.under_way or self.count % 4:
            return
        before = self.session
        for _ in range(3):  # Show; confirm; release the deposed.
            self.now_s += PAUSE_S_MAX
            self.ask(0.0)
            while self.under_way:
                self.answer("done")
        assert self.session == before
        assert self.presence.next_due_s(self.session) == math.inf
        assert not self.left
        assert self.records == self.living - self.deposed
        if self.presence.is_wanted:
            assert self.node_session == self.session


def names_of(ask: Ask) -> list[str]:
    match ask:
        case Show():
            return ["the node"]
        case Confirm(owners):
            return list(owners)
        case Release(owner):
            return [owner]


TestShownInTheEnd = ShownInTheEnd.TestCase
TestShownInTheEnd.settings = settings(stateful_step_count=30)
