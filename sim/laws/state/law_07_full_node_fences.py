"""Law 7: a node whose disk is nearly full fences still: it keeps room for that."""

from collections.abc import Iterator, Sequence

import attrs

from geolog.protocol.messages import Reason
from sim.laws.state.wire import Fact, FenceRefused


@attrs.frozen
class FullNodeFences:
    """Looks at each refusal by itself."""

    def breaches(self, facts: Sequence[Fact]) -> Iterator[str]:
        """Find a fence that was refused because nothing new is stored."""
        for fact in facts:
            if isinstance(fact, FenceRefused) and fact.reason is Reason.READ_ONLY:
                yield (
                    f"node {fact.instance} did not fence ledger {fact.ledger}, since its disk"
                    " is nearly full"
                )
