"""Law 2: after a failed write or sync nobody knows what is on disk: that file is used no more.

What a kernel could not write it may forget, and the next sync of the file succeeds all the
same: so a node that goes on with such a file answers for what is on no disk.
"""

from collections.abc import Iterator

import attrs

from sim.laws.state.seen import Look


@attrs.define
class FailedDisk:
    """Keeps nothing: the disk in the world notes it."""

    def breaches(self, now: Look) -> Iterator[str]:
        """Look at each node's disks."""
        for host, node in sorted(now.world.nodes.items()):
            for name in (name for bay in node.bays for name in bay.failure.used_again):
                yield f"node {host} wrote {name} again after a write or sync of it had failed"
