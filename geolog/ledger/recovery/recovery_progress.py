"""Progress of recoveries: a long log over slow links takes time."""

from collections.abc import Callable

import attrs


@attrs.define
class RecoveryProgress:
    """Counts entries that were rewritten or read back, and reports each step.

    A ledger that was left open is rewritten; then the end of the log is read back, to learn the
    state of its writers.
    """

    entries_count: int = 0
    tell: Callable[[int], None] | None = None
    """Called with the count each time it grows. It must not wait."""

    def on_entries(self, count: int) -> None:
        """Count entries that have reached their ack sets, or were read back."""
        self.entries_count += count
        if self.tell is not None:
            self.tell(self.entries_count)
