"""How much a data directory may take before its disk is full: for entries, compaction, fences.

The free space is divided from the bottom up: a reserve in which fences and tables can always be
written; room for copies by compaction, so that a full disk can free deleted space; and the
rest, for entries. When the rest is used up, the directory is read-only until considerably more
is free again; otherwise it would flip between writable and read-only, in view of everyone.

Rules: PROTOCOL J17.
"""

_BACK_SHARE = 4
"""Writable again when a quarter more is free than when it became read-only."""


class SpaceBound:
    """Tracks what may be stored, from the free space last seen and the bytes appended since."""

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
        """Note the free space; `needed_bytes` of it are needed for data already taken."""
        self._usable_bytes = free_bytes - needed_bytes
        self._appended_bytes_seen = appended_bytes
        back_bytes = self._kept_bytes // _BACK_SHARE if self.is_read_only else 0
        self.is_read_only = self._usable_bytes <= self._kept_bytes + back_bytes

    def on_append(self, appended_bytes: int) -> None:
        """Note the total of bytes appended, between two looks."""
        if self._left_bytes(appended_bytes) <= self._kept_bytes:
            self.is_read_only = True

    def copyable_bytes(self, appended_bytes: int) -> int:
        """Bytes that compaction may copy now; it goes on when the directory is read-only."""
        return max(0, self._left_bytes(appended_bytes) - self._reserve_bytes)

    def _left_bytes(self, appended_bytes: int) -> int:
        return self._usable_bytes - (appended_bytes - self._appended_bytes_seen)
