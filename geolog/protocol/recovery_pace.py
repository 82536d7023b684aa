"""How many entries a recovery takes at a time: many, where they are small.

A batch of a recovery is read, and written again, before the next is asked for: each takes two
round trips. So a writer of tiny entries would leave a ledger whose recovery takes minutes over
a slow link, were a batch as short as large entries make it.

Rules: PROTOCOL F9.
"""

import attrs

RECOVERY_ENTRIES_MAX = 1024
"""Of one batch."""


@attrs.define
class RecoveryPace:
    """Makes batches longer and longer, up to so many bytes; the first one is the shortest."""

    _entries_min: int
    _bytes_max: int
    _count: int = 0
    _bytes: int = 0

    def on_entry(self, length_bytes: int) -> None:
        """One more entry was written again."""
        self._count += 1
        self._bytes += length_bytes

    @property
    def batch_entries(self) -> int:
        """How many entries the next batch may have: no more than twice what came before it."""
        if not self._count:
            return self._entries_min
        fitting = self._bytes_max * self._count // max(1, self._bytes)
        return max(self._entries_min, min(2 * self._count, fitting, RECOVERY_ENTRIES_MAX))
