"""Law 15: a node knows of no ledger that never was: what damage made up is not believed."""

from collections.abc import Iterator

import attrs

from geolog.metadata.paths import ClusterPaths
from sim.laws.state.seen import Look
from sim.world.seams import CLUSTER

_COUNTER = ClusterPaths(CLUSTER).ledger_next


@attrs.define
class NothingMadeUp:
    """Goes by the counter that ids come from: a ledger may come and go between two looks."""

    def breaches(self, now: Look) -> Iterator[str]:
        """Look at the ledgers of each node."""
        counter = now.world.store.tree.nodes.get(_COUNTER)
        next_id = 1 if counter is None else int(counter.data)
        for instance, stores in now.stores.items():
            for store in stores:
                for replica in store.ledgers:
                    if not 0 < replica.ledger < next_id:
                        yield f"node {instance} knows ledger {replica.ledger}, which never was"
