"""How much a data directory may take before its disk is full: for entries, compaction, fences.

The free space is divided from the bottom up: a reserve in which fences and tables can always be
written; room in which compaction can copy, so that a full disk gives back what is deleted; and
the rest, which entries may fill. When that is used up the directory is read-only, until a good
deal more is free again: else it would be told to all that it is writable, and not, in turns.

Rules: PROTOCOL J17.
"""

_BACK_SHARE = 4
"""Writable again when a quarter more is free than when it became read-only."""


class SpaceBound:
    """Says what may be stored, by the free space last seen and by what was appended since."""

    def __init__(self, *, reserve_bytes: int, compaction_bytes: int) -> None:
        self._reserve_bytes = reserve_bytes
        self._kept_bytes = reserve_bytes + compaction_bytes
        self._usable_bytes = 0
        self._appended_bytes_seen = 0
        self.is_read_only = False

    def __repr__(self) -> str:
        state = "read-only" if self.is_read_only else "writable"
        return f"SpaceBound({state}, {self._usable_bytes} bytes usable)"

    def on_look(self, free_bytes: int, *, needed_bytes: int, appended_bytes: int) -> None:
        """So much is free, of which some is needed for what was taken already."""
        self._usable_bytes = free_bytes - needed_bytes
        self._appended_bytes_seen = appended_bytes
        back_bytes = self._kept_bytes // _BACK_SHARE if self.is_read_only else 0
        self.is_read_only = self._usable_bytes <= self._kept_bytes + back_bytes

    def on_append(self, appended_bytes: int) -> None:
        """So many bytes were appended in all, before anybody looked again."""
        if self._left_bytes(appended_bytes) <= self._kept_bytes:
            self.is_read_only = True

    def copyable_bytes(self, appended_bytes: int) -> int:
        """How much compaction may copy now, which goes on when the directory is read-only."""
        return max(0, self._left_bytes(appended_bytes) - self._reserve_bytes)

    def _left_bytes(self, appended_bytes: int) -> int:
        return self._usable_bytes - (appended_bytes - self._appended_bytes_seen)
