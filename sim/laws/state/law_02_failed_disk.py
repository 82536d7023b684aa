"""Law 2: after a failed write or sync a file is never used again.

A kernel may drop what it could not write, and still let the next sync of the file succeed. A
node that goes on with such a file acknowledges entries that are on no disk.
"""

from collections.abc import Iterator

import attrs

from sim.laws.state.seen import Look


@attrs.define
class FailedDisk:
    """Keeps nothing: the disk of the world notes it."""

    def breaches(self, now: Look) -> Iterator[str]:
        """Check each node's disks."""
        for host, node in sorted(now.world.nodes.items()):
            for name in (name for bay in node.bays for name in bay.failure.used_again):
                yield f"node {host} wrote {name} again after a write or sync of it had failed"
