"""Sizes the batches of a recovery: many entries at a time where entries are small.

Recovery reads and rewrites one batch before it asks for the next, which costs two round trips a
batch. With batches as short as large entries require, a ledger of tiny entries would take
minutes to recover over a slow link.

Rules: PROTOCOL F9.
"""

import attrs

RECOVERY_ENTRIES_MAX = 1024
"""Entries in one batch."""


@attrs.define
class RecoveryPace:
    """Doubles the batch from the shortest one, as long as it stays within a number of bytes."""

    _entries_min: int
    _bytes_max: int
    _count: int = 0
    _bytes: int = 0

    def on_entry(self, length_bytes: int) -> None:
        """Another entry was rewritten."""
        self._count += 1
        self._bytes += length_bytes

    @property
    def batch_entries(self) -> int:
        """Maximum entries in the next batch: at most twice all that came before it."""
        if not self._count:
            return self._entries_min
        fitting = self._bytes_max * self._count // max(1, self._bytes)
        return max(self._entries_min, min(2 * self._count, fitting, RECOVERY_ENTRIES_MAX))
