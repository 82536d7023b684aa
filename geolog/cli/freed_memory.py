"""Keeps freed memory in the process, for servers that pass large buffers all the time."""

import ctypes
from contextlib import suppress

_TRIM_THRESHOLD = -1  # Numbers of mallopt(3).
_MMAP_THRESHOLD = -3
_KEPT_BYTES_MAX = 32 << 20
_MAPPED_BYTES_MIN = 8 << 20


def keep_freed_memory() -> None:
    """Have the C library keep up to 32 MiB of freed memory per arena, where it is glibc.

    Otherwise it returns buffers of a megabyte to the kernel as soon as they are free, and the
    next ones are cleared and mapped again, page by page. That cost a node up to half of the
    processor time of a read.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES_MAX)
        mallopt(_MMAP_THRESHOLD, _MAPPED_BYTES_MIN)
