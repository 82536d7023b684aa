"""Law 12: the LAC that a node has journaled never falls, also when the node restarts.

A LAC is journaled with the entry whose add carried it. If an entry was sent more than once,
only one add was journaled, and nobody outside knows which: the lowest of their LACs counts. If
one of the adds was from recovery, maybe no LAC was journaled.
"""

from collections.abc import Iterator, Sequence

import attrs

from geolog.protocol.ids import NO_ENTRY, EntryId, InstanceId, LedgerId
from sim.laws.state.seen import Look
from sim.laws.state.wire import AddReceived, EntryStored, Fact

_Key = tuple[InstanceId, LedgerId]


@attrs.define
class LacOnDisk:
    """Keeps the least LAC that was surely journaled, of each ledger at each instance.

    An instance whose disk was harmed may have lost it.
    """

    _carried: dict[tuple[InstanceId, LedgerId, EntryId], EntryId] = attrs.field(factory=dict)
    """The lowest LAC with which an entry was sent to an instance."""
    _journaled: dict[_Key, EntryId] = attrs.field(factory=dict)

    def breaches(self, now: Look) -> Iterator[str]:
        """Compare the current LACs with those in earlier answers."""
        self._note(now.said)
        for instance, stores in now.stores.items():
            if instance in now.world.harmed:
                continue
            for store in stores:
                for replica in store.ledgers:
                    before = self._journaled.get((instance, replica.ledger), NO_ENTRY)
                    if replica.lac < before:
                        yield (
                            f"node {instance} had LAC {before} of ledger {replica.ledger} on"
                            f" disk, and now knows {replica.lac}"
                        )

    def _note(self, said: Sequence[Fact]) -> None:
        for fact in said:
            match fact:
                case AddReceived(instance, ledger, entry, lac, is_recovery):
                    carried = NO_ENTRY if is_recovery else lac
                    key = instance, ledger, entry
                    self._carried[key] = min(carried, self._carried.get(key, carried))
                case EntryStored(instance, ledger, entry):
                    lac = self._carried[instance, ledger, entry]
                    of_ledger = instance, ledger
                    self._journaled[of_ledger] = max(
                        lac, self._journaled.get(of_ledger, NO_ENTRY)
                    )
