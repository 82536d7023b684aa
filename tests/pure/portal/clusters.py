"""A cluster in the trio thread of this process, for programs that stand outside of it.

It runs on real time: those who wait are threads and event loops, which no mock clock sees.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

import geolog
from geolog.blocking.opening import Opening
from geolog.client.log import Log as TrioLog
from geolog.portal.residence import Residence
from geolog.portal.trio_thread import Tasks, shared_thread
from sim.in_process import InProcessCluster, open_in_process_cluster

T = TypeVar("T")

REGIONS = {"us-east": 2, "eu-west": 2, "ap-northeast": 2}


def in_trio_thread(
    opening: Callable[[], AbstractAsyncContextManager[T]],
) -> Opening[T, T]:
    """Hold something open in the trio thread."""

    def prepare() -> tuple[Residence[T], Tasks]:
        thread = shared_thread()
        return Residence(thread, opening), thread.tasks

    return Opening(prepare, lambda _, opened: opened)


def running_cluster() -> Opening[InProcessCluster, InProcessCluster]:
    """Three regions of two nodes each."""
    return in_trio_thread(lambda: open_in_process_cluster(REGIONS))


def client_of(
    cluster: InProcessCluster, host: str = "client"
) -> Callable[[], AbstractAsyncContextManager[TrioLog]]:
    """How a client connects to it."""
    return lambda: cluster.open_client("us-east", host=host)


TRIES = 10_000
"""So often no thread is put off while another gets done with what the first one did."""


def filled(append: Callable[[], object], *, until: type[Exception]) -> int:
    """Append until there is no room, as there may be for long: another thread makes it."""
    for count in range(TRIES):
        try:
            append()
        except until:
            return count
    raise AssertionError(f"there was room for {TRIES} appends")


def numbered(count: int, start: int = 0) -> list[bytes]:
    """So many values that differ."""
    return [b"record %d" % number for number in range(start, start + count)]


def sequences_of(receipts: list[geolog.Receipt]) -> list[int]:
    """Where records came to lie."""
    return [receipt.sequence for receipt in receipts]
