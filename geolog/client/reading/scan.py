"""Looks up a partition's segments and ledgers for one reader, with retries.

Rules: PROTOCOL R9.
"""

import math
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import attrs
import trio

from geolog.catalog.partition_metadata import PartitionMetadata
from geolog.catalog.segment_list import SegmentList
from geolog.ledger.ledger_metadata import (
    LedgerMetadata,
    VersionedLedger,
)
from geolog.ledger.reading.ledger_reader import FetchedEntry, LedgerReader
from geolog.ledger.reading.ledger_tail import LedgerTails
from geolog.partition.tail import TailFinder
from geolog.protocol.asking_pace import AskingPace
from geolog.protocol.home_record import Fork
from geolog.protocol.ids import NO_ENTRY, EntryId
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from geolog.protocol.read_end import PartitionEnd
from geolog.protocol.stream_state import (
    OwnerRecord,
    PartitionName,
    SegmentRecord,
    TrimRecord,
)
from topology.errors import (
    DamagedBytesError,
    GeologError,
    NoSuchStreamError,
    UnavailableError,
)

T = TypeVar("T")

_WHERE_S = 3.0
"""Wait this long for metadata while entries do not come; they may come at any moment."""


class MirrorGoneError(UnavailableError):
    """The log that is read was a mirror, and its region is no target any more.

    This read cannot go on; one that is opened again reads at home.
    """


@attrs.frozen(kw_only=True)
class ReaderConfig:
    """Bounds of a reader."""

    end_timeout_s: float = 30.0
    """Fail a read whose end cannot be found within this time, rather than end it early."""

    stall_timeout_s: float = 60.0
    """Fail a read whose next entries stay unavailable for this long."""

    ahead_chunks: int = 2
    """Chunks of entries to read ahead of the application."""

    retry_delay_s: float = 0.2
    """Pause before asking metadata again when it did not answer."""

    retry_delay_s_max: float = 5.0
    """A following reader doubles that pause up to this; it ends when metadata is back."""


class PartitionScan:
    """A reader's view of one partition's metadata; `PartitionWalk` walks over the entries."""

    def __init__(
        self,
        name: PartitionName,
        *,
        home_epoch: int,
        origin: str | None = None,
        is_abroad: bool = False,
        has_rows: bool = False,
        partitions: PartitionMetadata,
        ledgers: LedgerMetadata,
        reader: LedgerReader,
        tails: LedgerTails,
        tail: TailFinder,
        check_life: Callable[[], Awaitable[None]],
        config: ReaderConfig,
        rng: random.Random,
    ) -> None:
        """Read a log as of this home epoch.

        origin: the home, if `name` is its mirror. is_abroad: whether the reader is in another
        region than the log, and so must not have local-only records. has_rows: whether several
        ledgers of its list may be parts of one segment, as in a mirror.
        """
        self.name = name
        self.has_rows = has_rows
        self.origin = origin
        self.is_abroad = is_abroad
        self.home_epoch = home_epoch
        self.reader = reader
        self.tails = tails
        self.config = config
        self.segments = SegmentList(name, partitions)
        self._partitions = partitions
        self._ledgers = ledgers
        self._tail = tail
        self._check_life = check_life
        self.pace = AskingPace(
            pause_s_first=config.retry_delay_s, pause_s_max=config.retry_delay_s_max, rng=rng
        )
        """Decides when a following reader asks metadata again."""

    async def end(self, *, may_recover: bool = True) -> PartitionEnd:
        """The current end of the partition. UnavailableError if it cannot be found in time.

        may_recover: as of `TailFinder.end_of`.
        """
        timeout_s = self.config.end_timeout_s
        return await self._insist(
            lambda: self._tail.end_of(
                self.name, may_be_emptied=self.has_rows, may_recover=may_recover
            ),
            timeout_s=timeout_s,
            late=f"the end of {self.name} could not be found within {timeout_s} s",
            why=lambda: self._tail.why_not_found(self.name),
        )

    async def _insist(
        self,
        ask: Callable[[], Awaitable[T]],
        *,
        timeout_s: float,
        late: str,
        why: str | Callable[[], str],
    ) -> T:
        """Retry retriable errors until the timeout. UnavailableError."""
        with trio.move_on_after(timeout_s):
            while True:
                try:
                    return await ask()
                except GeologError as error:
                    if isinstance(error, NoSuchStreamError):
                        raise await self.why_gone(error) from None
                    if not error.retriable:
                        raise
                    why = str(error)
                await trio.sleep(self.config.retry_delay_s)
        raise UnavailableError(f"{late}: {why if isinstance(why, str) else why()}")

    async def segment(self, number: int) -> SegmentRecord | None:
        """A segment's record, with retries; None if it is not listed or was trimmed."""
        return await self._insist(
            lambda: self.segments.at(number),
            timeout_s=self.config.stall_timeout_s,
            late=f"segment {number} of {self.name} could not be looked up",
            why="metadata does not answer",
        )

    async def next_segment(self, number: int) -> int | None:
        """The first listed segment with this number or a higher one, with retries."""
        return await self._insist(
            lambda: self.segments.next_from(number),
            timeout_s=self.config.stall_timeout_s,
            late=f"the segments of {self.name} could not be listed",
            why="metadata does not answer",
        )

    async def trim(self) -> int:
        """The first sequence of the partition, with retries.

        It is at least as new as the list of segments read last, and need not be newer.
        """
        return (await self.trim_record()).first_sequence

    async def trim_record(self) -> TrimRecord:
        """Where the partition begins, and the gap of a mirror, with retries."""
        return await self._insist(
            lambda: self._partitions.trims.read(self.name),
            timeout_s=self.config.end_timeout_s,
            late=f"the first sequence of {self.name} could not be looked up",
            why="metadata does not answer",
        )

    async def forks(self) -> tuple[Fork, ...]:
        """Where later homes begin in this partition, as it is now, with retries."""
        homes = self._partitions.homes
        await self._insist(
            lambda: homes.has_changed(self.name),
            timeout_s=self.config.end_timeout_s,
            late=f"the home of {self.name.stream} could not be looked up",
            why="metadata does not answer",
        )
        return await homes.forks_of(self.name)

    async def is_sealed_before(self, number: int) -> bool:
        """Whether the partition is sealed without this segment. NoSuchStreamError."""
        # The list that was read earlier may lack the last segment, although the partition is
        # sealed by now: the owner's record has the highest number.
        owner = await self._owner()
        return owner.is_sealed and owner.segment_highest < number

    async def check_log(self) -> None:
        """NoSuchStreamError if the stream is gone; MirrorGoneError if only this mirror is."""
        await self.check_stream()
        if self.origin is not None:
            await self._owner()

    async def _owner(self) -> OwnerRecord:
        try:
            owner = (await self._partitions.owners.read_latest(self.name)).record
        except NoSuchStreamError as error:
            raise await self.why_gone(error) from None
        if owner.is_deleted:
            gone = NoSuchStreamError(f"stream {str(self.name.stream)!r} was deleted")
            raise await self.why_gone(gone)
        return owner

    @property
    def can_ask(self) -> bool:
        """Whether metadata is reachable and it is time to ask."""
        return self._partitions.session.is_reachable and trio.current_time() >= self.pace.due_s

    async def wait_to_ask(self) -> None:
        """Wait until it is time to ask metadata again; sooner if metadata comes back."""
        while not self.can_ask:
            due_s = self.pace.due_s if self._partitions.session.is_reachable else math.inf
            with trio.move_on_at(due_s):
                await self._partitions.session.wait_back()
                self.pace.on_back(now_s=trio.current_time())

    async def refresh(self) -> None:
        """Read the list of segments again, with retries."""
        await self._insist(
            self.segments.refresh,
            timeout_s=self.config.end_timeout_s,
            late=f"the segments of {self.name} could not be listed",
            why="metadata does not answer",
        )

    async def last_segment(
        self, holds: Callable[[SegmentRecord], bool]
    ) -> SegmentRecord | None:
        """The last segment for which `holds`, true of a prefix, is true; with retries."""
        return await self._insist(
            lambda: self.segments.last_where(holds),
            timeout_s=self.config.stall_timeout_s,
            late=f"the segments of {self.name} could not be looked up",
            why="metadata does not answer",
        )

    async def readable_to(self, segment: SegmentRecord, ledger: LedgerRecord) -> EntryId:
        """The last entry of the segment that may be shown now."""
        known = self.known_end(segment, ledger, None)
        if known != NO_ENTRY or segment.is_completed or ledger.state is LedgerState.CLOSED:
            return known
        lac = await self.reader.lac_nearby(ledger)
        return NO_ENTRY if lac is None else lac

    async def fetch(self, ledger: LedgerRecord, entry: EntryId) -> FetchedEntry:
        """Read one entry, even if the ledger's copies have moved."""
        with trio.move_on_after(self.config.stall_timeout_s):
            return await self.reader.read_one(ledger, entry)
        raise self.unavailable(ledger, entry)

    def unavailable(self, ledger: LedgerRecord, entry: EntryId) -> UnavailableError:
        """The error for an entry that did not come in time, with the reason as far as known."""
        why = f"no replica gave it within {self.config.stall_timeout_s:g} s"
        if not self._partitions.session.is_reachable:
            why += ", and metadata, which has its current replicas, does not answer"
        return UnavailableError(
            f"entry {entry} of ledger {ledger.ledger} ({self.name}) is unavailable: {why}"
        )

    async def ledger_of(
        self, segment: SegmentRecord, *, changed: trio.Event | None = None
    ) -> VersionedLedger:
        """The segment's ledger, with retries; `changed` is set when it changes."""
        return await self._insist(
            lambda: self._ledgers.read(segment.ledger, changed=changed),
            timeout_s=self.config.stall_timeout_s,
            late=f"ledger {segment.ledger} of {self.name} could not be looked up",
            why="metadata does not answer",
        )

    def known_end(
        self, segment: SegmentRecord, ledger: LedgerRecord, end: PartitionEnd | None
    ) -> EntryId:
        """The last entry of the segment that may be shown, as far as known without asking."""
        if end is not None and end.row_number == segment.row_number:
            return EntryId(segment.numbering.in_ledger(end.entry) - 1)
        if segment.last_entry is not None:
            return segment.last_entry
        if ledger.state is LedgerState.CLOSED:
            assert ledger.last_entry is not None
            return ledger.last_entry
        return NO_ENTRY

    async def closed_ledger_of(self, segment: SegmentRecord) -> LedgerRecord:
        """The ledger of a segment that has a successor. DamagedBytesError if not CLOSED."""
        # It was CLOSED before its successor was activated, but a nearby read may lag behind.
        ledger = (
            await self._insist(
                lambda: self._ledgers.read_latest(segment.ledger),
                timeout_s=self.config.stall_timeout_s,
                late=f"ledger {segment.ledger} of {self.name} could not be looked up",
                why="metadata does not answer",
            )
        ).record
        if ledger.state is not LedgerState.CLOSED:
            raise DamagedBytesError(
                f"ledger {ledger.ledger} of {self.name} is {ledger.state.value}, but segment"
                f" {segment.segment} has a successor: metadata is damaged"
            )
        return ledger

    async def ledger_now(
        self, segment: SegmentRecord, changed: trio.Event | None = None
    ) -> LedgerRecord:
        """The segment's ledger, without retries. NoSuchLedgerError, UnavailableError."""
        return (await self._ledgers.read(segment.ledger, changed=changed)).record

    async def check_stream(self) -> None:
        """NoSuchStreamError if the stream is gone, is being deleted, or was made again."""
        await self._check_life()

    async def why_gone(self, error: NoSuchStreamError) -> GeologError:
        """The error for a log that is gone: a mirror may go while its stream goes on."""
        if self.origin is None:
            return error
        try:
            await self._check_life()
        except GeologError as found:
            return found
        return MirrorGoneError(
            f"{self.name.stream} is not mirrored in {self.name.region} any more: open the read"
            f" again, and it reads at {self.origin}"
        )

    async def where_now(self, ledger: LedgerRecord) -> LedgerRecord | None:
        """The ledger's current record; None if metadata is too slow. NoSuchLedgerError."""
        with trio.move_on_after(_WHERE_S):
            try:
                return (await self._ledgers.read_latest(ledger.ledger)).record
            except GeologError as error:
                if not error.retriable:
                    raise
        return None
