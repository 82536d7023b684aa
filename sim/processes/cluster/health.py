"""Brings a cluster back to health as an operator does: waits for its nodes, then repairs."""

import attrs
import trio

from geolog.admin.placement.placement_repair import PlacementRepairer
from geolog.admin.queue_repair import repair_queue
from geolog.catalog.descriptions import HealthReport
from geolog.client.log import Log
from geolog.ledger.copying.fragment_copy import CopyConfig
from geolog.protocol.placement_plan import RepairAims
from topology.errors import UnavailableError

HEALTHY_S_MAX = 60.0
"""Several session time-outs: longer than a cluster that heals itself needs."""

_LOOK_EVERY_S = 0.1


@attrs.define
class Mended:
    """The repairs that were needed."""

    copies_stored: int = 0
    """Missing copies that were stored on members."""
    slots_moved: int = 0
    """Fragment slots that moved to better nodes."""


async def make_healthy(log: Log) -> Mended:
    """Wait for all nodes and repair what health reports. UnavailableError lists the rest."""
    mended = Mended()
    report: HealthReport | None = None
    with trio.move_on_after(HEALTHY_S_MAX):
        report = await log.health()
        while not report.is_healthy:
            if report.nodes_live == report.nodes_known:
                await _mend(log, mended)
            await trio.sleep(_LOOK_EVERY_S)
            report = await log.health()
    if report is None or not report.is_healthy:
        reasons = [] if report is None else report.reasons
        raise UnavailableError(
            f"the cluster is not healthy after {HEALTHY_S_MAX:.0f} s: " + "; ".join(reasons)
        )
    return mended


async def _mend(log: Log, mended: Mended) -> None:
    """Do what `geolog ledger repair --queue` and `geolog placement repair` do."""
    repaired = await repair_queue(log.access, CopyConfig())
    mended.copies_stored += sum(one.copies_stored for one in repaired.ledgers)
    placement = PlacementRepairer(
        log.access, CopyConfig(), aims=RepairAims(), on_move=lambda _: None
    )
    report = await placement.run(None)
    mended.copies_stored += report.copies_stored
    mended.slots_moved += report.slots
