"""Law 2: a member of a CLOSED ledger keeps the copies that it had on disk.

Other members may still be an ack set after one has given an entry up: as garbage, in a
compaction, or with a lost file. The law checks the first and the last entry of each fragment.
"""

from collections.abc import Iterator

import attrs
import trio

from geolog.protocol.copying import final_extents
from geolog.protocol.ids import EntryId, InstanceId, LedgerId
from geolog.protocol.ledger_state import LedgerRecord, LedgerState, Member
from sim.laws.state.copies import may_have
from sim.laws.state.seen import Look

_EVERY_S = 5.0
"""Closed ledgers are many, and should not change."""

_Copy = tuple[LedgerId, EntryId, InstanceId]


@attrs.define
class MembersKeep:
    """Keeps the copies that were there at the last look, and its time."""

    _had: set[_Copy] = attrs.field(factory=set)
    _looked_s: float = -_EVERY_S

    def breaches(self, now: Look) -> Iterator[str]:
        """Check, now and then, all nodes that are up."""
        if trio.current_time() - self._looked_s < _EVERY_S:
            return
        self._looked_s = trio.current_time()
        for record in now.ledgers.values():
            for entry, member in _copies_of(record):
                if member.instance not in now.stores:
                    continue
                copy = record.ledger, entry, member.instance
                if may_have(now, member.instance, record.ledger, entry):
                    self._had.add(copy)
                elif copy in self._had:
                    yield (
                        f"{member.node_id} had entry {entry} of ledger {record.ledger}, is"
                        " still its member, and lacks it now"
                    )


def _copies_of(record: LedgerRecord) -> Iterator[tuple[EntryId, Member]]:
    """The copies to check: an entry, and the members that should have it."""
    if record.state is not LedgerState.CLOSED:
        return
    for extent in final_extents(record):
        fragment = extent.fragment
        rule = fragment.rule(record.quorum)
        for entry in sorted({fragment.first_entry, extent.last}):
            if fragment.first_entry <= entry <= extent.last:
                for slot in rule.write_set(entry):
                    yield entry, fragment.ensemble[slot]
