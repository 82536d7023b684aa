"""Law 12: the LAC that a node knows never falls while it runs."""

from collections.abc import Iterator

import attrs

from geolog.protocol.ids import EntryId, LedgerId
from sim.laws.state.seen import Look


@attrs.define
class LacRises:
    """Keeps the LACs of each process; a restart may lose LACs that were only pushed."""

    _seen: dict[tuple[str, LedgerId], EntryId] = attrs.field(factory=dict)

    def breaches(self, now: Look) -> Iterator[str]:
        """Compare the current LACs with those seen before."""
        for host, core in sorted(now.world.cores.items()):
            process = now.world.processes[host].key
            for store in core.service.stores:
                for replica in store.ledgers:
                    key = process, replica.ledger
                    before = self._seen.get(key, replica.lac)
                    if replica.lac < before:
                        yield (
                            f"{process} knew LAC {before} of ledger {replica.ledger}, and now"
                            f" knows {replica.lac}"
                        )
                    self._seen[key] = replica.lac
