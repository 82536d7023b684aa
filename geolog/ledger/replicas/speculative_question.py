"""Asks one question of several replicas, as `Speculation` decides: its shell.

A question waits for one bell, which answers, connections and lost connections ring, and for
one timer, which is the deadline of that wait. So a question that is answered in time costs no
task, and no more cancel scopes than one with a time limit.

When the timer fires, the process may have been busy itself, with the answer unread in its
socket. So the question first lets the tasks run that receive answers, and looks again.

Rules: PROTOCOL R17 and R18.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Generic, TypeVar, assert_never

import attrs
import trio

from geolog.ledger.nodes.bell import Bell
from geolog.ledger.nodes.connection import (
    NodeConnection,
    NodeRefusedError,
    PendingQuestion,
)
from geolog.ledger.nodes.node_pool import LinkUse, NodeLink, NodePool
from geolog.ledger.replicas.hedging import Hedging
from geolog.ledger.replicas.observed_routes import FirstPause, ObservedRoutes
from geolog.ledger.replicas.replica_order import ReplicaOrder, SilentMemberError
from geolog.protocol.hedge_policy import PAUSE_S_MIN, HedgeMoment
from geolog.protocol.ledger_state import Member
from geolog.protocol.messages import Message, Reason
from geolog.protocol.speculation import (
    AnswerWorth,
    AskStage,
    CancelStage,
    Effect,
    Exhausted,
    Finish,
    GiveUpStage,
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


@attrs.frozen
class Request(Generic[A, T]):
    """The question as it is put to any replica."""

    make: Callable[[Member, int, int], Message]
    """Builds the message for a member, from a request number and the most answers wanted."""
    kind: type[A]
    """The class of the answer."""
    judge: Callable[[Member, A, bool], T | AnswerWorth]
    """The result of a member's good answer, or the worth of another; True: it was hedged."""
    use: LinkUse = LinkUse.READING
    is_timed: bool = True
    """Whether the delay of its answers is typical for the route."""


class OpenRequest:
    """The question as it was sent, or is about to be sent, to one replica."""

    __slots__ = (
        "_asking",
        "_bell",
        "_order",
        "answers_max",
        "asked_s",
        "link",
        "member",
        "question",
    )

    def __init__(
        self,
        order: ReplicaOrder,
        member: Member,
        bell: Bell,
        answers_max: int,
        *,
        link: NodeLink | None = None,
    ) -> None:
        self.member = member
        self.link = link
        """The link while it has no connection."""
        self.question: PendingQuestion | None = None
        self.answers_max = answers_max
        self.asked_s = trio.current_time()
        self._order = order
        self._bell = bell
        self._asking: AbstractContextManager[PendingQuestion] | None = None
        order.asked(member.instance)

    def __repr__(self) -> str:
        return f"OpenRequest(at {self.member.node_id})"

    @classmethod
    def sent(
        cls,
        order: ReplicaOrder,
        member: Member,
        connection: NodeConnection,
        make: Callable[[Member, int, int], Message],
        *,
        answers_max: int,
    ) -> "OpenRequest":
        """A request over a connection. ConnectionFailedError."""
        request = cls(order, member, Bell(), answers_max)
        request.send(connection, make)
        return request

    @property
    def is_begun(self) -> bool:
        """Whether an answer was taken."""
        return self.question is not None and self.question.taken_count > 0

    @property
    def has_answers(self) -> bool:
        """Whether answers have come that were not taken."""
        question = self.question
        return question is not None and question.answers_count > question.taken_count

    @property
    def is_received(self) -> bool:
        """Whether all its answers have come."""
        return self.question is not None and self.question.is_received

    def send(
        self, connection: NodeConnection, make: Callable[[Member, int, int], Message]
    ) -> None:
        """Send it over the connection. ConnectionFailedError."""
        member, answers_max = self.member, self.answers_max
        asking = connection.asking(
            lambda request: make(member, request, answers_max),
            answers_max=answers_max,
            bell=self._bell,
        )
        self.question = asking.__enter__()
        self._asking, self.link = asking, None

    def take(self, wanted: Request[A, T], *, is_hedged: bool = False) -> T | AnswerWorth | None:
        """The result of the next answer, or its worth; None if none has come. GeologError."""
        question = self.question
        if question is None:
            return None
        is_first = not question.taken_count
        answer = question.answer_nowait(wanted.kind)
        if answer is None:
            return None
        if is_first and wanted.is_timed:
            self._order.note_answered(
                self.member.instance, question.first_answer_s - question.asked_s
            )
        return wanted.judge(self.member, answer, is_hedged)

    def ring(self, bell: Bell) -> None:
        """Ring this bell from now on."""
        self._bell = bell
        assert self.question is not None, "it was not sent"
        self.question.bell = bell

    def close(self, *, cancels: bool = True) -> None:
        """End it: answers that still come are dropped. cancels: the node is told."""
        self._order.ended(self.member.instance)
        if self.link is not None:
            self.link.forget(self._bell)
        if self.question is not None:
            self.question.is_to_be_cancelled = cancels
        if self._asking is not None:
            self._asking.__exit__(None, None, None)


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
    ) -> None:
        """under_way: a request that was sent to the first member before.

        answers_max: how many answers to request from the first member; one from the others.
        """
        self._means = means
        self._members = members
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
        )
        self._open: dict[int, OpenRequest] = {}
        self._good: T | None = None
        self._end: Given[T] | Exhausted | None = None
        self._timer_s = math.inf

    def __repr__(self) -> str:
        return f"SpeculativeQuestion({self._core})"

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
                if waiting.cancelled_caught and self._end is None:
                    await trio.lowlevel.checkpoint()
                    self._take_answers()
                    if self._end is None:
                        self._perform(self._core.on_timer(trio.current_time()))
        finally:
            if self._end is None:  # Cancelled: nobody waits for it any more.
                for request in self._open.values():
                    request.close()
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

        It is free once all members that were asked are demoted, and others are not: no reader
        would ask them first any more, so it replaces their requests.
        """
        member, order = self._members[stage], self._means.order
        for request in self._open.values():
            order.note_late(request.member.instance, request.asked_s)
        is_replacement = all(
            order.is_demoted(request.member.instance) for request in self._open.values()
        ) and not all(order.is_demoted(one.instance) for one in self._members[stage:])
        terms = self._means.hedging.policy.terms
        return self._means.hedging.record.take(
            stage,
            now_s,
            is_remote=self._means.routes.to(member).is_remote,
            is_budgeted=terms.is_budgeted and not is_replacement,
        )

    def _pause_s(self, stage: int, elapsed_s: float) -> float | None:
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
        routes = self._means.routes.all_to(self._members)
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
                case Finish(stage, is_hedged, overtaken):
                    self._finish(stage, overtaken, is_hedged=is_hedged)
                case Exhausted():
                    self._end = effect
                case _:
                    assert_never(effect)

    def _send(self, stage: int) -> None:
        if stage == 0 and self._under_way is not None:
            self._under_way.ring(self._bell)
            self._open[0] = self._under_way
            return
        member = self._members[stage]
        link = self._means.pool.link(member.instance, self._request.use)
        answers_max = 1 if stage else self._answers_max
        request = OpenRequest(self._means.order, member, self._bell, answers_max, link=link)
        self._open[stage] = request
        try:
            self._send_if_connected(request, link)
        except GeologError as error:
            self._fail(stage, error)
            self._perform(self._core.on_answer(stage, AnswerWorth.ERROR, trio.current_time()))

    def _send_if_connected(self, request: OpenRequest, link: NodeLink) -> None:
        connection = link.connection_nowait(self._bell)
        if connection is not None:
            request.send(connection, self._request.make)

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
        if request.link is not None:
            self._send_if_connected(request, request.link)
        return request.take(self._request, is_hedged=self._core.is_extra(stage))


def _worth_of(error: GeologError) -> AnswerWorth:
    if isinstance(error, NodeRefusedError) and error.reason is Reason.BUSY:
        return AnswerWorth.BUSY
    return AnswerWorth.ERROR
