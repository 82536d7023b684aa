"""When a partition's state is written into its log again: reading back to it shall be cheap.

Rules: PROTOCOL O11.
"""

import attrs

_EVERY_BYTES = 16 << 20
_SHARE = 4
"""A snapshot is repeated after this many times its own bytes at least."""

_LAST_BYTES = 256 << 10
"""With less than this behind the last snapshot no other ends a ledger: it is soon read."""


@attrs.define
class SnapshotPace:
    """Counts what was written behind the last snapshot, beside its own size."""

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
        """Whether another one comes before the next entry."""
        return self._since_bytes >= max(_EVERY_BYTES, _SHARE * self._snapshot_bytes)

    @property
    def is_worth_ending_with(self) -> bool:
        """Whether a ledger that is left in order ends with one."""
        return self._since_bytes >= _LAST_BYTES
