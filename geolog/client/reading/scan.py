"""A partition's segments and ledgers as one reader knows them, looked up with patience.

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
from geolog.partition.tail import PartitionEnd, TailFinder
from geolog.protocol.asking_pace import AskingPace
from geolog.protocol.ids import NO_ENTRY, EntryId
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from geolog.protocol.stream_state import PartitionName, SegmentRecord
from topology.errors import (
    DamagedBytesError,
    GeologError,
    NoSuchStreamError,
    UnavailableError,
)

T = TypeVar("T")

_WHERE_S = 3.0
"""How long metadata is waited for while entries do not come, which may do so any moment."""


@attrs.frozen(kw_only=True)
class ReaderConfig:
    """Bounds of a reader."""

    end_timeout_s: float = 30.0
    """How long finding the end may take; then the read fails rather than end short."""

    stall_timeout_s: float = 60.0
    """How long the next entries may stay unavailable; then the read fails."""

    ahead_chunks: int = 2
    """Chunks of entries that are read ahead of the application."""

    follow_poll_s: float = 0.02
    """Pause of a reader that follows, after a replica at which it cannot wait for more."""

    follow_ask_all_s: float = 0.5
    """How long it waits at the nearest replica before it asks all: that may hear of nothing."""

    retry_delay_s: float = 0.2
    """Pause before metadata that did not answer is asked again."""

    retry_delay_s_max: float = 5.0
    """A reader that follows doubles that pause up to this; the return of metadata ends it."""


class PartitionScan:
    """What a reader knows of one partition; `PartitionWalk` walks over the entries."""

    def __init__(
        self,
        name: PartitionName,
        *,
        partitions: PartitionMetadata,
        ledgers: LedgerMetadata,
        reader: LedgerReader,
        tail: TailFinder,
        check_life: Callable[[], Awaitable[None]],
        config: ReaderConfig,
        rng: random.Random,
    ) -> None:
        self.name = name
        self.reader = reader
        self.config = config
        self.segments = SegmentList(name, partitions)
        self._partitions = partitions
        self._ledgers = ledgers
        self._tail = tail
        self._check_life = check_life
        self.pace = AskingPace(
            pause_s_first=config.retry_delay_s, pause_s_max=config.retry_delay_s_max, rng=rng
        )
        """When a follower asks metadata again."""

    async def end(self) -> PartitionEnd:
        """The end of the stream now. UnavailableError when it cannot be found in time."""
        timeout_s = self.config.end_timeout_s
        return await self._insist(
            lambda: self._tail.end_of(self.name),
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
        """Ask again what is merely unavailable, until it is too late."""
        with trio.move_on_after(timeout_s):
            while True:
                try:
                    return await ask()
                except GeologError as error:
                    if not error.retriable:
                        raise
                    why = str(error)
                await trio.sleep(self.config.retry_delay_s)
        raise UnavailableError(f"{late}: {why if isinstance(why, str) else why()}")

    async def segment(self, number: int) -> SegmentRecord | None:
        """A segment's record, with patience; None if it is not listed, or gone since."""
        return await self._insist(
            lambda: self.segments.at(number),
            timeout_s=self.config.stall_timeout_s,
            late=f"segment {number} of {self.name} could not be looked up",
            why="metadata does not answer",
        )

    async def next_segment(self, number: int) -> int | None:
        """The first segment that is listed from this number on, with patience."""
        return await self._insist(
            lambda: self.segments.next_from(number),
            timeout_s=self.config.stall_timeout_s,
            late=f"the segments of {self.name} could not be listed",
            why="metadata does not answer",
        )

    async def trim(self) -> int:
        """The sequence at which the partition begins, with patience.

        As new as the list of segments that was read last, or newer: that is all it is held to.
        """
        found = await self._insist(
            lambda: self._partitions.trim_seen(self.name),
            timeout_s=self.config.end_timeout_s,
            late=f"where {self.name} begins could not be looked up",
            why="metadata does not answer",
        )
        return found.first_sequence

    async def is_sealed_before(self, number: int) -> bool:
        """Whether no segment of this number ever comes. NoSuchStreamError if it is deleted.

        The list that was read before may lack the last segment, though the partition is sealed
        by now: the owner's record says how many there are.
        """
        owner = (await self._partitions.owner_latest(self.name)).record
        if owner.is_deleted:
            raise NoSuchStreamError(f"stream {str(self.name.stream)!r} was deleted")
        return owner.is_sealed and owner.segment_highest < number

    @property
    def can_ask(self) -> bool:
        """Whether metadata may answer a follower now, and it is time to ask."""
        return self._partitions.is_reachable and trio.current_time() >= self.pace.due_s

    async def wait_to_ask(self) -> None:
        """Wait until it is time to ask metadata again, which comes sooner when it is back."""
        while not self.can_ask:
            due_s = self.pace.due_s if self._partitions.is_reachable else math.inf
            with trio.move_on_at(due_s):
                await self._partitions.wait_back()
                self.pace.on_back(now_s=trio.current_time())

    async def refresh(self) -> None:
        """Read the list of segments again, with patience."""
        await self._insist(
            self.segments.refresh,
            timeout_s=self.config.end_timeout_s,
            late=f"the segments of {self.name} could not be listed",
            why="metadata does not answer",
        )

    async def last_segment(
        self, holds: Callable[[SegmentRecord], bool]
    ) -> SegmentRecord | None:
        """The last segment of which `holds` is true, with patience; true of a prefix."""
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
        """One entry, wherever the ledger has moved."""
        with trio.move_on_after(self.config.stall_timeout_s):
            return await self.reader.read_one(ledger, entry)
        raise self.unavailable(ledger, entry)

    def unavailable(self, ledger: LedgerRecord, entry: EntryId) -> UnavailableError:
        """That an entry did not come in time, and what is known of why."""
        why = f"no replica gave it within {self.config.stall_timeout_s:g} s"
        if not self._partitions.is_reachable:
            why += ", and metadata, which says where its replicas are now, does not answer"
        return UnavailableError(
            f"entry {entry} of ledger {ledger.ledger} ({self.name}) is unavailable: {why}"
        )

    async def ledger_of(
        self, segment: SegmentRecord, *, changed: trio.Event | None = None
    ) -> VersionedLedger:
        """The segment's ledger, with patience; `changed` is set once, when it changes."""
        return await self._insist(
            lambda: self._ledgers.read(segment.ledger, changed=changed),
            timeout_s=self.config.stall_timeout_s,
            late=f"ledger {segment.ledger} of {self.name} could not be looked up",
            why="metadata does not answer",
        )

    def known_end(
        self, segment: SegmentRecord, ledger: LedgerRecord, end: PartitionEnd | None
    ) -> EntryId:
        """The last entry of the segment that may be shown, as far as it need not be asked."""
        if end is not None and end.segment == segment.segment:
            return EntryId(end.entry - 1)
        if segment.last_entry is not None:
            return segment.last_entry
        if ledger.state is LedgerState.CLOSED:
            assert ledger.last_entry is not None
            return ledger.last_entry
        return NO_ENTRY

    async def closed_ledger_of(self, segment: SegmentRecord) -> LedgerRecord:
        """The ledger of a segment that has a successor, with all that was written before.

        It is CLOSED: before that no successor is activated. But who reads may lag behind.
        """
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
        """The segment's ledger; without patience. NoSuchLedgerError, UnavailableError."""
        return (await self._ledgers.read(segment.ledger, changed=changed)).record

    async def check_stream(self) -> None:
        """NoSuchStreamError if the stream is gone or is being deleted, or is another now."""
        await self._check_life()

    async def where_now(self, ledger: LedgerRecord) -> LedgerRecord | None:
        """The ledger as it is now; None if metadata does not say soon. NoSuchLedgerError."""
        with trio.move_on_after(_WHERE_S):
            try:
                return (await self._ledgers.read_latest(ledger.ledger)).record
            except GeologError as error:
                if not error.retriable:
                    raise
        return None
