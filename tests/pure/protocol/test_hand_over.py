"""Hand-overs in random histories against a naive store, and proof that the checks can fail."""

import random
from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import settings

from geolog.protocol.hand_over import (
    GROUP_PARTITIONS_MAX,
    Effect,
    End,
    Give,
    HandOver,
    JudgeGive,
    Leave,
    Outcome,
    PauseBeforeRetry,
    Standing,
)
from geolog.protocol.stream_state import PartitionName, StreamName

NAMES = [PartitionName(StreamName.parse("shop/orders"), number) for number in range(1000)]
US = "us"
RIVAL = "a rival"


class HandOverHistory:
    """A core and a naive store: one owner per partition, and the offers that stand."""

    def __init__(self, seed: int, core: type[HandOver] = HandOver) -> None:
        self.rng = rng = random.Random(seed)
        offers = [f"offer {number}" for number in range(rng.randint(0, 4))]
        self.names = NAMES[: rng.choice([0, 1, 5, 64, 65, 200])]
        self.wishes = {
            name: rng.sample(offers, rng.randint(0, len(offers))) for name in self.names
        }
        self.offers = set(offers)
        self.owners = dict.fromkeys(self.names, US)
        self.takes_appends = set(self.names)
        self.left: set[PartitionName] = set()
        self.stopped: set[PartitionName] = set()
        """Those whose ledgers were not closed in time."""
        self.under_way: list[Effect] = []
        self.trouble = rng.choice([0.0, 0.1, 0.4])
        self.happened: Counter[str] = Counter()
        self.core = core(self.wishes)

    def run(self) -> None:
        """Perform effects in random order, until none is left."""
        self._add(self.core.begin())
        steps_count = 0
        while self.under_way:
            steps_count += 1
            assert steps_count < 5_000, "the hand-over does not end"
            self._disturb()
            place = self.rng.randrange(len(self.under_way))
            self._add(self._perform(self.under_way.pop(place)))
        self._check_end()

    def _add(self, effects: Iterable[Effect]) -> None:
        self.under_way += effects
        names = [name for effect in self.under_way for name in _names_of(effect)]
        assert len(names) == len(set(names)), "a partition is in two requests"
        for effect in self.under_way:
            assert len(_names_of(effect)) <= GROUP_PARTITIONS_MAX

    def _disturb(self) -> None:
        if self.rng.random() < self.trouble / 4 and self.offers:
            self.offers.discard(self.rng.choice(sorted(self.offers)))
            self.happened["an offer withdrawn"] += 1
        if self.rng.random() < self.trouble and self.names:
            name = self.rng.choice(self.names)
            if name not in self.takes_appends:
                self.owners[name] = RIVAL
                self.happened["taken by a rival"] += 1

    def _perform(self, effect: Effect) -> list[Effect]:
        rng = self.rng
        match effect:
            case End(names=names):
                ended = [name for name in names if rng.random() >= self.trouble / 4]
                stopped = [name for name in names if rng.random() < self.trouble / 4]
                self.stopped |= set(stopped) - set(ended)
                self.takes_appends -= {*ended, *stopped}
                return self.core.on_ended(effect, ended, stopped)
            case Give(offer, names):
                assert self.takes_appends.isdisjoint(names), "given before it has ended"
                fits = offer in self.offers and all(self.owners[one] == US for one in names)
                arrives = rng.random() >= self.trouble / 2
                if fits and arrives:
                    self.owners.update(dict.fromkeys(names, offer))
                if not arrives or rng.random() < self.trouble:
                    self.happened["an answer lost"] += 1
                    return self.core.on_doubt(effect)
                return self.core.on_given(effect) if fits else self.core.on_refused(effect)
            case JudgeGive(give):
                if rng.random() < self.trouble:
                    return self.core.on_unreadable(effect)
                found = {name: self._standing(name, give.offer) for name in give.names}
                return self.core.on_found(effect, found)
            case PauseBeforeRetry(then=then):
                return [then]
            case Leave(names):
                self.left |= set(names)
                return []

    def _standing(self, name: PartitionName, offer: str) -> Standing:
        owner = self.owners[name]
        if owner == US:
            return Standing.OURS
        return Standing.GIVEN if owner == offer else Standing.OTHERS

    def _check_end(self) -> None:
        outcomes = self.core.outcomes
        assert outcomes.keys() == set(self.names)
        for name, outcome in outcomes.items():
            self.happened[outcome.name] += 1
            owner = self.owners[name]
            if owner not in (US, RIVAL):
                assert outcome is Outcome.GIVEN, "a partition given unnoticed"
            match outcome:
                case Outcome.GIVEN:
                    assert owner in (self.core.given_to[name], RIVAL), "not given"
                case Outcome.LOST:
                    assert owner == RIVAL, "not lost"
                case Outcome.KEPT:
                    assert owner == US, "not kept"
                    assert name in self.takes_appends, "ended, without an owner that leaves"
                case Outcome.LEFT if name in self.stopped:
                    self.happened["stopped too late"] += 1
                case Outcome.LEFT:
                    assert name in self.left, "ended, without an owner that leaves"
                    assert not self.offers & set(self.wishes[name]), "a successor is there"


def _names_of(effect: Effect) -> tuple[PartitionName, ...]:
    match effect:
        case End(names=names) | Give(names=names) | Leave(names=names):
            return names
        case JudgeGive(give):
            return give.names
        case PauseBeforeRetry(then=then):
            return _names_of(then)


def played(seed: int, core: type[HandOver] = HandOver) -> HandOverHistory:
    history = HandOverHistory(seed, core)
    try:
        history.run()
    except AssertionError as broken:
        broken.add_note(f"seed {seed}")
        raise
    return history


def test_every_partition_ends_with_the_outcome_that_metadata_has() -> None:
    happened: Counter[str] = Counter()

    for seed in range(20 * settings().max_examples):
        happened.update(played(seed).happened)

    assert sorted(happened) == [
        "GIVEN",
        "KEPT",
        "LEFT",
        "LOST",
        "an answer lost",
        "an offer withdrawn",
        "stopped too late",
        "taken by a rival",
    ]


def test_a_thousand_partitions_go_in_sixteen_multis() -> None:
    core = HandOver({name: ["best"] for name in NAMES})
    (effect,) = core.begin()
    gives_count = 0
    while True:
        assert isinstance(effect, End)
        (give,) = core.on_ended(effect, effect.names)
        assert isinstance(give, Give)
        gives_count += 1
        following = core.on_given(give)
        if not following:
            break
        (effect,) = following

    assert gives_count == 16
    assert set(core.outcomes.values()) == {Outcome.GIVEN}


def test_a_partition_without_a_successor_goes_on() -> None:
    core = HandOver({NAMES[0]: []})

    assert core.begin() == []
    assert core.outcomes == {NAMES[0]: Outcome.KEPT}


def test_a_withdrawn_offer_moves_what_has_ended_and_what_has_not() -> None:
    names = tuple(NAMES[: GROUP_PARTITIONS_MAX + 1])
    core = HandOver({name: ["best", "next"] for name in names})
    (end,) = core.begin()
    assert isinstance(end, End)
    (give,) = core.on_ended(end, end.names)
    assert isinstance(give, Give)
    (look,) = core.on_refused(give)
    assert isinstance(look, JudgeGive)

    assert core.on_found(look, dict.fromkeys(give.names, Standing.OURS)) == [
        Give("next", names[:-1])
    ]
    assert core.on_given(Give("next", names[:-1])) == [End("next", names[-1:])]


class GivesWithoutEnding(HandOver):
    """Gives partitions whose appends are not answered yet."""

    def on_ended(
        self,
        end: End,
        ended: Iterable[PartitionName],
        stopped: Iterable[PartitionName] = (),
    ) -> list[Effect]:
        del ended
        return super().on_ended(end, end.names, stopped)


class TrustsRefusals(HandOver):
    """Takes a lost answer for a refusal."""

    def on_doubt(self, give: Give) -> list[Effect]:
        return self._on_withdrawn(give)


class NeverLeaves(HandOver):
    """Forgets the partitions whose successors are all gone."""

    def _on_withdrawn(self, give: Give) -> list[Effect]:
        return [
            effect for effect in super()._on_withdrawn(give) if not isinstance(effect, Leave)
        ]


@pytest.mark.parametrize("broken", [GivesWithoutEnding, TrustsRefusals, NeverLeaves])
def test_broken_hand_overs_are_found(broken: type[HandOver]) -> None:
    with pytest.raises(AssertionError):
        play_many(broken)


def play_many(broken: type[HandOver]) -> None:
    for seed in range(400):
        played(seed, broken)
