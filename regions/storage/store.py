"""One data directory of a node: its disk, and the ledgers, entries and journal in it.

A ledger lives whole in one store (`regions.storage.protocol.directories`), so stores are
independent. A full directory makes only its own ledgers read-only.
"""

from collections.abc import Callable

import attrs

from geolog.ledger.copying.rate_limit import RateLimit
from geolog.protocol.replica import NO_LIMITS, NodeLimits
from geolog.wire.limits import ENTRY_BYTES_MAX
from regions.storage.compaction import Compaction, CompactionCounts
from regions.storage.config import StorageConfig
from regions.storage.cookies import Cookie
from regions.storage.disk import Disk
from regions.storage.entries import EntryStatistics, EntryStore
from regions.storage.journal import Journal, JournalEnd, JournalIdentity, JournalStatistics
from regions.storage.protocol.compaction import CompactionPolicy
from regions.storage.protocol.ledgers import Ledgers
from regions.storage.protocol.space import SpaceBound
from regions.storage.restart import restart_journal
from regions.storage.scrub import Scrub, ScrubCounts
from regions.storage.sealed_files import SealedFiles

_READ_ONLY = NodeLimits(is_read_only=True)

_ROLL_BYTES_MIN = 256 << 10
"""Free space, in addition to that for the table, below which no journal file is begun."""

_SMALL_FILE_SHARE = 16
"""A journal file with less than this share of its full size is a small one."""


@attrs.frozen
class StoreStatistics:
    """State of one data directory. Its fields are part of the node's status document."""

    directory: int
    """Its index in the cookie."""
    name: str
    free_bytes: int
    is_read_only: bool
    ledgers_count: int
    is_any_in_doubt: bool
    """Whether damage took records: some ledgers take nothing, and UNKNOWN is answered."""
    journal: JournalStatistics
    entries: EntryStatistics
    compaction: CompactionCounts
    scrub: ScrubCounts


@attrs.define(eq=False)
class Store:
    """The content of one data directory, and what it may take. Returned by `open_store`."""

    directory: int
    disk: Disk
    ledgers: Ledgers
    entries: EntryStore
    journal: Journal
    compaction: Compaction
    scrub: Scrub
    start_number: int
    """Random number, drawn at the start."""
    _space: SpaceBound
    _free_bytes: int = attrs.field(default=0, init=False)

    def __repr__(self) -> str:
        return f"Store({self.directory}, {self.disk})"

    def statistics(self) -> StoreStatistics:
        """Current counts."""
        return StoreStatistics(
            directory=self.directory,
            name=str(self.disk),
            free_bytes=self._free_bytes,
            is_read_only=self.is_read_only,
            ledgers_count=len(self.ledgers),
            is_any_in_doubt=self.ledgers.is_any_in_doubt,
            journal=self.journal.statistics(),
            entries=self.entries.statistics(),
            compaction=attrs.evolve(self.compaction.counts),
            scrub=attrs.evolve(self.scrub.counts),
        )

    @property
    def free_bytes(self) -> int:
        """Space left at the last check."""
        return self._free_bytes

    @property
    def is_read_only(self) -> bool:
        """Whether the store takes nothing new at present."""
        return self._space.is_read_only or self.journal.is_space_refused

    def limits(self) -> NodeLimits:
        """Current limits: space may run short before the next check."""
        self._space.on_append(self.journal.appended_bytes)
        return _READ_ONLY if self.is_read_only else NO_LIMITS

    async def look_at_free_space(self) -> None:
        """Check the free space, and set what may be stored."""
        self._free_bytes = await self.disk.free_bytes()
        seal_bytes = self.journal.seal_bytes
        self._space.on_look(
            self._free_bytes,
            needed_bytes=self.journal.in_flight_bytes + seal_bytes,
            appended_bytes=self.journal.appended_bytes,
        )
        # Without space for the table and the next file's first page, the open file keeps
        # growing.
        self.journal.ask_for_space()
        self.journal.postpones_roll = self._free_bytes < seal_bytes + _ROLL_BYTES_MIN

    async def finish(self) -> None:
        """At the end: seal the journal, unless it failed, and close the files."""
        await self.journal.finish()
        await self.entries.close()


async def open_store(
    config: StorageConfig,
    disk: Disk,
    cookie: Cookie,
    *,
    noted: JournalEnd,
    random_bytes: Callable[[int], bytes],
) -> Store:
    """Replay the directory. Its journal must not end before its `noted` end."""
    identity = JournalIdentity(cookie.instance, cookie.cluster_id, cookie.node_id, str(disk))
    found = await restart_journal(
        disk,
        identity,
        noted=noted,
        cached_bytes_max=config.tail_cache_bytes_max // cookie.directories,
        salt_source=random_bytes,
    )
    journal = Journal(
        disk,
        identity,
        found.ledgers,
        found.entries,
        found.files,
        found.opened,
        file_bytes_max=config.journal_file_bytes,
        group_bytes_max=config.group_bytes_max,
        in_flight_bytes_max=max(
            config.in_flight_bytes_max // cookie.directories, ENTRY_BYTES_MAX
        ),
        mark_idle_s=config.mark_idle_s,
        ahead_bytes=config.journal_ahead_bytes,
        salt_source=random_bytes,
    )
    sealed = SealedFiles(disk, identity)
    live_share_max = config.compaction_live_share_max
    space = SpaceBound(
        reserve_bytes=config.free_bytes_min,
        compaction_bytes=int(config.journal_file_bytes * live_share_max),
    )
    compaction = Compaction(
        found.ledgers,
        found.entries,
        journal,
        sealed,
        CompactionPolicy(live_share_max, config.journal_file_bytes // _SMALL_FILE_SHARE),
        rate=RateLimit(config.compaction_rate_bytes_per_s),
        room_bytes=lambda: (
            0 if journal.is_space_refused else space.copyable_bytes(journal.appended_bytes)
        ),
        pause_s=config.compaction_interval_s,
    )
    scrub = Scrub(
        found.entries,
        sealed,
        rate=RateLimit(config.scrub_rate_bytes_per_s),
        interval_s=config.scrub_interval_s,
    )
    return Store(
        cookie.directory,
        disk,
        found.ledgers,
        found.entries,
        journal,
        compaction,
        scrub,
        found.start_number,
        space,
    )
