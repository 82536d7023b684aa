"""Law 7: a fence or epoch that a node has answered, or has on disk, outlives everything.

A node whose disk was harmed may have lost the record of it. Then it must be in doubt, and take
nothing until the doubt is settled.
"""

from collections.abc import Iterator

import attrs

from geolog.protocol.ids import Epoch, InstanceId, LedgerId
from regions.storage.store import Store
from sim.laws.state.seen import Look
from sim.laws.state.wire import Promised


@attrs.define
class FenceOutlives:
    """Keeps the fences and epochs that nodes answered, or knew while the journal was idle."""

    _promised: dict[InstanceId, dict[LedgerId, tuple[Epoch, bool]]] = attrs.field(factory=dict)

    def breaches(self, now: Look) -> Iterator[str]:
        """Compare the current fences and epochs with those seen and answered before."""
        for fact in now.said:
            if isinstance(fact, Promised):
                self._note_answer(fact)
        for instance, stores in now.stores.items():
            promised = self._promised.setdefault(instance, {})
            if instance not in now.world.harmed:
                for message in _forgotten(promised, stores):
                    yield f"node {instance} {message}"
            for store in stores:
                if store.journal.is_idle:
                    for replica in store.ledgers:
                        promised[replica.ledger] = replica.epoch_highest, replica.is_fenced

    def _note_answer(self, fact: Promised) -> None:
        promised = self._promised.setdefault(fact.instance, {})
        epoch, is_fenced = promised.get(fact.ledger, (fact.epoch, False))
        promised[fact.ledger] = max(epoch, fact.epoch), is_fenced or fact.is_fenced


def _forgotten(
    promised: dict[LedgerId, tuple[Epoch, bool]], stores: tuple[Store, ...]
) -> Iterator[str]:
    known = {replica.ledger: replica for store in stores for replica in store.ledgers}
    for ledger, (epoch, is_fenced) in promised.items():
        replica = known.get(ledger)
        if replica is None:
            if not any(ledger in store.ledgers.deleted for store in stores):
                yield f"has forgotten ledger {ledger}"
        elif replica.epoch_highest < epoch or (is_fenced and not replica.is_fenced):
            yield (
                f"had ledger {ledger} at epoch {epoch}, fenced {is_fenced}; now epoch"
                f" {replica.epoch_highest}, fenced {replica.is_fenced}"
            )
