"""A question as it is put to any replica, and as it was sent to one."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

import attrs
import trio

from geolog.ledger.nodes.bell import Bell
from geolog.ledger.nodes.connection import NodeConnection, PendingQuestion
from geolog.ledger.nodes.node_pool import LinkUse, NodeLink
from geolog.ledger.replicas.replica_order import ReplicaOrder
from geolog.protocol.ledger_state import Member
from geolog.protocol.messages import Message
from geolog.protocol.speculation import AnswerWorth

A = TypeVar("A")
T = TypeVar("T")


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

    def send_if_connected(self, make: Callable[[Member, int, int], Message]) -> None:
        """Send it if it was not and the link is up by now. ConnectionFailedError."""
        if self.link is not None:
            connection = self.link.connection_nowait(self._bell)
            if connection is not None:
                self.send(connection, make)

    def ring(self, bell: Bell) -> None:
        """Ring this bell from now on."""
        if self.link is not None:
            self.link.forget(self._bell)
        self._bell = bell
        if self.question is not None:
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
