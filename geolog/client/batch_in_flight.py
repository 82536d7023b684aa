"""A sealed batch on its way through the owner, and how far the owner has come."""

import attrs
import trio

from geolog.protocol.ids import Sequence
from geolog.protocol.sequencer import Assigned
from geolog.wire.batch import SealedBatch
from topology.errors import GeologError


@attrs.define(eq=False)
class BatchInFlight:
    """A sealed batch on its way; `done` is set when `error` or its place is final."""

    sealed: SealedBatch
    assigned: Assigned
    since_s: float
    segment: int = 0
    entry: int = 0
    error: GeologError | None = None
    done: trio.Event = attrs.field(factory=trio.Event)

    @property
    def first_sequence(self) -> Sequence:
        """The sequence of its first record."""
        return self.assigned.first_sequence

    @property
    def last_sequence(self) -> Sequence:
        """The sequence of its last record."""
        return Sequence(self.assigned.first_sequence + self.sealed.record_count - 1)

    @property
    def size_bytes(self) -> int:
        """What it counts for in the window."""
        return self.sealed.length_bytes


@attrs.define
class Acknowledged:
    """Up to where the partition is acknowledged, and how much of it in the open segment."""

    last_sequence: Sequence
    append_time_us: int
    size_bytes: int = 0
