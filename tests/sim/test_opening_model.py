"""Sessions of a named writer that open at once: the real cores keep the rules in all orders.

Each broken rule is found as well.
"""

import attrs
import pytest

from geolog.protocol.writer_opening import (
    FenceWriter,
    OpeningEffect,
    ReadPartitionCount,
    WriterOpening,
)
from sim.model import openings
from sim.model.opening_parts import (
    Log,
    LoggedFence,
    ModelPartition,
    ModelStanding,
    OpeningShape,
    Packet,
    known_fence,
    standing_of,
)
from sim.model.openings import OpeningState
from sim.model.search import search_all, walk

# A planted bug changes private state of the core that it breaks.
# ruff: noqa: SLF001

_GROWING = OpeningShape(takes_max=0)
_MOVING = OpeningShape(takes_max=1, rests_max=0)

Effects = list[OpeningEffect[ModelStanding]]


def test_sessions_that_open_while_partitions_grow_follow_each_other() -> None:
    searched = search_all(OpeningState.first(_GROWING))
    assert searched.broken == ""
    assert searched.is_closed
    assert searched.goals_count > 100


@pytest.mark.parametrize("seed", range(20))
def test_so_do_three_sessions_whose_partitions_change_owners(seed: int) -> None:
    shape = OpeningShape(
        sessions_count=3, partitions_max=3, takes_max=4, breaks_max=2, rests_max=3
    )
    for one in range(seed * 50, seed * 50 + 50):
        walked = walk(OpeningState.first(shape), one, steps_max=200)
        assert walked.broken == "", walked.way


class ForgetsFences(OpeningState):
    """Owners that keep fences in memory only."""

    def _take(self, place: int, kept: int) -> OpeningState:
        state = super()._take(place, kept)
        partition = state.partitions[place]
        log = tuple(one for one in partition.log if not isinstance(one, LoggedFence))
        return state.with_partition(place, ModelPartition(log, len(log), partition.outdated))


class RepeatsFromMemory(OpeningState):
    """Owners that answer a repeated fence without writing it again."""

    def _receive_late(self, packet: Packet, log: Log) -> OpeningState:
        request = packet.request
        if not isinstance(request, FenceWriter) or request.fence != known_fence(log):
            return super()._receive_late(packet, log)
        standing = standing_of(log)
        state = attrs.evolve(self, packets=self.packets - {packet})
        return state.told(
            packet.session, lambda core: core.on_fenced(packet.partition, standing)
        )


def test_a_fence_that_only_memory_holds_is_found() -> None:
    searched = search_all(ForgetsFences.first(_MOVING))
    assert searched.broken.startswith("S7:")


def test_a_repeat_answered_from_memory_is_found() -> None:
    searched = search_all(RepeatsFromMemory.first(_MOVING))
    assert searched.broken.startswith("S")


def test_equal_epochs_with_other_nonces_that_pass_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        openings, "may_fence", lambda known, _nonce, epoch, _other: epoch >= known
    )
    searched = search_all(OpeningState.first(_GROWING))
    assert searched.broken.startswith("S7:")


def test_a_number_of_partitions_read_before_the_last_fence_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_fence_answered = WriterOpening._on_fence_answered

    def open_at_once(core: WriterOpening[ModelStanding]) -> Effects:
        effects = on_fence_answered(core)
        if effects == [ReadPartitionCount()]:
            return [core._opened()]
        return effects

    monkeypatch.setattr(WriterOpening, "_on_fence_answered", open_at_once)
    searched = search_all(OpeningState.first(_GROWING))
    assert searched.broken.startswith("S")


def test_a_turn_that_fences_only_new_partitions_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fence = WriterOpening._fence_all

    def fence_new(core: WriterOpening[ModelStanding]) -> Effects:
        fenced = dict(core._standings) if core._fence.epoch > core._highest else {}
        effects = fence(core)
        core._standings = fenced
        return core._request(
            [
                one
                for one in effects
                if isinstance(one, FenceWriter) and one.partition not in fenced
            ]
        )

    monkeypatch.setattr(WriterOpening, "_fence_all", fence_new)
    searched = search_all(OpeningState.first(_GROWING))
    assert searched.broken.startswith("S")
