"""Law 2: a node that gets a slot in a final fragment has all copies of that slot.

Copies are brought there and verified before the ledger's record names the new member. A node
that is down at that moment is checked once it is up.
"""

from collections.abc import Iterator

import attrs

from geolog.protocol.copying import final_extents
from geolog.protocol.ids import EntryId, InstanceId, LedgerId
from geolog.protocol.ledger_state import LedgerRecord
from sim.laws.state.copies import may_have
from sim.laws.state.seen import Look


@attrs.frozen
class _Arrived:
    """An instance that got a slot of a fragment."""

    first_entry: EntryId
    slot: int
    instance: InstanceId


@attrs.define
class MovedCopies:
    """Keeps the records that were checked, and new members that were down."""

    _looked_at: dict[LedgerId, LedgerRecord] = attrs.field(factory=dict)
    _due: dict[LedgerId, list[_Arrived]] = attrs.field(factory=dict)

    def breaches(self, now: Look) -> Iterator[str]:
        """Check the members that are new in final fragments, as soon as they are up."""
        for ledger, record in now.ledgers.items():
            before = self._looked_at.get(ledger)
            if before is not record:
                self._looked_at[ledger] = record
                if before is not None:
                    self._due.setdefault(ledger, []).extend(_arrived(before, record))
        for ledger, arrived in list(self._due.items()):
            left = [one for one in arrived if one.instance not in now.stores]
            self._due[ledger] = left
            if not left or ledger not in now.ledgers:
                del self._due[ledger]
            for one in arrived:
                if one not in left and ledger in now.ledgers:
                    yield from _breaches_of(now, now.ledgers[ledger], one)


def _arrived(before: LedgerRecord, record: LedgerRecord) -> Iterator[_Arrived]:
    after = {extent.fragment.first_entry: extent for extent in final_extents(record)}
    for extent in final_extents(before):
        found = after.get(extent.fragment.first_entry)
        if found is None or found.last != extent.last:
            continue
        old = {member.instance for member in extent.fragment.ensemble}
        for slot, member in enumerate(found.fragment.ensemble):
            if member.instance not in old:
                yield _Arrived(extent.fragment.first_entry, slot, member.instance)


def _breaches_of(now: Look, record: LedgerRecord, arrived: _Arrived) -> Iterator[str]:
    for extent in final_extents(record):
        fragment = extent.fragment
        member = fragment.ensemble[arrived.slot]
        if fragment.first_entry != arrived.first_entry or member.instance != arrived.instance:
            continue  # It has gone again.
        rule = fragment.rule(record.quorum)
        for number in range(fragment.first_entry, extent.last + 1):
            entry = EntryId(number)
            is_its_own = rule.write_mask(entry) >> arrived.slot & 1
            if is_its_own and not may_have(now, member.instance, record.ledger, entry):
                yield (
                    f"{member.node_id} became a member of ledger {record.ledger}, but lacks"
                    f" its entry {entry}"
                )
