"""The owner of a mirror: writes the entries of another region's log as they are.

A mirror is owned, fenced and recovered like any partition. Its entries, their numbers in the
segment and their sequences are the home's; only the ledgers are its own. `MirrorCourse` decides
which entries it takes; `SegmentRoller` opens its ledgers and keeps their members up.

Invariants:
1. A ledger holds entries of one segment of the home, without holes, and nothing else. When an
   entry of another segment comes, the open ledger is closed and another begins.
2. `watermark` is the last entry on the disks of an ack set. It is rebuilt from the list of rows
   and the last entry alone.
3. The first ledger of an owner is opened for the first entry that it takes: only that says
   where the row begins.

Rules: PROTOCOL H5 to H9.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from collections.abc import Sequence as Several
from contextlib import aclosing, suppress
from functools import partial
from typing import Protocol, assert_never

import attrs
import trio

from geolog.catalog.partition_config import PartitionConfig
from geolog.catalog.partition_metadata import PartitionMetadata
from geolog.ledger.writing.ledger_writer import LedgerWriter
from geolog.metadata.seam import Freshness
from geolog.partition.ledger_allocator import LedgerAllocator
from geolog.partition.mirror_entry import MirrorEntry
from geolog.partition.open_segment import OpenSegment
from geolog.partition.segment_roller import SegmentRoller
from geolog.partition.segment_user import RowPlace
from geolog.partition.shown_owners import ShownOwners
from geolog.partition.takeover import TakenOver, Takeover
from geolog.protocol.home_record import Fork
from geolog.protocol.ids import NO_ENTRY, EntryId, Epoch, SegmentEntry, Sequence
from geolog.protocol.mirror_course import (
    DropRepeat,
    MirrorCourse,
    RefuseEntry,
    StopMirror,
    TakeEntry,
)
from geolog.protocol.roll import RollPolicy
from geolog.protocol.stream_state import (
    OwnerRecord,
    PartitionName,
    StreamRecord,
    TrimRecord,
)
from geolog.protocol.watermark import Watermark
from topology.errors import (
    ClosedError,
    FencedError,
    GeologError,
    InvalidArgumentError,
    UnavailableError,
)

_log = logging.getLogger(__name__)

_REASON_S = 2.0
"""How long metadata may take to tell which process took the mirror from this owner."""


class EvictedError(UnavailableError):
    """The home does not keep what the mirror lacks: opened again, it begins behind the gap."""


class MirrorListener(Protocol):
    """Hears how far a mirror is durable. Called at once, in order."""

    def on_durable(self, watermark: Watermark) -> None:
        """All entries up to this one are on the disks of ack sets."""
        ...


@attrs.frozen
class MirrorStatistics:
    """Counts of the entries pushed to a mirror so far."""

    taken_count: int
    repeats_count: int
    """Entries that the mirror had already, byte for byte."""
    refused_count: int
    waiting_count: int
    """Entries taken and not sent to nodes yet."""
    in_flight_count: int


class MirrorWriter:
    """Writes one mirror under one owner epoch; `open_mirror` makes it.

    Entries move in order from `_waiting` to `_sent` (they are in the open ledger) and out.
    `acknowledged` is the state of the mirror at its watermark.
    """

    def __init__(
        self,
        name: PartitionName,
        stream: StreamRecord,
        taken: TakenOver,
        watermark: Watermark | None,
        forks: Several[Fork],
        *,
        listener: MirrorListener,
        partitions: PartitionMetadata,
        owners: ShownOwners,
        source: LedgerAllocator,
        config: PartitionConfig,
        now_us: Callable[[], int],
        nursery: trio.Nursery,
    ) -> None:
        self.name = name
        self.listener = listener
        self.watermark = watermark
        """The last durable entry; None while the mirror is empty."""
        self.acknowledged = taken.state
        self._region = stream.region_of(name)
        self._partitions = partitions
        self._owners = owners
        self._source = source
        self._config = config
        self._now_us = now_us
        self._nursery = nursery
        self._course = MirrorCourse(str(name), watermark, forks)
        self._waiting: deque[MirrorEntry] = deque()
        self._sent: deque[MirrorEntry] = deque()
        self._has_first = trio.Event()
        self._oldest_since_s = 0.0
        self._taken_count = 0
        self._repeats_count = 0
        self._refused_count = 0
        self._failure: GeologError | None = None
        self._has_failed = trio.Event()
        self._is_fenced = False
        self._is_leaving = False
        self._progress = trio.Event()
        self._rows = SegmentRoller(
            name,
            stream,
            taken.owner,
            self,
            changes=partitions.changes,
            session=partitions.session,
            source=source,
            config=config,
            roll=RollPolicy(segment_bytes=stream.segment_bytes, is_told=True),
        )
        owners.tell_deposed(taken.owner.record, self._fail)

    def __repr__(self) -> str:
        return (
            f"MirrorWriter({self.name}, epoch {self.epoch}, up to {self.watermark},"
            f" {len(self._sent)} sent, {len(self._waiting)} waiting)"
        )

    @property
    def epoch(self) -> Epoch:
        """The owner epoch under which this writer writes."""
        return self._rows.owner.record.epoch

    @property
    def owner(self) -> OwnerRecord:
        """The claim under which this writer writes."""
        return self._rows.owner.record

    def taken_end(self, begin: Sequence) -> Sequence:
        """The sequence after all that was taken; that where it begins if nothing was."""
        last = self._course.last
        return begin if last is None else last.sequence_next

    @property
    def failure(self) -> GeologError | None:
        """Why nothing more can be pushed, if so."""
        return self._failure

    def statistics(self) -> MirrorStatistics:
        """Counts of the entries pushed so far."""
        return MirrorStatistics(
            self._taken_count,
            self._repeats_count,
            self._refused_count,
            len(self._waiting),
            len(self._sent),
        )

    async def wait_failed(self) -> GeologError:
        """Wait until nothing more can be pushed, and return why."""
        await self._has_failed.wait()
        assert self._failure is not None
        return self._failure

    # Entries.

    def push(self, entry: MirrorEntry) -> None:
        """Take the entry, or drop it as a repeat; the listener hears when it is durable.

        NotBehindError and OldHomeError refuse this one; the mirror goes on. After any other
        error, such as MirrorDivergedError and FencedError, it takes nothing more. The caller
        bounds how much is in flight.
        """
        if self._failure is not None:
            raise self._failure
        is_first = self._course.last is None
        if is_first and entry.begin is None and entry.mark.segment > 1:
            raise InvalidArgumentError(
                f"mirror {self.name} is empty: its first entry needs the beginning of segment"
                f" {entry.mark.segment}"
            )
        match self._course.on_entry(entry.sent):
            case TakeEntry():
                if is_first and entry.begin is not None:
                    self.acknowledged = entry.begin.state
                self._take(entry)
            case DropRepeat():
                self._repeats_count += 1
            case RefuseEntry(error):
                self._refused_count += 1
                raise error
            case StopMirror(error):
                _log.error("%s", error)
                self._fail(error)
                raise error
            case never:
                assert_never(never)

    def _take(self, entry: MirrorEntry) -> None:
        self._taken_count += 1
        if not self._waiting and not self._sent:
            self._oldest_since_s = trio.current_time()
        self._waiting.append(entry)
        self._has_first.set()
        self._send_waiting()

    def _send_waiting(self) -> None:
        rows = self._rows
        segment = rows.open
        if segment is None:
            return
        numbering, writer = segment.segment.record.numbering, segment.writer
        while self._waiting and not rows.is_rolling:
            entry = self._waiting[0]
            mark = entry.mark
            if not numbering.is_place_of(writer.entry_next, mark.segment, mark.entry):
                rows.end_row()
                break
            if not rows.may_send():
                break
            self._sent.append(self._waiting.popleft())
            segment.written_bytes += entry.encoded.length_bytes
            writer.add_nowait(entry.encoded)
        rows.on_sent()

    async def wait_durable(self) -> None:
        """Wait until all that was taken is durable. Raises why the mirror has failed."""
        while self._waiting or self._sent:
            if self._failure is not None:
                break
            await self._progress.wait()
        if self._failure is not None:
            raise self._failure

    async def wait_reached(self, mark: Watermark | None) -> None:
        """Wait until this entry is durable. Raises why the mirror has failed."""
        while self.watermark != mark:
            if self._failure is not None:
                raise self._failure
            await self._progress.wait()

    async def follow_trim(self, first_sequence: Sequence) -> None:
        """Begin where the home begins, by dropping the rows before it.

        NoSuchStreamError.
        """
        known = min(first_sequence, self.acknowledged.sequence_next)
        await self._partitions.trims.move(
            self.name, known, now_us=self._now_us(), is_mirror=True
        )
        await self._partitions.trims.drop_trimmed(self.name)

    def _tell_progress(self) -> None:
        progress, self._progress = self._progress, trio.Event()
        progress.set()

    # Events of the ledger's writer.

    def on_lac(self, lac: EntryId) -> None:
        """Move the watermark over the acknowledged prefix."""
        segment = self._rows.open
        assert segment is not None
        numbering = segment.segment.record.numbering
        moved: Watermark | None = None
        while self._sent and numbering.in_ledger(self._sent[0].mark.entry) <= lac:
            entry = self._sent.popleft()
            entry.add_to(self.acknowledged)
            moved = entry.mark
        if moved is None:
            return
        self.watermark = moved
        self._oldest_since_s = trio.current_time()
        if not self._sent and self._rows.is_rolling:
            self._rows.wake()
        self._tell_progress()
        self.listener.on_durable(moved)

    def on_received(self, through: EntryId) -> None:
        """Do nothing: only what is durable counts."""

    def on_fenced(self, writer: LedgerWriter, why: str) -> None:
        """Fail, because another process took the mirror over."""
        segment = self._rows.open
        if segment is not None and writer is segment.writer and not self.is_failed:
            fenced = FencedError(f"another process owns mirror {self.name} now: {why}")
            self._nursery.start_soon(self._fail_as_deposed, fenced)
            self._is_fenced = True
            self._rows.wake()

    async def _fail_as_deposed(self, fenced: FencedError) -> None:
        """Fail for the reason that metadata gives, if it comes soon; else as fenced."""
        self._is_fenced = True
        failure: GeologError = fenced
        with trio.move_on_after(_REASON_S), suppress(GeologError):
            owners, owner = self._partitions.owners, self._rows.owner.record
            found = await owners.why_deposed(self.name, owner)
            if found is not None and not isinstance(found, FencedError):
                failure = found
        self._fail(failure)

    def on_stuck(self, entry: EntryId, why: str) -> None:  # noqa: ARG002 - Asked for again.
        """Look for other members: too few are up."""
        self._rows.wake()

    def _fail(self, failure: GeologError) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        segment = self._rows.open
        if segment is not None and not segment.writer.is_over:
            segment.writer.close()
        self._waiting.clear()
        self._sent.clear()
        if not self._is_leaving:
            self._owners.release_nowait(self._rows.owner)
        self._rows.wake()
        self._has_first.set()
        self._has_failed.set()
        self._tell_progress()

    # What `SegmentRoller` asks and reports.

    @property
    def mirror_in(self) -> str | None:
        """The mirror's region: it may write wherever the stream is at home, but there."""
        return self._region

    @property
    def is_failed(self) -> bool:
        """Whether to stop writing."""
        return self._failure is not None or self._is_fenced

    @property
    def has_sent(self) -> bool:
        """Whether entries of the open ledger are not durable yet."""
        return bool(self._sent)

    def next_place(self, number: int) -> RowPlace:
        """The place of the first entry that is not durable."""
        pending = self._sent or self._waiting
        if pending:
            mark, first_entry = pending[0].mark, pending[0].mark.entry
        else:
            assert self.watermark is not None, f"{self.name} opens a row for nothing"
            mark, first_entry = self.watermark, SegmentEntry(self.watermark.entry + 1)
        return RowPlace(
            home_epoch=mark.home_epoch,
            segment=mark.segment,
            row=number,
            first_entry=first_entry,
        )

    def now_us(self) -> int:
        """Wall-clock time of this host: a mirror gives no times of its own to entries."""
        return self._now_us()

    def local_us(self) -> int:
        """Wall-clock time of this host."""
        return self._now_us()

    def check_deadline(self) -> None:
        """UnavailableError if the oldest entry has waited too long."""
        if not self._sent and not self._waiting:
            return
        waited_s = trio.current_time() - self._oldest_since_s
        if waited_s > self._config.append_timeout_s:
            raise UnavailableError(
                f"mirror {self.name}: no ledger can be written; the oldest entry has waited for"
                f" {waited_s:.0f} s"
            )

    def on_segment_open(self, segment: OpenSegment) -> None:
        """Send entries that are not durable again if the ledger is a new one; then go on."""
        for entry in self._sent:
            segment.written_bytes += entry.encoded.length_bytes
            segment.writer.add_nowait(entry.encoded)
        self._send_waiting()

    # Lifecycle.

    async def run(self) -> None:
        """Open rows, replace members and roll, until the writer fails."""
        await self._has_first.wait()
        try:
            if not self.is_failed:
                await self._check_beginning()
            if not self.is_failed:  # It may have failed while metadata was asked.
                await self._rows.start()
                await self._rows.run()
        except FencedError as error:
            await self._fail_as_deposed(error)
        except GeologError as error:
            self._fail(error)

    async def _check_beginning(self) -> None:
        """EvictedError if an empty mirror would begin behind a gap that is not recorded.

        The home notes that it evicts before it drops anything. So if it begins further on than
        this mirror, the latest record tells whether the mirror was to get what lies between.
        """
        if self.watermark is not None or not self._waiting:
            return
        first = self._waiting[0].sent.first_sequence
        own = await self._partitions.trims.read_latest(self.name)
        if own.first_sequence < min(own.evicted_before, first):
            raise evicted(self.name, own)

    def end(self, why: GeologError) -> None:
        """Take nothing more: the mirror is sealed, or gone."""
        self._fail(why)

    async def leave(self) -> None:
        """Close the open ledger if all is durable, and leave; the caller bounds the time."""
        self._is_leaving = True
        is_clean = not self._sent and not self._waiting and not self.is_failed
        closing = self._rows.stop(is_clean=is_clean)
        self._fail(ClosedError(f"mirror {self.name} is closed: push within its block"))
        try:
            with suppress(GeologError):  # The next owner recovers what is left open.
                if closing is not None:
                    finish = self._partitions.changes.finish
                    await self._insist(
                        partial(finish, self.name, self._rows.owner, closing, is_mirror=True)
                    )
            await self._owners.release(self._rows.owner)
            await self._rows.discard_unused()
            if closing is not None and closing.change.last_entry is not None:
                await self._rows.retire(closing.change.last_entry)
        finally:
            self._owners.release_nowait(self._rows.owner)

    def close(self) -> None:
        """Release the connections to nodes."""
        self._source.close()

    async def _insist(self, ask: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await ask()
                return
            except GeologError as error:
                if not error.retriable:
                    raise
            await trio.sleep(self._config.retry_delay_s)


def evicted(name: PartitionName, own: TrimRecord) -> EvictedError:
    """The error for a mirror that lacks what its home does not keep."""
    return EvictedError(
        f"mirror {name} has nothing from sequence {own.evicted_before} on, where its home lets"
        " it go on: open it again"
    )


async def last_watermark(
    name: PartitionName, takeover: Takeover, *, freshness: Freshness = Freshness.LATEST
) -> Watermark | None:
    """The last entry of a log whose rows are all completed; None if it has none.

    NEARBY is enough for the owner: its own writes are in all that it reads. FencedError if a
    row is not completed: another process owns the log by now, and has opened it.
    """
    segments = takeover.partitions.segments
    async with aclosing(segments.numbers_back(name, freshness=freshness)) as numbers:
        async for number in numbers:
            for listed in await segments.at(name, [number]):
                last = listed.record.last_entry
                if last is None:
                    raise FencedError(f"{name} is written by another process: row {number}")
                if last > NO_ENTRY:
                    ledger = (await takeover.ledgers.read(listed.record.ledger)).record
                    entry = (await takeover.reader().read_one(ledger, last)).decoded
                    header = entry.header
                    return Watermark(
                        home_epoch=header.home_epoch,
                        segment=header.segment,
                        entry=header.entry,
                        header_crc=entry.header_crc,
                        sequence_next=Sequence(header.next_sequence),
                    )
    return None
