"""The state of a partition that an owner needs to go on: its end, and its named writers.

The state follows from the entries of the log, in order. A snapshot of it is written into the
log now and then, so that the next owner need not read the log from the beginning (PROTOCOL
O11).

Theory of operation. A named writer numbers its records with a rising `seq`; gaps are allowed,
also within a batch. A batch is new, and appended, if its first seq is above everything that the
log has of the writer. Any other batch is a repeat. If the log remembers the batch, the repeat
is answered with the first position, provided its bytes are equal; otherwise it is refused, and
never appended. For each writer the state remembers the last batches, with all their seqs. A
seq that lies in a gap was never appended here: it belongs to another partition, or was left
out.

A session of a writer begins with a fence: an entry of its own that holds the session's epoch
and nonce, takes no sequence, and comes behind everything that older sessions appended. Logs of
earlier versions have epochs without a fence; such an epoch has no nonce.

Rules: PROTOCOL S4, S5, S7, S9 and S10.
"""

from collections.abc import Collection, Iterator, Mapping
from operator import attrgetter

import attrs

from geolog.protocol.batch_seqs import BatchSeqs, batch_with, is_left_out_of
from geolog.protocol.generations import Generation, with_seq
from geolog.protocol.ids import Sequence
from geolog.protocol.writer_standing import NO_NONCE, WriterFence

BATCHES_REMEMBERED = 64
"""Remembered batches of each writer. It may have as many unanswered."""


@attrs.frozen
class WrittenBatch:
    """A batch of a named writer, with its place in the log."""

    seqs: BatchSeqs
    segment: int
    entry: int
    slot: int
    """Slot of its first record in the entry."""
    first_sequence: Sequence
    header_crc: int
    body_crc: int

    @property
    def seq_first(self) -> int:
        """Seq of its first record."""
        return self.seqs.first

    @property
    def record_count(self) -> int:
        """Number of its records."""
        return self.seqs.count


_SEQS = attrgetter("seqs")


@attrs.frozen
class WriterState:
    """One writer: its session, and its last batches."""

    epoch: int
    """Epoch of its session."""
    seq_highest: int
    last_append_us: int
    """Append time of its last batch or fence."""
    batches: tuple[WrittenBatch, ...]
    """The last batches, in append order."""
    generations: tuple[Generation, ...] = ()
    """How many partitions its records in this partition were divided among."""
    nonce: int = NO_NONCE
    """Nonce of the fence that began the epoch; `NO_NONCE` if none did."""

    @property
    def next_sequence(self) -> int:
        """The sequence after its last record in the log."""
        if not self.batches:
            return 0
        return self.batches[-1].first_sequence + self.batches[-1].record_count

    def batch_of(self, seq: int) -> WrittenBatch | None:
        """The remembered batch with a record of this seq, or None."""
        return batch_with(self.batches, seq, _SEQS)

    def is_left_out(self, seq: int) -> bool:
        """Whether a seq at or below the highest was surely never appended here.

        True if it lies in a gap among the remembered batches. Nothing is known of a seq below
        these: it may have been appended.
        """
        return is_left_out_of(self.batches, seq, _SEQS)

    def with_batch(
        self, epoch: int, batch: WrittenBatch, append_time_us: int, partitions: int
    ) -> "WriterState":
        """The state after another batch."""
        seqs = batch.seqs
        assert seqs.first > self.seq_highest, f"{seqs} is not above {self.seq_highest}"
        batches = (*self.batches[1 - BATCHES_REMEMBERED :], batch)
        generations = with_seq(self.generations, partitions, seqs.last)
        epoch, nonce = self._session_then(epoch, NO_NONCE)
        return WriterState(epoch, seqs.last, append_time_us, batches, generations, nonce)

    def with_fence(self, fence: WriterFence, append_time_us: int) -> "WriterState":
        """The state after the fence of a session."""
        epoch, nonce = self._session_then(fence.epoch, fence.nonce)
        return attrs.evolve(self, epoch=epoch, nonce=nonce, last_append_us=append_time_us)

    def _session_then(self, epoch: int, nonce: int) -> tuple[int, int]:
        """Epoch and nonce after another entry of the writer, whose fence had this nonce."""
        if epoch != self.epoch:
            return (epoch, nonce) if epoch > self.epoch else (self.epoch, self.nonce)
        return epoch, nonce if nonce != NO_NONCE else self.nonce

    def then(self, later: "WriterState") -> "WriterState":
        """The state after everything in `later`, which was computed from an empty state."""
        epoch, nonce = self._session_then(later.epoch, later.nonce)
        if not later.batches:
            last_append_us = later.last_append_us
            return attrs.evolve(self, epoch=epoch, nonce=nonce, last_append_us=last_append_us)
        assert later.batches[0].seq_first > self.seq_highest, f"{later} does not follow {self}"
        lacking_from = max(0, len(self.batches) + len(later.batches) - BATCHES_REMEMBERED)
        generations = self.generations
        for one in later.generations:
            generations = with_seq(generations, one.partitions, one.seq_highest)
        return attrs.evolve(
            later,
            epoch=epoch,
            nonce=nonce,
            batches=(*self.batches[lacking_from:], *later.batches),
            generations=generations,
        )


FIRST_SEQUENCE = Sequence(0)

NO_WRITER_STATE = WriterState(epoch=0, seq_highest=-1, last_append_us=0, batches=())
"""State of a writer that never wrote, or was forgotten."""


@attrs.define
class PartitionState:
    """Where a partition ends, and its writers, after some prefix of its log.

    Invariant: equal prefixes give equal states, whether computed from a snapshot or from the
    beginning.
    """

    sequence_next: Sequence = FIRST_SEQUENCE
    append_time_us: int = 0
    """Append time of the last entry."""
    transaction_id: int | None = None
    """Highest transaction id so far, if any record had one."""
    size_bytes: int = 0
    """Bytes of all batches so far, including trimmed ones."""
    writers: dict[bytes, WriterState] = attrs.field(factory=dict)
    local_only_count: int = 0
    """Local-only records so far, including trimmed ones."""

    def copy(self) -> "PartitionState":
        """An independent copy, for another prefix."""
        return attrs.evolve(self, writers=dict(self.writers))

    def writer(self, writer_id: bytes) -> WriterState:
        """The state of a writer."""
        return self.writers.get(writer_id, NO_WRITER_STATE)

    def on_entry(
        self,
        *,
        next_sequence: Sequence,
        append_time_us: int,
        transaction_id: int | None,
        batch_bytes: int,
        local_only_count: int = 0,
    ) -> None:
        """Add an entry of records; `transaction_id` is the highest that it has.

        local_only_count: how many records it has, if it is local-only.
        """
        assert next_sequence > self.sequence_next, f"{next_sequence} is not after {self}"
        self.sequence_next = next_sequence
        self.append_time_us = append_time_us
        if transaction_id is not None:
            self.transaction_id = transaction_id
        self.size_bytes += batch_bytes
        self.local_only_count += local_only_count

    def on_batch(
        self,
        writer_id: bytes,
        epoch: int,
        batch: WrittenBatch,
        append_time_us: int,
        *,
        partitions: int,
    ) -> None:
        """Add a named writer's batch, which is in the last entry.

        `partitions`: how many its writer divided its records among; 0 for none.
        """
        writer = self.writer(writer_id)
        self.writers[writer_id] = writer.with_batch(epoch, batch, append_time_us, partitions)

    def on_fence(self, writer_id: bytes, fence: WriterFence, append_time_us: int) -> None:
        """Add the fence of a named writer's session, which is an entry without records."""
        self.append_time_us = append_time_us
        self.writers[writer_id] = self.writer(writer_id).with_fence(fence, append_time_us)

    def follow(self, before: "PartitionState") -> None:
        """Put the state `before` in front of this one, which was computed from an empty state.

        The cost grows with the writers of `before`, however many this one has.
        """
        self.sequence_next = max(before.sequence_next, self.sequence_next)
        self.append_time_us = max(before.append_time_us, self.append_time_us)
        if self.transaction_id is None:
            self.transaction_id = before.transaction_id
        self.size_bytes += before.size_bytes
        self.local_only_count += before.local_only_count
        for name, one in before.writers.items():
            later = self.writers.get(name)
            self.writers[name] = one if later is None else one.then(later)

    def forget_idle(
        self, before_us: int, *, trimmed_before: int, except_for: Collection[bytes | None] = ()
    ) -> list[bytes]:
        """Forget writers not heard of since then, whose records are all trimmed.

        While a record is there, its writer may ask for it again. Returns those that were
        forgotten. except_for: writers of entries on their way, which are not idle.
        """
        idle = [
            name
            for name, one in self.writers.items()
            if one.last_append_us < before_us
            and one.next_sequence <= trimmed_before
            and name not in except_for
        ]
        for name in idle:
            del self.writers[name]
        return idle


def writers_in_order(
    writers: Mapping[bytes, WriterState],
) -> Iterator[tuple[bytes, WriterState]]:
    """All writers, sorted by id, so that equal states have equal snapshots."""
    yield from sorted(writers.items())
