"""A stream that is written, moved between owners and truncated, until it is told to rest."""

import threading
import time
from types import TracebackType

import geolog
from geolog import blocking
from tests.spark.demo_stream import connected, write

_TENURE_RECORDS = 60
_KEPT_RECORDS = 1000


class BusyStream:
    """One partition; writers of two regions take it from each other, and the front goes."""

    def __init__(self, zookeeper: str, stream: str) -> None:
        self._zookeeper = zookeeper
        self.stream = stream
        self.values: dict[int, bytes] = {}
        """By sequence, what was acknowledged."""
        self.tenures_count = 0
        self.front = 0
        """Records before this sequence may be truncated."""
        self._to_end = threading.Event()
        self._failures: list[BaseException] = []
        self._thread = threading.Thread(target=self._work, name="busy stream")

    def __repr__(self) -> str:
        return f"BusyStream({self.stream}, {len(self.values)} acknowledged)"

    def __enter__(self) -> "BusyStream":
        write(self._zookeeper, self.stream, count=1)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._to_end.set()
        self._thread.join()
        if error is None and self._failures:
            raise self._failures[0]

    def wait_tenures(self, count: int, *, deadline_s: float = 60.0) -> None:
        """Wait until so many more writers have had it."""
        wanted, end_s = self.tenures_count + count, time.monotonic() + deadline_s
        while self.tenures_count < wanted:
            assert not self._failures, self._failures
            assert time.monotonic() < end_s, f"{self} stands still"
            time.sleep(0.01)

    def _work(self) -> None:
        try:
            with (
                connected(self._zookeeper) as one,
                blocking.connect(
                    zookeeper=self._zookeeper, cluster="demo", region="c"
                ) as other,
            ):
                while not self._to_end.is_set():
                    for log in (one, other):
                        self._hold(log)
        except BaseException as error:  # noqa: BLE001 - raised again by the test's thread.
            self._failures.append(error)

    def _hold(self, log: blocking.Log) -> None:
        """Append for a while; the next writer takes the stream from one that is still open."""
        with log.open_writer(self.stream, batch_bytes=4096) as writer:
            for _ in range(_TENURE_RECORDS):
                value = b"busy %d" % len(self.values)
                self.values[writer.append(value).sequence] = value
        self.tenures_count += 1
        self.front = max(self.front, max(self.values) - _KEPT_RECORDS)
        if self.front:
            log.truncate_stream(self.stream, before=geolog.AtSequence(self.front))
