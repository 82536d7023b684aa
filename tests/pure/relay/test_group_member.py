"""Members of a relay group, against a model of the metadata that they share."""

import random

import attrs
from hypothesis import given
from hypothesis import strategies as st

from relay.protocol.group_member import (
    BeginCoordinating,
    ClaimEpoch,
    GroupEffect,
    GroupMember,
    GroupRole,
    GroupView,
    StopCoordinating,
)


def member(number: int, members: tuple[int, ...], view: GroupView) -> GroupMember:
    core = GroupMember(number)
    core.on_seen(members, view, now_s=0)
    return core


def test_the_first_member_claims_the_first_epoch_and_then_coordinates() -> None:
    core = GroupMember(4)

    assert core.on_seen((4, 7), GroupView(), now_s=0) == [
        ClaimEpoch(GroupView(), 1, is_of_silence=False)
    ]
    view = GroupView(epoch=1, coordinator=4)
    assert core.on_seen((4, 7), view, now_s=0) == []  # The answer is still to come.
    assert core.on_claim_ended(now_s=0) == [BeginCoordinating(1)]
    assert (core.role, core.coordinates_in) == (GroupRole.COORDINATOR, 1)


def test_the_second_is_the_standby_and_claims_when_the_coordinator_is_gone() -> None:
    view = GroupView(epoch=1, coordinator=4)
    standby, waiting = member(7, (4, 7, 9), view), member(9, (4, 7, 9), view)

    assert (standby.role, waiting.role) == (GroupRole.STANDBY, GroupRole.WAITING)
    assert standby.on_seen((7, 9), view, now_s=0) == [ClaimEpoch(view, 2, is_of_silence=False)]
    assert waiting.on_seen((7, 9), view, now_s=0) == []
    assert waiting.role is GroupRole.WAITING


def test_a_suspected_coordinator_is_succeeded_early_and_a_suspected_standby_passed_over() -> (
    None
):
    view = GroupView(epoch=3, coordinator=4)

    def suspected(number: int, dead: set[int], silent: set[int]) -> list[GroupEffect]:
        core = member(number, (4, 7, 9), view)
        return core.on_suspected(dead=dead, silent=silent, now_s=1)

    assert suspected(7, {4}, set()) == [ClaimEpoch(view, 4, is_of_silence=False)]
    assert suspected(7, set(), {4}) == [ClaimEpoch(view, 4, is_of_silence=True)]
    assert suspected(9, {4}, set()) == []
    assert suspected(9, {4}, {7}) == [ClaimEpoch(view, 4, is_of_silence=False)]


def test_a_death_that_is_noted_is_judged_by_the_next_view() -> None:
    core = member(9, (4, 7, 9), GroupView(epoch=1, coordinator=4))
    later = GroupView(epoch=2, coordinator=7)

    core.note_suspected(dead={4}, silent=set())
    assert core.on_seen((7, 9), later, now_s=1) == []

    core.note_suspected(dead={7}, silent=set())
    assert core.on_seen((7, 9), later, now_s=2) == [ClaimEpoch(later, 3, is_of_silence=False)]


def test_an_epoch_that_began_by_silence_is_not_ended_by_silence_soon() -> None:
    view = GroupView(epoch=3, coordinator=4, is_of_silence=True)
    core = member(7, (4, 7), view)

    assert core.on_suspected(dead=set(), silent={4}, now_s=29) == []
    assert core.on_suspected(dead=set(), silent={4}, now_s=31) == [
        ClaimEpoch(view, 4, is_of_silence=True)
    ]
    assert member(7, (4, 7), view).on_suspected(dead={4}, silent=set(), now_s=1) == [
        ClaimEpoch(view, 4, is_of_silence=False)
    ]


def test_a_deposed_coordinator_stops_and_claims_nothing() -> None:
    core = member(4, (4, 7), GroupView(epoch=1, coordinator=4))

    (stopped,) = core.on_seen((4, 7), GroupView(epoch=2, coordinator=7), now_s=0)

    assert isinstance(stopped, StopCoordinating)
    assert "epoch 2" in stopped.why
    assert core.coordinates_in == 0


def test_one_that_leaves_coordinates_until_it_is_succeeded() -> None:
    core = member(4, (4, 7), GroupView(epoch=1, coordinator=4))

    assert core.on_leaving() == []
    assert core.on_seen((7,), GroupView(epoch=1, coordinator=4), now_s=0) == []
    assert core.coordinates_in == 1
    assert not core.is_succeeded
    (stopped,) = core.on_seen((7,), GroupView(epoch=2, coordinator=7), now_s=0)
    assert isinstance(stopped, StopCoordinating)
    assert core.is_succeeded


def test_a_lost_session_ends_the_epoch_and_an_old_view_changes_nothing() -> None:
    core = member(4, (4, 7), GroupView(epoch=5, coordinator=4))

    assert core.on_seen((4, 7), GroupView(epoch=4, coordinator=7), now_s=0) == []
    (stopped,) = core.on_session_lost()
    assert isinstance(stopped, StopCoordinating)
    assert core.role is GroupRole.OUTSIDE


@attrs.define
class Group:
    """Metadata, and members that see it late."""

    rng: random.Random
    view: GroupView = attrs.field(factory=GroupView)
    listed: list[int] = attrs.field(factory=list)
    cores: dict[int, GroupMember] = attrs.field(factory=dict)
    claims: dict[int, ClaimEpoch] = attrs.field(factory=dict)
    began: list[tuple[int, int]] = attrs.field(factory=list)
    number_next: int = 0
    now_s: float = 0.0

    def join(self) -> None:
        core = self.cores[self.number_next] = GroupMember(self.number_next)
        self.listed.append(core.number)
        self.number_next += 1

    def perform(self, core: GroupMember, effects: list[object]) -> None:
        for effect in effects:
            match effect:
                case ClaimEpoch():
                    assert core.number not in self.claims
                    self.claims[core.number] = effect
                case BeginCoordinating(epoch):
                    self.began.append((epoch, core.number))
                case StopCoordinating():
                    if core.number in self.listed:
                        self.listed.remove(core.number)
                    del self.cores[core.number]
                    self.join()

    def step(self) -> None:
        """Let one thing happen, to a member drawn at random."""
        core = self.rng.choice(list(self.cores.values()))
        self.now_s += self.rng.expovariate(1.0)
        match self.rng.randrange(6):
            case 0 if len(self.cores) < 5:
                self.join()
            case 1 if len(self.cores) > 1:  # It dies, and metadata notices.
                if core.number in self.listed:
                    self.listed.remove(core.number)
                del self.cores[core.number]
                self.claims.pop(core.number, None)
            case 2:
                dead = {one for one in self.listed if self.rng.random() < 0.2}
                silent = {one for one in self.listed if self.rng.random() < 0.2}
                effects = core.on_suspected(dead=dead, silent=silent, now_s=self.now_s)
                self.perform(core, [*effects])
            case 3 if core.number in self.claims:
                self.answer(core)
            case _:
                self.perform(
                    core, [*core.on_seen(tuple(self.listed), self.view, now_s=self.now_s)]
                )

    def look(self, core: GroupMember) -> None:
        effects = core.on_seen(tuple(self.listed), self.view, now_s=self.now_s)
        self.perform(core, [*effects])

    def answer(self, core: GroupMember) -> None:
        claim = self.claims.pop(core.number)
        if claim.seen == self.view and core.number in self.listed:
            self.view = GroupView(
                epoch=claim.epoch, coordinator=core.number, is_of_silence=claim.is_of_silence
            )
        self.look(core)
        if core.number in self.cores:
            self.perform(core, [*core.on_claim_ended(now_s=self.now_s)])

    def settle(self) -> None:
        """Nobody is suspected any more, and everything is seen."""
        for _ in range(10):
            for core in list(self.cores.values()):
                heard = core.on_suspected(dead=set(), silent=set(), now_s=self.now_s)
                self.perform(core, [*heard])
                if core.number in self.cores:
                    self.perform(
                        core, [*core.on_seen(tuple(self.listed), self.view, now_s=self.now_s)]
                    )
                if core.number in self.claims:
                    self.answer(core)


@given(st.integers(0, 1 << 32), st.integers(1, 150))
def test_each_epoch_has_one_coordinator_and_in_the_end_there_is_one(
    seed: int, steps: int
) -> None:
    group = Group(random.Random(seed))
    group.join()
    for _ in range(steps):
        group.step()
    group.settle()

    epochs = [epoch for epoch, _ in group.began]
    coordinating = [core for core in group.cores.values() if core.coordinates_in]
    assert len(set(epochs)) == len(epochs)
    assert [core.number for core in coordinating] == [group.view.coordinator]
    assert coordinating[0].coordinates_in == group.view.epoch == max(epochs)
    roles = [core.role for core in group.cores.values()]
    assert roles.count(GroupRole.STANDBY) == (len(group.cores) > 1)
