"""The trace of a world: one line an event, and a running hash over all lines.

A line has four columns, separated by single spaces: the simulated time in seconds, the process
it happens at (`-` for the world itself), the event, and its details up to the end of the line.
"""

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs
import trio

from sim.scheduling import current_process

EVENTS = {
    "shape": "what the seed drew: a field of the options, and its value",
    "start": "a process begins: its number at this place, counted from 1",
    "end": "a process ends by itself, and why",
    "kill": "a process is killed: it runs no more and is not told",
    "power-loss": "the same, and unsynced sectors of its disk may be gone",
    "pause": "a process runs no more for now, as after SIGSTOP",
    "resume": "it goes on",
    "fault-on": "a fault begins: its kind and what it strikes",
    "fault-off": "it ends",
    "connect": "a connection is made: its number, the other side",
    "send": "bytes leave: connection, the other side, count, CRC32C",
    "deliver": "bytes are received: connection, the other side, count, CRC32C",
    "close": "a side closes its connection",
    "reset": "a connection breaks",
    "disk-create": "a file is made",
    "disk-rename": "a file is renamed: from, to",
    "disk-remove": "a file is removed",
    "disk-allocate": "space is taken ahead for a file: file, offset, count",
    "disk-truncate": "a file is cut: file, its new length",
    "disk-write": "bytes are written: file, offset, count, CRC32C",
    "disk-sync": "a file's writes are on disk",
    "disk-sync-directory": "creations, renames and removals are on disk",
    "disk-fail": "the disk raises an error",
    "meta-ask": "a metadata operation is asked: what, where",
    "meta-answer": "it is answered",
    "meta-fail": "it ends in an error",
    "call": "an application calls: what, and its number",
    "done": "the call ended well: its number, what was answered",
    "failed": "the call failed: its number, its outcome, the error",
    "log": "what the process logs",
    "phase": "faults begin, faults stop, all is read once more",
    "violation": "a law is broken: which, and how",
}
"""What can happen, and what the details are."""


@attrs.define(eq=False)
class _Awaited:
    """An event that somebody waits for."""

    happened: trio.Event = attrs.field(factory=trio.Event)
    process: str = ""
    details: str = ""


@attrs.define(eq=False)
class Trace:
    """Takes the events of one world, in order."""

    write_line: Callable[[str], None] | None = None
    """Is given each line; without it only the hash is kept."""
    counts: Counter[str] = attrs.field(factory=Counter, init=False)
    """How often each event was seen: what was never seen was never tried."""
    is_closed: bool = attrs.field(default=False, init=False)
    events_count: int = attrs.field(default=0, init=False)
    _awaited: dict[str, _Awaited] = attrs.field(factory=dict, init=False)
    _hash: hashlib.blake2b = attrs.field(
        factory=lambda: hashlib.blake2b(digest_size=16), init=False
    )

    def add(self, process: str, event: str, details: str = "") -> None:
        """An event happens now. A trace that is closed takes no more."""
        if self.is_closed:
            return
        self.events_count += 1
        self.counts[event] += 1
        line = f"{trio.current_time():.6f} {process} {event} {details}"
        self._hash.update(line.encode())
        self._hash.update(b"\n")
        if self.write_line is not None:
            self.write_line(line)
        awaited = self._awaited.pop(event, None)
        if awaited is not None:
            awaited.process, awaited.details = process, details
            awaited.happened.set()

    async def wait(self, event: str) -> tuple[str, str]:
        """Wait for the next event of this name: where it happens, and its details."""
        awaited = self._awaited.setdefault(event, _Awaited())
        await awaited.happened.wait()
        return awaited.process, awaited.details

    @contextmanager
    def taking_logs(self) -> Iterator[None]:
        """While the block runs, all that the code under test logs stands in the trace alone."""
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
        """The world ends: how its processes unwind is no part of the history."""
        self.is_closed = True

    @property
    def hash(self) -> str:
        """The hash over all lines so far, as hex digits."""
        return self._hash.hexdigest()


class _TraceLog(logging.Handler):
    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        self._trace.add(current_process() or "-", "log", record.getMessage())
