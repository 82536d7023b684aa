"""Nodes that answered late: read last for a while, then forgiven; a value."""

from collections.abc import Mapping

import attrs

SLOW_NODES_MAX = 1_024
"""How many to remember; beyond it the oldest are forgiven early."""


@attrs.frozen
class SlowNodes:
    """The nodes considered slow, and since when."""

    forgiven_after_s: float
    """Time after its last late answer at which a node counts as normal again."""
    since_s: Mapping[str, float] = attrs.field(factory=dict)

    def registered(self, node: str, now_s: float) -> "SlowNodes":
        """Mark this node as slow from now on."""
        since_s = {one: at for one, at in self.since_s.items() if self._is_slow(at, now_s)}
        since_s.pop(node, None)
        since_s[node] = now_s
        while len(since_s) > SLOW_NODES_MAX:
            del since_s[next(iter(since_s))]
        return attrs.evolve(self, since_s=since_s)

    def forgiven(self, node: str) -> "SlowNodes":
        """Clear this node: it answered in time again."""
        return attrs.evolve(
            self, since_s={one: at for one, at in self.since_s.items() if one != node}
        )

    def at(self, now_s: float) -> frozenset[str]:
        """Nodes that are slow now."""
        return frozenset(one for one, at in self.since_s.items() if self._is_slow(at, now_s))

    def _is_slow(self, at_s: float, now_s: float) -> bool:
        return now_s - at_s < self.forgiven_after_s
