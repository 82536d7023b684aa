"""Law 7: a node whose disk is nearly full still fences: it reserves room for that."""

from collections.abc import Iterator, Sequence

import attrs

from geolog.protocol.messages import Reason
from sim.laws.state.wire import Fact, FenceRefused


@attrs.frozen
class FullNodeFences:
    """Checks each refusal by itself."""

    def breaches(self, facts: Sequence[Fact]) -> Iterator[str]:
        """Find a fence that was refused because the node stores nothing new."""
        for fact in facts:
            if isinstance(fact, FenceRefused) and fact.reason is Reason.READ_ONLY:
                yield (
                    f"node {fact.instance} did not fence ledger {fact.ledger}, because its"
                    " disk is nearly full"
                )
