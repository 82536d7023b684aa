"""A made-up owner that performs the steps of `SegmentSuccession`, and a second model of them.

The owner's world is random: entries, members, placement and metadata change at any moment, and
every try may fail. The second model remembers all that happened, and judges by looking back.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator

import attrs

from geolog.protocol.ids import EntryId, InstanceId
from geolog.protocol.roll import RollPolicy
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
    SuccessionPace,
)
from topology.ring.window_rule import Adherence
from topology.switches import PlacementSwitches

ROLL = RollPolicy(segment_bytes=100, segment_age_s=60.0, prepare_share=0.5)
PACE = SuccessionPace(
    look_s=0.25,
    member_patience_s=1.0,
    retry_delay_s=0.5,
    prepare_retry_s=2.0,
    prepared_age_s_max=300.0,
    better_ledger_s=10.0,
)
OPEN_SWITCHES = PlacementSwitches()
OTHER_SWITCHES = PlacementSwitches(frozenset({"north"}))
MEMBERS = tuple(InstanceId(f"{number:032x}") for number in range(5))

STEPS_WITHOUT_SLEEP_MAX = 6
"""Steps from one sleep to the next, apart from changes of members: a round's longest way."""


@attrs.frozen
class Event:
    """Something that happened, or a step that was asked for."""

    kind: str
    at_s: float
    view: SegmentView | None = None
    step: Step | None = None


class SecondModel:
    """The rules of succession, judged from the whole past."""

    def __init__(self) -> None:
        self.past: list[Event] = [Event("rolling", 0.0)]
        self._switches = OPEN_SWITCHES

    def note(self, kind: str, at_s: float) -> None:
        """Remember an outcome."""
        self.past.append(Event(kind, at_s))

    def step(self, view: SegmentView, now_s: float) -> Step:
        """The step that the rules ask for; it is remembered as asked for."""
        step = self._judge(view, now_s)
        self.past.append(Event("step", now_s, view, step))
        if isinstance(step, GoOn):
            self.note("opened again", now_s)
        if isinstance(step, MoveOn):
            self.note("rolling", now_s)
        return step

    def _judge(self, view: SegmentView, now_s: float) -> Step:
        this_round = list(self._round())
        steps = [event.step for event in this_round if event.step is not None]
        mends = [event for event in this_round if isinstance(event.step, Mend)]
        if mends:
            return self._judge_mending(mends[0], this_round, view, now_s)
        acts = [step for step in steps if not isinstance(step, DropPrepared)]
        if not self._has_rested() or acts:
            return self._rest()
        prepared = view.prepared
        if prepared is not None and (
            prepared.age_s > PACE.prepared_age_s_max or prepared.is_forbidden
        ):
            return DropPrepared()
        if view.is_urgent:
            return Mend()
        if self.is_rolling:
            if view.has_unanswered:
                return self._rest(view)
            if prepared is None:
                return GoOn()
            return MoveOn() if prepared.can_go_on else DropPrepared()
        return self._judge_calm(view, now_s)

    def _judge_mending(
        self, first: Event, this_round: list[Event], view: SegmentView, now_s: float
    ) -> Step:
        assert first.view is not None
        last = this_round[-1]
        if isinstance(last.step, MoveOn) or last.kind == "opened":
            return self._rest()
        patience_is_over = [
            event
            for event in this_round
            if event.kind == "no nodes" and event.at_s >= first.at_s + PACE.member_patience_s
        ]
        fails = {"not changed", "not prepared", "no nodes"}
        is_leaving = last in patience_is_over or last.kind == "prepared"
        if isinstance(last.step, DropPrepared):
            is_leaving = True
        if is_leaving:
            late = tuple(first.view.members_late)
            prepared = view.prepared
            if prepared is None:
                return Prepare(late)
            if last.kind == "prepared":
                return MoveOn()
            is_good = prepared.can_go_on and not set(late) & set(prepared.members)
            return MoveOn() if is_good else DropPrepared()
        if last.kind in fails:
            return Pause(PACE.retry_delay_s)
        return Mend() if view.is_urgent else self._rest(view)

    def _judge_calm(self, view: SegmentView, now_s: float) -> Step:
        opened_s = self._last_s("opened", 0.0)
        is_full = view.written_bytes > 0 and (
            view.written_bytes >= 100 or now_s - opened_s >= 60.0
        )
        if (
            view.prepared is None
            and (view.written_bytes >= 50 or is_full)
            and now_s >= self._last_s("not prepared ahead", -1e9) + PACE.prepare_retry_s
        ):
            return Prepare()
        if view.is_keeping_due and now_s >= (
            self._last_s("not kept", -1e9) + PACE.retry_delay_s
        ):
            return Keep()
        if view.switches != self._switches:
            self._switches = view.switches
            self.note("switched", now_s)
        is_good = (
            view.adherence is Adherence.STRICT and view.keeps_promise and not view.is_forbidden
        )
        if is_good:
            self.note("good", now_s)
        if now_s < self._next_search_s():
            return self._rest(view)
        return LookForBetter()

    def _next_search_s(self) -> float:
        """When to look for a better ledger next, by the last event that says so."""
        searches_count = 0
        for event in reversed(self.past):
            if event.kind in {"switched", "good"}:
                break
            searches_count += isinstance(event.step, LookForBetter)
        for event in reversed(self.past):
            if event.kind in {"opened", "good"}:
                return event.at_s + PACE.better_ledger_s
            if event.kind == "switched":
                return event.at_s
            if isinstance(event.step, LookForBetter):
                pauses = min(2.0 ** (searches_count - 1), BETTER_PAUSES_MAX)
                return event.at_s + pauses * PACE.better_ledger_s
        return 0.0

    @property
    def is_rolling(self) -> bool:
        """Whether a roll has begun and is not over."""
        return self._was_rolling_at(len(self.past))

    def _rest(self, awake: SegmentView | None = None) -> Rest:
        return Rest(RESTING_LOOK_S if self._was_idle(awake) else PACE.look_s)

    def _was_idle(self, awake: SegmentView | None) -> bool:
        """Whether nothing was sent during the rest before, nor was anything under way."""
        rest = self._place_of_last(lambda event: isinstance(event.step, Rest))
        if rest is None:
            return False
        since = self.past[rest + 1 :]
        if any(event.kind == "better" for event in since):
            return False
        looks = [event.view for event in since if event.view is not None]
        first = looks[0] if looks else awake
        at_rest = self.past[rest].view
        assert first is not None
        assert at_rest is not None
        kinds = [event.kind for event in since]
        # The roll may have begun or ended since the look; only what was before it counts.
        before = kinds[: kinds.index("step")] if "step" in kinds else kinds
        was_rolling = self._was_rolling_at(rest + 1 + len(before))
        return first.entry_next == at_rest.entry_next and not (
            was_rolling or first.has_unanswered
        )

    def _was_rolling_at(self, place: int) -> bool:
        """Whether a roll had begun and was not over before this place in the past."""
        kinds = (self.past[at].kind for at in range(place - 1, -1, -1))
        begins, ends = {"rolling", "better"}, {"opened", "opened again"}
        return next((kind in begins for kind in kinds if kind in begins | ends), False)

    def _round(self) -> Iterator[Event]:
        """What happened since the last rest, or since a better ledger was prepared."""
        begin = self._place_of_last(
            lambda event: isinstance(event.step, Rest) or event.kind == "better"
        )
        kinds = {
            "step", "no nodes", "not changed", "changed", "prepared", "not prepared", "opened",
        }  # fmt: skip
        first = 0 if begin is None else begin + 1
        return (event for event in self.past[first:] if event.kind in kinds)

    def _place_of_last(self, is_wanted: Callable[[Event], bool]) -> int | None:
        """Where the last such event is; from the end, because it is mostly near."""
        places = range(len(self.past) - 1, -1, -1)
        return next((place for place in places if is_wanted(self.past[place])), None)

    def _has_rested(self) -> bool:
        return any(isinstance(event.step, Rest) for event in self.past)

    def _last_s(self, kind: str, default: float) -> float:
        return next(
            (event.at_s for event in reversed(self.past) if event.kind == kind), default
        )


class OwnerStory:
    """One random history of an owner; `run` compares the core with the second model."""

    def __init__(self, seed: int, core: type[SegmentSuccession] = SegmentSuccession) -> None:
        self._rng = random.Random(seed)
        self._core = core(ROLL, PACE, OPEN_SWITCHES)
        self._model = SecondModel()
        self.now_s = 0.0
        self._prepared_s = 0.0
        self._is_metadata_there = True
        self._steps_without_sleep = 0
        self._has_mended = False
        self._has_prepared_for_mending = False
        self._search_s = -1e9
        self._is_search_free = False
        self.sometimes: Counter[str] = Counter()
        self.view = SegmentView(
            entry_next=EntryId(0),
            written_bytes=0,
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
        self._open()

    def run(self, steps_count: int = 120) -> None:
        """Change the world, ask for a step, perform it; again and again."""
        for _ in range(steps_count):
            self._change_world()
            self.step()

    def step(self) -> Step:
        """Ask both for the next step, compare, and perform it."""
        expected = self._model.step(self.view, self.now_s)
        step = self._core.next_step(self.view, now_s=self.now_s)
        assert step == expected, f"{step}, but the rules say {expected}"
        self._check(step)
        self.sometimes[type(step).__name__] += 1
        self._perform(step)
        assert self._core.is_rolling is self._model.is_rolling
        return step

    def make_whole(self) -> None:
        """From here on, all is well in this world: nothing waits, and every try succeeds."""
        self._change(
            has_unanswered=False, is_urgent=False, is_keeping_due=False, members_late=(),
            adherence=Adherence.STRICT, keeps_promise=True, is_forbidden=False,
        )  # fmt: skip
        self._is_metadata_there = True
        self._rng = AlwaysWell()

    @property
    def is_rolling(self) -> bool:
        return self._core.is_rolling

    # The world.

    def _change(self, **facts: object) -> None:
        self.view = attrs.evolve(self.view, **facts)  # type: ignore[arg-type]

    def _likely(self, chance: float) -> bool:
        return self._rng.random() < chance

    def _change_world(self) -> None:
        for _ in range(self._rng.choice([0, 0, 1, 3])):
            self._send()
        if self._likely(0.5):
            self._change(has_unanswered=False)
        if self._likely(0.15):
            self._change(is_urgent=self.view.has_unanswered and self._likely(0.7))
            late = self._rng.sample(MEMBERS, self._rng.randrange(3))
            self._change(members_late=tuple(late) if self.view.is_urgent else ())
        if self._likely(0.3):
            self._change(is_keeping_due=self._likely(0.2))
        if self._likely(0.2):
            self._change(
                adherence=self._rng.choice([Adherence.STRICT, Adherence.SOFT]),
                keeps_promise=self._likely(0.8),
                is_forbidden=self._likely(0.2),
            )
        if self._likely(0.05):
            self._change(switches=self._rng.choice([OPEN_SWITCHES, OTHER_SWITCHES]))
            self._is_search_free = True
        if self._likely(0.1):
            self._is_metadata_there = not self._is_metadata_there
        if self.view.prepared is not None:
            self._prepare(
                is_forbidden=self._likely(0.02), can_go_on=self._likely(0.9), is_same=True
            )

    def _send(self) -> None:
        """An entry comes: it is sent unless a roll is under way, or begins."""
        is_full = self.view.written_bytes >= 100 or (
            self.view.written_bytes > 0 and self.now_s - self._opened_s >= 60.0
        )
        begins = (
            not self._core.is_rolling
            and self.view.prepared is not None
            and self._is_metadata_there
            and is_full
        )
        was_rolling = self._core.is_rolling
        has_prepared = self.view.prepared is not None
        goes_on_surely = self._core.goes_on_surely(has_prepared=has_prepared)
        sending = self._core.on_entry(
            written_bytes=self.view.written_bytes,
            has_prepared=has_prepared,
            is_metadata_reachable=self._is_metadata_there,
            now_s=self.now_s,
        )
        assert not goes_on_surely or sending is Sending.GOES_ON
        assert (sending is Sending.ROLL_BEGINS) is begins
        assert (sending is Sending.WAITS) is was_rolling
        if begins:
            self.sometimes["a roll began"] += 1
            self._model.note("rolling", self.now_s)
        if sending is Sending.GOES_ON:
            self._change(
                entry_next=EntryId(self.view.entry_next + 1),
                written_bytes=self.view.written_bytes + 7,
                has_unanswered=True,
            )

    def _prepare(
        self, *, is_forbidden: bool = False, can_go_on: bool = True, is_same: bool = False
    ) -> None:
        before = self.view.prepared
        if not is_same:
            self._prepared_s = self.now_s
        members = self._rng.sample(MEMBERS, 3)
        prepared = PreparedView(
            age_s=self.now_s - self._prepared_s,
            is_forbidden=is_forbidden,
            can_go_on=can_go_on,
            members=before.members if is_same and before is not None else tuple(members),
        )
        self._change(prepared=prepared)

    def _open(self) -> None:
        self._opened_s = self.now_s
        self._change(
            written_bytes=0, entry_next=EntryId(0), is_urgent=False, members_late=(),
            prepared=None,
        )  # fmt: skip
        self._core.on_opened(now_s=self.now_s)
        self._model.note("opened", self.now_s)

    # Steps.

    def _check(self, step: Step) -> None:
        """The invariants, whatever the second model says."""
        prepared = self.view.prepared
        if isinstance(step, Prepare):
            assert prepared is None, "two ledgers would be prepared"
        if isinstance(step, MoveOn):
            assert prepared is not None, "there is no ledger to move on to"
            assert prepared.can_go_on or self._has_prepared_for_mending
            assert self._has_mended or not self.view.has_unanswered
        if isinstance(step, LookForBetter):
            distance_s = self.now_s - self._search_s
            assert self._is_search_free or distance_s >= PACE.better_ledger_s
            self._search_s, self._is_search_free = self.now_s, False
        if isinstance(step, Rest | Pause):
            assert step.pause_s > 0
            self._steps_without_sleep = 0
        self._steps_without_sleep += 1
        assert self._steps_without_sleep <= STEPS_WITHOUT_SLEEP_MAX, "a busy loop"

    def _perform(self, step: Step) -> None:
        if isinstance(step, Mend | Prepare | MoveOn | Keep | LookForBetter):
            self.now_s += self._rng.choice([0.0, 0.01, 0.4])
        match step:
            case Rest(pause_s):
                self._has_mended = self._has_prepared_for_mending = False
                share = self._rng.choice([0.0, 0.1, 1.0, 1.0])
                self.now_s += share * pause_s + self._rng.choice([0, 0, 0, 5, 40])
            case Pause(pause_s):
                self.now_s += pause_s
            case DropPrepared():
                self._change(prepared=None)
            case Mend():
                self._mend()
            case Prepare(avoid):
                self._make_next(avoid)
            case MoveOn():
                self._open()
            case GoOn():
                self._change(has_unanswered=self._likely(0.3))
            case Keep():
                if self._likely(0.5):
                    self._core.on_not_kept(now_s=self.now_s)
                    self._model.note("not kept", self.now_s)
                else:
                    self._change(is_keeping_due=False)
            case LookForBetter():
                if self._likely(0.3):
                    self._prepare()
                    self._core.on_better_prepared()
                    self._model.note("better", self.now_s)

    def _mend(self) -> None:
        self._has_mended = True
        outcome = self._rng.choice([*MendOutcome, MendOutcome.NO_NODES])
        if outcome is MendOutcome.CHANGED:
            self._steps_without_sleep = 0  # A change waits for metadata.
        self._core.on_mended(outcome, now_s=self.now_s)
        self._model.note(outcome.value, self.now_s)

    def _make_next(self, avoid: tuple[InstanceId, ...]) -> None:
        kind = "" if self._has_mended else " ahead"
        if self._likely(0.3):
            self._core.on_not_prepared(now_s=self.now_s)
            self._model.note(f"not prepared{kind}", self.now_s)
            return
        self._prepare(can_go_on=not self._likely(0.1))
        self._core.on_prepared()
        self._model.note(f"prepared{kind}", self.now_s)
        if self._has_mended:
            self._has_prepared_for_mending = True
            self.sometimes["a ledger was made while entries waited"] += 1
        if avoid:
            self.sometimes["members were avoided"] += 1


class AlwaysWell(random.Random):
    """Chance that favours the owner: every try succeeds."""

    def random(self) -> float:
        return 0.999
