"""Requests that try a replica, and that go on after their questions were answered by another.

A replica on probation is tried at the side of a good one, which often answers first. The trial
still decides whether the replica is forgiven, so somebody has to wait for its answer.

Rules: PROTOCOL R21.
"""

from collections.abc import Callable
from typing import TypeVar

import attrs
import trio

from geolog.ledger.nodes.bell import Bell
from geolog.ledger.replicas.open_request import OpenRequest, Request
from geolog.ledger.replicas.replica_order import ReplicaOrder, SilentMemberError
from geolog.protocol.ids import InstanceId
from topology.errors import GeologError

A = TypeVar("A")
T = TypeVar("T")

LIMIT_S = 2.0
"""How long a replica that is tried may take to answer, from its request."""


@attrs.frozen(eq=False)
class _Left:
    open: OpenRequest
    take: Callable[[], bool]
    """Whether its answer has come. GeologError if that is a refusal or there will be none."""


class LeftTrials:
    """The trials of a process that their questions left: at most one for each replica."""

    def __init__(self, order: ReplicaOrder) -> None:
        self._order = order
        self._left: dict[InstanceId, _Left] = {}
        self.bell = Bell()
        """Rung when one may have its answer: call `judge`."""

    def __repr__(self) -> str:
        return f"LeftTrials({len(self._left)})"

    def __len__(self) -> int:
        return len(self._left)

    def leave(self, trial: OpenRequest, request: Request[A, T]) -> None:
        """Wait for the answer to this request."""
        before = self._left.pop(trial.member.instance, None)
        if before is not None:
            before.open.close()
        trial.ring(self.bell)

        def take() -> bool:
            trial.send_if_connected(request.make)
            return trial.take(request, is_hedged=True) is not None

        self._left[trial.member.instance] = _Left(trial, take)
        self.bell.ring()

    def judge(self) -> None:
        """Learn from the trials that were answered, failed, or took too long."""
        for instance, left in list(self._left.items()):
            try:
                is_answered = left.take()
                if not is_answered and trio.current_time() >= left.open.asked_s + LIMIT_S:
                    raise SilentMemberError(f"no answer within {LIMIT_S:g} s")
            except GeologError as error:
                self._order.note_error(instance, error)
                is_answered = True
            if is_answered:
                del self._left[instance]
                left.open.close()

    def close(self) -> None:
        """Drop all of them."""
        while self._left:
            self._left.popitem()[1].open.close()
