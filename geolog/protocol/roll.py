"""Decides when a log segment is full, and when to prepare its successor."""

import attrs


@attrs.frozen(kw_only=True)
class RollPolicy:
    """Ends a segment at a size or an age, whichever comes first; the next is made ahead."""

    segment_bytes: int = 64 * 1024 * 1024
    """Close the segment once its entries hold this many bytes."""
    segment_age_s: float = 3600.0
    """Close the segment this many seconds after its first entry."""
    prepare_share: float = 0.5
    """Prepare the next ledger once this share of `segment_bytes` is written."""
    is_told: bool = False
    """Whether another decides when it ends: a mirror's rows follow the home's segments."""

    def is_due(self, *, written_bytes: int, age_s: float) -> bool:
        """Whether to close the open segment before the next entry; never if it is empty."""
        if written_bytes == 0 or self.is_told:
            return False
        return written_bytes >= self.segment_bytes or age_s >= self.segment_age_s

    def is_preparation_due(self, *, written_bytes: int) -> bool:
        """Whether to make the next ledger now, so that the roll need not wait for it."""
        return written_bytes >= self.segment_bytes * self.prepare_share
