"""Takeovers in random histories, and proof that the checks can fail."""

from collections import Counter

import pytest
from hypothesis import settings

from geolog.protocol.partition_state import PartitionState
from geolog.protocol.partition_takeover import (
    ClaimPartition,
    Effect,
    FailTakeover,
    GiveBack,
    PartitionTakeover,
    RecoverState,
)
from geolog.protocol.stream_state import SegmentRecord
from tests.pure.protocol.takeover_history import NAME, TakeoverHistory
from topology.errors import GeologError


def played(seed: int, core: type[PartitionTakeover] = PartitionTakeover) -> TakeoverHistory:
    history = TakeoverHistory(seed, core)
    try:
        history.run()
    except AssertionError as broken:
        broken.add_note(f"seed {seed}")
        raise
    return history


def test_a_takeover_ends_what_is_open_or_gives_the_partition_back() -> None:
    happened: Counter[str] = Counter()

    for seed in range(20 * settings().max_examples):
        happened.update(played(seed).happened)

    assert sorted(happened) == [
        "completed a segment",
        "cut off",
        "damaged",
        "lost to a rival",
        "taken",
        "taken while empty",
    ]


def test_a_failed_claim_leaves_nothing_to_give_back() -> None:
    core = PartitionTakeover(NAME)

    assert core.begin() == [ClaimPartition()]
    assert core.on_given_up() == []


class LeavesLedgersOpen(PartitionTakeover):
    """Goes on without closing what the predecessor left."""

    def on_last_segment(self, segment: SegmentRecord | None) -> list[Effect]:
        effects = super().on_last_segment(segment)
        return effects if segment is None else [RecoverState(segment)]


class KeepsItsClaim(PartitionTakeover):
    """Stays the owner after it failed."""

    def on_given_up(self) -> list[Effect]:
        return [] if self._last is not None else super().on_given_up()


class BelievesInDamage(PartitionTakeover):
    """Does not ask whether a rival has trimmed the log."""

    def on_log_broken(self, error: GeologError) -> list[Effect]:
        return [FailTakeover(error)]


class CompletesNothing(PartitionTakeover):
    """Leaves the segment without its end."""

    def on_state(self, state: PartitionState, *, now_us: int) -> list[Effect]:
        super().on_state(state, now_us=now_us)
        return []


PLANTED: dict[type[PartitionTakeover], str] = {
    LeavesLedgersOpen: "the log of an open ledger was read",
    KeepsItsClaim: "a claim was not given back",
    BelievesInDamage: "may be taken for damage",
    CompletesNothing: "segments without an end",
}


def play_until_broken(core: type[PartitionTakeover]) -> None:
    for seed in range(1000):
        played(seed, core)


@pytest.mark.parametrize("core", PLANTED, ids=lambda core: core.__name__)
def test_a_planted_bug_is_found(core: type[PartitionTakeover]) -> None:
    with pytest.raises(AssertionError, match=PLANTED[core]):
        play_until_broken(core)


def test_an_owner_waits_for_its_release_a_moment_only() -> None:
    core = PartitionTakeover(NAME)
    core.on_claimed(0)

    assert core.on_given_up() == [GiveBack(2.0)]
