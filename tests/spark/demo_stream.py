"""Streams that the tests of Spark read."""

from contextlib import AbstractContextManager

from geolog import blocking

RECORDS = 500


def connected(zookeeper: str) -> AbstractContextManager[blocking.Log]:
    return blocking.connect(zookeeper=zookeeper, cluster="demo", region="a")


def write(zookeeper: str, stream: str, *, partitions: int = 1, count: int = RECORDS) -> None:
    """Write records of every form, in many small batches and over several segments."""
    with connected(zookeeper) as log:
        log.create_stream(
            stream,
            ensemble_size=3,
            write_quorum=3,
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
