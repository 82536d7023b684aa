"""Which journal file to compact next: how much of each still counts, and what that is worth.

A file is compacted by copying what lives in it to the open file; then it can go. What lives is
what belongs to ledgers that are neither deleted nor let go. A file in which nothing lives costs
nothing. Of the others the one with the smallest live share is taken, if that is small enough: a
share of a half means that a byte is copied for each byte won. Small files, as starts and
crashes leave them, are taken whatever lives in them when there are many, or they would only
ever grow in number; several become one, which is then not small any more.

Rules: PROTOCOL J13.
"""

from collections.abc import Callable, Iterator, Sequence

import attrs

from regions.storage.protocol.records import RECORD_HEADER_BYTES
from regions.storage.protocol.tables import SealedTable

SMALL_FILES_MIN = 8
"""So many small files are worth being made one."""


@attrs.frozen
class FileUse:
    """What one sealed file holds, and what of it counts."""

    file_id: int
    stored_bytes: int
    """Its entries, with their headers."""
    live_bytes: int
    """Those of ledgers that are not given up."""
    is_suspect: bool = False
    """Its table was found damaged, or records of it were lost and made good: what lives in it
    had better be written anew elsewhere, before the same file is damaged once more."""

    @property
    def live_share(self) -> float:
        """Between 0 and 1; a file without entries has nothing that counts."""
        return self.live_bytes / self.stored_bytes if self.stored_bytes else 0.0


@attrs.frozen
class CompactionPolicy:
    """When a file is worth being compacted."""

    live_share_max: float
    small_bytes: int


def choose_file(
    files: Sequence[FileUse], policy: CompactionPolicy, *, room_bytes: int
) -> FileUse | None:
    """The file to compact next, None if there is none; at most `room_bytes` may be copied."""
    fitting = [each for each in files if each.live_bytes <= max(room_bytes, 0)]
    if not fitting:
        return None
    worth = [
        each for each in fitting if each.live_share < policy.live_share_max or each.is_suspect
    ]
    if worth:
        return min(worth, key=_cost_and_age)
    small = [each for each in fitting if each.live_bytes < policy.small_bytes]
    return small[0] if len(small) >= SMALL_FILES_MIN else None


def _cost_and_age(use: FileUse) -> tuple[float, int]:
    return use.live_share, use.file_id


class UseCount:
    """Counts what lives in one file, again whenever ledgers were given up."""

    def __init__(self, table: SealedTable) -> None:
        self._table = table
        self._used: list[tuple[int, int]] = []  # By ledger: its bytes, and its last offset.

    def count(self, *, step: int) -> Iterator[None]:
        """Sum up the entries by ledger, `step` of them at a time, once."""
        if self._used:
            return
        used = []
        for at in range(len(self._table.ledgers)):
            total_bytes, last = 0, 0
            for size_bytes, offset in self._table.sizes(
                at, step=step, each_bytes=RECORD_HEADER_BYTES
            ):
                total_bytes, last = total_bytes + size_bytes, max(last, offset)
                yield
            used.append((total_bytes, last))
        self._used = used

    @property
    def stored_bytes(self) -> int:
        """Of all entries of the file."""
        return sum(size_bytes for size_bytes, _ in self._used)

    def live_bytes(self, is_dead: Callable[[int, int], bool]) -> int:
        """Of those whose ledgers have something here that counts: never too little.

        `is_dead(ledger, offset)`: whether what lies there, and before, counts no more.
        """
        return sum(
            size_bytes
            for ledger, (size_bytes, last) in zip(self._table.ledgers, self._used, strict=True)
            if not is_dead(ledger, last)
        )
