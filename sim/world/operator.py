"""Who looks after a world's nodes, by what the command gives operators: replace, repair."""

import trio

import geolog
from geolog.client.doubt import DoubtReport, settle_doubts
from geolog.client.repair import LedgerRepairer, RepairReport
from geolog.client.replacement import NodeReplacer
from geolog.ledger.copier import Copier
from geolog.ledger.fragment_copy import CopyConfig
from geolog.protocol.ledger_state import LedgerState
from sim.world.process import Process
from sim.world.world import ClientMain, World

OPERATOR = "operator-"
"""How the names of their hosts begin."""

_RETRY_S = 0.5


def replacing(world: World, host: str) -> ClientMain:
    """What a client process does to give a lost disk up and bring its copies back."""

    async def main(process: Process, log: geolog.Log) -> None:
        world.trace.add(process.host, "call", f"replace {host}")
        while not await _try_replace(world, process, log, host):  # noqa: ASYNC110 - no event.
            await trio.sleep(_RETRY_S)
        world.nodes[host].is_being_replaced = False

    return main


async def _try_replace(world: World, process: Process, log: geolog.Log, host: str) -> bool:
    try:
        report = await NodeReplacer(log.access, CopyConfig()).replace(host)
    except geolog.GeologError as error:
        world.trace.add(process.host, "failed", f"replace {host} {error!r}")
        return False
    world.trace.add(process.host, "done", f"replace {host} {len(report.remaining)} remain")
    return report.is_complete


async def repair_all(log: geolog.Log) -> tuple[list[RepairReport], list[DoubtReport]]:
    """Repair every closed ledger from all its copies, then end the doubt of all nodes."""
    access, config = log.access, CopyConfig()
    repairer = LedgerRepairer(access, config)
    reports = [
        await repairer.repair(record.ledger, is_deep=True)
        for bucket in await access.catalog.buckets()
        for record in await access.catalog.records_in(bucket)
        if record.state is LedgerState.CLOSED
    ]
    copier = Copier(access.pool, region=access.region, config=config)
    doubts = await settle_doubts(access, copier, timeout_s=config.member_timeout_s)
    return reports, doubts
