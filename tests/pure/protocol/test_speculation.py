"""One speculative question against a naive one, which looks at its whole past at every step."""

import math

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.speculation import (
    AnswerWorth,
    AskStage,
    CancelStage,
    Effect,
    Exhausted,
    Finish,
    GiveUpStage,
    LeaveSpare,
    SetTimer,
    Speculation,
)

LIMIT_S = 50.0


@attrs.define
class Budget:
    """Refuses every extra request after the first few."""

    left: int

    def take(self, _stage: int, _now_s: float) -> bool:
        if not self.left:
            return False
        self.left -= 1
        return True


def question(
    stages_count: int = 3,
    *,
    pauses: tuple[float | None, ...] = (2, 4, 8, 16),
    extra_count: int = 1000,
    is_error_patient: bool = False,
    has_spare: bool = False,
) -> Speculation:
    return Speculation(
        stages_count,
        limit_s=LIMIT_S,
        is_error_patient=is_error_patient,
        pause_s=lambda stage, _elapsed_s: pauses[stage - 1],
        budget=Budget(extra_count),
        has_spare=has_spare,
    )


def without_timers(effects: list[Effect]) -> list[Effect]:
    return [one for one in effects if not isinstance(one, SetTimer)]


def test_a_question_answered_in_time_asks_one_replica() -> None:
    core = question()

    assert core.begin(0.0) == [SetTimer(2.0), AskStage(0, is_extra=False)]
    assert core.on_answer(0, AnswerWorth.GOOD, 1.0) == [Finish(0, False, ())]  # noqa: FBT003
    assert core.on_timer(2.0) == []


def test_a_late_question_goes_further_after_growing_pauses() -> None:
    core = question()
    core.begin(0.0)

    assert core.on_timer(2.0) == [SetTimer(6.0), AskStage(1, is_extra=True)]
    assert core.on_timer(6.0) == [SetTimer(LIMIT_S), AskStage(2, is_extra=True)]


def test_the_first_good_answer_wins_and_the_others_are_cancelled() -> None:
    core = question()
    core.begin(0.0)
    core.on_timer(2.0)
    core.on_timer(6.0)

    assert core.on_answer(1, AnswerWorth.GOOD, 7.0) == [
        Finish(1, is_hedged=True, overtaken=(0,)),
        CancelStage(0),
        CancelStage(2),
    ]


def test_a_late_answer_of_an_overtaken_stage_still_counts_if_it_is_first() -> None:
    core = question()
    core.begin(0.0)
    core.on_timer(2.0)

    assert core.on_answer(0, AnswerWorth.GOOD, 3.0) == [
        Finish(0, is_hedged=False, overtaken=()),
        CancelStage(1),
    ]


@pytest.mark.parametrize(
    "outcome", [AnswerWorth.ERROR, AnswerWorth.DAMAGED, AnswerWorth.NEGATIVE]
)
def test_an_answer_that_is_no_use_sends_the_next_stage_at_once_and_costs_nothing(
    outcome: AnswerWorth,
) -> None:
    core = question(extra_count=0)
    core.begin(0.0)

    assert core.on_answer(0, outcome, 1.0) == [SetTimer(5.0), AskStage(1, is_extra=False)]


def test_one_negative_never_ends_a_question_while_others_are_out() -> None:
    core = question(2)
    core.begin(0.0)
    core.on_timer(2.0)

    assert without_timers(core.on_answer(1, AnswerWorth.NEGATIVE, 3.0)) == []
    assert not core.is_over
    assert core.on_answer(0, AnswerWorth.GOOD, 9.0) == [
        Finish(0, is_hedged=False, overtaken=())
    ]


def test_a_question_asked_in_vain_names_the_stages_that_said_absent() -> None:
    core = question()
    core.begin(0.0)
    core.on_answer(0, AnswerWorth.NEGATIVE, 1.0)
    core.on_answer(1, AnswerWorth.ERROR, 1.0)

    assert core.on_answer(2, AnswerWorth.NEGATIVE, 1.0) == [Exhausted((0, 2))]


def test_a_busy_replica_is_not_relieved_by_more_requests_than_one() -> None:
    core = question()
    core.begin(0.0)
    core.on_timer(2.0)

    assert without_timers(core.on_answer(1, AnswerWorth.BUSY, 3.0)) == []
    assert without_timers(core.on_answer(0, AnswerWorth.BUSY, 3.0)) == [
        AskStage(2, is_extra=False)
    ]


def test_a_silent_stage_is_given_up_at_its_limit() -> None:
    core = question(2, pauses=(None,))
    assert core.begin(0.0) == [SetTimer(LIMIT_S), AskStage(0, is_extra=False)]

    assert core.on_timer(LIMIT_S) == [
        GiveUpStage(0),
        SetTimer(2 * LIMIT_S),
        AskStage(1, is_extra=False),
    ]
    assert core.on_timer(2 * LIMIT_S) == [GiveUpStage(1), Exhausted(())]


def test_without_budget_the_pause_doubles() -> None:
    core = question(extra_count=0)
    core.begin(0.0)

    assert core.on_timer(2.0) == [SetTimer(6.0)]
    assert core.on_timer(6.0) == [SetTimer(11.0)], "at least ten times before the limit"
    assert core.on_timer(11.0) == [SetTimer(16.0)]


def test_a_patient_policy_waits_for_others_that_are_out_before_it_follows_an_error() -> None:
    core = question(is_error_patient=True)
    core.begin(0.0)
    core.on_timer(2.0)

    assert without_timers(core.on_answer(0, AnswerWorth.ERROR, 3.0)) == []
    assert without_timers(core.on_answer(1, AnswerWorth.ERROR, 4.0)) == [
        AskStage(2, is_extra=False)
    ]


def test_a_spare_goes_out_with_the_first_and_is_left_when_that_answers() -> None:
    core = question(has_spare=True, extra_count=0)

    assert core.begin(0.0) == [
        SetTimer(2.0),
        AskStage(0, is_extra=False),
        AskStage(1, is_extra=True),
    ]
    assert core.on_answer(0, AnswerWorth.GOOD, 1.0) == [
        Finish(0, is_hedged=False, overtaken=()),
        LeaveSpare(1),
    ]


def test_a_spare_that_answers_first_overtakes_nobody() -> None:
    core = question(has_spare=True)
    core.begin(0.0)

    assert core.on_answer(1, AnswerWorth.GOOD, 1.0) == [
        Finish(1, is_hedged=True, overtaken=()),
        CancelStage(0),
    ]


@pytest.mark.parametrize("worth", [one for one in AnswerWorth if one is not AnswerWorth.GOOD])
def test_a_spare_that_is_no_use_changes_nothing_for_the_others(worth: AnswerWorth) -> None:
    core = question(has_spare=True)
    core.begin(0.0)

    assert without_timers(core.on_answer(1, worth, 1.0)) == []
    assert core.on_timer(2.0) == [SetTimer(LIMIT_S), AskStage(2, is_extra=True)]
    assert core.on_answer(2, AnswerWorth.GOOD, 3.0) == [
        Finish(2, is_hedged=True, overtaken=(0,)),
        CancelStage(0),
    ]


@pytest.mark.parametrize("worth", [AnswerWorth.ERROR, AnswerWorth.BUSY])
def test_nothing_relies_on_a_spare(worth: AnswerWorth) -> None:
    core = question(has_spare=True, is_error_patient=True)
    core.begin(0.0)

    assert without_timers(core.on_answer(0, worth, 1.0)) == [AskStage(2, is_extra=False)]


def test_a_spare_is_not_overtaken_by_later_stages() -> None:
    core = question(has_spare=True)
    core.begin(0.0)
    core.on_timer(2.0)

    assert core.on_answer(2, AnswerWorth.GOOD, 3.0) == [
        Finish(2, is_hedged=True, overtaken=(0,)),
        CancelStage(0),
        LeaveSpare(1),
    ]


def test_a_spare_that_lacks_the_entry_counts_once_all_others_do_too() -> None:
    core = question(has_spare=True)
    core.begin(0.0)
    core.on_answer(1, AnswerWorth.NEGATIVE, 1.0)
    core.on_answer(0, AnswerWorth.NEGATIVE, 1.0)

    assert core.on_answer(2, AnswerWorth.NEGATIVE, 1.0) == [Exhausted((0, 1, 2))]


def test_a_question_in_a_hurry_goes_further_before_its_pause_is_over() -> None:
    core = question()
    core.begin(0.0)

    assert core.on_hurry(0.5) == [SetTimer(4.5), AskStage(1, is_extra=True)]


def test_a_hurry_without_budget_waits_again() -> None:
    core = question(extra_count=0)
    core.begin(0.0)

    assert core.on_hurry(0.5) == [SetTimer(4.5)]


def test_a_policy_that_never_asks_again_knows_no_hurry() -> None:
    core = question(pauses=(None, None))
    core.begin(0.0)

    assert core.on_hurry(0.5) == []


# Against the naive model.


@attrs.frozen
class Script:
    """How each replica answers: after so long, and how; None is never."""

    answers: list[tuple[int, AnswerWorth] | None]
    pauses: list[int | None]
    extra_count: int
    is_error_patient: bool
    has_spare: bool


OUTCOMES = st.sampled_from(list(AnswerWorth))
SCRIPTS = st.integers(1, 5).flatmap(
    lambda count: st.builds(
        Script,
        answers=st.lists(
            st.none() | st.tuples(st.integers(0, 70), OUTCOMES), min_size=count, max_size=count
        ),
        pauses=st.lists(st.none() | st.integers(1, 30), min_size=count, max_size=count),
        extra_count=st.integers(0, 3),
        is_error_patient=st.booleans(),
        has_spare=st.booleans() if count > 1 else st.just(False),  # noqa: FBT003
    )
)


@attrs.define
class Told:
    """The course of a question: when each stage went out, and how it ended."""

    sent: list[tuple[float, bool]] = attrs.field(factory=list)
    end: tuple[float, object] | None = None


def run_core(script: Script) -> Told:
    """Drive the core; at one moment, answers come before the timer."""
    told = Told()
    core = Speculation(
        len(script.answers),
        limit_s=LIMIT_S,
        is_error_patient=script.is_error_patient,
        pause_s=lambda stage, _elapsed_s: script.pauses[stage - 1],
        budget=Budget(script.extra_count),
        has_spare=script.has_spare,
    )
    due: list[tuple[float, int]] = []
    out: set[int] = set()
    timer_s, now_s = math.inf, 0.0
    effects = core.begin(now_s)
    while True:
        timers = 0
        for effect in effects:
            assert told.end is None, "an effect after the end"
            match effect:
                case AskStage(stage, is_extra):
                    assert stage == len(told.sent)
                    told.sent.append((now_s, is_extra))
                    out.add(stage)
                    answer = script.answers[stage]
                    if answer is not None:
                        due.append((now_s + answer[0], stage))
                case SetTimer(at_s):
                    timer_s, timers = at_s, timers + 1
                case GiveUpStage(stage):
                    out.remove(stage)
                case CancelStage(stage) | LeaveSpare(stage):
                    out.remove(stage)
                case Finish(stage):
                    assert stage in out
                    due, timer_s, timers = [], math.inf, 1
                    told.end = (now_s, (stage, effect.is_hedged, effect.overtaken))
                    told_effects, out_before = effects[1:], set(out)
                    assert told_effects == [
                        LeaveSpare(one) if script.has_spare and one == 1 else CancelStage(one)
                        for one in sorted(out_before - {stage})
                    ], "all others are cancelled, but for the spare"
                    assert core.is_over
                    return told
                case Exhausted(negatives):
                    assert not out
                    told.end = (now_s, negatives)
                    assert core.is_over
                    return told
        due = [(at_s, stage) for at_s, stage in due if stage in out]
        at_s, stage = min(due, default=(math.inf, -1))
        spares = {1} if script.has_spare else set[int]()
        assert out, "a question that is not over is out somewhere"
        assert out - spares or len(told.sent) == len(script.answers), "nothing relies on it"
        now_s = min(at_s, timer_s)
        assert now_s < math.inf
        if at_s <= timer_s:
            due.remove((at_s, stage))
            answer = script.answers[stage]
            assert answer is not None
            if answer[1] is not AnswerWorth.GOOD:
                out.remove(stage)
            effects = core.on_answer(stage, answer[1], now_s)
        else:
            effects = core.on_timer(now_s)


def run_naive(script: Script) -> Told:
    """Look, at every whole moment, at everything that was sent and answered so far."""
    told = Told()
    ended: dict[int, AnswerWorth | None] = {}
    tokens = script.extra_count
    spares = {1} if script.has_spare else set[int]()
    wait: float | None = None
    due_s = math.inf

    def send(now_s: float, *, is_extra: bool) -> None:
        nonlocal wait, due_s
        told.sent.append((now_s, is_extra))
        if script.has_spare and now_s == 0.0 and len(told.sent) == 1:
            told.sent.append((now_s, True))
        wait = script.pauses[len(told.sent) - script.has_spare - 1]
        is_last = len(told.sent) == len(script.answers)
        due_s = math.inf if wait is None or is_last else now_s + wait

    send(0.0, is_extra=False)
    for now in range(10_000):
        # Answers first; a stage that was sent at this moment may answer at this moment.
        while True:
            came = [
                stage
                for stage, (sent_s, _) in enumerate(told.sent)
                if stage not in ended
                and (answer := script.answers[stage]) is not None
                and sent_s + answer[0] == now
            ]
            if came:
                stage = min(came)
                answer = script.answers[stage]
                assert answer is not None
                outcome: AnswerWorth | None = answer[1]
                if outcome is AnswerWorth.GOOD:
                    out = [one for one in range(len(told.sent)) if one not in ended]
                    overtaken = tuple(one for one in out if one < stage and one not in spares)
                    if stage in spares:
                        overtaken = ()
                    told.end = (now, (stage, told.sent[stage][1], overtaken))
                    return told
                failed = [stage]
            else:
                failed = [
                    stage
                    for stage, (sent_s, _) in enumerate(told.sent)
                    if stage not in ended and sent_s + LIMIT_S == now
                ]
                outcome = None
                if not failed:
                    if now != due_s:
                        break
                    assert wait is not None
                    if tokens:
                        tokens -= 1
                        send(now, is_extra=True)
                    else:
                        wait = max(wait, min(2 * wait, 5))
                        due_s = now + wait
                    continue
            ended.update(dict.fromkeys(failed, outcome))
            others_out = len(ended) < len(told.sent)
            is_relied_on = bool({*range(len(told.sent))} - ended.keys() - spares)
            is_patient = script.is_error_patient or outcome is AnswerWorth.BUSY
            if len(told.sent) < len(script.answers):
                if not (is_patient and is_relied_on) and not spares >= set(failed):
                    send(now, is_extra=False)
            elif not others_out:
                absent = [one for one, end in ended.items() if end is AnswerWorth.NEGATIVE]
                told.end = (now, tuple(sorted(absent)))
                return told
    raise AssertionError("the naive question never ended")


@given(SCRIPTS)
def test_a_question_goes_as_the_naive_one(script: Script) -> None:
    assert run_core(script) == run_naive(script)


@given(SCRIPTS)
def test_a_good_answer_within_its_limit_is_always_found(script: Script) -> None:
    end = run_core(script).end
    assert end is not None
    is_good = any(
        answer is not None and answer[1] is AnswerWorth.GOOD and answer[0] < LIMIT_S
        for answer in script.answers
    )
    is_found = isinstance(end[1], tuple) and len(end[1]) == 3 and isinstance(end[1][2], tuple)
    assert is_found or not is_good
