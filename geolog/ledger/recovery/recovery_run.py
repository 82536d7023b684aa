"""The shell around the recovery core: reads, rewrites, and replaces members, up to the end.

The ledger is fenced. If the members that answer do not form an ack set for a rewritten entry,
other nodes take the slots of members that are away. They are fenced first, which makes the
ledger known to them, and then get the rewritten entries. The fragments made this way stay in
memory and are stored together with the end. Only the old members can prove an absence.

Rules: PROTOCOL F3, F7 and F8.
"""

import random
from collections.abc import Callable
from functools import partial

import attrs
import trio

from geolog.ledger.nodes.node_pool import LinkUse
from geolog.ledger.recovery.recovery_progress import RecoveryProgress
from geolog.ledger.replicas.entry_check import encoded_as_read
from geolog.ledger.replicas.replicas import Replicas
from geolog.ledger.writing.ledger_writer import LedgerWriter
from geolog.ledger.writing.replacement_finder import ReplacementFinder
from geolog.protocol.ids import EntryId
from geolog.protocol.ledger_state import Fragment, LedgerRecord
from geolog.protocol.messages import Answer
from geolog.protocol.recovery import (
    CannotDecide,
    CloseAt,
    ReadBatch,
    Recovery,
    RecoveryEffect,
    Rewrite,
)
from geolog.protocol.recovery_pace import RECOVERY_ENTRIES_MAX, RecoveryPace
from geolog.wire.entry import EncodedEntry
from topology.errors import (
    DamagedBytesError,
    FencedError,
    GeologError,
    UnavailableError,
)


@attrs.frozen(kw_only=True)
class RecoveryConfig:
    """Limits of a recovery."""

    member_timeout_s: float = 5.0
    """How long a member may take to answer a fence or one read; then it counts as silent. A
    batch takes one or more reads."""

    member_join_s: float = 1.0
    """How long to wait for members that are down before rewriting without them."""

    batch_entries: int = 32
    """Entries to read and rewrite at a time at first; batches of small entries grow."""

    batch_bytes: int = 4 * 1024 * 1024
    """Bytes to request from a member at a time; also bounds a batch of many small entries."""

    retry_delay_s: float = 0.25
    """Pause before trying again if another recovery interferes or too few members answer."""


@attrs.frozen
class Recovered:
    """Result of a recovery, to be stored: the end, and the fragments that it made."""

    last: EntryId
    fragments: tuple[Fragment, ...]


class RecoveryRun:
    """Performs the effects of the recovery core; completions come back through one inbox."""

    def __init__(
        self,
        record: LedgerRecord,
        replicas: Replicas,
        rng: random.Random,
        config: RecoveryConfig,
        nursery: trio.Nursery,
        progress: RecoveryProgress,
    ) -> None:
        self._record = record
        self._numbering = record.numbering
        self._progress = progress
        self._fragment = fragment = record.fragments[-1]
        self._pool = replicas.pool
        self._replicas = replicas.within(config.member_timeout_s)
        self._config = config
        self._nursery = nursery
        # The bound covers everything under way: each member's answers for two batches, and the
        # rewrites of one, whose outcomes must always fit.
        batch_entries_max = max(config.batch_entries, RECOVERY_ENTRIES_MAX)
        self._tell, self._told = trio.open_memory_channel[Callable[[], list[RecoveryEffect]]](
            (2 * len(fragment.ensemble) + 2) * batch_entries_max
        )
        self._pace = RecoveryPace(config.batch_entries, config.batch_bytes)
        self._finder = ReplacementFinder(
            replicas, region=None, rng=rng, patience_s=2 * config.member_join_s
        )
        self._is_replacing = False
        self._bodies: dict[tuple[int, EntryId], EncodedEntry] = {}
        self._writer: LedgerWriter | None = None
        self._acked_to = EntryId(-1)

    def close(self) -> None:
        """Stop writing."""
        if self._writer is not None:
            self._writer.close()

    async def run(self, first: EntryId) -> Recovered:
        """Decide all entries starting at `first`. FencedError, UnavailableError."""
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
                        return Recovered(last, self._fragments_made())
                    case CannotDecide():
                        raise UnavailableError(
                            f"ledger {self._record.ledger}: cannot decide whether entry"
                            f" {effect.entry} exists: {effect.have_count} members have it,"
                            f" {effect.absent_count} do not, {effect.silent_count} are silent"
                        )
            effects = (await self._told.receive())()

    async def _read(self, batch: ReadBatch) -> None:
        """Ask one member for the batch, in as many requests as its bytes need.

        The time limit is for one request: over a narrow link a batch takes many.
        """
        first, end = batch.first, EntryId(batch.first + batch.count)
        try:
            while first < end and self._core.batch_first == batch.first:
                first = await self._read_some(batch.slot, first, end)
        except GeologError:  # Silent, whatever the reason.
            await self._tell.send(partial(self._on_silence, batch))

    async def _read_some(self, slot: int, first: EntryId, end: EntryId) -> EntryId:
        """Ask a member for entries starting at `first`; returns the first that it left out."""
        member = self._fragment.ensemble[slot]
        answer = await self._replicas.read(
            self._record.ledger,
            member,
            first,
            end - first,
            bytes_max=self._config.batch_bytes,
            epoch=self._record.epoch,
            use=LinkUse.WRITING,
        )
        if not answer.entries:
            raise UnavailableError(f"{member.node_id} gave no answer for entry {first}")
        for entry_answer in answer.entries:
            await self._take(slot, first, entry_answer.answer, entry_answer.body)
            first = EntryId(first + 1)
        return first

    def _on_silence(self, batch: ReadBatch) -> list[RecoveryEffect]:
        """Report a silent member; silence in an earlier batch does not count for this one."""
        if self._core.batch_first != batch.first:
            return []
        return self._core.on_silence(batch.slot)

    async def _take(
        self, slot: int, entry: EntryId, answer: Answer, body: bytes | memoryview
    ) -> None:
        if entry < self._core.decided_end:
            return  # Another member's answer decided it.
        if answer is Answer.HAVE:
            try:
                encoded = encoded_as_read(body, self._numbering, entry)
                self._bodies[slot, entry] = encoded
            except DamagedBytesError:
                answer = Answer.CORRUPT
        await self._tell.send(lambda: self._core.on_answer(slot, entry, answer))

    async def _rewrite(self, effect: Rewrite) -> None:
        encoded = self._bodies.pop((effect.slot, effect.entry))
        for key in [key for key in self._bodies if key[1] == effect.entry]:
            del self._bodies[key]
        self._pace.on_entry(encoded.length_bytes)
        self._core.batch_entries_next = self._pace.batch_entries
        if self._writer is None:
            self._writer = LedgerWriter(
                self._pool,
                self._record,
                self,
                nursery=self._nursery,
                lac=EntryId(effect.entry - 1),
                is_recovery=True,
            )
            self._writer.open_nowait()
            await self._writer.wait_members(patience_s=self._config.member_join_s)
            await self._replace_lost(self._writer)
        if self._writer.is_over:
            raise FencedError(f"another recovery has taken ledger {self._record.ledger}")
        entry = self._writer.add_nowait(encoded)
        assert entry == effect.entry, f"entry {effect.entry} was rewritten as {entry}"
        if self._writer.is_stuck():
            # Members left while nothing was in flight, and the writer reports that only once.
            self.on_stuck(entry, self._writer.describe_away())

    def _fragments_made(self) -> tuple[Fragment, ...]:
        """The fragments added after those of the record, or replacing its last one."""
        if self._writer is None:
            return ()
        before, after = self._record.fragments, self._writer.record.fragments
        place = len(before) if after[: len(before)] == before else len(before) - 1
        return after[place:]

    async def _replace_lost(self, writer: LedgerWriter) -> None:
        """Let other nodes take the slots of members that are away, while the writer needs them.

        NotEnoughNodesError, FencedError; UnavailableError while metadata is away.
        """
        while self._is_short_of_members(writer):
            found = await self._finder.find(
                writer.record, writer.slots_away(), is_recovery=True
            )
            if not self._is_short_of_members(writer):
                return  # They came back.
            fragment = found.fragment_of(writer.record, first=EntryId(writer.lac + 1))
            writer.check_helps(fragment)
            writer.hold(found.members)
            writer.change(writer.record.with_fragment(fragment), found.connections)
            await writer.wait_members(patience_s=self._config.member_join_s)

    def _is_short_of_members(self, writer: LedgerWriter) -> bool:
        return not writer.is_over and not writer.can_go_on()

    async def _replace_or_give_up(self, writer: LedgerWriter) -> None:
        try:
            await self._replace_lost(writer)
        except FencedError as error:
            self._stop(str(error))
        except GeologError:
            # The first stuck entry may have been acknowledged since, and others not.
            self._tell_nowait(EntryId(writer.lac + 1), is_acked=False)
        finally:
            self._is_replacing = False

    # Calls from the writer.

    def on_lac(self, lac: EntryId) -> None:
        """Report rewritten entries that have reached their ack sets."""
        for entry in range(self._acked_to + 1, lac + 1):
            self._tell_nowait(EntryId(entry), is_acked=True)
        self._progress.on_entries(lac - self._acked_to)
        self._acked_to = lac

    def on_received(self, through: EntryId) -> None:
        """Not used: recovery does not request it."""

    def on_fenced(self, writer: LedgerWriter, why: str) -> None:  # noqa: ARG002 - its only one.
        """End this recovery: a rival has taken the ledger."""
        self._stop(why)

    def on_stuck(self, entry: EntryId, why: str) -> None:  # noqa: ARG002 - It looks itself.
        """Look for other nodes: too few members are up for the rewritten entries."""
        writer = self._writer
        if writer is not None and not self._is_replacing:
            self._is_replacing = True
            self._nursery.start_soon(self._replace_or_give_up, writer)

    def _stop(self, why: str) -> None:
        def stop() -> list[RecoveryEffect]:
            raise FencedError(f"another recovery took over: {why}")

        self._tell.send_nowait(stop)

    def _tell_nowait(self, entry: EntryId, *, is_acked: bool) -> None:
        tell = self._core.on_acked if is_acked else self._core.on_cannot_ack
        self._tell.send_nowait(lambda: tell(entry))
