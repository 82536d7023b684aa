"""Taking back what ledgers say of copies that are not brought to anybody any more.

Who brings copies to a node notes it in the ledger's record first (`fragment_change`). Who is
interrupted and never goes on leaves the note, and by it the copies. When no member of the
ledger is on its way out, and none could be better placed, nobody has a reason to bring copies:
the note is from what was given up, and is taken back by one compare-and-set. Should somebody be
on the way all the same, who saw other nodes up, then he finds that his note is gone before he
names anybody a member, and begins again.

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
"""What any repair may want: only what none of them would touch is left alone."""


@attrs.define
class AbandonedCopies:
    """Looks at ledgers with the nodes as they were seen at one moment."""

    _access: ClusterAccess
    _planner: PlacementPlanner

    @classmethod
    def of(cls, access: ClusterAccess, seen: NodesSeen, *, now_s: float) -> "AbandonedCopies":
        """For a cluster that is seen so."""
        return cls(access, PlacementPlanner(seen, _WIDEST, now_s))

    async def clear(self, placed: PlacedSegment) -> int:
        """Take back what is left of given-up replacements; of how many nodes it was."""
        if not placed.ledger.arriving:
            return 0
        try:
            read = await self._access.ledgers.read_latest(placed.ledger.ledger)
            record = read.record
            if not record.arriving or self._is_anything_wanted(record, placed.survive):
                return 0
            await self._access.ledgers.replace(read, record.without_arriving(record.arriving))
        except (BadVersionError, NoNodeError, NoSuchLedgerError, OutcomeUnknownError):
            return 0  # Somebody is at it, or it went: the next repair looks again.
        return len(record.arriving)

    def _is_anything_wanted(self, record: LedgerRecord, survive: str) -> bool:
        """Whether somebody may have a reason to bring copies of the ledger to new nodes."""
        if record.state is not LedgerState.CLOSED:
            return True
        return any(
            self._planner.is_mendable(record, index, survive)
            or any(self._planner.is_leaving(one, slot) for slot in range(len(one.ensemble)))
            for index, one in enumerate(record.fragments)
        )
