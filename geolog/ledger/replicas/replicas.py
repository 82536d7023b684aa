"""The one door to replicas: questions to the members of fragments, and whom to ask first.

Every other part of a ledger asks through `Replicas`. It waits for the connection, limits the
time of each question, and knows which members to ask first. There are three ways to ask: one
member, several in turn until one has a good answer, and several at once. Each question to one
member raises UnavailableError if the member fails, refuses, or does not answer in time; the
time limit covers the connection and the answer together.

One object serves all readers, followers, recoveries and tools of a process, so what one of them
learned of a slow or dead node, all know. Its memory is bounded by the number of nodes.

A read that is asked again elsewhere because it is late would begin in `first_of`, and behind
`start_read`: both know the order, and neither tells its caller which member answered first.

Rules: PROTOCOL R15.
"""

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TypeVar

import attrs
import trio

from geolog.ledger.nodes.connection import NodeConnection, PendingQuestion
from geolog.ledger.nodes.node_pool import LinkUse, NodePool
from geolog.ledger.replicas.replica_order import ReplicaOrder
from geolog.protocol.ids import NO_EPOCH, EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.ledger_state import Fragment, Member
from geolog.protocol.messages import (
    DoubtSettled,
    Fence,
    Fenced,
    Follow,
    Message,
    Probe,
    ProbeAnswer,
    Read,
    ReadAnswer,
    SettleDoubt,
    Status,
    StatusRequest,
)
from geolog.protocol.read_window import ReadWindow, ReadWindows
from topology.errors import GeologError, UnavailableError
from topology.read_order import ReadOrder

ANSWER_S = 2.0
"""Time limit of a question, unless the asker sets another."""

SOON_SHARE = 0.25
"""The share of the time for an answer in which a member answers soon."""

A = TypeVar("A")


class SilentMemberError(UnavailableError):
    """A member did not answer in time: it, or the network, is slow or down. Retry later."""


@attrs.frozen
class ReplicasStatistics:
    """How much is known of replicas now."""

    slow_count: int
    """Members asked after the others."""
    orders_count: int
    """Orders kept for fragments."""
    windows_count: int
    """Members whose pace is remembered."""


@attrs.frozen(eq=False)
class Replicas:
    """Asks members of fragments, with one time limit for each question.

    A process has one for its pool. Copies with other time limits (`within`) share all that it
    learns: its order, its slow members, and the pace of each.
    """

    pool: NodePool
    _order: ReplicaOrder
    _windows: ReadWindows = attrs.field(factory=ReadWindows)
    _timeout_s: float = ANSWER_S

    @classmethod
    def of(cls, pool: NodePool, *, region: str | None) -> "Replicas":
        """The door to the pool's nodes, for a client in this region."""
        placement = pool.config.placement
        order = ReplicaOrder(
            ReadOrder(placement.read_order), local=placement.standing(region), rng=pool.rng
        )
        return cls(pool, order)

    def within(self, timeout_s: float) -> "Replicas":
        """The same door, with this time limit for each question."""
        return attrs.evolve(self, timeout_s=timeout_s)

    def __repr__(self) -> str:
        return f"Replicas({self._timeout_s:g} s for an answer)"

    def statistics(self) -> ReplicasStatistics:
        """How much is known now, over all copies."""
        return ReplicasStatistics(
            self._order.slow_count, self._order.kept_count, len(self._windows)
        )

    # Order and health.

    def in_order(self, fragment: Fragment, slots: Sequence[int]) -> list[int]:
        """These slots, the one to ask first in front, and recently failed ones last."""
        return self._order.of(fragment, slots)

    def note_failed(self, member: Member) -> None:
        """Ask this member after the others for a while."""
        self._order.note_slow(member.instance)

    def forgive(self, member: Member) -> None:
        """Ask this member like any other again: it answered in time."""
        self._order.forgive(member.instance)

    # Several members.

    async def first_of(
        self,
        fragment: Fragment,
        slots: Sequence[int],
        ask: Callable[[Member], Awaitable[A | None]],
    ) -> A | None:
        """Ask these members in turn until `ask` returns a good answer; None if none has one.

        A member that fails is asked after the others for a while.
        """
        for slot in self.in_order(fragment, slots):
            member = fragment.ensemble[slot]
            try:
                good = await ask(member)
            except GeologError:
                self.note_failed(member)
                continue
            if good is not None:
                return good
        return None

    async def all_of(
        self,
        fragment: Fragment,
        slots: Iterable[int],
        ask: Callable[[Member], Awaitable[A]],
        *,
        is_soon: bool = False,
    ) -> dict[int, A]:
        """Ask these members at once; returns the answers by slot, in the order they came.

        Members that fail have no answer. `is_soon` waits only for members that answer in a
        fraction of the time.
        """
        limit_s = self._timeout_s * SOON_SHARE if is_soon else math.inf
        answers: dict[int, A] = {}

        async def ask_one(slot: int) -> None:
            try:
                answers[slot] = await ask(fragment.ensemble[slot])
            except GeologError:
                return  # It counts as silent, whatever the reason.

        with trio.move_on_after(limit_s):
            async with trio.open_nursery() as nursery:
                for slot in slots:
                    nursery.start_soon(ask_one, slot)
        return answers

    # One member.

    async def read(
        self,
        ledger: LedgerId,
        member: Member,
        first: EntryId,
        count: int,
        *,
        bytes_max: int,
        epoch: Epoch = NO_EPOCH,
        is_from_disk: bool = False,
        use: LinkUse = LinkUse.READING,
    ) -> ReadAnswer:
        """Read from the member: at least entry `first`, and up to `count` as bytes allow."""
        return await self._ask(
            member.instance,
            lambda request: Read(
                request,
                ledger,
                first,
                count,
                bytes_max,
                1,
                epoch,
                member.instance,
                is_from_disk,
            ),
            ReadAnswer,
            use,
        )

    async def start_read(
        self, ledger: LedgerId, member: Member, first: EntryId, count: int, *, bytes_max: int
    ) -> "StreamedRead":
        """Request entries that come in several answers, as many as the member's link carries.

        The time limit is for sending the request, and then for each answer.
        """
        window = self._windows.of(member.instance)
        with trio.move_on_after(self._timeout_s):
            link = self.pool.link(member.instance, LinkUse.READING)
            connection = await link.wait_connection()
            asking = connection.asking(
                lambda request: Read(
                    request,
                    ledger,
                    first,
                    count,
                    bytes_max,
                    window.answers,
                    NO_EPOCH,
                    member.instance,
                ),
                answers_max=window.answers,
            )
            return StreamedRead(member, asking, window, timeout_s=self._timeout_s)
        raise self._silent(self._timeout_s)

    async def follow(
        self,
        ledger: LedgerId,
        member: Member,
        first: EntryId,
        count: int,
        *,
        bytes_max: int,
        wait_s: float,
    ) -> ReadAnswer:
        """Let the member wait until it knows that `first` is acknowledged, or for `wait_s`."""
        return await self._ask(
            member.instance,
            lambda request: Follow(
                request,
                ledger,
                first,
                count,
                bytes_max,
                round(wait_s * 1000),
                member.instance,
            ),
            ReadAnswer,
            LinkUse.READING,
            within_s=wait_s + self._timeout_s,
        )

    async def probe(
        self,
        ledger: LedgerId,
        member: Member,
        first: EntryId,
        count: int,
        *,
        use: LinkUse = LinkUse.WRITING,
    ) -> ProbeAnswer:
        """Ask the member which of `count` entries from `first` it has; it answers for all."""
        answer = await self._ask(
            member.instance,
            lambda request: Probe(request, ledger, first, count, member.instance),
            ProbeAnswer,
            use,
        )
        if len(answer.answers) != count:
            raise UnavailableError(
                f"node {member.node_id} answered for {len(answer.answers)} of {count} entries"
                f" of ledger {ledger}"
            )
        return answer

    async def fence(self, ledger: LedgerId, instance: InstanceId, epoch: Epoch) -> Fenced:
        """Durably fence the ledger at the node under its epoch."""
        return await self._ask(
            instance, lambda request: Fence(request, ledger, epoch, instance), Fenced
        )

    async def status(self, instance: InstanceId) -> str:
        """The node's status: a JSON object."""
        return (await self._ask(instance, StatusRequest, Status)).document

    async def settle_doubt(
        self, instance: InstanceId, ledgers_below: LedgerId, start_number: int
    ) -> None:
        """Tell a node that all its damage is made good; see `SettleDoubt`."""
        await self._ask(
            instance,
            lambda request: SettleDoubt(request, ledgers_below, start_number, instance),
            DoubtSettled,
        )

    async def reach(
        self, instance: InstanceId, greet: Callable[[NodeConnection], Awaitable[None]]
    ) -> NodeConnection:
        """A connection for adds, over which `greet` has returned: both within the limit."""
        with trio.move_on_after(self._timeout_s):
            connection = await self.pool.link(instance).wait_connection()
            await greet(connection)
            return connection
        raise self._silent(self._timeout_s)

    async def _ask(
        self,
        instance: InstanceId,
        make: Callable[[int], Message],
        kind: type[A],
        use: LinkUse = LinkUse.WRITING,
        *,
        within_s: float | None = None,
    ) -> A:
        timeout_s = self._timeout_s if within_s is None else within_s
        with trio.move_on_after(timeout_s):
            connection = await self.pool.link(instance, use).wait_connection()
            return await connection.ask(make, kind)
        raise self._silent(timeout_s)

    def _silent(self, timeout_s: float) -> SilentMemberError:
        return SilentMemberError(f"no answer within {timeout_s:g} s")


class StreamedRead:
    """A read under way at one member, whose answers come one after another; close it."""

    def __init__(
        self,
        member: Member,
        asking: AbstractContextManager[PendingQuestion],
        window: ReadWindow,
        *,
        timeout_s: float,
    ) -> None:
        self.member = member
        self._window = window
        self._timeout_s = timeout_s
        self._asked = ExitStack()
        self._question = self._asked.enter_context(asking)

    def __repr__(self) -> str:
        return f"StreamedRead(at {self.member.node_id})"

    async def answer(self) -> ReadAnswer:
        """The next answer. UnavailableError if the member fails, or does not answer in time."""
        with trio.move_on_after(self._timeout_s):
            return await self._question.answer(ReadAnswer)
        raise SilentMemberError(f"no answer within {self._timeout_s:g} s")

    def note_complete(self) -> None:
        """Learn from the pace of the answers, all of which came, how far ahead to request."""
        question = self._question
        self._window.on_answered(
            delay_s=question.first_answer_s - question.asked_s,
            took_s=question.waiting_since_s - question.first_answer_s,
            count=question.answers_count,
        )

    def close(self) -> None:
        """Drop the answers that are still to come."""
        self._asked.close()
