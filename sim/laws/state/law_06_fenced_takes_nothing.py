"""Law 6: a fenced node takes nothing more from the ledger's writer.

So an entry that it reported ABSENT stays absent, unless recovery brings it. Adds of a writer,
and the LACs that it pushes, move the LAC of a node; adds of recovery never do. So the LAC of a
fenced node stands still. A restart may lower it to the journaled value.
"""

from collections.abc import Iterator

import attrs

from geolog.protocol.ids import EntryId, InstanceId, LedgerId
from sim.laws.state.seen import Look


@attrs.define
class FencedTakesNothing:
    """Keeps the LAC of each fenced ledger at each node."""

    _lacs: dict[tuple[InstanceId, LedgerId], EntryId] = attrs.field(factory=dict)

    def breaches(self, now: Look) -> Iterator[str]:
        """Compare the current LACs with those seen before."""
        for instance, stores in now.stores.items():
            for store in stores:
                for replica in store.ledgers:
                    key = instance, replica.ledger
                    before = self._lacs.get(key)
                    if before is not None and replica.lac > before:
                        yield (
                            f"node {instance} fenced ledger {replica.ledger} at LAC {before},"
                            f" then took LAC {replica.lac} from its writer"
                        )
                    if replica.is_fenced and store.journal.is_idle:
                        self._lacs[key] = replica.lac
