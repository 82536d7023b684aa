"""When a log segment is full, and its successor must be ready."""

import attrs


@attrs.frozen(kw_only=True)
class RollPolicy:
    """A segment ends at a size or an age, whichever comes first; the next is made ahead."""

    segment_bytes: int = 64 * 1024 * 1024
    """Bytes of entries after which the segment is closed."""
    segment_age_s: float = 3600.0
    """Seconds since its first entry after which it is closed."""
    prepare_share: float = 0.5
    """The share of `segment_bytes` from which on the next ledger is made ready."""

    def is_due(self, *, written_bytes: int, age_s: float) -> bool:
        """Whether the open segment should be closed before the next entry. Empty ones never."""
        if written_bytes == 0:
            return False
        return written_bytes >= self.segment_bytes or age_s >= self.segment_age_s

    def is_preparation_due(self, *, written_bytes: int) -> bool:
        """Whether the next ledger should be made now, so that the roll need not wait for it."""
        return written_bytes >= self.segment_bytes * self.prepare_share
