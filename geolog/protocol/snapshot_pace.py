"""Decides when to write another snapshot of a partition's state into its log.

The next owner reads the log back to the last snapshot, so that stretch must stay short.

Rules: PROTOCOL O11.
"""

import attrs

_EVERY_BYTES = 16 << 20
_SHARE = 4
"""A snapshot is repeated only after at least this many times its own size was written."""

_LAST_BYTES = 256 << 10
"""Below this much since the last snapshot, a ledger ends without one: it is quick to read."""


@attrs.define
class SnapshotPace:
    """Compares the bytes written since the last snapshot with the size of that snapshot."""

    _since_bytes: int = 0
    _snapshot_bytes: int = 0

    def on_entry(self, length_bytes: int) -> None:
        """An entry of records was written."""
        self._since_bytes += length_bytes

    def on_snapshot(self, length_bytes: int) -> None:
        """A whole snapshot was written."""
        self._since_bytes, self._snapshot_bytes = 0, length_bytes

    @property
    def is_due(self) -> bool:
        """Whether to write another snapshot before the next entry."""
        return self._since_bytes >= max(_EVERY_BYTES, _SHARE * self._snapshot_bytes)

    @property
    def is_worth_ending_with(self) -> bool:
        """Whether to end a ledger with a snapshot when closing it in order."""
        return self._since_bytes >= _LAST_BYTES
