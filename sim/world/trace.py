"""The trace of a world: one line per event, and a running hash over all lines.

A line has four columns, separated by single spaces: the simulated time in seconds, the process
(`-` for the world itself), the event, and its details up to the end of the line.
"""

import hashlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs
import trio

from sim.scheduling import current_process

EVENTS = {
    "shape": "a field of the options that the seed drew, and its value",
    "start": "a process starts: its number at this host, counted from 1",
    "end": "a process ends by itself, and why",
    "kill": "a process is killed, without a chance to clean up",
    "power-loss": "the same; unsynced sectors of its disk may be gone",
    "pause": "a process stops for now, as after SIGSTOP",
    "resume": "a paused process goes on",
    "fault-on": "a fault begins: its kind and what it strikes",
    "fault-off": "a fault ends",
    "connect": "a connection is made: its number, the other side",
    "send": "bytes leave: connection, other side, count, CRC32C",
    "deliver": "bytes arrive: connection, other side, count, CRC32C",
    "close": "a side closes its connection",
    "reset": "a connection breaks",
    "disk-create": "a file is created",
    "disk-rename": "a file is renamed: from, to",
    "disk-remove": "a file is removed",
    "disk-allocate": "space is allocated ahead: file, offset, count",
    "disk-truncate": "a file is truncated: file, new length",
    "disk-write": "bytes are written: file, offset, count, CRC32C",
    "disk-sync": "a file's writes are on disk",
    "disk-sync-directory": "creations, renames and removals are on disk",
    "disk-fail": "the disk raises an error",
    "meta-ask": "a metadata operation is requested: what, where",
    "meta-answer": "a metadata operation succeeds",
    "meta-fail": "a metadata operation fails",
    "call": "an application makes a call: what, and its number",
    "done": "a call succeeds: its number, its answer",
    "failed": "a call fails: its number, its outcome, the error",
    "log": "a log line of the process",
    "phase": "the history enters this phase",
    "violation": "a law is broken: which, and how",
}
"""Every event, with its meaning and details."""


@attrs.define(eq=False)
class _Awaited:
    """An event that a task waits for."""

    happened: trio.Event = attrs.field(factory=trio.Event)
    process: str = ""
    details: str = ""


@attrs.define(eq=False)
class Trace:
    """Collects the events of one world, in order."""

    write_line: Callable[[str], None] | None = None
    """Gets each line; without it only the hash is kept."""
    counts: Counter[str] = attrs.field(factory=Counter, init=False)
    """How often each event was seen. An event never seen means something never tried."""
    is_closed: bool = attrs.field(default=False, init=False)
    events_count: int = attrs.field(default=0, init=False)
    _awaited: dict[str, _Awaited] = attrs.field(factory=dict, init=False)
    _hash: hashlib.blake2b = attrs.field(
        factory=lambda: hashlib.blake2b(digest_size=16), init=False
    )

    def add(self, process: str, event: str, details: str = "") -> None:
        """Add an event that happens now; ignored once the trace is closed."""
        if self.is_closed:
            return
        self.events_count += 1
        self.counts[event] += 1
        line = f"{trio.current_time():.6f} {process} {event} {details}"
        self._hash.update(f"{line}\n".encode())
        if self.write_line is not None:
            self.write_line(line)
        awaited = self._awaited.pop(event, None)
        if awaited is not None:
            awaited.process, awaited.details = process, details
            awaited.happened.set()

    async def wait(self, event: str) -> tuple[str, str]:
        """Wait for the next event of this name; return its process and details."""
        awaited = self._awaited.setdefault(event, _Awaited())
        await awaited.happened.wait()
        return awaited.process, awaited.details

    @contextmanager
    def taking_logs(self) -> Iterator[None]:
        """Send all log lines of this thread to the trace while the block runs.

        Nothing logs elsewhere meanwhile; other threads do not log at all.
        """
        root = logging.getLogger()
        handlers, level = root.handlers, root.level
        root.handlers = [_TraceLog(self)]
        root.setLevel(logging.INFO)
        try:
            yield
        finally:
            root.handlers = handlers
            root.setLevel(level)

    def close(self) -> None:
        """Stop: how the processes of a world unwind is not part of the history."""
        self.is_closed = True

    @property
    def hash(self) -> str:
        """The hash over all lines so far, in hex."""
        return self._hash.hexdigest()


class _TraceLog(logging.Handler):
    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self._trace.add(current_process() or "-", "log", record.getMessage())
