"""A batch of records, column by column, until its place in the log is known."""

from collections.abc import Mapping
from typing import TypeVar

import attrs
import trio

from geolog.client.writing.record_fields import RecordFields
from geolog.partition.batch_sink import SentBatch
from geolog.protocol.append_failure import told_of_record
from geolog.protocol.batch_seqs import RisingSeqs
from geolog.protocol.session_home import SessionHome
from geolog.protocol.writer_standing import WriterStanding
from geolog.wire.batch import SealedBatch, seal_batch
from geolog.wire.batch_terms import BatchTerms
from geolog.wire.entry import WriterStamp
from topology.errors import ConflictError, GeologError

T = TypeVar("T")


@attrs.frozen
class WriterSession:
    """A session of a named writer, which has fenced the partitions that it writes."""

    writer_id: bytes
    epoch: int
    partitions: int
    """Number of partitions that its records are divided among; 0 if the caller chose one."""
    home: SessionHome
    standings: tuple[WriterStanding, ...]
    """What each partition answered to the fence, in the order of the writer's lanes."""


@attrs.define(eq=False)
class OpenBatch:
    """Collects records by column; then `sent` is the sealed batch, and has its answer."""

    expect_sequence: int | None = None
    begun_us: int = 0
    """When its first record was taken in."""
    is_local_only: bool = False
    """Whether its records must not leave the region of the stream's home."""
    seqs: RisingSeqs | None = None
    values: list[bytes] = attrs.field(factory=list)
    created_us: list[int] = attrs.field(factory=list)
    keys: list[bytes | None] | None = None
    transaction_ids: list[int | None] | None = None
    headers: list[Mapping[str, bytes]] | None = None
    size_bytes: int = 0
    sealed_bytes: int = 0
    """Length of the sealed batch."""
    seq_before: int = -1
    """The lane's highest seq that was sent before it and not refused."""
    seq_required: int = -1
    """The seq that the owner must have accepted before it."""
    attempt: int = 0
    """How many batches of its lane had been refused when it was sent."""
    is_numbered_here: bool = True
    """Whether the writer chose all of its seqs, not the application."""
    may_be_elsewhere: bool = False
    """Whether another partition may have a record of one of these seqs."""
    is_posted: bool = False
    """Whether some of its records were posted: then `flush` tells what happened to it."""
    is_plain: bool = attrs.field(init=False)
    """Whether its records have no more than a value and a key, and it takes more of them."""
    sealed: trio.Event = attrs.field(factory=trio.Event)
    sent: SentBatch | None = None
    """Set when it is sealed: what the owner was given, or an answer without it."""

    def __attrs_post_init__(self) -> None:
        self.is_plain = self.expect_sequence is None and not self.is_local_only

    async def wait_sent(self) -> SentBatch:
        """Wait until it is sealed; its answer may still be to come."""
        await self.sealed.wait()
        assert self.sent is not None
        return self.sent

    def told(self, error: GeologError) -> GeologError:
        """The error as reported for its records: `refused` only if they are nowhere."""
        return told_of_record(error, is_numbered=self.may_be_elsewhere)

    def in_log_already(self) -> ConflictError:
        """The error of a batch that this session sends first, and that the log has already."""
        assert self.seqs is not None
        conflict = ConflictError(f"the log has seq {self.seqs.first} from another session")
        conflict.outcome = "unknown"
        return conflict

    def goes_on_with(self, fields: RecordFields, size_bytes: int, batch_bytes: int) -> bool:
        """Whether one more record fits. One that expects a sequence gets its own batch."""
        return (
            self.size_bytes + size_bytes <= batch_bytes
            and self.expect_sequence is None
            and fields.expect_sequence is None
            and fields.local_only == self.is_local_only
            and (fields.seq is None or self.seqs is None or self.seqs.fits(fields.seq))
        )

    def add(self, fields: RecordFields, *, created_us: int, size_bytes: int) -> int:
        """Add a record; return its slot."""
        slot = len(self.values)
        self.values.append(fields.value)
        self.created_us.append(created_us if fields.created_us is None else fields.created_us)
        self.size_bytes += size_bytes
        if fields.is_posted:
            self.is_posted = True
        if fields.seq is not None:
            if self.seqs is None:
                self.seqs = RisingSeqs(fields.seq)
            else:
                self.seqs.add(fields.seq)
        if fields.key is not None or self.keys is not None:
            self.keys = _extended(self.keys, fields.key, slot, None)
        if fields.transaction_id is not None or self.transaction_ids is not None:
            self.is_plain = False
            self.transaction_ids = _extended(
                self.transaction_ids, fields.transaction_id, slot, None
            )
        if fields.headers is not None or self.headers is not None:
            self.is_plain = False
            self.headers = _extended(self.headers, dict(fields.headers or {}), slot, {})
        return slot

    def add_plain(
        self, value: bytes, key: bytes | None, *, created_us: int, size_bytes: int
    ) -> None:
        """Add a record with no more than a value and a key to a batch of such records."""
        self.values.append(value)
        self.created_us.append(created_us)
        self.size_bytes += size_bytes
        if self.keys is not None:
            self.keys.append(key)
        elif key is not None:
            self.keys = _extended(None, key, len(self.values) - 1, None)

    def seal(self) -> SealedBatch:
        """Fix its bytes; they take the place of the values."""
        sealed = seal_batch(
            self.values,
            created_us=self.created_us,
            keys=self.keys,
            transaction_ids=self.transaction_ids,
            headers=self.headers,
        )
        self.values = []
        return sealed

    def terms(self, session: WriterSession | None) -> BatchTerms:
        """The terms under which the batch may be appended."""
        numbers = [one for one in self.transaction_ids or () if one is not None]
        writer = None
        if session is not None:
            assert self.seqs is not None
            writer = WriterStamp(
                session.writer_id, session.epoch, self.seqs.gathered(), session.partitions
            )
        return BatchTerms(
            writer=writer,
            seq_before=self.seq_required,
            expect_sequence=self.expect_sequence,
            transaction_first=numbers[0] if numbers else None,
            transaction_last=numbers[-1] if numbers else None,
            is_local_only=self.is_local_only,
        )


def _extended(column: list[T] | None, value: T, slot: int, blank: T) -> list[T]:
    """Append a value to a column; fill a column that starts late with blanks before it."""
    column = [blank] * slot if column is None else column
    column.append(value)
    return column
