"""Operators of a world's nodes: they replace and repair with the code of the command."""

from contextlib import suppress

import trio

import geolog
from geolog.admin.doubt import DoubtReport, settle_doubts
from geolog.admin.queue_repair import QueueRepaired, repair_queue
from geolog.admin.repair import LedgerRepairer, RepairReport
from geolog.admin.replacement import NodeReplacer
from geolog.ledger.copying.copier import Copier
from geolog.ledger.copying.fragment_copy import CopyConfig
from geolog.ledger.ledger_metadata import NoSuchLedgerError
from geolog.metadata.replaced_nodes import NodeRunsError
from geolog.protocol.ledger_state import LedgerState
from sim.world.process import Process
from sim.world.world import ClientMain, World

OPERATOR = "operator-"
"""Some worlds' nodes have room for no more requests of one client."""

_RETRY_S = 0.5

_COPYING = CopyConfig(reads_at_once=2)
"""The host names of operators begin so."""


def replacing(world: World, host: str) -> ClientMain:
    """A client `main` that gives a lost disk up and brings its copies back."""

    async def main(process: Process, log: geolog.Log) -> None:
        world.trace.add(process.host, "call", f"replace {host}")
        successors: list[str | None] = [None]
        while successors:
            if _is_down_on_its_new_disk(world, host):
                await trio.sleep(_RETRY_S)  # Not now: that disk would be given up too.
            else:
                successors = await _try_replace(world, process, log, host, successors)
                await trio.sleep(_RETRY_S)

    return main


def _is_down_on_its_new_disk(world: World, host: str) -> bool:
    return host not in world.cores and not world.nodes[host].is_being_replaced


async def _try_replace(
    world: World, process: Process, log: geolog.Log, host: str, successors: list[str | None]
) -> list[str | None]:
    """Try to replace with the first of these successors; return those to try next, if any."""
    try:
        report = await NodeReplacer(log.access, _COPYING).replace(
            host, successor_id=successors[0]
        )
    except NodeRunsError:
        # Either the old session still lasts, or all was done and the answer was lost.
        return [] if host in world.cores else successors
    except geolog.GeologError as error:
        world.trace.add(process.host, "failed", f"replace {host} {error!r}")
        return successors[1:] or [None]
    remaining = ", ".join(f"{one.ledger}: {one.why}" for one in report.remaining)
    world.trace.add(process.host, "done", f"replace {host}, {remaining or 'all'}")
    if report.is_complete:
        return []
    if all(one.may_pass for one in report.remaining) or len(successors) > 1:
        return successors[1:] or [None]
    # The new disk got another slot meanwhile, next to the one of the old disk.
    return [each for each in sorted(world.nodes) if each != host]


async def repair_queued(log: geolog.Log) -> QueueRepaired:
    """Repair ledgers that are queued, or that nodes in doubt lack; then end the doubt."""
    return await repair_queue(log.access, _COPYING)


async def repair_all(
    log: geolog.Log, *, is_deep: bool = True
) -> tuple[list[RepairReport], list[DoubtReport]]:
    """Repair every closed ledger from all its copies, then end the doubt of all nodes.

    If not `is_deep`, nodes are asked what they have, and nothing is read.
    """
    access, config = log.access, _COPYING
    repairer = LedgerRepairer(access, config)
    reports = []
    for bucket in await access.catalog.buckets():
        for record in await access.catalog.records_in(bucket):
            if record.state is LedgerState.CLOSED:
                with suppress(NoSuchLedgerError):  # Retention of a proxy trims it meanwhile.
                    reports.append(await repairer.repair(record.ledger, is_deep=is_deep))
    copier = Copier(access.replicas, region=access.region, config=config)
    doubts = await settle_doubts(access, copier, timeout_s=config.member_timeout_s)
    return reports, doubts
