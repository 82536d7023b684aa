"""Streams that the tests of Spark read."""

import os
import signal
from contextlib import AbstractContextManager

from geolog import blocking
from tests.system.demo_process import DemoProcess

RECORDS = 500


def connected(zookeeper: str) -> AbstractContextManager[blocking.Log]:
    return blocking.connect(zookeeper=zookeeper, cluster="demo", region="a")


def write(
    zookeeper: str, stream: str, *, partitions: int = 1, count: int = RECORDS, copies: int = 3
) -> None:
    """Write records of every form, in many small batches and over several segments.

    copies: two where a region may have been killed by an earlier test.
    """
    with connected(zookeeper) as log:
        log.create_stream(
            stream,
            ensemble_size=copies,
            write_quorum=copies,
            ack_quorum=2,
            min_regions=2,
            partitions=partitions,
            if_not_exists=True,
        )
        with log.open_writer(stream, batch_bytes=4096) as writer:
            pending = [
                writer.append_nowait(
                    b"value %d" % number,
                    key=None if number % 3 == 0 else b"key %d" % number,
                    headers={"a": b"%d" % number, "ü": b""} if number % 5 == 0 else None,
                )
                for number in range(count)
            ]
            for one in pending:
                one.wait()


def kill_region(demo: DemoProcess, region: str) -> None:
    """End all servers of a region as a machine would: its storage nodes and its ZooKeeper."""
    match demo.ready:
        case {"regions": dict(regions)}:
            for pid in demo.pids(regions[region]):
                os.kill(pid, signal.SIGKILL)
        case _:
            raise AssertionError(demo.ready)
