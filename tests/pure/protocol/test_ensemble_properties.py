"""The law of ensemble changes over random histories, and proof that it can be broken."""

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import settings

from geolog.protocol.add_window import AddWindow, AdvanceLac
from tests.pure.protocol.ensemble_history import History, Variant
from topology.quorum import AckRule


def played(seed: int, variant: Variant) -> History:
    history = History(seed, variant)
    try:
        history.run()
    except AssertionError as broken:
        broken.add_note(f"seed {seed}")
        raise
    return history


def test_what_is_acknowledged_is_where_metadata_says_over_random_histories() -> None:
    sometimes: Counter[str] = Counter()

    for seed in range(10 * settings().max_examples):
        sometimes += played(seed, Variant()).sometimes

    assert set(sometimes) == {
        "a replaced member answered late",
        "acknowledged while a change was out",
        "it was given up",
        "it was tried again",
        "members were replaced",
        "the last fragment gave way",
    }


class Remembers(AddWindow):
    """Planted bug 6: what a replaced member confirmed counts for the one that has its slot."""

    def change(self, rule: AckRule, slots: Iterable[int]) -> list[AdvanceLac]:
        confirmed = list(self._confirmed)
        effects = super().change(rule, slots)
        for place, mask in enumerate(confirmed[len(confirmed) - len(self._confirmed) :]):
            self._confirmed[place] |= mask
        return effects + self._release_acked_prefix()


PLANTED = {
    "an ack of an instance no longer in the fragment": Variant(window=Remembers),
    "a late answer of an instance no longer in the fragment": Variant(
        are_late_answers_dropped=False
    ),
    "a new fragment that starts at the LAC": Variant(starts_above_lac=0),
    "acknowledged before the change was stored": Variant(does_hold=False),
}


def seed_that_shows(variant: Variant) -> int | None:
    for seed in range(1000):
        try:
            played(seed, variant)
        except AssertionError as broken:
            if "was acknowledged, and of its members" not in str(broken):
                raise
            return seed
    return None


@pytest.mark.parametrize("name", sorted(PLANTED))
def test_a_planted_bug_loses_what_was_acknowledged_and_is_found(name: str) -> None:
    assert seed_that_shows(PLANTED[name]) is not None


def test_the_same_eye_finds_nothing_where_nothing_is_planted() -> None:
    assert seed_that_shows(Variant()) is None
