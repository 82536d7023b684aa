"""Working through the repair queue, and restoring what nodes in doubt lack.

First repair the queued ledgers. Then repair each CLOSED ledger of which a node in doubt lacks
copies, queued or not: a node that lost a journal file does not know which ledgers it affects.
Last, settle the doubt of nodes that lack nothing any more; for the others say what to do next.
"""

from collections.abc import Callable

import attrs

from geolog.admin.cluster_access import ClusterAccess
from geolog.admin.doubt import (
    DoubtReport,
    ledgers_lacking,
    nodes_in_doubt,
    settle_doubts,
)
from geolog.admin.repair import LedgerRepairer, RepairReport
from geolog.ledger.copying.copier import Copier, CopyProgress
from geolog.ledger.copying.fragment_copy import CopyConfig
from geolog.ledger.ledger_metadata import NoSuchLedgerError
from geolog.protocol.ids import LedgerId
from topology.errors import GeologError


@attrs.frozen
class QueueRepaired:
    """Outcome by ledger and by node."""

    ledgers: list[RepairReport]
    doubts: list[DoubtReport]


async def repair_queue(
    access: ClusterAccess,
    config: CopyConfig,
    *,
    is_deep: bool = False,
    on_progress: Callable[[CopyProgress], None] | None = None,
) -> QueueRepaired:
    """Repair what is queued or in doubt. DamagedBytesError if its metadata is damaged."""
    repairer = LedgerRepairer(access, config, on_progress)
    reports = await repairer.repair_queued(is_deep=is_deep)
    copier = Copier(
        access.replicas, region=access.region, config=config, on_progress=on_progress
    )
    timeout_s = config.member_timeout_s
    done: set[LedgerId] = set()
    for node, doubt in await nodes_in_doubt(access, timeout_s=timeout_s):
        try:
            lacking = await ledgers_lacking(access, copier, node, doubt)
        except GeologError:
            continue  # The node went away meanwhile; settling reports what is wrong with it.
        for ledger in lacking:
            if ledger not in done:
                done.add(ledger)
                try:
                    reports.append(await repairer.repair(ledger, is_deep=is_deep))
                except NoSuchLedgerError:
                    continue  # The ledger was trimmed meanwhile.
    doubts = await settle_doubts(access, copier, timeout_s=timeout_s)
    return QueueRepaired(reports, doubts)
