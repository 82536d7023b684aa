"""The shell round fencing and recovery: takes a ledger from its writer and closes it.

Whoever calls, and however many at once: each takes the ledger's next epoch by compare-and-set
first, so that the latest wins and the others find out at their next step.
"""

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

import attrs
import trio
from crc32c import crc32c

from geolog.background import open_background
from geolog.ledger.ledger_metadata import LedgerMetadata, VersionedLedger
from geolog.ledger.ledger_reader import check_place
from geolog.ledger.ledger_writer import LedgerWriter
from geolog.ledger.node_pool import NodePool
from geolog.metadata.seam import BadVersionError, SessionLostError
from geolog.protocol.fencing import FenceRound, FenceTaken
from geolog.protocol.ids import EntryId, InstanceId, LedgerId
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState
from geolog.protocol.messages import Answer, Fence, Fenced, Read, ReadAnswer
from geolog.protocol.recovery import (
    CannotDecide,
    CloseAt,
    ReadBatch,
    Recovery,
    RecoveryEffect,
    Rewrite,
)
from geolog.wire.entry import EncodedEntry, decode_entry
from topology.errors import (
    DamagedBytesError,
    FencedError,
    GeologError,
    OutcomeUnknownError,
    UnavailableError,
)

_RIVALS_COUNTED_MAX = 5
"""Patience with rivals is doubled so often: with the default delay up to 16 s."""


@attrs.frozen(kw_only=True)
class RecoveryConfig:
    """Bounds of a recovery."""

    member_timeout_s: float = 5.0
    """How long one member may take to answer a fence or a read; then it counts as silent."""

    member_join_s: float = 1.0
    """How long to wait for members that are down before rewriting without them."""

    batch_entries: int = 32
    """Entries that are read, and rewritten, at a time."""

    batch_bytes: int = 4 * 1024 * 1024
    """Bytes asked of a member at a time."""

    retry_delay_s: float = 0.25
    """Pause before it is tried again when another recovers too, or too few members answer."""


async def recover_ledger(
    ledger: LedgerId,
    *,
    ledgers: LedgerMetadata,
    pool: NodePool,
    rng: random.Random,
    config: RecoveryConfig,
) -> LedgerRecord:
    """Fence and close the ledger, or find it closed; the caller bounds the wait.

    Tries again while too few members answer. Who is overtaken by a rival lets it finish, for
    longer each time: else many that recover over slow links would end each other for ever. An
    ALLOCATED ledger is closed as an empty one would be: nothing in it was ever acknowledged.
    """
    rivals_met_count = 0
    while True:
        read = await ledgers.read_latest(ledger)
        if read.record.state is LedgerState.CLOSED:
            return read.record
        try:
            taken = await ledgers.replace(read, read.record.taken_over())
            return await _Round(taken, ledgers, pool, config).run()
        except (BadVersionError, FencedError):
            rivals_met_count = min(rivals_met_count + 1, _RIVALS_COUNTED_MAX)
            patience_s = config.retry_delay_s * rng.uniform(1, 2) * 2**rivals_met_count
            await _let_rival_finish(ledger, ledgers, patience_s)
        except GeologError as error:
            if not error.retriable:
                raise
            # Too few members answer, or metadata does not.
            await trio.sleep(config.retry_delay_s * rng.uniform(0.5, 1.5))


async def _let_rival_finish(
    ledger: LedgerId, ledgers: LedgerMetadata, patience_s: float
) -> None:
    """Wait until the ledger is CLOSED, or nothing has become of it for so long."""
    with suppress(UnavailableError, SessionLostError):
        while True:
            changed = trio.Event()
            found = await ledgers.read(ledger, changed=changed)
            if found.record.state is LedgerState.CLOSED:
                return
            with trio.move_on_after(patience_s):
                await changed.wait()
                continue
            return


class _Round:
    """One attempt under one epoch."""

    def __init__(
        self,
        taken: VersionedLedger,
        ledgers: LedgerMetadata,
        pool: NodePool,
        config: RecoveryConfig,
    ) -> None:
        self._taken = taken
        self._record = taken.record
        self._fragment: Fragment = taken.record.fragments[-1]
        self._ledgers = ledgers
        self._pool = pool
        self._config = config

    async def run(self) -> LedgerRecord:
        lac = await self._fence()
        first = max(EntryId(lac + 1), self._fragment.first_entry)
        last = await self._recover_from(first)
        closed = self._record.closed(last)
        try:
            return (await self._ledgers.replace(self._taken, closed)).record
        except (BadVersionError, OutcomeUnknownError):
            found = await self._ledgers.read_latest(self._record.ledger)
            if found.record == closed:
                return closed  # It was stored; only the answer was lost.
            raise

    async def _fence(self) -> EntryId:
        core = FenceRound(self._fragment.rule(self._record.quorum))
        taken: list[FenceTaken] = []
        whys: list[str] = []
        async with open_background() as nursery:
            tell, told = trio.open_memory_channel[tuple[int, Fenced | None]](64)

            async def ask(slot: int) -> None:
                answer = await self._ask_member(slot, whys, self._fence_at)
                await tell.send((slot, answer))

            for slot in range(len(self._fragment.ensemble)):
                nursery.start_soon(ask, slot)
            for _ in self._fragment.ensemble:
                slot, answer = await told.receive()
                if answer is not None:
                    taken += core.on_fenced(slot, answer.lac)
                if taken:
                    return taken[0].lac
        raise UnavailableError(
            f"ledger {self._record.ledger} cannot be fenced: {'; '.join(whys)}"
        )

    async def _ask_member(
        self, slot: int, whys: list[str], ask: Callable[[int], Awaitable[Fenced]]
    ) -> Fenced | None:
        member = self._fragment.ensemble[slot]
        with trio.move_on_after(self._config.member_timeout_s):
            try:
                return await ask(slot)
            except GeologError as error:
                whys.append(f"{member.node_id}: {error}")
                return None
        whys.append(f"{member.node_id}: no answer in {self._config.member_timeout_s} s")
        return None

    async def _fence_at(self, slot: int) -> Fenced:
        instance = self._fragment.ensemble[slot].instance
        connection = await self._pool.link(instance).wait_connection()
        return await connection.ask(
            lambda request: Fence(request, self._record.ledger, self._record.epoch, instance),
            Fenced,
        )

    async def _recover_from(self, first: EntryId) -> EntryId:
        async with open_background() as nursery:
            run = _RecoveryRun(self._record, self._fragment, self._pool, self._config, nursery)
            try:
                return await run.run(first)
            finally:
                run.close()


class _RecoveryRun:
    """Performs the effects of the recovery core; completions come back through one inbox."""

    def __init__(
        self,
        record: LedgerRecord,
        fragment: Fragment,
        pool: NodePool,
        config: RecoveryConfig,
        nursery: trio.Nursery,
    ) -> None:
        self._record = record
        self._fragment = fragment
        self._pool = pool
        self._config = config
        self._nursery = nursery
        # Bounded by what is under way: one read a member, and the rewrites of one batch.
        self._tell, self._told = trio.open_memory_channel[Callable[[], list[RecoveryEffect]]](
            4 * len(fragment.ensemble) * config.batch_entries + 1024
        )
        self._bodies: dict[tuple[int, EntryId], EncodedEntry] = {}
        self._writer: LedgerWriter | None = None
        self._acked_to = EntryId(-1)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    async def run(self, first: EntryId) -> EntryId:
        self._core = Recovery(
            self._fragment.rule(self._record.quorum),
            first=first,
            batch_entries=self._config.batch_entries,
        )
        self._acked_to = EntryId(first - 1)
        effects = self._core.start()
        while True:
            for effect in effects:
                match effect:
                    case ReadBatch():
                        self._nursery.start_soon(self._read, effect)
                    case Rewrite():
                        await self._rewrite(effect)
                    case CloseAt(last):
                        return last
                    case CannotDecide():
                        raise UnavailableError(
                            f"ledger {self._record.ledger}: whether entry {effect.entry} exists"
                            f" cannot be decided: {effect.have_count} have it,"
                            f" {effect.absent_count} do not, {effect.silent_count} do not say"
                        )
            effects = (await self._told.receive())()

    async def _read(self, batch: ReadBatch) -> None:
        """Ask one member for the batch, in as many questions as its bytes need."""
        instance = self._fragment.ensemble[batch.slot].instance
        first, end = batch.first, batch.first + batch.count
        is_answered = False
        with trio.move_on_after(self._config.member_timeout_s):
            try:
                connection = await self._pool.link(instance).wait_connection()
                while first < end:
                    answer = await connection.ask(
                        self._question(instance, first, end - first), ReadAnswer
                    )
                    for entry_answer in answer.entries:
                        await self._take(
                            batch.slot, first, entry_answer.answer, entry_answer.body
                        )
                        first = EntryId(first + 1)
                is_answered = True
            except GeologError:
                is_answered = False  # It counts as silent, whatever the reason.
        if not is_answered and self._core.batch_first == batch.first:
            await self._tell.send(lambda: self._core.on_silence(batch.slot))

    def _question(
        self, instance: InstanceId, first: EntryId, count: int
    ) -> Callable[[int], Read]:
        return lambda request: Read(
            request,
            self._record.ledger,
            first,
            count,
            self._config.batch_bytes,
            1,
            self._record.epoch,
            instance,
        )

    async def _take(
        self, slot: int, entry: EntryId, answer: Answer, body: bytes | memoryview
    ) -> None:
        if answer is Answer.HAVE:
            try:
                self._bodies[slot, entry] = self._encoded(entry, body)
            except DamagedBytesError:
                answer = Answer.CORRUPT
        await self._tell.send(lambda: self._core.on_answer(slot, entry, answer))

    def _encoded(self, entry: EntryId, body: bytes | memoryview) -> EncodedEntry:
        """The entry to write again; DamagedBytesError too if it is another one."""
        encoded = encoded_as_read(body)
        check_place(encoded.header, self._record, entry)
        return encoded

    async def _rewrite(self, effect: Rewrite) -> None:
        encoded = self._bodies.pop((effect.slot, effect.entry))
        for key in [key for key in self._bodies if key[1] == effect.entry]:
            del self._bodies[key]
        if self._writer is None:
            self._writer = LedgerWriter(
                self._pool,
                self._record,
                self,
                nursery=self._nursery,
                lac=EntryId(effect.entry - 1),
                is_recovery=True,
            )
            await self._writer.open(patience_s=self._config.member_join_s)
        if self._writer.is_over:
            raise FencedError(f"another recovers ledger {self._record.ledger}")
        entry = self._writer.add_nowait(encoded)
        assert entry == effect.entry, f"entry {effect.entry} was rewritten as {entry}"

    # The writer's listener.

    def on_lac(self, lac: EntryId) -> None:
        for entry in range(self._acked_to + 1, lac + 1):
            self._tell_nowait(EntryId(entry), is_acked=True)
        self._acked_to = lac

    def on_received(self, through: EntryId) -> None:
        """Recovery does not ask for it."""

    def on_fenced(self, writer: LedgerWriter, why: str) -> None:  # noqa: ARG002 - its only one.
        def stop() -> list[RecoveryEffect]:
            raise FencedError(f"another recovers: {why}")

        self._tell.send_nowait(stop)

    def on_stuck(self, entry: EntryId, why: str) -> None:  # noqa: ARG002 - The core says it.
        self._tell_nowait(entry, is_acked=False)

    def _tell_nowait(self, entry: EntryId, *, is_acked: bool) -> None:
        tell = self._core.on_acked if is_acked else self._core.on_cannot_ack
        self._tell.send_nowait(lambda: tell(entry))


def encoded_as_read(body: bytes | memoryview) -> EncodedEntry:
    """An entry that was read from a replica, checked to the last byte, to be sent as it is."""
    entry = decode_entry(body)
    entry.verify()
    return EncodedEntry(entry.header, (body,), crc32c(body))
