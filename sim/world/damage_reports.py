"""Law 15: whoever finds damage puts the ledger into the repair queue, as soon as it can."""

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
"""Twice as long as a node may wait before it tries again to say what it has found."""


async def not_reported(world: World, damaged: Iterable[LedgerId]) -> list[LedgerId]:
    """The ledgers, of those found damaged, that do not come into the queue; for that reason."""
    missing = list(damaged)
    with trio.move_on_after(_REPORT_S):
        while missing := [ledger for ledger in missing if not _is_reported(world, ledger)]:  # noqa: ASYNC110 - nobody tells of it.
            await trio.sleep(_LOOK_S)
    return missing


def _is_reported(world: World, ledger: LedgerId) -> bool:
    path = _PATHS.repair(ledger)
    node = world.store.tree.nodes.get(path)
    if node is None:
        return False
    return RepairReason.DAMAGED in open_document(node.data, RepairRecord, path=path).reasons
