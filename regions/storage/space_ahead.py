"""Disk space that the open journal file allocates before it is written.

The allocated but unwritten space is the reserve in which fences and marks can be written when
the disk is full. So there is always some of it as long as the disk has any to give.

A disk may refuse space although it reports free space: a quota does. It then counts as full,
until it grants twice as much as was requested. Data accepted from clients before that already
has its space: each piece includes the space for everything that waits to be written, and no
more is read from clients (`is_short`) when what arrived since nears the end of the piece.

Rules: PROTOCOL J17.
"""

import logging

from regions.storage.disk import Disk, DiskFile, DiskFullError

_log = logging.getLogger(__name__)

_FREE_SHARE_MAX = 1 / 16
"""Take at most this part of the free space at once: all users of the disk share it."""
_STEP_BYTES = 64 << 10
"""Space is taken in multiples of this; less is not worth a call."""


class SpaceAhead:
    """Keeps half a piece or more allocated after the end of the open file.

    Nothing fails without it: on a nearly full disk the pieces shrink, then stop.
    """

    def __init__(self, disk: Disk, piece_bytes: int) -> None:
        self._disk = disk
        self._piece_bytes = piece_bytes
        self._retry_end = 0
        self._file: DiskFile | None = None
        self._taken_end = 0
        """Where the allocated space ends; 0 if that is unknown, and clients must not wait."""
        self.is_refused = False
        """Whether the disk refused space at the last request, though it reported some."""

    def is_short(self, end: int) -> bool:
        """Whether data that will be written up to `end` nears the end of the allocated space.

        Not after a refusal: then only fences arrive, and the reserve is for them.
        """
        margin_bytes = self._piece_bytes // 8
        return 0 < self._taken_end < end + margin_bytes and not self.is_refused

    def has_reached(self, file: DiskFile, end: int) -> bool:
        """Whether `reach` would do nothing."""
        if not self._piece_bytes:
            return True  # No space is to be taken ahead.
        has_enough = end + self._piece_bytes // 2 <= file.size_bytes
        return file is self._file and (has_enough or end < self._retry_end)

    async def reach(self, file: DiskFile, end: int, *, is_retry: bool = False) -> None:
        """Prepare for writes up to `end`; with `is_retry`, ask again after a refusal."""
        if file is not self._file:
            self._file, self._retry_end, self._taken_end = file, 0, 0
        if not is_retry and self.has_reached(file, end):
            return
        free_bytes = await self._disk.free_bytes()
        piece_bytes = 2 * self._piece_bytes if is_retry else self._piece_bytes
        piece_bytes = min(piece_bytes, int(free_bytes * _FREE_SHARE_MAX))
        piece_bytes -= piece_bytes % _STEP_BYTES
        # So that a disk that gives nothing is not asked for each write.
        self._retry_end = end + self._piece_bytes // 4
        if piece_bytes <= 0:
            self._taken_end = 0
            return
        start = file.size_bytes
        wanted_end = max(start, end) + piece_bytes
        try:
            await file.allocate(start, wanted_end - start)
        except DiskFullError as error:
            if not self.is_refused:
                _log.warning("disk counts as full: %d bytes free, but %s", free_bytes, error)
            self.is_refused = True
        else:
            self.is_refused = False
            self._taken_end = wanted_end if file.size_bytes >= wanted_end else 0
