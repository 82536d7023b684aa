"""The next step for a batch that a sink is given: record, copy, refuse or drop.

Theory of operation. Tasks write their rows into staging ledgers. A driver then records, under
the sink and the number of the batch, which of them count. That is one compare-and-set, so of
two lists of one batch the first stays. From the record the batch is copied into its streams by
a named writer. The records of all batches of a sink are numbered in one row: the seq of each is
the batch's first plus its place in the list. So a copy that is begun again, by any driver,
continues where the log ends.

`on_commit` looks at the record and says the next step. A driver performs it, reads the record
again, and asks again, until there is nothing left to do. A batch whose copy was left unfinished
is finished from the recorded list by the next driver. Each driver that begins to copy first
writes its name into the record. A driver that loses the record to another one's write stops.

Only the latest batch is kept. Queries commit their batches in order, so an earlier one is from
a driver that was overtaken, or from a query that began again under an old name.

A driver that comes with a batch which is recorded already has staged rows that are not written.
That is right if they are the recorded ones. A query reads the same records again for a repeated
batch, so it has as many rows, though perhaps others (a query may make up its keys). A batch
write may be another one with the same name, so its rows must be the same. Otherwise the driver
fails, once the recorded batch is copied, and says which rows are not written.

Each staging ledger is listed with the batch that it is for, and the run that staged it. Staging
for a later batch than the record's may belong to a driver that is at work right now: only its
own run drops it.

Rules: PROTOCOL S34 to S37, and S39.
"""

from collections.abc import Container, Iterable, Iterator

import attrs

from geolog.protocol.ids import LedgerId

NO_BATCH = -1

CHECKPOINT_SINK = "checkpoint:"
"""Begins the identity of a query that is known by the place of its checkpoints."""

NO_QUERY = "batch write"
"""In place of a query's id: the batch of a write that belongs to none."""

_TOLD_MAX = 8
"""Streams that an error names."""

DIGEST_BITS = 32
"""Digests of rows are added up, so that their order is of no account."""


@attrs.frozen
class StagedPart:
    """A sealed staging ledger, for one stream."""

    ledger: LedgerId
    stream: str
    records_count: int
    digest: int = 0
    """The sum of the digests of its rows; 0: not known."""


@attrs.frozen
class StagedLedger:
    """A staging ledger as the list of its sink has it, sealed or not."""

    ledger: LedgerId
    batch: int
    """The batch that its records are for."""
    run: str
    """The run that staged it: one start of a write or query. No other has this name."""


@attrs.frozen(kw_only=True)
class SinkRecord:
    """The latest batch of a sink.

    Invariant: seqs below `seq_first` belong to earlier batches, all of which are copied.
    """

    sink: str
    """Its identity, as its user knows it."""
    life: str = ""
    """Tells it from an earlier record under this identity, which was forgotten; streams may
    still know that one's named writer."""
    query: str = ""
    """Spark's id of the query, which a restart keeps; empty if the driver did not say."""
    checkpoint: str = ""
    """The place of the query's checkpoints; empty if the driver did not say."""
    batch: int = NO_BATCH
    parts: tuple[StagedPart, ...] = ()
    seq_first: int = 0
    is_copied: bool = True
    copier: str = ""
    """The driver that copies it, or copied it."""
    recorded_us: int = 0
    """When the batch was recorded, by metadata's clock; 0: when the record was changed last."""
    streams_done: tuple[str, ...] = ()
    """Streams that have all their records of the batch, while others lack some."""
    source: str = ""
    """The files of a replay; empty for other writes."""

    @property
    def records_count(self) -> int:
        """Number of records of the batch."""
        return sum(part.records_count for part in self.parts)

    @property
    def may_be_forgotten(self) -> bool:
        """Whether nothing is lost with the record once nobody has used it for long.

        A query may be started again however late, and repeats its last batch then. A copy of a
        batch write that was left unfinished cannot be finished once its staging has expired.
        """
        return self.batch == NO_BATCH or self.query == NO_QUERY

    def places(self) -> Iterator[tuple[StagedPart, int]]:
        """The parts in the order of copying, each with the seq of its first record."""
        seq = self.seq_first
        for part in self.parts:
            yield part, seq
            seq += part.records_count

    def streams_left(self) -> list[str]:
        """Streams that may lack records of the batch, in the order of copying."""
        named = dict.fromkeys(part.stream for part in self.parts)
        return [stream for stream in named if stream not in self.streams_done]

    def copied_into(self, stream: str) -> "SinkRecord":
        """This stream has all its records of the batch."""
        return attrs.evolve(self, streams_done=(*self.streams_done, stream))

    def copied(self) -> "SinkRecord":
        """All records of the batch are in their streams. Its ledgers are not needed then."""
        parts = tuple(_by_stream(self.parts).values())
        return attrs.evolve(self, is_copied=True, streams_done=(), parts=parts)


@attrs.frozen
class StagedBatch:
    """A batch as its driver hands it over."""

    batch: int
    parts: tuple[StagedPart, ...]
    copier: str
    """The driver; no other has this name."""
    run: str = ""
    """The run whose tasks staged it."""
    query: str = ""
    """Spark's id of the query: one for each set of checkpoints."""
    checkpoint: str = ""
    is_repeatable: bool = True
    """Whether a query repeats its last batch when it is started again, as streams do."""
    is_loss_accepted: bool = False
    """Whether to go on without rows that cannot be written any more."""

    @property
    def records_count(self) -> int:
        """Number of records of the batch."""
        return sum(part.records_count for part in self.parts)


@attrs.frozen
class RecordNext:
    """Write this record if the one that was read is still there, then copy the batch."""

    record: SinkRecord


@attrs.frozen
class FinishCopy:
    """Write this record if the one that was read is still there, then copy what it lists."""

    record: SinkRecord


@attrs.frozen
class Finished:
    """The batch is in the log. Nothing is left to do."""

    is_as_given: bool
    """Whether its rows are those that this driver staged, as far as digests tell."""


@attrs.frozen
class RefuseBatch:
    """The batch is not this sink's next one."""

    why: str


Step = RecordNext | FinishCopy | Finished | RefuseBatch


def on_commit(known: SinkRecord, given: StagedBatch) -> Step:
    """The next step towards having this batch in the log."""
    if _belongs_to_another(known, given):
        return RefuseBatch(_told_of_another(known, given))
    if known.batch == NO_BATCH and given.batch > 0 and known.sink.startswith(CHECKPOINT_SINK):
        return RefuseBatch(
            f"{known.sink!r} is new, but the query is at batch {given.batch} already. If its"
            " checkpointLocation was spelled otherwise before, spell it so again. If it wrote"
            " elsewhere before, or with exactlyOnce=false, give it a name with"
            " .option('writer', NAME)"
        )
    if given.batch < known.batch:
        return RefuseBatch(
            f"batch {given.batch} of {known.sink!r} is out of date: batch {known.batch} is"
            " written already. If another driver runs the query, stop this one. If the query's"
            " checkpoints were deleted, give it a new name with .option('writer', NAME)"
        )
    if not known.is_copied:
        if known.copier == given.copier and known.batch == given.batch:
            return FinishCopy(known)
        return FinishCopy(attrs.evolve(known, copier=given.copier))
    if given.batch == known.batch:
        return _on_repeated(known, given)
    if not (given.is_repeatable or given.records_count):
        return Finished(is_as_given=True)  # A run without rows does not use the name up.
    return RecordNext(
        SinkRecord(
            sink=known.sink,
            life=known.life,
            source=known.source,
            query=given.query or known.query,
            checkpoint=given.checkpoint or known.checkpoint,
            batch=given.batch,
            parts=given.parts,
            seq_first=known.seq_first + known.records_count,
            is_copied=False,
            copier=given.copier,
        )
    )


def _on_repeated(known: SinkRecord, given: StagedBatch) -> Finished | RefuseBatch:
    """The step for a batch that is recorded and copied already."""
    recorded, brought = _by_stream(known.parts), _by_stream(given.parts)
    is_same = recorded.keys() == brought.keys() and all(
        _is_same(one, brought[stream]) for stream, one in recorded.items()
    )
    if not given.is_repeatable:
        if known.copier != given.copier:
            return RefuseBatch(
                f"writer {known.sink!r} has written its {known.records_count} records already:"
                " a batch write under one name is done once. Give each run its own, e.g."
                " .option('writer', 'orders-2026-11-27')"
            )
        if is_same:
            return Finished(is_as_given=True)
        return RefuseBatch(
            f"another run named {known.sink!r} had staged other rows. Its"
            f" {known.records_count} records are written now; the {given.records_count} rows"
            " of this run are not. If this run repeats that one, nothing is missing; if it has"
            " rows of its own, run it again under another name, e.g."
            " .option('writer', 'orders-2026-11-27')"
        )
    if is_same or _counts(recorded) == _counts(brought):
        return Finished(is_same)
    if not _is_same_query(known, given):
        return RefuseBatch(
            f"batch {given.batch} of {known.sink!r} was written with"
            f" {known.records_count} records, and this one has {given.records_count}:"
            " another query uses, or used, this name. Give each query a name of its own with"
            " .option('writer', NAME), and its checkpointLocation as an option, too"
        )
    if given.is_loss_accepted:
        return Finished(is_as_given=False)
    return RefuseBatch(
        f"batch {given.batch} of {known.sink!r} was written before with"
        f" {told_parts(recorded.values())}, and now it has {told_parts(brought.values())};"
        " these are not written. If the checkpoints of the query were restored or copied, give"
        " it a new writer: then all rows since those checkpoints are written, some a second"
        " time. If the query is not deterministic, keep the rows that are written, and go on"
        " with .option('failOnDataLoss', 'false')"
    )


def _belongs_to_another(known: SinkRecord, given: StagedBatch) -> bool:
    """Whether the sink certainly belongs to another query or write than this one."""
    if known.query and given.query:
        return known.query != given.query
    return bool(known.checkpoint and given.checkpoint and known.checkpoint != given.checkpoint)


def _told_of_another(known: SinkRecord, given: StagedBatch) -> str:
    if NO_QUERY in (known.query, given.query):
        first, now = "a streaming query", "a batch write"
        if known.query == NO_QUERY:
            first, now = now, first
        return (
            f"writer {known.sink!r} is the name of {first}, and this is {now}: give each a"
            " writer of its own"
        )
    if known.checkpoint and known.checkpoint == given.checkpoint:
        return (
            f"{known.sink!r} belongs to an earlier query that had its checkpoints in"
            f" {known.checkpoint}, too: they were deleted, or are on another machine. If this"
            " query is a new one, give it a name of its own with .option('writer', NAME)"
        )
    return (
        f"writer {known.sink!r} belongs to the query with the checkpoints in"
        f" {known.checkpoint or 'another place'}; this one has its in"
        f" {given.checkpoint or 'another place'}: give each query a writer of its own"
    )


def _is_same_query(known: SinkRecord, given: StagedBatch) -> bool:
    """Whether the batch is certainly of the query that wrote the recorded one.

    Another one was refused before (`_belongs_to_another`).
    """
    return bool((known.query and given.query) or (known.checkpoint and given.checkpoint))


def _by_stream(parts: Iterable[StagedPart]) -> dict[str, StagedPart]:
    """The parts as one for each stream, which has the first one's ledger."""
    whole: dict[str, StagedPart] = {}
    for part in parts:
        before = whole.get(part.stream)
        whole[part.stream] = part if before is None else _together(before, part)
    return whole


def _together(one: StagedPart, other: StagedPart) -> StagedPart:
    digest = 0  # Of rows that a version without digests staged, nothing is known.
    if one.digest and other.digest:
        digest = (one.digest + other.digest) % (1 << DIGEST_BITS)
    return attrs.evolve(
        one, records_count=one.records_count + other.records_count, digest=digest
    )


def _is_same(one: StagedPart, other: StagedPart) -> bool:
    is_known = one.digest and other.digest
    return one.records_count == other.records_count and (
        not is_known or one.digest == other.digest
    )


def _counts(by_stream: dict[str, StagedPart]) -> dict[str, int]:
    return {stream: part.records_count for stream, part in by_stream.items()}


def told_parts(parts: Iterable[StagedPart]) -> str:
    """The records for each stream, for an error."""
    told = [f"{part.records_count} records for {part.stream}" for part in parts]
    more_count = len(told) - _TOLD_MAX
    if more_count > 0:
        told[_TOLD_MAX:] = [f"others for {more_count} streams"]
    return ", ".join(told) or "no records"


def garbage_of(
    known: SinkRecord, listed: Iterable[StagedLedger], *, ended_runs: Container[str] = ()
) -> list[StagedLedger]:
    """The staging that nobody needs, by id of the ledger.

    Batches are recorded in order, so staging for this one or an earlier one is never recorded
    any more: anyone may drop it. ended_runs: these stage and record no more.
    """
    needed = set() if known.is_copied else {part.ledger for part in known.parts}
    return sorted(
        (
            staged
            for staged in listed
            if staged.ledger not in needed
            and (staged.batch <= known.batch or staged.run in ended_runs)
        ),
        key=lambda staged: staged.ledger,
    )
