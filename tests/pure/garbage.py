"""Finds objects that a block leaves for the garbage collector.

Reference counting frees everything at once but cycles. These take processor time from a busy
process, and what they hold, e.g. the entries of a read, stays in memory until the collector
comes by.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def only_collected() -> Iterator[list[object]]:
    """Objects of the block that only the garbage collector can free, in the end."""
    found: list[object] = []
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
