"""Choose the next journal file to compact: how much of each still counts, and the gain.

A file is compacted by copying its live entries to the open file; then it can go. Live entries
belong to ledgers that are neither deleted nor let go. A file without live entries costs
nothing. Of the others, the one with the smallest live share is chosen, if that share is small
enough: a share of a half means one byte copied for each byte freed. Starts and crashes leave
small files. When there are many, they are chosen whatever their live share, or their number
would only grow; several become one, which is then no longer small.

Rules: PROTOCOL J13.
"""

from collections.abc import Callable, Iterator, Sequence

import attrs

from regions.storage.protocol.records import RECORD_HEADER_BYTES
from regions.storage.protocol.tables import SealedTable

SMALL_FILES_MIN = 8
"""Number of small files worth merging into one."""


@attrs.frozen
class FileUse:
    """The content of one sealed file, and how much of it counts."""

    file_id: int
    stored_bytes: int
    """Bytes of its entries, with their headers."""
    live_bytes: int
    """Bytes of entries whose ledgers are not given up."""
    is_suspect: bool = False
    """Its table was found damaged, or it lost records that were made good: its live entries
    should be rewritten elsewhere before the file is damaged again."""

    @property
    def live_share(self) -> float:
        """Between 0 and 1; 0 for a file without entries."""
        return self.live_bytes / self.stored_bytes if self.stored_bytes else 0.0


@attrs.frozen
class CompactionPolicy:
    """When a file is worth compacting."""

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
    """Counts the live bytes of one file, again whenever ledgers were given up."""

    def __init__(self, table: SealedTable) -> None:
        self._table = table
        self._used: list[tuple[int, int]] = []  # By ledger: its bytes, and its last offset.

    def count(self, *, step: int) -> Iterator[None]:
        """Sum up the entries by ledger, once, `step` entries at a time."""
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
        """Bytes of all entries of the file."""
        return sum(size_bytes for size_bytes, _ in self._used)

    def live_bytes(self, is_dead: Callable[[int, int], bool]) -> int:
        """Bytes of the ledgers that have entries here that count: never too low.

        `is_dead(ledger, offset)`: whether the ledger's data up to this offset no longer counts.
        """
        return sum(
            size_bytes
            for ledger, (size_bytes, last) in zip(self._table.ledgers, self._used, strict=True)
            if not is_dead(ledger, last)
        )
