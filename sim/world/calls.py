"""The state that all applications of a world share: the history they write, their calls."""

from collections.abc import Callable
from random import Random

import attrs
import trio

import geolog
from geolog.protocol.stream_state import StreamRecord
from sim.world.history import Append, History
from sim.world.options import Knobs
from sim.world.process import Process
from sim.world.stream_knobs import StreamKnobs
from sim.world.trace import Trace

STREAM = "shop/orders"

_BEGUN_AGAIN = "was begun again"
"""Words of the error of a reader that was in such a mirror."""

HAND_OVER = "hand over"
"""Begins the words of a call that gives partitions to other processes."""


@attrs.define(eq=False)
class Calls:
    """The calls of the applications of one world; they go on until `quiet` is set."""

    knobs: Knobs
    stream: StreamKnobs
    history: History
    trace: Trace
    rng: Random
    trim_of: Callable[[int], int]
    """The true start of a partition now."""
    evicted_of: Callable[[int, str], int]
    """Where the home of a partition lets its mirror in a region go on behind a gap."""
    repeats_rng: Random
    """Decides when writers repeat acknowledged records."""
    home_of: Callable[[], tuple[str | None, int]]
    """The region where the stream is at home, if it has one by now, and the home epoch."""
    stream_now: Callable[[], StreamRecord | None]
    """The settings of the stream; None before it is made."""
    relay_regions: tuple[str, ...] = ()
    """The regions that have a copy of the stream; readers may be behind its home."""
    is_proxied: bool = False
    """Whether writers append through write proxies."""
    quiet: trio.Event = attrs.field(factory=trio.Event, init=False)
    let_go: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set when applications leave the blocks of failed writers."""
    count: int = attrs.field(default=0, init=False)
    sessions_count: int = attrs.field(default=0, init=False)
    """Sessions of writers that were opened so far."""

    def begin(self, process: Process, what: str) -> int:
        """Note that a process makes a call; returns the moment."""
        self.count += 1
        self.trace.add(process.host, "call", f"{what} {self.count}")
        return self.trace.events_count

    def is_begun_again(self, error: geolog.GeologError) -> bool:
        """Whether a reader was in a mirror that an operator began again: it opens again."""
        is_resynced = self.knobs.resyncs_rest_s_max is not None
        is_told = isinstance(error, geolog.ConflictError) and _BEGUN_AGAIN in str(error)
        return is_resynced and is_told

    def is_heard(self, process: Process) -> bool:
        """Whether anybody hears the answer: nobody does if the process is dead."""
        return process.is_alive and not self.trace.is_closed

    def kept_from(self, partition: int, reason: geolog.GapReason) -> int:
        """The sequence before which a reader may be told of such a gap."""
        trim = self.trim_of(partition)
        if reason is not geolog.GapReason.EVICTED:
            return trim
        return max(trim, *(self.evicted_of(partition, region) for region in self.relay_regions))

    def note_trims(self, append: Append) -> None:
        """Note where partitions begin, if a record that may be a repeat is answered."""
        if append.is_repeated:
            count = self.history.partitions[1]
            append.trims_repeated = {one: self.trim_of(one) for one in range(count)}

    def done(self, process: Process, words: str) -> None:
        """Note that a call succeeded."""
        self.trace.add(process.host, "done", words)

    def failed(self, process: Process, words: str) -> None:
        """Note that a call failed."""
        self.trace.add(process.host, "failed", words)

    async def rest(self, s_max: float) -> None:
        """Rest for a random time; end at once when all becomes quiet."""
        with trio.move_on_after(self.rng.random() * s_max):
            await self.quiet.wait()
