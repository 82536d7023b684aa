"""Readers give a missing owner a grace period, and one that left none."""

from collections.abc import Sequence

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.ids import Epoch
from geolog.protocol.owner_absence import (
    GRACE_SHARE,
    REMEMBERED_MAX,
    OwnerAbsences,
    OwnerLook,
    OwnerSeen,
)

TIMEOUT_S = 6.0
GRACE_S = TIMEOUT_S * GRACE_SHARE
SEEN = {"a": OwnerSeen.ALIVE, "m": OwnerSeen.MISSING, "l": OwnerSeen.LEFT}


@attrs.frozen
class Look:
    """A reader's look for the owner, and the time since the look before."""

    after_s: float
    partition: str
    epoch: Epoch
    seen: OwnerSeen
    changes_count: int = 0

    @property
    def found(self) -> OwnerLook:
        return OwnerLook(self.epoch, self.seen, self.changes_count)


def verdicts(looks: Sequence[Look]) -> list[bool]:
    absences: OwnerAbsences[str] = OwnerAbsences()
    now_s, found = 0.0, []
    for look in looks:
        now_s += look.after_s
        found.append(
            absences.on_look(
                look.partition, look.found, now_s=now_s, session_timeout_s=TIMEOUT_S
            )
        )
    return found


def of_one(notation: str, *, every_s: float) -> str:
    """Looks at one owner, one letter each, to verdicts: R to recover, a dot to wait."""
    looks = [Look(every_s, "p", Epoch(1), SEEN[letter]) for letter in notation]
    return "".join("R" if recovers else "." for recovers in verdicts(looks))


@pytest.mark.parametrize(
    ("seen", "done"),
    [
        ("aaaaaa", "......"),
        ("mmmmmm", "...RRR"),  # After a grace of three seconds.
        ("l", "R"),
        ("mml", "..R"),
        ("mmammmm", "......R"),  # It was back: the grace starts over.
    ],
)
def test_a_missing_owner_gets_a_grace_and_one_that_left_gets_none(seen: str, done: str) -> None:
    assert of_one(seen, every_s=1.0) == done


def test_a_reader_that_asks_seldom_still_gets_its_answer() -> None:
    assert of_one("mmm", every_s=9.0) == ".RR"
    assert of_one("mmm", every_s=900.0) == ".RR"


@pytest.mark.parametrize("after_s", [4.0, 50.0, 1e6])
def test_an_owner_that_came_back_unseen_gets_the_grace_again(after_s: float) -> None:
    first = Look(0.0, "p", Epoch(1), SEEN["m"], changes_count=2)
    again = Look(after_s, "p", Epoch(1), SEEN["m"], changes_count=4)

    assert verdicts([first, again]) == [False, False]


def test_readers_remember_a_bounded_number_of_missing_owners() -> None:
    absences: OwnerAbsences[int] = OwnerAbsences()
    for number in range(REMEMBERED_MAX + 10):
        missing = OwnerLook(Epoch(1), OwnerSeen.MISSING)
        absences.on_look(number, missing, now_s=0.0, session_timeout_s=TIMEOUT_S)

    assert len(absences) == REMEMBERED_MAX


def test_the_next_owner_gets_a_grace_of_its_own() -> None:
    missing = [Look(2.0, "p", Epoch(1 if turn < 3 else 2), SEEN["m"]) for turn in range(6)]

    assert verdicts(missing) == [False, False, True, False, False, True]


def test_readers_wait_less_than_a_session_time_out() -> None:
    assert 0 < GRACE_S < TIMEOUT_S


def naive_verdicts(looks: Sequence[Look]) -> list[bool]:
    """The same verdicts, found by walking back over all looks from each."""
    at_s = [sum(look.after_s for look in looks[: end + 1]) for end in range(len(looks))]
    found = []
    for end, look in enumerate(looks):
        since_s = at_s[end]
        for earlier in range(end - 1, -1, -1):
            before = looks[earlier]
            if before.partition != look.partition:
                continue
            if before.found != look.found:
                break
            since_s = at_s[earlier]
        is_over = look.seen is OwnerSeen.MISSING and at_s[end] - since_s >= GRACE_S
        found.append(is_over or look.seen is OwnerSeen.LEFT)
    return found


looks = st.builds(
    Look,
    st.sampled_from([0.0, 0.5, 1.0, 2.5, 3.0, 61.0]),
    st.sampled_from("pq"),
    st.sampled_from([Epoch(1), Epoch(2)]),
    st.sampled_from([OwnerSeen.MISSING] * 4 + [OwnerSeen.ALIVE, OwnerSeen.LEFT]),
    st.sampled_from([0, 0, 0, 2]),
)


@given(st.lists(looks, max_size=12))
def test_verdicts_agree_with_a_walk_back_over_all_looks(history: list[Look]) -> None:
    assert verdicts(history) == naive_verdicts(history)


@given(st.lists(looks, max_size=30))
def test_only_owners_that_are_missing_are_remembered(history: list[Look]) -> None:
    absences: OwnerAbsences[str] = OwnerAbsences()
    for look in history:
        absences.on_look(look.partition, look.found, now_s=0.0, session_timeout_s=TIMEOUT_S)
    last = {look.partition: look.seen for look in history}

    assert len(absences) == sum(seen is OwnerSeen.MISSING for seen in last.values())
