"""The one door to replicas: questions to the members of fragments, and whom to ask first.

Every other part of a ledger asks through `Replicas`. It waits for the connection, limits the
time of each question, and knows which members to ask first. There are three ways to ask: one
member, several in turn until one has a good answer, and several at once. Each question to one
member raises UnavailableError if the member fails, refuses, or does not answer in time; the
time limit covers the connection and the answer together.

A question to several members in turn is speculative: it goes to the next member when the one
before is later than usual (`SpeculativeQuestion`). Recovery's reads are not: they go to all
members at once, because each of them has to fence.

One object serves all readers, followers, recoveries and tools of a process, so what one of them
learned of a slow or dead node, all know. Its memory is bounded by the number of nodes.

Rules: PROTOCOL R15.
"""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

import attrs
import trio

from geolog.ledger.nodes.bell import Bell
from geolog.ledger.nodes.connection import AnswerSink, NodeConnection, StandingQuestion
from geolog.ledger.nodes.node_pool import LinkUse, NodePool
from geolog.ledger.replicas.hedging import Hedging, ReadStatistics, ServedReads
from geolog.ledger.replicas.left_trials import LeftTrials
from geolog.ledger.replicas.observed_routes import ObservedRoutes
from geolog.ledger.replicas.open_request import OpenRequest, Request
from geolog.ledger.replicas.replica_order import ReplicaOrder, SilentMemberError
from geolog.ledger.replicas.speculative_question import (
    Given,
    QuestionMeans,
    SpeculativeQuestion,
)
from geolog.protocol.hedge_policy import AUTO, PAUSE_S_MIN, HedgeMoment, HedgePolicy
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
from geolog.protocol.read_window import ReadWindows
from geolog.protocol.speculation import AnswerWorth, Exhausted
from geolog.transport.seam import ConnectionFailedError
from topology.errors import GeologError, UnavailableError
from topology.read_order import ReadOrder

ANSWER_S = 2.0
"""Time limit of a question, unless the asker sets another."""

SOON_SHARE = 0.25
"""The share of the time for an answer in which a member answers soon."""

NO_LEDGER = LedgerId(0)
"""No ledger has this id."""

PATIENCE_S_MIN = 0.25
"""A member that is only late is not silent before that; a busy node may take so long."""

PATIENCE_PAUSES = 4.0
"""The same, in pauses of the hedge policy."""

BETWEEN_ANSWERS_S = 0.05
"""A stream of answers may pause for this long before another member is asked, too."""

A = TypeVar("A")
T = TypeVar("T")


class _PoolLinks:
    """The pool's connections for reads: `ReadLinks`."""

    def __init__(self, pool: NodePool) -> None:
        self._pool = pool
        self._unheard = Bell()  # Nobody waits for these connections.

    def is_connected(self, instance: InstanceId) -> bool:
        return self._pool.is_connected(instance, LinkUse.READING)

    def reach(self, instance: InstanceId) -> None:
        with suppress(ConnectionFailedError):
            self._pool.link(instance, LinkUse.READING).connection_nowait(self._unheard)


@attrs.frozen
class ReplicasStatistics:
    """How much is known of replicas now."""

    demoted_count: int
    """Members asked after the others."""
    orders_count: int
    """Orders kept for fragments."""
    windows_count: int
    """Members whose pace is remembered."""
    demotions_count: dict[str, int]
    """Demotions so far, by reason."""


@attrs.frozen(eq=False)
class Replicas:
    """Asks members of fragments, with one time limit for each question.

    A process has one for its pool. Copies with other time limits (`within`) share all that it
    learns: its order, its demoted members, and the pace of each.
    """

    _means: QuestionMeans
    _windows: ReadWindows = attrs.field(factory=ReadWindows)
    _timeout_s: float = ANSWER_S

    @classmethod
    def of(cls, pool: NodePool, *, region: str | None, hedge: HedgePolicy = AUTO) -> "Replicas":
        """The door to the pool's nodes, for a client in this region."""
        placement = pool.config.placement
        order = ReplicaOrder(
            ReadOrder(placement.read_order),
            local=placement.standing(region),
            rng=pool.rng,
            use_of=pool.nodes.use_of,
            links=_PoolLinks(pool),
            next_regions=placement.next_regions_named,
        )
        means = QuestionMeans(
            pool, order, ObservedRoutes(order), Hedging(hedge), LeftTrials(order)
        )
        return cls(means)

    @property
    def pool(self) -> NodePool:
        """The nodes, and the connections to them."""
        return self._means.pool

    def hedged_by(self, policy: HedgePolicy) -> "Replicas":
        """The same door, under this hedge policy."""
        hedging = attrs.evolve(self._means.hedging, policy=policy)
        return attrs.evolve(self, means=attrs.evolve(self._means, hedging=hedging))

    def within(self, timeout_s: float) -> "Replicas":
        """The same door, with this time limit for each question."""
        return attrs.evolve(self, timeout_s=timeout_s)

    @property
    def left_trials(self) -> LeftTrials:
        """Requests that try a replica, after their questions ended."""
        return self._means.left_trials

    @property
    def order(self) -> ReplicaOrder:
        """Orders members, by what was observed of each."""
        return self._means.order

    def __repr__(self) -> str:
        return f"Replicas({self._timeout_s:g} s for an answer)"

    def statistics(self) -> ReplicasStatistics:
        """How much is known now, over all copies."""
        return ReplicasStatistics(
            self.order.demoted_count,
            self.order.kept_count,
            len(self._windows),
            self.order.demotions_count,
        )

    def served_reads(self) -> Mapping[str, ServedReads]:
        """Reads so far, by the region of the replica that served them; live counts."""
        return self._means.hedging.record.served

    def read_statistics(self) -> ReadStatistics:
        """Questions so far, over all copies, and how they were hedged."""
        return self._means.hedging.record.statistics()

    # Order and health.

    def in_order(self, fragment: Fragment, slots: Sequence[int]) -> list[int]:
        """These slots, the one to ask first in front, and recently failed ones last."""
        return self.order.of(fragment, slots)

    def note_failed(self, member: Member) -> None:
        """Ask this member after the others for a while."""
        self.order.note_failed(member.instance)

    def note_error(self, member: Member, error: GeologError) -> None:
        """Ask this member after the others for a while, if the error says that it is unwell."""
        self.order.note_error(member.instance, error)

    def forgive(self, member: Member) -> None:
        """Ask this member like any other again: it is well."""
        self.order.forgive(member.instance)

    # Several members.

    async def first_of(
        self, fragment: Fragment, slots: Sequence[int], request: Request[A, T]
    ) -> Given[T] | Exhausted:
        """Ask these members in order until one has a good answer, and others if it is late."""
        # Only an answer whose time is typical could decide a trial.
        tried: int | None = None
        if request.is_timed:
            order, tried = self.order.with_trial(fragment, slots)
        else:
            order = self.in_order(fragment, slots)
        given = await SpeculativeQuestion(
            self._means,
            [fragment.ensemble[slot] for slot in order],
            request,
            limit_s=self._timeout_s,
            tried=None if tried is None else fragment.ensemble[tried],
        ).ask()
        if isinstance(given, Given):
            given.request.close()
        return given

    async def all_of(
        self,
        fragment: Fragment,
        slots: Sequence[int],
        ask: Callable[[Member], Awaitable[A]],
        *,
        is_soon: bool = False,
        is_usual: bool = False,
        is_enough: Callable[[dict[int, A]], bool] | None = None,
    ) -> dict[int, A]:
        """Ask these members at once; returns the answers by slot, in the order they came.

        Members that fail have no answer. `is_soon` waits only for members that answer in a
        fraction of the time. If reads are hedged, `is_usual` waits only as long as is usual for
        them, and those that are late then have failed; and once the answers are enough, the
        others get only that time.
        """
        limit_s = self._timeout_s * SOON_SHARE if is_soon else math.inf
        if is_usual:
            limit_s = self._patience_s([fragment.ensemble[slot] for slot in slots])
        silent = list(slots)
        answers: dict[int, A] = {}

        async def ask_one(slot: int) -> None:
            try:
                answers[slot] = await ask(fragment.ensemble[slot])
            except GeologError:
                silent.remove(slot)
                return  # It has no answer, whatever the reason.
            silent.remove(slot)
            if is_enough is not None and limit.deadline == math.inf and is_enough(answers):
                late = [fragment.ensemble[one] for one in slots if one not in answers]
                limit.deadline = trio.current_time() + self._patience_s(late)

        with trio.move_on_after(limit_s) as limit:
            async with trio.open_nursery() as nursery:
                for slot in slots:
                    nursery.start_soon(ask_one, slot)
        if is_usual:
            for slot in silent:
                self.order.note_failed(fragment.ensemble[slot].instance, is_silent=True)
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
        instance = member.instance
        asked_s = trio.current_time()
        self.order.asked(instance)
        try:
            answer = await self._ask(
                instance,
                lambda request: Read(
                    request,
                    ledger,
                    first,
                    count,
                    bytes_max,
                    1,
                    epoch,
                    instance,
                    is_from_disk,
                ),
                ReadAnswer,
                use,
            )
        finally:
            self.order.ended(instance)
        if not is_from_disk:  # Those are for verification, and slower than others.
            self.order.note_answered(instance, trio.current_time() - asked_s)
        return answer

    def read_request(
        self,
        ledger: LedgerId,
        first: EntryId,
        count: int,
        *,
        bytes_max: int,
        judge: Callable[[Member, ReadAnswer, bool], T | AnswerWorth],
    ) -> Request[ReadAnswer, T]:
        """The question for at least entry `first`, and up to `count` as bytes allow.

        `judge` gives the result of a good answer, or the worth of another; True means that it
        was hedged.
        """

        def make(member: Member, request: int, answers_max: int) -> Read:
            return Read(
                request,
                ledger,
                first,
                count,
                bytes_max,
                answers_max,
                NO_EPOCH,
                member.instance,
            )

        return Request(make, ReadAnswer, judge)

    async def next_of(
        self,
        members: Sequence[Member],
        request: Request[A, T],
        *,
        answers_max: int,
        under_way: OpenRequest | None,
    ) -> Given[T] | Exhausted:
        """The next answer of a stream of answers; the caller closes its request.

        members: the one that streams, then others that could. under_way: the request to the
        first of them, if it was sent before; a new one requests `answers_max` answers.
        """
        is_begun = under_way is not None and under_way.is_begun
        return await SpeculativeQuestion(
            self._means,
            members,
            request,
            limit_s=self._timeout_s,
            answers_max=answers_max,
            pause_s_min=BETWEEN_ANSWERS_S if is_begun else PAUSE_S_MIN,
            under_way=under_way,
        ).ask()

    def window_of(self, instance: InstanceId) -> int:
        """How many answers to request of this member at a time."""
        return self._windows.of(instance).answers

    def ask_ahead(
        self, member: Member, request: Request[A, T], *, answers_max: int
    ) -> OpenRequest | None:
        """Send the member a request for a stream of answers; None if that would wait."""
        connection = self.pool.link(member.instance, request.use).connection
        if connection is None or connection.is_broken:
            return None
        self._means.hedging.record.note_first(trio.current_time())
        return OpenRequest.sent(
            self.order,
            member,
            connection,
            request.make,
            answers_max=answers_max,
        )

    def reach_soon(self, member: Member) -> None:
        """Have a connection for reads attempted in the background, unless it just failed."""
        _PoolLinks(self.pool).reach(member.instance)

    def is_demoted(self, member: Member) -> bool:
        """Whether this member is asked after the others now."""
        return self.order.is_demoted(member.instance)

    def note_complete(self, request: OpenRequest) -> None:
        """Learn from the pace of the answers, all of which came, how far ahead to request."""
        question = request.question
        assert question is not None
        self._windows.of(request.member.instance).on_answered(
            delay_s=question.first_answer_s - question.asked_s,
            took_s=question.waiting_since_s - question.first_answer_s,
            count=question.answers_count,
        )

    def note_bytes(self, size_bytes: int) -> None:
        """Count the bytes of entries that were read."""
        self._means.hedging.record.note_bytes(size_bytes)

    def note_damaged(self, member: Member) -> None:
        """Count a damaged copy of the member's."""
        self._means.hedging.record.damaged_count[member.node_id] += 1

    def follow_nowait(
        self,
        connection: NodeConnection,
        ledger: LedgerId,
        member: Member,
        first: EntryId,
        count: int,
        *,
        bytes_max: int,
        wait_s: float,
        sink: AnswerSink,
    ) -> StandingQuestion | None:
        """Let the member answer `sink` once it knows that `first` is acknowledged.

        With a `count` of 0 it answers with its LAC alone. None if the connection has ended. The
        time limit of questions does not apply: the member may wait for `wait_s`.
        """
        return connection.ask_nowait(
            lambda request: Follow(
                request,
                ledger,
                first,
                count,
                bytes_max,
                round(wait_s * 1000),
                member.instance,
            ),
            sink,
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

    async def round_trip_s(self, instance: InstanceId) -> float:
        """Measure a round trip to the node, once connected.

        The question is a probe for no entries of no ledger, which a node answers from memory.
        """
        took_s = math.nan

        async def probe(connection: NodeConnection) -> None:
            nonlocal took_s
            asked_s = trio.current_time()
            await connection.ask(
                lambda request: Probe(request, NO_LEDGER, EntryId(0), 0, instance), ProbeAnswer
            )
            took_s = trio.current_time() - asked_s

        await self.reach(instance, probe)
        return took_s

    async def lac(
        self, ledger: LedgerId, fragment: Fragment, slots: Sequence[int]
    ) -> EntryId | None:
        """The LAC that the first of these members to answer knows; None if none answers."""

        def make(member: Member, request: int, _answers_max: int) -> Probe:
            return Probe(request, ledger, EntryId(0), 0, member.instance)

        def judge(_member: Member, answer: ProbeAnswer, _is_hedged: bool) -> EntryId:  # noqa: FBT001 - A callback.
            return answer.lac

        # A probe reads no entries: how long it takes says little about reads.
        request = Request(make, ProbeAnswer, judge, is_timed=False)
        given = await self.first_of(fragment, slots, request)
        return given.good if isinstance(given, Given) else None

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

    def _patience_s(self, members: Sequence[Member]) -> float:
        """How long to wait for the slowest of these members before it counts as silent."""
        policy, pauses = self._means.hedging.policy, [PATIENCE_S_MIN]
        for route in self._means.routes.all_to(members):
            pause_s = policy.pause_s(HedgeMoment([route, route], 1, 0.0, 0.0))
            if pause_s is None:
                return self._timeout_s
            pauses.append(PATIENCE_PAUSES * pause_s)
        return min(self._timeout_s, max(pauses))

    def _silent(self, timeout_s: float) -> SilentMemberError:
        return SilentMemberError(f"no answer within {timeout_s:g} s")
