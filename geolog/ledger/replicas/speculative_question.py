"""Asks one question of several replicas, as `Speculation` decides: its shell.

A question waits for one bell, which answers, connections and lost connections ring, and for
one timer, which is the deadline of that wait. So a question that is answered in time costs no
task, and no more cancel scopes than one with a time limit.

When the timer fires, the process may have been busy itself, with the answer unread in its
socket. So the question first lets the tasks run that receive answers, and looks again.

A late question that waits only for members that were demoted meanwhile replaces its request at
once, without cost to the budget.

Rules: PROTOCOL R17, R18, R21 and R25.
"""

import math
from collections.abc import Sequence
from typing import Generic, TypeVar, assert_never

import attrs
import trio

from geolog.ledger.nodes.bell import Bell
from geolog.ledger.nodes.connection import (
    NodeRefusedError,
)
from geolog.ledger.nodes.node_pool import NodePool
from geolog.ledger.replicas.hedging import ExtraReason, Hedging
from geolog.ledger.replicas.left_trials import LeftTrials
from geolog.ledger.replicas.observed_routes import FirstPause, ObservedRoutes
from geolog.ledger.replicas.open_request import OpenRequest, Request
from geolog.ledger.replicas.replica_order import ReplicaOrder, SilentMemberError
from geolog.protocol.hedge_policy import PAUSE_S_MIN, HedgeMoment
from geolog.protocol.ids import InstanceId
from geolog.protocol.ledger_state import Member
from geolog.protocol.messages import Reason
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
from topology.errors import GeologError

FIRST_PAUSE_S = 0.25
"""How long questions over one route use the same first pause."""

A = TypeVar("A")
T = TypeVar("T")


@attrs.frozen(eq=False)
class QuestionMeans:
    """All that questions of a process share."""

    pool: NodePool
    order: ReplicaOrder
    routes: ObservedRoutes
    hedging: Hedging
    left_trials: LeftTrials


@attrs.frozen
class Given(Generic[T]):
    """A good answer. `request`: where it came from; close it."""

    good: T
    request: OpenRequest
    is_hedged: bool


class SpeculativeQuestion(Generic[A, T]):
    """One question to members in order. `ask` may be called once.

    Invariant: `_open` has the requests of all stages that are out, and no others.
    """

    def __init__(
        self,
        means: QuestionMeans,
        members: Sequence[Member],
        request: Request[A, T],
        *,
        limit_s: float,
        answers_max: int = 1,
        pause_s_min: float = PAUSE_S_MIN,
        under_way: OpenRequest | None = None,
        tried: Member | None = None,
    ) -> None:
        """under_way: a request that was sent to the first member before.

        tried: one of the other members, to be tried at the side of the first.
        answers_max: how many answers to request from the first member; one from the others.
        """
        self._means = means
        self._members = members
        # The members in the order of stages, by their place in `members`.
        self._places = list(range(len(members)))
        self._has_spare = tried is not None
        if tried is not None:
            place = members.index(tried)
            self._places.remove(place)
            self._places.insert(1, place)
        self._request = request
        self._answers_max = answers_max
        self._pause_s_min = pause_s_min
        self._under_way = under_way
        self._bell = Bell()
        self._pause_before_s = 0.0
        terms = means.hedging.policy.terms
        self._core = Speculation(
            len(members),
            limit_s=limit_s,
            pause_s=self._pause_s,
            budget=self,
            is_error_patient=terms.is_error_patient,
            has_spare=self._has_spare,
        )
        self._waits_for: dict[InstanceId, None] = {}  # Late: it is told of their demotions.
        self._open: dict[int, OpenRequest] = {}
        self._good: T | None = None
        self._end: Given[T] | Exhausted | None = None
        self._timer_s = math.inf

    def __repr__(self) -> str:
        return f"SpeculativeQuestion({len(self._members)} members, {len(self._open)} asked)"

    async def ask(self) -> Given[T] | Exhausted:
        """Ask until a replica has a good answer, or all have answered in vain."""
        begun_s = trio.current_time()
        if self._under_way is None:
            self._means.hedging.record.note_first(begun_s)
        try:
            self._perform(self._core.begin(begun_s))
            if self._under_way is not None:
                self._take_answers()
            while self._end is None:
                with trio.CancelScope(deadline=self._timer_s) as waiting:
                    await self._bell.wait()
                self._take_answers()
                self._hurry_if_replaceable()
                if waiting.cancelled_caught and self._end is None:
                    await trio.lowlevel.checkpoint()
                    self._take_answers()
                    if self._end is None:
                        self._perform(self._core.on_timer(trio.current_time()))
        finally:
            for instance in self._waits_for:
                self._means.order.forget(instance, self._bell)
            if self._end is None:  # Cancelled: nobody waits for it any more.
                for request in self._open.values():
                    request.close()
            # It knows this question: else the two would keep what was read until the garbage
            # collector comes by.
            del self._core
        took_s = trio.current_time() - begun_s
        record = self._means.hedging.record
        if self._request.is_timed and isinstance(self._end, Given):
            region = self._end.request.member.location.region
            record.served[region].note(took_s, is_hedged=self._end.is_hedged)
        sla_s = self._means.hedging.policy.terms.sla_s
        if sla_s is not None and took_s > sla_s:
            record.late_count += 1
        return self._end

    # For the core.

    def take(self, stage: int, now_s: float) -> bool:
        """Whether this late question may go to one more member; if so, it is paid for.

        A replacement is free, and so is the one question that finds out whether a member hangs.
        """
        order, record = self._means.order, self._means.hedging.record
        for request in self._relied_on():
            order.note_late(request.member.instance, request.asked_s)
        is_replacement = self._is_replaceable()
        if is_replacement:  # By one that is well.
            left = self._places[stage:]
            left.sort(key=lambda place: order.is_demoted(self._members[place].instance))
            self._places[stage:] = left
        is_remote = self._means.routes.to(self._member(stage)).is_remote
        if is_replacement:
            record.add(stage, ExtraReason.REPLACEMENT)
            return True
        is_budgeted = self._means.hedging.policy.terms.is_budgeted
        if record.take(stage, now_s, is_remote=is_remote, is_budgeted=is_budgeted):
            return True
        if self._finds_out():
            record.add(stage, ExtraReason.SILENT)
            return True
        self._wait_demoted()
        return False

    def _relied_on(self) -> list[OpenRequest]:
        """The requests that are out, without the spare."""
        return [
            request
            for stage, request in self._open.items()
            if not (self._has_spare and stage == 1)
        ]

    def _is_replaceable(self) -> bool:
        """Whether all members that were asked are demoted, and one that was not is well.

        No reader would ask them first any more.
        """
        is_demoted = self._means.order.is_demoted
        return all(is_demoted(one.member.instance) for one in self._relied_on()) and not all(
            is_demoted(self._members[place].instance)
            for place in self._places[self._core.asked_count :]
        )

    def _hurry_if_replaceable(self) -> None:
        """Go further at once if the members that were late have just been demoted."""
        if self._waits_for and self._end is None and self._is_replaceable():
            self._perform(self._core.on_hurry(trio.current_time()))

    def _finds_out(self) -> bool:
        order = self._means.order
        return any(
            order.take_free(one.member.instance, one.asked_s) for one in self._relied_on()
        )

    def _wait_demoted(self) -> None:
        """Be told when a member that is waited for is demoted."""
        for request in self._relied_on():
            instance = request.member.instance
            if instance not in self._waits_for:
                self._waits_for[instance] = None
                self._means.order.wait_demoted(instance, self._bell)

    def _member(self, stage: int) -> Member:
        return self._members[self._places[stage]]

    def _pause_s(self, stage: int, elapsed_s: float) -> float | None:
        """The pause between the n-th request and the next; the spare does not count."""
        pause_s = self._first_pause_s() if stage == 1 else self._set_pause_s(stage, elapsed_s)
        if pause_s is not None:
            self._pause_before_s = pause_s = max(pause_s, self._pause_s_min)
        return pause_s

    def _first_pause_s(self) -> float | None:
        """The pause after the first request, which hardly changes within `FIRST_PAUSE_S`."""
        now_s = trio.current_time()
        policy = self._means.hedging.policy
        route = self._means.routes.to(self._members[0])
        known = route.first_pause
        if known.policy is not policy or now_s >= known.until_s:
            known = route.first_pause = FirstPause(
                policy, self._set_pause_s(1, 0.0), now_s + FIRST_PAUSE_S
            )
        return known.pause_s

    def _set_pause_s(self, stage: int, elapsed_s: float) -> float | None:
        members = [self._members[place] for place in self._places]
        if self._has_spare:
            del members[1]
        routes = self._means.routes.all_to(members)
        return self._means.hedging.policy.pause_s(
            HedgeMoment(routes, stage, elapsed_s, self._pause_before_s)
        )

    # Effects.

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case AskStage(stage):
                    self._send(stage)
                case SetTimer(at_s):
                    self._timer_s = at_s
                case GiveUpStage(stage):
                    self._fail(stage, SilentMemberError("no answer in time"))
                case CancelStage(stage):
                    terms = self._means.hedging.policy.terms
                    self._open.pop(stage).close(cancels=terms.cancels_losers)
                case LeaveSpare(stage):
                    spare = self._open.pop(stage)
                    self._means.left_trials.leave(spare, self._request)
                case Finish(stage, is_hedged, overtaken):
                    self._finish(stage, overtaken, is_hedged=is_hedged)
                case Exhausted(negatives):
                    self._end = Exhausted(tuple(sorted(self._places[one] for one in negatives)))
                case _:
                    assert_never(effect)

    def _send(self, stage: int) -> None:
        if stage == 0 and self._under_way is not None:
            self._under_way.ring(self._bell)
            self._open[0] = self._under_way
            return
        member = self._member(stage)
        if self._has_spare and stage == 1:
            self._means.hedging.record.add(stage, ExtraReason.TRIAL)
        link = self._means.pool.link(member.instance, self._request.use)
        answers_max = 1 if stage else self._answers_max
        request = OpenRequest(self._means.order, member, self._bell, answers_max, link=link)
        self._open[stage] = request
        if self._core.is_extra(stage):
            self._wait_demoted()
        try:
            request.send_if_connected(self._request.make)
        except GeologError as error:
            self._fail(stage, error)
            self._perform(self._core.on_answer(stage, AnswerWorth.ERROR, trio.current_time()))

    def _fail(self, stage: int, error: GeologError) -> None:
        request = self._open.pop(stage)
        request.close()
        self._means.hedging.record.failed_count += 1
        self._means.order.note_error(request.member.instance, error)

    def _finish(self, stage: int, overtaken: tuple[int, ...], *, is_hedged: bool) -> None:
        assert self._good is not None
        for one in overtaken:
            lost = self._open[one]
            self._means.order.note_overtaken(lost.member.instance, lost.asked_s)
        if is_hedged:
            self._means.hedging.record.won_count += 1
        self._end = Given(self._good, self._open.pop(stage), is_hedged)

    # Events.

    def _take_answers(self) -> None:
        """Take everything that has come for the requests that are out."""
        for stage, request in list(self._open.items()):
            if stage in self._open:  # Otherwise it has just lost.
                self._take_answer(stage, request)

    def _take_answer(self, stage: int, request: OpenRequest) -> None:
        try:
            judged = self._judged(stage, request)
        except GeologError as error:
            self._fail(stage, error)
            self._perform(self._core.on_answer(stage, _worth_of(error), trio.current_time()))
            return
        if judged is None:
            return
        if isinstance(judged, AnswerWorth):
            self._open.pop(stage).close()
            self._perform(self._core.on_answer(stage, judged, trio.current_time()))
            return
        self._good = judged
        self._perform(self._core.on_answer(stage, AnswerWorth.GOOD, trio.current_time()))

    def _judged(self, stage: int, request: OpenRequest) -> T | AnswerWorth | None:
        """The result of an answer, or its worth; None if none has come. GeologError."""
        request.send_if_connected(self._request.make)
        return request.take(self._request, is_hedged=self._core.is_extra(stage))


def _worth_of(error: GeologError) -> AnswerWorth:
    if isinstance(error, NodeRefusedError) and error.reason is Reason.BUSY:
        return AnswerWorth.BUSY
    return AnswerWorth.ERROR
