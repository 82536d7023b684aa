"""A cluster in the trio thread of this process, for programs outside of that thread.

It runs on real time, because a mock clock cannot see waiting threads and event loops.
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
    """Hold a block open in the trio thread."""

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
    """Make a function that opens a client of the cluster."""
    return lambda: cluster.open_client("us-east", host=host)


TRIES = 10_000
"""Bound of a loop that races with another thread, which may undo each of its steps."""


def filled(append: Callable[[], object], *, until: type[Exception]) -> int:
    """Append until there is no room; another thread makes room meanwhile. Return the count."""
    for count in range(TRIES):
        try:
            append()
        except until:
            return count
    raise AssertionError(f"there was room for {TRIES} appends")


def numbered(count: int, start: int = 0) -> list[bytes]:
    """`count` different values."""
    return [b"record %d" % number for number in range(start, start + count)]


def sequences_of(receipts: list[geolog.Receipt]) -> list[int]:
    """The sequences of the receipts."""
    return [receipt.sequence for receipt in receipts]
