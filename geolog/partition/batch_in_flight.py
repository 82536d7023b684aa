"""A sealed batch on its way through the owner, and the terms that its writer set."""

import attrs
import trio

from geolog.protocol.ids import Sequence
from geolog.protocol.partition_state import WrittenBatch
from geolog.protocol.sequencer import Assigned
from geolog.wire.batch import SealedBatch
from geolog.wire.entry import WriterStamp
from topology.errors import GeologError


@attrs.frozen(kw_only=True)
class BatchTerms:
    """Conditions on a batch; the owner refuses the whole batch if it cannot meet them."""

    writer: WriterStamp | None = None
    """The named writer and its seqs, for exactly-once appends."""
    expect_sequence: int | None = None
    """The sequence that its first record must get."""
    transaction_first: int | None = None
    """The first transaction id in it, if any record has one."""
    transaction_last: int | None = None
    """The last transaction id, which is also the highest: they never decrease."""


NO_TERMS = BatchTerms()


@attrs.define(eq=False)
class BatchInFlight:
    """A sealed batch on its way; `done` is set when its place, or `error`, is final.

    If the owner asks for it, `received` is set earlier: the batch is then in the memory of an
    ack set, and keeps its place unless the ledger fails.
    """

    sealed: SealedBatch
    assigned: Assigned
    since_s: float
    terms: BatchTerms = NO_TERMS
    segment: int = 0
    entry: int = -1
    error: GeologError | None = None
    done: trio.Event = attrs.field(factory=trio.Event)
    received: trio.Event = attrs.field(factory=trio.Event)

    @property
    def first_sequence(self) -> Sequence:
        """The sequence of its first record."""
        return self.assigned.first_sequence

    @property
    def next_sequence(self) -> Sequence:
        """The sequence after its last record."""
        return Sequence(self.assigned.first_sequence + self.sealed.record_count)

    @property
    def size_bytes(self) -> int:
        """How many bytes of the window it uses."""
        return self.sealed.length_bytes

    def written(self, stamp: WriterStamp) -> WrittenBatch:
        """The record of this batch in its writer's state, with its latest place."""
        return WrittenBatch(
            seqs=stamp.seqs,
            segment=self.segment,
            entry=self.entry,
            slot=0,
            first_sequence=self.first_sequence,
            header_crc=self.sealed.header_crc,
            body_crc=self.sealed.body_crc,
        )
