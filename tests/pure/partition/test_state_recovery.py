"""A partition's state read back equals that of all entries, however they are cut up."""

import random

import attrs
import pytest
from trio.testing import MockClock

from geolog.catalog.segment_records import SegmentRecords
from geolog.ledger.ledger_metadata import LedgerMetadata
from geolog.ledger.reading.ledger_reader import LedgerReadConfig, LedgerReader
from geolog.ledger.recovery.recovery_progress import RecoveryProgress
from geolog.metadata.documents import seal_document
from geolog.metadata.paths import ClusterPaths
from geolog.partition.state_recovery import recovered_state
from geolog.protocol.batch_seqs import BatchSeqs
from geolog.protocol.ids import EntryId, Epoch, Sequence
from geolog.protocol.partition_state import PartitionState, WrittenBatch
from geolog.protocol.stream_state import PartitionName, SegmentRecord, StreamName
from geolog.protocol.writer_standing import WriterFence
from geolog.wire import snapshot
from geolog.wire.batch import seal_batch
from geolog.wire.entry import EncodedEntry, EntryKind, WriterStamp, encode_entry
from geolog.wire.writer_fence import seal_fence
from tests.pure.ledger.fake_nodes import CLUSTER, FakeNodes, open_fake_nodes
from tests.pure.ledger.later_part import FIRST, LaterLedgers, LaterSegment
from topology.errors import DamagedBytesError

NAME = PartitionName(StreamName("a", "b"))
PATHS = ClusterPaths(CLUSTER)


@attrs.define
class Log:
    """A ledger written entry by entry, with a naive copy of the state after each."""

    rng: random.Random
    segment: int
    state: PartitionState = attrs.field(factory=PartitionState)
    entries: list[EncodedEntry] = attrs.field(factory=list)
    fences_share: float = 0.0

    def append(self) -> None:
        if self.rng.random() < self.fences_share:
            self.fence()
            return
        state, count = self.state, self.rng.randint(1, 3)
        writer_id = self.rng.choice((b"till-1", b"till-2", b"till-3", None))
        stamp = None
        if writer_id is not None:
            seq = state.writer(writer_id).seq_highest + self.rng.randint(1, 3)
            epoch = max(1, state.writer(writer_id).epoch)
            stamp = WriterStamp(writer_id, epoch, BatchSeqs(seq, count), 2)
        first = state.sequence_next
        sealed = seal_batch([b"%d" % first] * count, created_us=1)
        self._store(
            encode_entry(
                [sealed],
                home_epoch=1,
                segment=self.segment,
                entry=len(self.entries),
                first_sequence=first,
                append_time_us=1 + state.append_time_us,
                writers=[stamp],
            )
        )
        state.on_entry(
            next_sequence=Sequence(first + count),
            append_time_us=1 + state.append_time_us,
            transaction_id=None,
            batch_bytes=sealed.length_bytes,
        )
        if stamp is not None:
            written = WrittenBatch(
                stamp.seqs, self.segment, len(self.entries) - 1, 0, first,
                sealed.header_crc, sealed.body_crc,
            )  # fmt: skip
            state.on_batch(
                stamp.writer_id, stamp.epoch, written, state.append_time_us,
                partitions=stamp.partitions,
            )  # fmt: skip

    def fence(self) -> None:
        """Begin a session of a writer; mostly with a batch of it somewhere before."""
        writer_id = self.rng.choice((b"till-1", b"till-2", b"till-3", b"till-4"))
        fence = WriterFence(self.state.writer(writer_id).epoch + 1, 1 + self.rng.getrandbits(8))
        append_time_us = self.state.append_time_us + 1
        self._store(
            encode_entry(
                [seal_fence(writer_id, fence, now_us=1)],
                kind=EntryKind.CONTROL,
                home_epoch=1,
                segment=self.segment,
                entry=len(self.entries),
                first_sequence=self.state.sequence_next,
                append_time_us=append_time_us,
            )
        )
        self.state.on_fence(writer_id, fence, append_time_us)

    def write_snapshot(self, *, is_finished: bool = True) -> None:
        """In parts of a writer each; the last is missing if it is not finished."""
        parts = snapshot.seal_snapshot(self.state, now_us=1)
        for sealed in parts if is_finished else parts[:-1]:
            self._store(
                encode_entry(
                    [sealed],
                    kind=EntryKind.CONTROL,
                    home_epoch=1,
                    segment=self.segment,
                    entry=len(self.entries),
                    first_sequence=self.state.sequence_next,
                    append_time_us=self.state.append_time_us,
                )
            )

    def _store(self, encoded: EncodedEntry) -> None:
        self.entries.append(encoded)


async def read_back(
    nodes: FakeNodes, log: Log, progress: RecoveryProgress, *, is_later_part: bool = False
) -> PartitionState:
    """The state as of a ledger with the log's entries, or with those from `FIRST` only."""
    entries = log.entries[FIRST if is_later_part else 0 :]
    for node in nodes.nodes:
        node.entries = {EntryId(at): one.join() for at, one in enumerate(entries)}
    ledger = attrs.evolve(nodes.ledger(), segment=log.segment)
    ledger = ledger.closed(EntryId(len(entries) - 1))
    await nodes.metadata.ensure_path(PATHS.ledger_bucket(ledger.ledger))
    await nodes.metadata.create(PATHS.ledger(ledger.ledger), seal_document(ledger))
    ledgers = (LaterLedgers if is_later_part else LedgerMetadata)(nodes.metadata, PATHS)
    last = (LaterSegment if is_later_part else SegmentRecord)(
        segment=log.segment,
        ledger=ledger.ledger,
        home_epoch=1,
        first_sequence=Sequence(entries[0].header.first_sequence),
        owner_epoch=Epoch(1),
        activated_us=0,
    )
    reader = LedgerReader(
        nodes.replicas,
        rng=random.Random(1),
        config=LedgerReadConfig(),
        record_now=nodes.record_now,
    )
    return await recovered_state(
        NAME,
        last=last,
        segments=SegmentRecords(nodes.metadata, PATHS),
        ledgers=ledgers,
        reader=reader,
        progress=progress,
    )


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot has a part for each writer."""
    monkeypatch.setattr(snapshot, "_PART_BYTES", 0)


@pytest.mark.parametrize("seed", range(12))
async def test_the_state_read_back_equals_the_state_after_all_entries(
    seed: int, autojump_clock: MockClock
) -> None:
    rng = random.Random(seed)
    log = Log(rng, segment=1, fences_share=rng.choice((0, 0.02, 0.5)))
    for _ in range(rng.randint(1, 6)):
        for _ in range(rng.choice((1, 2, 5, 30, 700))):
            log.append()
        if rng.random() < 0.7:
            log.write_snapshot(is_finished=rng.random() < 0.5)
    progress = RecoveryProgress()
    async with open_fake_nodes() as nodes:
        found = await read_back(nodes, log, progress)

    assert found == log.state
    assert 0 < progress.entries_count <= len(log.entries)


async def test_a_snapshot_at_the_end_saves_reading(autojump_clock: MockClock) -> None:
    log = Log(random.Random(1), segment=1)
    for _ in range(1000):
        log.append()
    log.write_snapshot()
    progress = RecoveryProgress()
    async with open_fake_nodes() as nodes:
        assert await read_back(nodes, log, progress) == log.state

    assert progress.entries_count <= 8


async def test_a_log_without_its_beginning_needs_a_snapshot(
    autojump_clock: MockClock,
) -> None:
    with_one = Log(random.Random(1), segment=3)
    with_one.state.sequence_next, with_one.state.size_bytes = Sequence(100), 5000
    without = Log(random.Random(1), segment=3, state=with_one.state.copy())
    with_one.write_snapshot()
    for log in (with_one, without):
        log.append()
    async with open_fake_nodes() as nodes:
        assert await read_back(nodes, with_one, RecoveryProgress()) == with_one.state
    async with open_fake_nodes() as nodes:
        await nodes.metadata.ensure_path(PATHS.segments(NAME))
        with pytest.raises(DamagedBytesError, match="segment 3 begins without a snapshot"):
            await read_back(nodes, without, RecoveryProgress())


async def test_a_later_part_of_a_segment_is_read_back_by_its_own_numbers(
    autojump_clock: MockClock,
) -> None:
    log = Log(random.Random(1), segment=1)
    for _ in range(FIRST):
        log.append()
    log.write_snapshot()
    for _ in range(30):
        log.append()
    async with open_fake_nodes() as nodes:
        found = await read_back(nodes, log, RecoveryProgress(), is_later_part=True)

    assert found == log.state


async def test_a_later_part_of_the_first_segment_needs_a_snapshot(
    autojump_clock: MockClock,
) -> None:
    log = Log(random.Random(1), segment=1)
    for _ in range(2 * FIRST):
        log.append()
    async with open_fake_nodes() as nodes:
        await nodes.metadata.ensure_path(PATHS.segments(NAME))
        with pytest.raises(DamagedBytesError, match="segment 1 begins without a snapshot"):
            await read_back(nodes, log, RecoveryProgress(), is_later_part=True)
