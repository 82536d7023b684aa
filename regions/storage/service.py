"""What a node does for its clients: it asks the cores, and performs their effects in order.

Nothing here is done per record, and per add there is no task, timer or cancel scope: an add is
a row in a group, and its answer is a number that rises.
"""

from collections.abc import Sequence
from functools import partial
from typing import Protocol

import attrs

from geolog.protocol.ids import InstanceId, LedgerId
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
    AcknowledgeAdd,
    AnswerProbe,
    AnswerRead,
    Effect,
    LedgerReplica,
    PersistEntry,
    PersistFence,
    PersistOpen,
    Reply,
    ReplySynced,
)
from geolog.wire.limits import ENTRIES_PER_ANSWER_MAX
from regions.protocol.directories import directory_of
from regions.protocol.records import record_of
from regions.storage.add_answers import AddAnswers
from regions.storage.store import Store, StoreStatistics


class Client(Protocol):
    """Who asks, and is answered."""

    def send_nowait(self, message: Message) -> None:
        """Send an answer, after those given before."""
        ...


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
    """How a node is, but for its connections. Its fields are a part of the status document."""

    requests: ServiceCounts
    ledgers_count: int
    is_any_in_doubt: bool
    """Whether damage took records, in some directory."""
    directories: tuple[StoreStatistics, ...]


class StorageService:
    """The node's ledgers and journals, as its clients use them."""

    def __init__(
        self, instance: InstanceId, stores: Sequence[Store], *, read_bytes_max: int
    ) -> None:
        self.instance = instance
        self.stores = tuple(stores)
        """By index of their directories."""
        self.counts = ServiceCounts()
        self._read_bytes_max = read_bytes_max

    @property
    def is_read_only(self) -> bool:
        """Whether some ledgers take nothing new at present: those of a full directory."""
        return any(store.is_read_only for store in self.stores)

    def store_of(self, ledger: LedgerId) -> Store:
        """Where the ledger lives, or would."""
        return self.stores[directory_of(ledger, len(self.stores))]

    def statistics(self) -> ServiceStatistics:
        """Counts of now."""
        directories = tuple(store.statistics() for store in self.stores)
        return ServiceStatistics(
            requests=attrs.evolve(self.counts),
            ledgers_count=sum(each.ledgers_count for each in directories),
            is_any_in_doubt=any(each.is_any_in_doubt for each in directories),
            directories=directories,
        )

    def on_add(self, add: Add, client: Client, answers: AddAnswers) -> Store:
        """Take an add; it is answered when it is on disk. Where it went, or was refused."""
        self.counts.adds += 1
        self.counts.added_bytes += len(add.body)
        store = self.store_of(add.ledger)
        replica = store.ledgers.replica_of(add.ledger)
        for effect in replica.on(add, store.entries.held, store.limits()):
            match effect:
                case PersistEntry():
                    store.journal.append_nowait(record_of(effect), add.body)
                case AcknowledgeAdd(ordinal):
                    answers.on_add(ordinal, store.directory, wants_received=add.wants_received)
                case Reply(message):
                    self.counts.adds_refused += 1
                    client.send_nowait(message)
                case _:
                    self._persist_promise(effect, replica, store)
        return store

    async def on_request(
        self, request: OpenLedger | Fence | Read | Probe | PushLac, client: Client
    ) -> None:
        """Do what else a client asks; wait only where a read has to."""
        store = self.store_of(request.ledger)
        replica = store.ledgers.replica_of(request.ledger)
        for effect in replica.on(request, store.entries.held, store.limits()):
            match effect:
                case Reply(message):
                    client.send_nowait(message)
                case ReplySynced(message):
                    store.journal.when_synced(partial(client.send_nowait, message))
                case AnswerRead(read, is_synced):
                    if is_synced:
                        await store.journal.wait_synced()
                    client.send_nowait(await self._answer_read(read, replica, store))
                case AnswerProbe(probe):
                    client.send_nowait(self._answer_probe(probe, replica, store))
                case _:
                    self._persist_promise(effect, replica, store)

    def _persist_promise(self, effect: Effect, replica: LedgerReplica, store: Store) -> None:
        assert isinstance(effect, PersistOpen | PersistFence), effect
        file_id = store.journal.file_id if effect.is_first else 0
        store.ledgers.keep(replica, first_file_id=file_id)
        store.journal.append_nowait(record_of(effect))

    async def _answer_read(
        self, read: Read, replica: LedgerReplica, store: Store
    ) -> ReadAnswer:
        count = min(max(read.count_max, 1), ENTRIES_PER_ANSWER_MAX)
        entries = await store.entries.read(
            read.ledger, read.first, count, min(read.bytes_max, self._read_bytes_max)
        )
        self.counts.reads += 1
        self.counts.entries_read += len(entries)
        return ReadAnswer(
            read.request, replica.lac, read.first, entries, is_fenced=replica.is_fenced
        )

    def _answer_probe(self, probe: Probe, replica: LedgerReplica, store: Store) -> ProbeAnswer:
        count = min(probe.count_max, ENTRIES_PER_ANSWER_MAX)
        return ProbeAnswer(
            probe.request,
            replica.lac,
            replica.entry_highest,
            replica.is_fenced,
            replica.epoch_highest,
            store.entries.answers(probe.ledger, probe.first, count),
        )
