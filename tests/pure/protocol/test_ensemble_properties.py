"""The law of ensemble changes over random histories, and proof that the check can fail."""

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


def test_acknowledged_entries_are_where_metadata_says_over_random_histories() -> None:
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
    """Planted bug 6: confirmations of a replaced member count for its successor."""

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
            if "was acknowledged, but of its members" not in str(broken):
                raise
            return seed
    return None


@pytest.mark.parametrize("name", sorted(PLANTED))
def test_a_planted_bug_loses_acknowledged_entries_and_is_found(name: str) -> None:
    assert seed_that_shows(PLANTED[name]) is not None


@pytest.mark.long
def test_the_same_check_finds_nothing_without_a_planted_bug() -> None:
    assert seed_that_shows(Variant()) is None
