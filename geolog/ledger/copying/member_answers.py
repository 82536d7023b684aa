"""Single requests to members of an ensemble, with a time limit."""

from collections.abc import Callable
from typing import TypeVar

import trio

from geolog.ledger.nodes.connection import NodeRefusedError
from geolog.ledger.nodes.node_pool import LinkUse, NodePool
from geolog.protocol.ids import NO_EPOCH, EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.ledger_state import Member
from geolog.protocol.messages import (
    DoubtSettled,
    EntryAnswer,
    Fence,
    Fenced,
    Message,
    Probe,
    ProbeAnswer,
    Read,
    ReadAnswer,
    Reason,
    SettleDoubt,
    Status,
    StatusRequest,
)
from topology.errors import UnavailableError

_A = TypeVar("_A")


class MemberAnswers:
    """Sends requests to members. Each raises UnavailableError if no answer comes in time."""

    def __init__(self, pool: NodePool, *, timeout_s: float) -> None:
        self._pool = pool
        self._timeout_s = timeout_s

    async def probe(
        self, ledger: LedgerId, member: Member, first: EntryId, count: int
    ) -> ProbeAnswer:
        """Ask the member which of `count` entries from `first` it has; it answers for all."""
        answer = await self._ask(
            member.instance,
            lambda request: Probe(request, ledger, first, count, member.instance),
            ProbeAnswer,
        )
        if len(answer.answers) != count:
            raise UnavailableError(
                f"node {member.node_id} answered for {len(answer.answers)} of {count} entries"
                f" of ledger {ledger}"
            )
        return answer

    async def read(
        self,
        ledger: LedgerId,
        member: Member,
        first: EntryId,
        count: int,
        bytes_max: int,
        *,
        is_from_disk: bool = False,
    ) -> tuple[EntryAnswer, ...]:
        """Read these entries from the member: at least the first, and more as bytes allow."""
        answer = await self._ask(
            member.instance,
            lambda request: Read(
                request,
                ledger,
                first,
                count,
                bytes_max,
                1,
                NO_EPOCH,
                member.instance,
                is_from_disk,
            ),
            ReadAnswer,
            LinkUse.READING,
        )
        if not answer.entries:
            raise UnavailableError(f"node {member.node_id} answered a read without entries")
        return answer.entries[:count]

    async def status(self, instance: InstanceId) -> str:
        """The node's status: a JSON object."""
        return (await self._ask(instance, StatusRequest, Status)).document

    async def fence(self, ledger: LedgerId, instance: InstanceId, epoch: Epoch) -> None:
        """Durably fence the ledger there under its epoch. A ledger deleted there is as good."""
        try:
            await self._ask(
                instance, lambda request: Fence(request, ledger, epoch, instance), Fenced
            )
        except NodeRefusedError as error:
            if error.reason is not Reason.NO_SUCH_LEDGER:
                raise

    async def settle_doubt(
        self, instance: InstanceId, ledgers_below: LedgerId, start_number: int
    ) -> None:
        """Tell a node that all its damage is made good; see `SettleDoubt`."""
        await self._ask(
            instance,
            lambda request: SettleDoubt(request, ledgers_below, start_number, instance),
            DoubtSettled,
        )

    async def _ask(
        self,
        instance: InstanceId,
        make: Callable[[int], Message],
        kind: type[_A],
        use: LinkUse = LinkUse.WRITING,
    ) -> _A:
        with trio.move_on_after(self._timeout_s):
            connection = await self._pool.link(instance, use).wait_connection()
            return await connection.ask(make, kind)
        raise UnavailableError(f"no answer within {self._timeout_s:g} s")
