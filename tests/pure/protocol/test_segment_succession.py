"""Rolls, failovers and better placements of a partition's ledgers: what is done when."""

from collections import Counter
from itertools import pairwise

import attrs
import pytest
from hypothesis import settings

from geolog.protocol.ids import EntryId
from geolog.protocol.segment_succession import (
    BETTER_PAUSES_MAX,
    RESTING_LOOK_S,
    DropPrepared,
    GoOn,
    Keep,
    LookForBetter,
    Mend,
    MendOutcome,
    MoveOn,
    Pause,
    Prepare,
    PreparedView,
    Rest,
    SegmentSuccession,
    SegmentView,
    Sending,
    Step,
    _Mending,
)
from tests.pure.protocol.succession_history import (
    MEMBERS,
    OPEN_SWITCHES,
    OTHER_SWITCHES,
    PACE,
    ROLL,
    OwnerStory,
)
from topology.ring.window_rule import Adherence

READY = PreparedView(age_s=1.0, is_forbidden=False, can_go_on=True, members=MEMBERS[:3])
CALM = SegmentView(
    entry_next=EntryId(1),
    written_bytes=10,
    has_unanswered=False,
    is_urgent=False,
    is_keeping_due=False,
    members_late=(),
    adherence=Adherence.STRICT,
    keeps_promise=True,
    is_forbidden=False,
    switches=OPEN_SWITCHES,
    prepared=None,
)
STUCK = attrs.evolve(
    CALM, has_unanswered=True, is_urgent=True, members_late=(MEMBERS[2], MEMBERS[4])
)
EMPTY = attrs.evolve(CALM, written_bytes=0)  # Never full.
SOFT = attrs.evolve(EMPTY, adherence=Adherence.SOFT)


def awake(view: SegmentView = CALM) -> SegmentSuccession:
    """The core of an owner whose first segment was opened, at the first look after a rest."""
    core = SegmentSuccession(ROLL, PACE, OPEN_SWITCHES)
    core.on_opened(now_s=0.0)
    assert core.next_step(attrs.evolve(view, entry_next=EntryId(0)), now_s=0.0) == Rest(0.25)
    return core


def first_step(view: SegmentView, *, now_s: float = 1.0) -> Step:
    return awake(view).next_step(view, now_s=now_s)


def test_an_owner_with_nothing_to_do_rests_and_looks_more_seldom_if_nothing_is_sent() -> None:
    core = awake()

    assert core.next_step(CALM, now_s=1.0) == Rest(PACE.look_s)
    assert core.next_step(CALM, now_s=2.0) == Rest(RESTING_LOOK_S)
    assert core.is_look_due(written_bytes=0, has_prepared=True)
    sent = attrs.evolve(CALM, entry_next=EntryId(2))
    assert core.next_step(sent, now_s=3.0) == Rest(PACE.look_s)
    assert not core.is_look_due(written_bytes=0, has_prepared=True)


def test_the_next_ledger_is_prepared_at_half_the_size_or_at_the_full_age() -> None:
    half = attrs.evolve(CALM, written_bytes=50)

    assert first_step(half) == Prepare()
    assert first_step(attrs.evolve(half, prepared=READY)) == Rest(PACE.look_s)
    assert first_step(CALM, now_s=59.0) == Rest(PACE.look_s)
    assert first_step(CALM, now_s=60.0) == Prepare()


def test_a_ledger_that_could_not_be_prepared_is_tried_again_after_a_pause() -> None:
    half = attrs.evolve(CALM, written_bytes=50)
    core = awake()
    assert core.next_step(half, now_s=1.0) == Prepare()
    core.on_not_prepared(now_s=3.0)

    steps = [core.next_step(half, now_s=now_s) for now_s in (3.0, 4.9, 5.0)]
    assert steps == [Rest(PACE.look_s), Rest(RESTING_LOOK_S), Prepare()]


@pytest.mark.parametrize(
    ("written_bytes", "now_s", "has_prepared", "is_reachable", "sending"),
    [
        (99, 59.0, True, True, Sending.GOES_ON),
        (100, 59.0, True, True, Sending.ROLL_BEGINS),
        (1, 60.0, True, True, Sending.ROLL_BEGINS),
        (0, 99.0, True, True, Sending.GOES_ON),
        (100, 59.0, False, True, Sending.GOES_ON),
        (100, 59.0, True, False, Sending.GOES_ON),
    ],
)
def test_a_roll_begins_if_the_segment_is_full_and_the_next_ledger_and_metadata_are_there(
    written_bytes: int,
    now_s: float,
    sending: Sending,
    *,
    has_prepared: bool,
    is_reachable: bool,
) -> None:
    core = awake()
    found = core.on_entry(
        written_bytes=written_bytes,
        has_prepared=has_prepared,
        is_metadata_reachable=is_reachable,
        now_s=now_s,
    )

    assert found is sending
    assert core.is_rolling is (sending is Sending.ROLL_BEGINS)


def rolling() -> SegmentSuccession:
    core = awake()
    core.on_entry(written_bytes=100, has_prepared=True, is_metadata_reachable=True, now_s=1.0)
    assert core.is_rolling
    return core


def test_a_roll_waits_until_all_entries_are_answered() -> None:
    core = rolling()
    waiting = attrs.evolve(CALM, has_unanswered=True, prepared=READY)

    assert core.next_step(waiting, now_s=1.0) == Rest(PACE.look_s)
    assert core.next_step(attrs.evolve(CALM, prepared=READY), now_s=1.1) == MoveOn()
    core.on_opened(now_s=1.2)
    assert not core.is_rolling


def test_a_roll_ends_in_the_open_ledger_if_members_of_the_next_have_left() -> None:
    core = rolling()
    left = attrs.evolve(CALM, prepared=attrs.evolve(READY, can_go_on=False))

    assert core.next_step(left, now_s=1.0) == DropPrepared()
    assert core.next_step(CALM, now_s=1.0) == GoOn()
    assert not core.is_rolling


@pytest.mark.parametrize("change", [{"age_s": 301.0}, {"is_forbidden": True}])
def test_a_prepared_ledger_that_is_old_or_forbidden_is_given_up(
    change: dict[str, float],
) -> None:
    unusable = attrs.evolve(READY, **change)  # type: ignore[arg-type]

    assert first_step(attrs.evolve(CALM, prepared=unusable)) == DropPrepared()


def mending(*outcomes: MendOutcome, now_s: float = 1.0) -> SegmentSuccession:
    """A core that was told to mend from second 1; the last try ended now, as given."""
    core = awake()
    for outcome in outcomes:
        assert core.next_step(STUCK, now_s=1.0) == Mend()
        core.on_mended(outcome, now_s=now_s)
    return core


def test_stuck_entries_have_members_replaced_at_once_and_again_after_a_pause() -> None:
    core = mending(MendOutcome.CHANGED, MendOutcome.NOT_CHANGED)

    assert core.next_step(STUCK, now_s=1.0) == Pause(PACE.retry_delay_s)
    assert core.next_step(STUCK, now_s=1.5) == Mend()
    core.on_mended(MendOutcome.CHANGED, now_s=1.6)
    assert core.next_step(CALM, now_s=1.6) == Rest(PACE.look_s)


def test_missing_members_may_come_back_in_a_moment() -> None:
    core = mending(MendOutcome.NO_NODES, now_s=1.9)

    assert core.next_step(STUCK, now_s=1.9) == Pause(PACE.retry_delay_s)
    assert core.next_step(STUCK, now_s=2.4) == Mend()
    core.on_mended(MendOutcome.NO_NODES, now_s=2.5)
    assert core.next_step(STUCK, now_s=2.5) == Prepare(STUCK.members_late)  # type: ignore[arg-type]


def test_stuck_entries_move_to_the_prepared_ledger_if_it_has_no_late_member() -> None:
    core = mending(MendOutcome.NO_NODES, now_s=2.0)
    ready = attrs.evolve(READY, members=(MEMBERS[0], MEMBERS[1], MEMBERS[3]))

    assert core.next_step(attrs.evolve(STUCK, prepared=ready), now_s=2.0) == MoveOn()
    assert core.is_rolling
    core.on_opened(now_s=2.1)
    assert core.next_step(CALM, now_s=2.1) == Rest(PACE.look_s)


@pytest.mark.parametrize("prepared", [READY, attrs.evolve(READY, can_go_on=False, members=())])
def test_a_prepared_ledger_with_late_members_gives_way_to_a_new_one(
    prepared: PreparedView,
) -> None:
    core = mending(MendOutcome.NO_NODES, now_s=2.0)

    steps = [core.next_step(attrs.evolve(STUCK, prepared=prepared), now_s=2.0)]
    steps.append(core.next_step(STUCK, now_s=2.0))
    core.on_prepared()
    steps.append(core.next_step(attrs.evolve(STUCK, prepared=prepared), now_s=2.5))
    assert steps == [DropPrepared(), Prepare((MEMBERS[2], MEMBERS[4])), MoveOn()]


def test_members_are_tried_again_if_no_other_ledger_can_be_made() -> None:
    core = mending(MendOutcome.NO_NODES, now_s=2.0)
    assert isinstance(core.next_step(STUCK, now_s=2.0), Prepare)
    core.on_not_prepared(now_s=3.0)

    assert core.next_step(STUCK, now_s=3.0) == Pause(PACE.retry_delay_s)
    assert core.next_step(STUCK, now_s=3.5) == Mend()


def test_members_away_for_long_are_replaced_calmly() -> None:
    away = attrs.evolve(CALM, is_keeping_due=True)
    core = awake()

    assert core.next_step(away, now_s=1.0) == Keep()
    core.on_not_kept(now_s=1.0)
    steps = [core.next_step(away, now_s=now_s) for now_s in (1.0, 1.4, 1.5)]
    assert steps == [Rest(PACE.look_s), Rest(RESTING_LOOK_S), Keep()]


def searches_s(core: SegmentSuccession, view: SegmentView, until_s: int) -> list[int]:
    """The seconds at which the core looks for a better ledger, and none is found."""
    return [
        now_s
        for now_s in range(1, until_s)
        for step in (core.next_step(view, now_s=now_s), core.next_step(view, now_s=now_s))
        if isinstance(step, LookForBetter)
    ]


@pytest.mark.parametrize(
    "change", [{"adherence": Adherence.SOFT}, {"keeps_promise": False}, {"is_forbidden": True}]
)
def test_a_better_ledger_is_looked_for_with_growing_pauses(change: dict[str, bool]) -> None:
    badly_placed = attrs.evolve(EMPTY, **change)  # type: ignore[arg-type]
    found_s = searches_s(awake(), badly_placed, 1400)
    pauses_s = [later - earlier for earlier, later in pairwise(found_s)]

    assert found_s[0] == PACE.better_ledger_s
    assert pauses_s == [10, 20, 40, 80, 160, 320, 320, 320]
    assert max(pauses_s) == BETTER_PAUSES_MAX * PACE.better_ledger_s


def test_changed_switches_start_the_search_again_at_once() -> None:
    core = awake()
    searches_s(core, SOFT, 400)
    switched = attrs.evolve(SOFT, switches=OTHER_SWITCHES)

    assert core.next_step(switched, now_s=400.0) == LookForBetter()
    assert isinstance(core.next_step(switched, now_s=400.0), Rest)
    assert core.next_step(switched, now_s=410.0) == LookForBetter()


def test_a_good_placement_starts_the_pauses_again() -> None:
    core = awake()
    searches_s(core, SOFT, 400)
    core.next_step(EMPTY, now_s=401.0)

    assert isinstance(core.next_step(SOFT, now_s=410.9), Rest)
    assert core.next_step(SOFT, now_s=411.0) == LookForBetter()


def test_a_better_ledger_is_moved_to_once_all_entries_are_answered() -> None:
    core = awake()
    assert core.next_step(SOFT, now_s=10.0) == LookForBetter()
    core.on_better_prepared()

    unanswered = attrs.evolve(SOFT, has_unanswered=True, prepared=READY)
    assert core.next_step(unanswered, now_s=10.0) == Rest(PACE.look_s)
    assert core.next_step(attrs.evolve(SOFT, prepared=READY), now_s=10.1) == MoveOn()


# Random histories.


def played(seed: int, core: type[SegmentSuccession] = SegmentSuccession) -> OwnerStory:
    story = OwnerStory(seed, core)
    try:
        story.run()
    except AssertionError as broken:
        broken.add_note(f"seed {seed}")
        raise
    return story


def test_once_the_row_is_over_another_ledger_is_made_and_nothing_goes_to_the_open_one() -> None:
    core = awake()
    core.on_row_over()
    assert (
        core.on_entry(written_bytes=1, has_prepared=True, is_metadata_reachable=True, now_s=1.0)
        is Sending.WAITS
    )

    unanswered = attrs.evolve(CALM, has_unanswered=True)
    assert core.next_step(unanswered, now_s=1.0) == Rest(PACE.look_s)
    assert core.next_step(CALM, now_s=1.1) == Prepare()
    core.on_not_prepared(now_s=1.2)
    assert core.next_step(CALM, now_s=1.2) == Rest(PACE.look_s)
    assert core.next_step(CALM, now_s=3.2) == Prepare()
    core.on_prepared()
    assert core.next_step(attrs.evolve(CALM, prepared=READY), now_s=3.3) == MoveOn()
    core.on_opened(now_s=3.4)
    assert not core.is_rolling
    assert core.next_step(CALM, now_s=3.4) == Rest(PACE.look_s)


def test_the_steps_are_those_that_the_rules_ask_for_over_random_histories() -> None:
    sometimes: Counter[str] = Counter()

    for seed in range(5 * settings().max_examples):
        sometimes += played(seed).sometimes

    assert set(sometimes) == {
        "DropPrepared",
        "GoOn",
        "Keep",
        "LookForBetter",
        "Mend",
        "MoveOn",
        "Pause",
        "Prepare",
        "Rest",
        "a ledger was made while entries waited",
        "a roll began",
        "members were avoided",
    }


def test_a_partition_takes_entries_again_soon_once_all_is_well() -> None:
    for seed in range(settings().max_examples):
        story = played(seed)
        story.make_whole()
        steps = [story.step() for _ in range(8)]

        assert not story.is_rolling, f"seed {seed}: {steps}"
        assert any(isinstance(step, Rest) for step in steps), f"seed {seed}: {steps}"


class LeavesUnanswered(SegmentSuccession):
    """Rolls while entries are unanswered."""

    def _roll_over(self, view: SegmentView, now_s: float) -> Step:
        return super()._roll_over(attrs.evolve(view, has_unanswered=False), now_s)


class NeverPauses(SegmentSuccession):
    """Tries to replace members again and again, without a pause."""

    def _mend(self, mending: _Mending, view: SegmentView) -> Step:
        mending.is_pause_due = False
        return super()._mend(mending, view)


class SearchesAlways(SegmentSuccession):
    """Looks for a better ledger without growing pauses."""

    def _grow_better_pause(self, now_s: float) -> None:
        self._better_not_before_s = now_s + 1.0


class TakesAnyLedger(SegmentSuccession):
    """Moves to a prepared ledger that cannot be written."""

    def next_step(self, view: SegmentView, *, now_s: float) -> Step:
        prepared = view.prepared
        if prepared is not None:
            prepared = attrs.evolve(prepared, can_go_on=True)
        return super().next_step(attrs.evolve(view, prepared=prepared), now_s=now_s)


class PreparesTwo(SegmentSuccession):
    """Prepares a ledger though there is one."""

    def _is_preparation_due(self, view: SegmentView, now_s: float) -> bool:
        return super()._is_preparation_due(attrs.evolve(view, prepared=None), now_s)


@pytest.mark.parametrize(
    "core", [LeavesUnanswered, NeverPauses, SearchesAlways, TakesAnyLedger, PreparesTwo]
)
def test_random_histories_find_a_core_with_a_defect(core: type[SegmentSuccession]) -> None:
    def play_many() -> None:
        for seed in range(100):
            played(seed, core)

    with pytest.raises(AssertionError):
        play_many()
