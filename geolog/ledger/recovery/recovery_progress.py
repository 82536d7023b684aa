"""How far recoveries have come: a long log over slow links takes its time."""

from collections.abc import Callable

import attrs


@attrs.define
class RecoveryProgress:
    """Counts the entries that were written again, or read back, and tells whoever waits for it.

    A ledger that was left open is written again; then the end of the log is read back, to learn
    what it says of its writers.
    """

    entries_count: int = 0
    tell: Callable[[int], None] | None = None
    """Called with the count each time it grows. It must not wait."""

    def on_entries(self, count: int) -> None:
        """So many more have reached their ack sets, or were read back."""
        self.entries_count += count
        if self.tell is not None:
            self.tell(self.entries_count)
