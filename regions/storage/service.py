"""A node's service to its clients: it asks the cores, and performs their effects in order.

Nothing here is done per record, and an add needs no task, timer or cancel scope of its own: it
is a row in a group, and its answer is a rising number. A waiting follower is not a task either:
the request that moves the LAC wakes it. A crowd of followers is woken in slices. A task of the
node wakes all but the first slice, so that the crowd does not hold up other clients.
"""

from collections.abc import Sequence
from functools import partial
from typing import Protocol

import attrs
import trio

from geolog.protocol.ids import NO_EPOCH, EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.messages import (
    Add,
    EntryAnswer,
    Fence,
    Follow,
    Message,
    OpenLedger,
    Probe,
    ProbeAnswer,
    PushLac,
    Read,
    ReadAnswer,
    Reason,
    Refused,
)
from geolog.protocol.replica import (
    AcknowledgeAdd,
    AnswerProbe,
    AnswerRead,
    AwaitLac,
    Effect,
    LedgerReplica,
    PersistEntry,
    PersistFence,
    PersistOpen,
    Reply,
    ReplySynced,
)
from geolog.wire.limits import ENTRIES_PER_ANSWER_MAX, INT64_MAX
from regions.storage.add_answers import AddAnswers
from regions.storage.config import StorageConfig
from regions.storage.disk import TooManyOpenFilesError
from regions.storage.doubt import doubt_below
from regions.storage.protocol.directories import directory_of
from regions.storage.protocol.followers import Followers
from regions.storage.protocol.garbage import GarbageWatch
from regions.storage.protocol.records import delete_record, record_of
from regions.storage.read_lane import Answered, cancelled
from regions.storage.store import Store, StoreStatistics

_WOKEN_COUNT_MAX = 64
"""Followers to wake before other tasks get a turn: a few milliseconds of work."""


_ANSWER_ENTRIES_MAX = 512
"""Entries in one answer to a read: searching for more would hold up all other clients."""


class Client(Protocol):
    """The sender of requests, who gets the answers."""

    def send_nowait(self, message: Message) -> None:
        """Send an answer, after all earlier ones."""
        ...

    def admit_read(self) -> bool:
        """Reserve a place for one read, which must then begin; False if none is left."""
        ...

    def await_fence(self, read: Read) -> None:
        """An admitted read will begin when its fence is on disk."""
        ...

    def begin_read(self, read: Read) -> None:
        """Answer an admitted read."""
        ...

    def cancel_read(self, request: int) -> bool:
        """End an admitted read soon; False if there is none."""
        ...


@attrs.define
class ServiceCounts:
    """Counts of client requests since the node's start."""

    adds: int = 0
    added_bytes: int = 0
    adds_refused: int = 0
    reads: int = 0
    entries_read: int = 0
    busy: int = 0
    """Reads and follows refused because too many were under way, or too many files open."""
    cancelled: int = 0
    """Cancels of reads and follows that were not answered yet."""


@attrs.frozen
class ServiceStatistics:
    """State of a node, without its connections. Its fields are part of the status document."""

    requests: ServiceCounts
    follows_waiting: int
    ledgers_count: int
    is_any_in_doubt: bool
    """Whether damage took records in some directory."""
    doubt_below: int
    """No ledger with this id or a higher one is in doubt; 0 if none is."""
    start_number: int
    """Random number, drawn at each start; a request to settle doubt must name it."""
    directories: tuple[StoreStatistics, ...]


class StorageService:
    """The node's ledgers and journals, as its clients use them."""

    def __init__(
        self, instance: InstanceId, stores: Sequence[Store], config: StorageConfig
    ) -> None:
        self.instance = instance
        self.stores = tuple(stores)
        """Ordered by index of their directories."""
        self.start_number = self.stores[0].start_number
        self.counts = ServiceCounts()
        self.garbage_watch = GarbageWatch(instance, grace_s=config.garbage_grace_s)
        self._read_bytes_max = config.read_bytes_max
        self._followers: Followers[Client] = Followers(
            waiters_max=config.follows_max_all,
            waiters_max_per_client=config.follows_max,
            wait_s_max=config.follow_wait_s_max,
        )
        self._due_earlier = trio.Event()
        # Ledgers with more followers to wake, in order.
        self._crowded: dict[LedgerId, None] = {}
        self._has_crowd = trio.Event()

    @property
    def is_read_only(self) -> bool:
        """Whether some ledgers take nothing new at present: those of a full directory."""
        return any(store.is_read_only for store in self.stores)

    @property
    def followers_count(self) -> int:
        """Follows that wait for entries."""
        return len(self._followers)

    def store_of(self, ledger: LedgerId) -> Store:
        """The store where the ledger lives, or would live."""
        return self.stores[directory_of(ledger, len(self.stores))]

    def statistics(self) -> ServiceStatistics:
        """Current counts."""
        directories = tuple(store.statistics() for store in self.stores)
        return ServiceStatistics(
            requests=attrs.evolve(self.counts),
            follows_waiting=self.followers_count,
            ledgers_count=sum(each.ledgers_count for each in directories),
            is_any_in_doubt=any(each.is_any_in_doubt for each in directories),
            doubt_below=doubt_below(self.stores),
            start_number=self.start_number,
            directories=directories,
        )

    def on_add(self, add: Add, client: Client, answers: AddAnswers) -> Store:
        """Take an add, to be answered when on disk; return the store it went to.

        The caller begins the store's write, once for all adds that came together.
        """
        self.counts.adds += 1
        self.counts.added_bytes += len(add.body)
        self.garbage_watch.on_asked(add.ledger)
        store = self.store_of(add.ledger)
        replica = store.ledgers.replica_of(add.ledger)
        for effect in replica.on(add, store.entries.held, store.limits()):
            match effect:
                case PersistEntry():
                    store.journal.append_nowait(record_of(effect), add.body, is_begun_soon=True)
                case AcknowledgeAdd(ordinal):
                    answers.on_add(ordinal, store.directory, wants_received=add.wants_received)
                case Reply(message):
                    self.counts.adds_refused += 1
                    client.send_nowait(message)
                case _:
                    self._persist_promise(effect, replica, store)
        if add.ledger in self._followers:
            self._wake_followers(replica)
        return store

    def on_request(
        self, request: OpenLedger | Fence | Read | Follow | Probe | PushLac, client: Client
    ) -> None:
        """Perform, or begin, any other client request."""
        if isinstance(request, OpenLedger | Fence | Probe):
            self.garbage_watch.on_asked(request.ledger)
        store = self.store_of(request.ledger)
        replica = store.ledgers.replica_of(request.ledger)
        for effect in replica.on(request, store.entries.held, store.limits()):
            match effect:
                case Reply(message):
                    client.send_nowait(message)
                case ReplySynced(message):
                    store.journal.when_synced(partial(client.send_nowait, message))
                case AnswerRead(read, is_synced):
                    self._begin_read(read, client, store if is_synced else None)
                case AwaitLac(follow):
                    self._await_lac(follow, client)
                case AnswerProbe(probe):
                    answer = self._answer_probe(probe, replica, store)
                    if answer.answers:
                        store.journal.when_synced(partial(client.send_nowait, answer))
                    else:
                        client.send_nowait(answer)
                case _:
                    self._persist_promise(effect, replica, store)
        if not isinstance(request, Follow) and request.ledger in self._followers:
            self._wake_followers(replica)

    def delete(self, ledger: LedgerId) -> None:
        """Delete a ledger for ever: from now on the only answer is that it was deleted."""
        store = self.store_of(ledger)
        store.journal.append_nowait(delete_record(ledger))
        store.ledgers.delete(ledger)
        store.entries.forget(ledger)
        self._on_ledger_gone(ledger)

    def let_go(self, ledger: LedgerId, epoch: Epoch) -> bool:
        """Give up the entries of a CLOSED ledger that other nodes hold; its fence stays.

        `epoch` is its last. False while entries are on their way to the disk, or if this node
        knows a higher epoch, so that `epoch` cannot be the last.
        """
        store = self.store_of(ledger)
        replica = store.ledgers.replica_of(ledger)
        if epoch < replica.epoch_highest or not store.entries.let_go(ledger):
            return False
        # It is in the journal before any file goes: compaction waits for everything appended.
        for effect in replica.let_go(epoch):
            self._persist_promise(effect, replica, store)
        self._on_ledger_gone(ledger)
        return True

    def ledgers(self) -> list[LedgerId]:
        """All ledgers that the node knows now, directory by directory."""
        return [replica.ledger for store in self.stores for replica in store.ledgers]

    def _on_ledger_gone(self, ledger: LedgerId) -> None:
        self._wake_followers(self.store_of(ledger).ledgers.replica_of(ledger))

    def on_cancel(self, request: int, client: Client) -> None:
        """End this client's read or follow soon; nothing happens if there is none."""
        if client.cancel_read(request):
            self.counts.cancelled += 1
        elif self._followers.cancel(client, request):
            self.counts.cancelled += 1
            client.send_nowait(cancelled(request))

    def forget(self, client: Client) -> None:
        """Drop everything that a departed client follows."""
        self._followers.forget(client)

    async def run_follow_timer(self) -> None:
        """Answer followers when their time is up; never returns."""
        while True:
            self._due_earlier = trio.Event()
            with trio.move_on_at(self._followers.next_due_s):
                await self._due_earlier.wait()
            while over := self._followers.on_time(trio.current_time(), _WOKEN_COUNT_MAX):
                for waiter in over:
                    self.on_request(attrs.evolve(waiter.follow, wait_ms=0), waiter.client)
                await trio.lowlevel.checkpoint()

    async def run_crowds(self) -> None:
        """Wake followers that were too many to be woken at once; never returns."""
        while True:
            if not self._crowded:
                self._has_crowd = trio.Event()
                await self._has_crowd.wait()
            ledger = next(iter(self._crowded))
            del self._crowded[ledger]
            self._wake_followers(self.store_of(ledger).ledgers.replica_of(ledger))
            await trio.lowlevel.checkpoint()

    def read_in_memory(self, read: Read) -> Answered | None:
        """One answer to a begun read; None if it needs the disk."""
        store = self.store_of(read.ledger)
        refused = self._refused_now(read, store)
        if refused is not None:
            return refused
        if read.is_from_disk:
            return None
        entries = store.entries.read_in_memory(
            read.ledger, read.first, _count_of(read), self.answer_bytes_max(read)
        )
        return None if entries is None else self._answered(read, entries, store)

    async def read(self, read: Read) -> Answered:
        """One answer to a begun read."""
        store = self.store_of(read.ledger)
        refused = self._refused_now(read, store)
        if refused is not None:
            return refused
        if read.is_from_disk:
            await store.journal.wait_synced()  # Puts on disk what was only in memory.
        try:
            entries = await store.entries.read(
                read.ledger,
                read.first,
                _count_of(read),
                self.answer_bytes_max(read),
                is_from_disk=read.is_from_disk,
            )
        except TooManyOpenFilesError as error:
            self.counts.busy += 1
            why = f"{error}: try again later"
            return Answered(Refused(read.request, Reason.BUSY, NO_EPOCH, why), None)
        return self._answered(read, entries, store)

    def answer_bytes_max(self, read: Read) -> int:
        """Maximum bytes of entries in one answer, unless a single entry is larger."""
        return min(read.bytes_max, self._read_bytes_max)

    def _persist_promise(self, effect: Effect, replica: LedgerReplica, store: Store) -> None:
        assert isinstance(effect, PersistOpen | PersistFence), effect
        file_id = store.journal.file_id if effect.is_first else 0
        store.ledgers.keep(replica, first_file_id=file_id)
        store.journal.append_nowait(record_of(effect))

    def _begin_read(self, read: Read, client: Client, unsynced: Store | None) -> None:
        """Begin a read; if it fenced, only when its fence is on disk."""
        if not client.admit_read():
            self._refuse_as_busy(read, client)
            return
        self.counts.reads += 1
        if unsynced is None:
            client.begin_read(read)
        else:
            client.await_fence(read)
            fenced = attrs.evolve(read, fence_epoch=NO_EPOCH)
            unsynced.journal.when_synced(partial(client.begin_read, fenced))

    def _await_lac(self, follow: Follow, client: Client) -> None:
        due_before_s = self._followers.next_due_s
        if not self._followers.wait(client, follow, trio.current_time()):
            self._refuse_as_busy(follow, client)
        elif self._followers.next_due_s < due_before_s:
            self._due_earlier.set()

    def _wake_followers(self, replica: LedgerReplica) -> None:
        if replica.is_fenced or replica.is_deleted:
            woken = self._followers.on_end(replica.ledger, _WOKEN_COUNT_MAX)
        else:
            woken = self._followers.on_lac(replica.ledger, replica.lac, _WOKEN_COUNT_MAX)
        if len(woken) == _WOKEN_COUNT_MAX:
            self._crowded[replica.ledger] = None
            self._has_crowd.set()
        for waiter in woken:
            self.on_request(waiter.follow, waiter.client)

    def _refuse_as_busy(self, request: Read | Follow, client: Client) -> None:
        self.counts.busy += 1
        what = "reads under way" if isinstance(request, Read) else "waiting followers"
        why = f"too many {what} at this node or connection: try again later"
        client.send_nowait(Refused(request.request, Reason.BUSY, NO_EPOCH, why))

    def _refused_now(self, read: Read, store: Store) -> Answered | None:
        """The refusal of a read that may not continue: its ledger may have been deleted."""
        replica = store.ledgers.replica_of(read.ledger)
        for effect in replica.on(read, store.entries.held):
            if isinstance(effect, Reply):
                return Answered(effect.message, None)
        return None

    def _answered(self, read: Read, entries: tuple[EntryAnswer, ...], store: Store) -> Answered:
        self.counts.entries_read += len(entries)
        replica = store.ledgers.replica_of(read.ledger)
        rest = _rest_of(read, len(entries))
        message = ReadAnswer(
            read.request,
            replica.lac,
            read.first,
            entries,
            is_last=rest is None,
            is_fenced=replica.is_fenced,
        )
        return Answered(message, rest)

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


def _count_of(read: Read) -> int:
    """Maximum number of entries in one answer."""
    return min(max(read.count_max, 1), _ANSWER_ENTRIES_MAX)


def _rest_of(read: Read, count: int) -> Read | None:
    """The rest of a streamed read after an answer with this many entries."""
    first = read.first + count
    if count >= read.count_max or read.answers_max <= 1 or first > INT64_MAX:
        return None
    return attrs.evolve(
        read,
        first=EntryId(first),
        count_max=read.count_max - count,
        answers_max=read.answers_max - 1,
    )
