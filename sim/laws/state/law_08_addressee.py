"""Law 8: a node refuses every request that is addressed to another disk."""

from collections.abc import Iterator, Sequence

import attrs

from sim.laws.state.wire import Fact, Mistaken


@attrs.define
class Addressee:
    """Keeps nothing."""

    def breaches(self, facts: Sequence[Fact]) -> Iterator[str]:
        """Check the answers since the last look."""
        for fact in facts:
            if isinstance(fact, Mistaken):
                yield (
                    f"node {fact.instance} answered a {fact.question} addressed to {fact.meant}"
                )
