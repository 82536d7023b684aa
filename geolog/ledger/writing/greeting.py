"""Making a ledger known to several nodes at once, before any of them is sent an entry."""

from collections.abc import Iterable
from functools import partial

import trio

from geolog.ledger.nodes.connection import NodeConnection
from geolog.ledger.replicas.replicas import Replicas
from geolog.ledger.writing.ensemble_links import make_known
from geolog.protocol.ids import InstanceId
from geolog.protocol.ledger_state import LedgerRecord, Member
from topology.errors import FencedError, GeologError


async def greet_members(
    replicas: Replicas,
    record: LedgerRecord,
    members: Iterable[Member],
    *,
    is_recovery: bool = False,
) -> dict[InstanceId, NodeConnection]:
    """The members that know the ledger now, with the connections that they answered on.

    FencedError if it was taken over.
    """
    found: dict[InstanceId, NodeConnection] = {}
    fenced: list[FencedError] = []

    greet = partial(make_known, record=record, is_recovery=is_recovery)

    async def ask(instance: InstanceId) -> None:
        try:
            found[instance] = await replicas.reach(instance, greet)
        except FencedError as error:
            fenced.append(error)
        except GeologError:
            return  # Not found, whatever the reason.

    async with trio.open_nursery() as nursery:
        for member in members:
            nursery.start_soon(ask, member.instance)
    if fenced:
        raise fenced[0]
    return found
