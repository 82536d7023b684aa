"""Decides when one question goes to a further replica, and which answer it takes.

Theory of operation. The replicas that can answer are in order, the best first; asking the n-th
of them is stage n, from 0. Stage 0 goes out at once. While no good answer has come, the next
stage goes out after a pause that the hedge policy sets, if the budget of extra requests allows
it. Without budget it tries again after twice the pause, or a tenth of its limit. All stages
stay out: the first good answer wins, whichever stage it belongs to.

An answer that is no use (an error, damage, ABSENT) sends the next stage at once and costs no
budget, because it replaces a request instead of adding one. A busy replica does so only if it
was the last one out: extra requests would make an overload worse. A stage that says nothing for
`limit_s` is given up and counts as an error.

A question may have a spare: stage 1 then goes to a replica that is tried again, at the side of
stage 0. Nothing relies on it. It advances nothing, overtakes nobody and is not overtaken. Its
good answer counts; if another stage is first, the spare is left to the asker, which still needs
to know how the replica did.

When the replicas that a late question waits for are found to be unwell, `on_hurry` makes its
next stage due at once.

ABSENT never ends a question while another replica can still answer. When all have answered in
vain, `Exhausted` names the stages that said ABSENT, and the asker judges what that proves.

Invariants.
1. Stages go out in order, each at most once.
2. A question is over after one Finish or Exhausted, and has no effects afterwards.
3. Finish names a stage that is out. Exhausted comes only when no stage is out or left.
4. While the question is not over, a stage is out and a timer is set. If stages are left, one
   that is out is no spare.

Rules: PROTOCOL R17, R18, R21 and R25.
"""

import enum
import math
from collections.abc import Callable
from typing import Protocol

import attrs

REFUSED_SHARE = 0.1
"""Longest pause after the budget refused a request, as a share of the limit of a replica."""


class AnswerWorth(enum.Enum):
    """The worth of one answer of a replica."""

    GOOD = "good"
    """It answers the question."""
    NEGATIVE = "negative"
    """The replica, intact, says that it does not have what was asked for."""
    DAMAGED = "damaged"
    """Its bytes are damaged."""
    ERROR = "error"
    """It refused, failed or cannot be reached."""
    BUSY = "busy"
    """It is overloaded, and says so."""


@attrs.frozen
class AskStage:
    """Send the question to the replica of this stage. `is_extra`: earlier stages are out."""

    stage: int
    is_extra: bool


@attrs.frozen
class SetTimer:
    """Call `on_timer` at this time, and forget the timer before."""

    at_s: float


@attrs.frozen
class GiveUpStage:
    """This stage said nothing within its limit: drop it."""

    stage: int


@attrs.frozen
class CancelStage:
    """This stage lost: its answer is not needed any more."""

    stage: int


@attrs.frozen
class LeaveSpare:
    """The question needs the spare, which is still out, no more: see what becomes of it."""

    stage: int


@attrs.frozen
class Finish:
    """The answer of this stage is the answer.

    `is_hedged`: it was an extra request. `overtaken`: earlier stages that are still out.
    """

    stage: int
    is_hedged: bool
    overtaken: tuple[int, ...]


@attrs.frozen
class Exhausted:
    """No replica has a good answer. `negatives`: the stages that said ABSENT."""

    negatives: tuple[int, ...]


Effect = AskStage | SetTimer | GiveUpStage | CancelStage | LeaveSpare | Finish | Exhausted

_SPARE = 1
"""The stage of the spare, if a question has one."""


class ExtraRequests(Protocol):
    """The budget of extra requests."""

    def take(self, stage: int, now_s: float) -> bool:
        """Whether the extra request of this stage may go out; if so, it is paid for."""
        ...


class Speculation:
    """The core of one question; see the module's theory of operation."""

    def __init__(
        self,
        stages_count: int,
        *,
        limit_s: float,
        pause_s: Callable[[int, float], float | None],
        budget: ExtraRequests,
        is_error_patient: bool = False,
        has_spare: bool = False,
    ) -> None:
        """`pause_s(n, elapsed_s)`: time between the n-th request and the next; None: no next.

        The spare is not counted in n. has_spare: stage 1 is a spare.

        is_error_patient: an error sends the next stage only if no other is out, as in
        BookKeeper.
        """
        assert stages_count > has_spare
        self._stages_count = stages_count
        self._limit_s = limit_s
        self._is_error_patient = is_error_patient
        self._has_spare = has_spare
        self._pause_s = pause_s
        self._budget = budget
        self._begun_s = math.nan
        self._asked_count = 0
        self._out: dict[int, float] = {}  # The limit of each stage that is out.
        self._extra = 0  # A mask of the stages that went out as extra requests.
        self._negatives: list[int] = []
        self._wait_s = math.inf  # The last pause, doubled each time the budget refuses.
        self._next_s = math.inf  # When the next stage is due.
        self._is_over = False

    def __repr__(self) -> str:
        return f"Speculation({sorted(self._out)} out, {self._asked_count} asked)"

    @property
    def is_over(self) -> bool:
        """Whether the question is answered, or has been asked in vain."""
        return self._is_over

    @property
    def asked_count(self) -> int:
        """How many stages went out."""
        return self._asked_count

    def is_extra(self, stage: int) -> bool:
        """Whether this stage went out while earlier ones were out."""
        return bool(self._extra >> stage & 1)

    def begin(self, now_s: float) -> list[Effect]:
        """Ask the first replica, and the spare."""
        assert not self._asked_count
        self._begun_s = now_s
        if not self._has_spare:
            return self._ask_next(now_s, is_extra=False)
        effects = self._ask_next(now_s, is_extra=False, count=2)
        return [*effects, AskStage(_SPARE, is_extra=True)]

    def on_answer(self, stage: int, worth: AnswerWorth, now_s: float) -> list[Effect]:
        """The replica of this stage answered, or cannot answer."""
        if self._is_over or stage not in self._out:
            return []
        if worth is AnswerWorth.GOOD:
            return self._finish(stage)
        del self._out[stage]
        if worth is AnswerWorth.NEGATIVE:
            self._negatives.append(stage)
        is_patient = self._is_error_patient or worth is AnswerWorth.BUSY
        asks_next = not self._is_spare(stage) and not (is_patient and self._relied_on())
        return self._after_failures(now_s, asks_next=asks_next)

    def on_hurry(self, now_s: float) -> list[Effect]:
        """The replicas that were asked are unwell: the next stage is due, if any was to go."""
        if self._is_over or self._next_s == math.inf:
            return []
        self._next_s = now_s
        return self.on_timer(now_s)

    def on_timer(self, now_s: float) -> list[Effect]:
        """The time of the timer has come."""
        if self._is_over:
            return []
        late = [stage for stage, limit_s in self._out.items() if limit_s <= now_s]
        for stage in late:
            del self._out[stage]
        if late:
            is_relied_on = any(not self._is_spare(stage) for stage in late)
            asks_next = is_relied_on and not (self._is_error_patient and self._relied_on())
            given_up: list[Effect] = [GiveUpStage(stage) for stage in late]
            return given_up + self._after_failures(now_s, asks_next=asks_next)
        if now_s >= self._next_s:
            stage = self._asked_count
            if self._budget.take(stage, now_s):
                return self._ask_next(now_s, is_extra=True)
            longest_s = max(self._wait_s, REFUSED_SHARE * self._limit_s)
            self._wait_s = min(2 * self._wait_s, longest_s)
            self._next_s = now_s + self._wait_s
        return [self._timer()]

    def _finish(self, stage: int) -> list[Effect]:
        self._is_over = True
        is_hedged = self.is_extra(stage)
        overtaken = tuple(
            one for one in self._relied_on() if one < stage and not self._is_spare(stage)
        )
        losers: list[Effect] = [
            LeaveSpare(one) if self._is_spare(one) else CancelStage(one)
            for one in self._out
            if one != stage
        ]
        return [Finish(stage, is_hedged, overtaken), *losers]

    def _is_spare(self, stage: int) -> bool:
        return self._has_spare and stage == _SPARE

    def _relied_on(self) -> list[int]:
        """The stages that are out, without the spare."""
        return [stage for stage in self._out if not self._is_spare(stage)]

    def _after_failures(self, now_s: float, *, asks_next: bool) -> list[Effect]:
        """Go on after stages that were no use."""
        if self._asked_count < self._stages_count:
            if asks_next:
                return self._ask_next(now_s, is_extra=False)
        elif not self._out:
            self._is_over = True
            return [Exhausted(tuple(sorted(self._negatives)))]
        return [self._timer()]

    def _ask_next(self, now_s: float, *, is_extra: bool, count: int = 1) -> list[Effect]:
        """Ask the next stage; with a `count` of 2, the spare behind it goes out, too."""
        stage = self._asked_count
        self._asked_count += count
        for one in range(stage, stage + count):
            self._out[one] = now_s + self._limit_s
            self._extra |= (is_extra or self._is_spare(one)) << one
        self._next_s = math.inf
        if self._asked_count < self._stages_count:
            requests_count = self._asked_count - self._has_spare
            pause_s = self._pause_s(requests_count, now_s - self._begun_s)
            if pause_s is not None:
                self._wait_s = pause_s
                self._next_s = now_s + pause_s
        # The timer comes first: a replica that cannot be asked makes the shell set another.
        return [self._timer(), AskStage(stage, is_extra)]

    def _timer(self) -> SetTimer:
        return SetTimer(min(self._next_s, *self._out.values()))
