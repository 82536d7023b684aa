"""The wait for reports of damage ends only for ledgers reported for that reason."""

import geolog
from geolog.metadata.repair_queue import RepairReason
from geolog.protocol.ids import LedgerId
from sim.world.damage_reports import not_reported
from sim.world.process import Process
from sim.world.world import World
from tests.sim.calm import do, in_a_calm_world

DAMAGED, RECOVERED, FORGOTTEN = LedgerId(7), LedgerId(8), LedgerId(9)


def test_a_damaged_ledger_missing_from_the_repair_queue_is_reported() -> None:
    async def report(_process: Process, log: geolog.Log) -> None:
        await log.access.repair_queue.enqueue(DAMAGED, RepairReason.DAMAGED)
        await log.access.repair_queue.enqueue(RECOVERED, RepairReason.RECOVERED)

    async def story(world: World) -> list[LedgerId]:
        await do(world, report)
        return await not_reported(world, [DAMAGED, RECOVERED, FORGOTTEN])

    assert in_a_calm_world(story) == [RECOVERED, FORGOTTEN]
