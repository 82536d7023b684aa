"""Law 3: a recovery that closes a ledger has fenced a member of every ack set.

A node that is down, or whose disk was harmed, may have been fenced: it counts.
"""

from collections.abc import Iterator

import attrs

from geolog.protocol.ids import InstanceId, LedgerId
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from sim.laws.state.copies import slots_of
from sim.laws.state.seen import Look


@attrs.define
class SetsIntersect:
    """Keeps each ledger as it was before it was taken over."""

    _before: dict[LedgerId, LedgerRecord] = attrs.field(factory=dict)

    def breaches(self, now: Look) -> Iterator[str]:
        """Check the ledgers that were closed by a process other than their writer."""
        for ledger, record in now.ledgers.items():
            before = self._before.get(ledger)
            if before is not None and _was_recovered(before, record):
                fragment = before.fragments[-1]
                fenced = sum(
                    1 << slot
                    for slot, member in enumerate(fragment.ensemble)
                    if _may_be_fenced(now, member.instance, record)
                )
                if not fragment.rule(record.quorum).blocks_all(fenced):
                    yield (
                        f"ledger {ledger} was closed at epoch {record.epoch}, but the fenced"
                        f" slots ({slots_of(fenced)}) leave a write set open"
                    )
        self._before = dict(now.ledgers)


def _was_recovered(before: LedgerRecord, record: LedgerRecord) -> bool:
    return (
        before.state in (LedgerState.OPEN, LedgerState.IN_RECOVERY)
        and record.state is LedgerState.CLOSED
        and (before.state is LedgerState.IN_RECOVERY or record.epoch > before.epoch)
        # A fragment added in between is not known here, nor which of its members are fenced.
        and before.fragments == record.fragments
    )


def _may_be_fenced(now: Look, instance: InstanceId, record: LedgerRecord) -> bool:
    stores = now.stores.get(instance)
    if stores is None or instance in now.world.harmed:
        return True
    return any(
        record.ledger in store.ledgers.deleted
        or (replica.ledger == record.ledger and replica.is_fenced)
        for store in stores
        for replica in store.ledgers
    )
