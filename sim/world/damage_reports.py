"""Law 15: a process that finds damage soon puts the ledger into the repair queue."""

from collections.abc import Iterable

import trio

from geolog.metadata.documents import open_document
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.repair_queue import RepairReason, RepairRecord
from geolog.protocol.ids import LedgerId
from sim.world.seams import CLUSTER
from sim.world.world import World

_PATHS = ClusterPaths(CLUSTER)
_LOOK_S = 0.5

_REPORT_S = 60.0
"""Twice as long as a node may wait before it retries a report."""


async def not_reported(world: World, damaged: Iterable[LedgerId]) -> list[LedgerId]:
    """The damaged ledgers that are still not in the queue for that reason after a while."""
    missing = list(damaged)
    with trio.move_on_after(_REPORT_S):
        while missing := [ledger for ledger in missing if not _is_reported(world, ledger)]:  # noqa: ASYNC110 - no event for it.
            await trio.sleep(_LOOK_S)
    return missing


def _is_reported(world: World, ledger: LedgerId) -> bool:
    path = _PATHS.repair(ledger)
    node = world.store.tree.nodes.get(path)
    if node is None:
        return False
    return RepairReason.DAMAGED in open_document(node.data, RepairRecord, path=path).reasons
