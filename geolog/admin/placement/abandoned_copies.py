"""Removing notes in ledger records about copies that nobody is making any more.

A process that copies to a node first notes that in the ledger's record (`fragment_change`). If
it is interrupted and never resumes, the note stays, and with it the copies. If no member of the
ledger is leaving, and none could be placed better, nothing calls for copies: the note was
abandoned, and one compare-and-set removes it. A process that is copying nevertheless, because
it saw other nodes up, finds its note gone before it makes a node a member, and starts again.

Rules: PROTOCOL C11.
"""

import attrs

from geolog.admin.cluster_access import ClusterAccess
from geolog.admin.placement.placement_walk import PlacedSegment
from geolog.ledger.ledger_metadata import NoSuchLedgerError
from geolog.metadata.seam import BadVersionError, NoNodeError
from geolog.protocol.fragment_placement import NodesSeen
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from geolog.protocol.placement_plan import PlacementPlanner, RepairAims
from topology.errors import OutcomeUnknownError

_WIDEST = RepairAims(replaces_down=True, leaves_forbidden=True)
"""The most that a repair may want: only what no repair would touch is left alone."""


@attrs.define
class AbandonedCopies:
    """Looks at ledgers with the nodes as they were at one moment."""

    _access: ClusterAccess
    _planner: PlacementPlanner

    @classmethod
    def of(cls, access: ClusterAccess, seen: NodesSeen, *, now_s: float) -> "AbandonedCopies":
        """For a cluster that looks like this."""
        return cls(access, PlacementPlanner(seen, _WIDEST, now_s))

    async def clear(self, placed: PlacedSegment) -> int:
        """Remove the notes of abandoned copies; returns for how many nodes."""
        if not placed.ledger.arriving:
            return 0
        try:
            read = await self._access.ledgers.read_latest(placed.ledger.ledger)
            record = read.record
            if not record.arriving or self._is_anything_wanted(record, placed.survive):
                return 0
            await self._access.ledgers.replace(read, record.without_arriving(record.arriving))
        except (BadVersionError, NoNodeError, NoSuchLedgerError, OutcomeUnknownError):
            return 0  # Another process works on it, or it is gone: the next repair looks again.
        return len(record.arriving)

    def _is_anything_wanted(self, record: LedgerRecord, survive: str) -> bool:
        """Whether there may be a reason to copy this ledger to new nodes."""
        if record.state is not LedgerState.CLOSED:
            return True
        return any(
            self._planner.is_mendable(record, index, survive)
            or any(self._planner.is_leaving(one, slot) for slot in range(len(one.ensemble)))
            for index, one in enumerate(record.fragments)
        )
