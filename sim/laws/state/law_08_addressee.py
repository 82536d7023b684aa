"""Law 8: a node answers nothing that was meant for another disk, but by a refusal."""

from collections.abc import Iterator, Sequence

import attrs

from sim.laws.state.wire import Fact, Mistaken


@attrs.define
class Addressee:
    """Keeps nothing."""

    def breaches(self, facts: Sequence[Fact]) -> Iterator[str]:
        """Look at what was said since the last look."""
        for fact in facts:
            if isinstance(fact, Mistaken):
                yield (
                    f"node {fact.instance} answered a {fact.question} that was meant for"
                    f" {fact.meant}"
                )
