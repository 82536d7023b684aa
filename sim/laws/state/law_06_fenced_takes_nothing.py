"""Law 6: a node that is fenced takes nothing more from the ledger's writer.

What it said to be ABSENT stays so, then, unless recovery brings it. Adds of recovery never move
the LAC of a node; those of a writer, and what it pushes, do: so the LAC of a fenced node stands
still. A restart may lower it, to what was journaled.
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
        """Compare the state of now with what was seen before."""
        for instance, stores in now.stores.items():
            for store in stores:
                for replica in store.ledgers:
                    key = instance, replica.ledger
                    before = self._lacs.get(key)
                    if before is not None and replica.lac > before:
                        yield (
                            f"node {instance} was fenced in ledger {replica.ledger} at LAC"
                            f" {before}, and took {replica.lac} from its writer"
                        )
                    if replica.is_fenced and store.journal.is_idle:
                        self._lacs[key] = replica.lac
