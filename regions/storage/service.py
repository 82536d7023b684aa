"""What a node does for its clients: it asks the cores, and performs their effects in order.

Nothing here is done per record, and per add there is no task, timer or cancel scope: an add is
a row in a group, and its answer is a number that rises.
"""

from functools import partial
from typing import Protocol

import attrs

from geolog.protocol.ids import InstanceId
from geolog.protocol.messages import (
    Add,
    Fence,
    Message,
    OpenLedger,
    Probe,
    ProbeAnswer,
    PushLac,
    Read,
    ReadAnswer,
)
from geolog.protocol.replica import (
    NO_LIMITS,
    AcknowledgeAdd,
    AnswerProbe,
    AnswerRead,
    Effect,
    LedgerReplica,
    NodeLimits,
    PersistEntry,
    PersistFence,
    PersistOpen,
    Reply,
    ReplySynced,
)
from geolog.wire.limits import ENTRIES_PER_ANSWER_MAX
from regions.protocol.ledgers import Ledgers
from regions.protocol.records import record_of
from regions.storage.entries import EntryStatistics, EntryStore
from regions.storage.journal import Journal, JournalStatistics

_READ_ONLY = NodeLimits(is_read_only=True)


class Client(Protocol):
    """Who asks, and is answered."""

    def send_nowait(self, message: Message) -> None:
        """Send an answer, after those given before."""
        ...

    def send_synced_nowait(self, through: int) -> None:
        """Say that all adds up to this ordinal are on disk, but for those refused."""
        ...


@attrs.define
class _SyncedRun:
    """Adds of one client that one group carries; answered together by their last ordinal."""

    group: int
    through: int


class AddAnswers:
    """Cumulative answers to the adds of one client."""

    def __init__(self, client: Client, journal: Journal) -> None:
        self._client = client
        self._journal = journal
        self._run: _SyncedRun | None = None

    def on_add(self, ordinal: int) -> None:
        """The add is to be answered when all that was journaled so far is on disk."""
        group = self._journal.group_newest
        if self._run is not None and self._run.group == group:
            self._run.through = ordinal
            return
        self._run = run = _SyncedRun(group, ordinal)
        self._journal.when_synced(partial(self._on_synced, run))

    def _on_synced(self, run: _SyncedRun) -> None:
        if self._run is run:
            self._run = None
        self._client.send_synced_nowait(run.through)


@attrs.define
class ServiceCounts:
    """What clients asked for, since the node started."""

    adds: int = 0
    added_bytes: int = 0
    adds_refused: int = 0
    reads: int = 0
    entries_read: int = 0


@attrs.frozen
class ServiceStatistics:
    """How a node is, but for its connections."""

    requests: ServiceCounts
    journal: JournalStatistics
    entries: EntryStatistics
    ledgers_count: int
    is_any_in_doubt: bool
    """Whether damage took records: some ledgers take nothing, and UNKNOWN is answered."""


class StorageService:
    """The node's ledgers and journal, as its clients use them."""

    def __init__(
        self,
        instance: InstanceId,
        ledgers: Ledgers,
        entries: EntryStore,
        journal: Journal,
        *,
        read_bytes_max: int,
    ) -> None:
        self.instance = instance
        self._limits = NO_LIMITS
        self._appended_bytes_allowed = 0
        self.counts = ServiceCounts()
        self.journal = journal
        self._ledgers = ledgers
        self._entries = entries
        self._read_bytes_max = read_bytes_max

    @property
    def is_read_only(self) -> bool:
        """Whether nothing new is stored at present."""
        return self._limits.is_read_only

    def on_space(self, spare_bytes: int) -> None:
        """So much may be stored until this is said again; if nothing, the node is read-only."""
        self._limits = NO_LIMITS if spare_bytes > 0 else _READ_ONLY
        self._appended_bytes_allowed = self.journal.appended_bytes + max(spare_bytes, 0)

    def statistics(self) -> ServiceStatistics:
        """Counts of now."""
        return ServiceStatistics(
            requests=attrs.evolve(self.counts),
            journal=self.journal.statistics(),
            entries=self._entries.statistics(),
            ledgers_count=len(self._ledgers),
            is_any_in_doubt=self._ledgers.is_any_in_doubt,
        )

    def on_add(self, add: Add, client: Client, answers: AddAnswers) -> None:
        """Take an add; it is answered when it is on disk."""
        self.counts.adds += 1
        self.counts.added_bytes += len(add.body)
        if self.journal.appended_bytes >= self._appended_bytes_allowed:
            self._limits = _READ_ONLY  # Space may be short before it is next looked at.
        replica = self._ledgers.replica_of(add.ledger)
        for effect in replica.on(add, self._entries.held, self._limits):
            match effect:
                case PersistEntry():
                    self.journal.append_nowait(record_of(effect), add.body)
                case AcknowledgeAdd(ordinal):
                    answers.on_add(ordinal)
                case Reply(message):
                    self.counts.adds_refused += 1
                    client.send_nowait(message)
                case _:
                    self._persist_promise(effect, replica)

    async def on_request(
        self, request: OpenLedger | Fence | Read | Probe | PushLac, client: Client
    ) -> None:
        """Do what else a client asks; wait only where a read has to."""
        replica = self._ledgers.replica_of(request.ledger)
        for effect in replica.on(request, self._entries.held, self._limits):
            match effect:
                case Reply(message):
                    client.send_nowait(message)
                case ReplySynced(message):
                    self.journal.when_synced(partial(client.send_nowait, message))
                case AnswerRead(read, is_synced):
                    if is_synced:
                        await self.journal.wait_synced()
                    client.send_nowait(await self._answer_read(read, replica))
                case AnswerProbe(probe):
                    client.send_nowait(self._answer_probe(probe, replica))
                case _:
                    self._persist_promise(effect, replica)

    def _persist_promise(self, effect: Effect, replica: LedgerReplica) -> None:
        assert isinstance(effect, PersistOpen | PersistFence), effect
        file_id = self.journal.file_id if effect.is_first else 0
        self._ledgers.keep(replica, first_file_id=file_id)
        self.journal.append_nowait(record_of(effect))

    async def close(self) -> None:
        """Close the files; nothing is read any more."""
        await self._entries.close()

    async def _answer_read(self, read: Read, replica: LedgerReplica) -> ReadAnswer:
        count = min(max(read.count_max, 1), ENTRIES_PER_ANSWER_MAX)
        entries = await self._entries.read(
            read.ledger, read.first, count, min(read.bytes_max, self._read_bytes_max)
        )
        self.counts.reads += 1
        self.counts.entries_read += len(entries)
        return ReadAnswer(
            read.request, replica.lac, read.first, entries, is_fenced=replica.is_fenced
        )

    def _answer_probe(self, probe: Probe, replica: LedgerReplica) -> ProbeAnswer:
        count = min(probe.count_max, ENTRIES_PER_ANSWER_MAX)
        return ProbeAnswer(
            probe.request,
            replica.lac,
            replica.entry_highest,
            replica.is_fenced,
            replica.epoch_highest,
            self._entries.answers(probe.ledger, probe.first, count),
        )
