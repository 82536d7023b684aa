"""Law 21: each fragment satisfies its quorums with distinct disks, at their recorded places.

If that is not possible, the writer writes nothing.
"""

from collections.abc import Iterator

import attrs

from geolog.protocol.ids import LedgerId
from geolog.protocol.ledger_state import LedgerRecord
from sim.laws.state.seen import Look
from topology.placement import Adherence, adherence_of


@attrs.define
class FragmentsAdhere:
    """Keeps the records that were checked."""

    _looked_at: dict[LedgerId, LedgerRecord] = attrs.field(factory=dict)

    def breaches(self, now: Look) -> Iterator[str]:
        """Check the ledgers that have changed."""
        for ledger, record in now.ledgers.items():
            if self._looked_at.get(ledger) is not record:
                self._looked_at[ledger] = record
                yield from _breaches_of_record(record, now)


def _breaches_of_record(record: LedgerRecord, now: Look) -> Iterator[str]:
    for fragment in record.fragments:
        regions = [member.location.region for member in fragment.ensemble]
        if adherence_of(record.quorum, regions) is Adherence.FAIL:
            yield (
                f"ledger {record.ledger} has a fragment in {regions}, which fails"
                f" {record.quorum}"
            )
        if len({member.instance for member in fragment.ensemble}) < len(regions):
            yield f"ledger {record.ledger} has a fragment with the same member twice"
        for member in fragment.ensemble:
            location = now.world.nodes[member.node_id].location
            if str(member.location) != location:
                yield (
                    f"ledger {record.ledger} has {member.node_id} at {member.location}, but"
                    f" its location is {location}"
                )
