"""Law 15: a node knows of no ledger that never was: what damage made up is not believed."""

from collections.abc import Iterator

import attrs

from sim.laws.seen import Look


@attrs.define
class NothingMadeUp:
    """Keeps the highest id that a ledger was given: they rise."""

    _highest: int = 0

    def breaches(self, now: Look) -> Iterator[str]:
        """Look at the ledgers of each node."""
        self._highest = max([self._highest, *now.ledgers])
        for instance, stores in now.stores.items():
            for store in stores:
                for replica in store.ledgers:
                    if not 0 < replica.ledger <= self._highest:
                        yield f"node {instance} knows ledger {replica.ledger}, which never was"
