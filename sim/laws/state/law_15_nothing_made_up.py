"""Law 15: a node knows no ledger that never existed, whatever damage made up."""

from collections.abc import Iterator

import attrs

from geolog.metadata.paths import ClusterPaths
from sim.laws.state.seen import Look
from sim.world.seams import CLUSTER

_COUNTER = ClusterPaths(CLUSTER).ledger_next


@attrs.define
class NothingMadeUp:
    """Uses the counter that ids come from: a ledger may come and go between two looks."""

    def breaches(self, now: Look) -> Iterator[str]:
        """Check the ledgers of each node."""
        counter = now.world.store.tree.nodes.get(_COUNTER)
        next_id = 1 if counter is None else int(counter.data)
        for instance, stores in now.stores.items():
            for store in stores:
                for replica in store.ledgers:
                    if not 0 < replica.ledger < next_id:
                        yield (
                            f"node {instance} knows ledger {replica.ledger}, which never"
                            " existed"
                        )
