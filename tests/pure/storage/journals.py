"""Helpers to start, write and inspect a journal on a disk in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio
from crc32c import crc32c

from geolog.protocol.ids import EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.messages import Answer
from regions.storage.disk import Disk
from regions.storage.entries import EntryStore
from regions.storage.journal import Journal, JournalEnd, JournalIdentity
from regions.storage.journal_end import NO_END
from regions.storage.protocol.ledgers import Ledgers
from regions.storage.protocol.records import (
    FLAG_FIRST,
    NO_FLAGS,
    JournalRecord,
    RecordKind,
    settle_record,
)
from regions.storage.restart import restart_journal

IDENTITY = JournalIdentity(InstanceId("ab" * 16), "cd" * 16, "node-1")


@attrs.frozen
class Running:
    """A running journal, and everything on top of it."""

    journal: Journal
    ledgers: Ledgers
    entries: EntryStore

    def open_ledger(self, ledger: int, epoch: int = 1) -> None:
        replica = self.ledgers.replica_of(LedgerId(ledger))
        replica.restore_open(Epoch(epoch))
        self.ledgers.keep(replica, first_file_id=self.journal.file_id)
        self.journal.append_nowait(promise(RecordKind.OPEN, ledger, epoch))

    def fence(self, ledger: int, epoch: int) -> None:
        self.ledgers.replica_of(LedgerId(ledger)).restore_fence(Epoch(epoch))
        self.journal.append_nowait(promise(RecordKind.FENCE, ledger, epoch, flags=NO_FLAGS))

    def gather(self, ledger: int, entry: int, body: bytes) -> None:
        """Add an entry for a write that the caller will begin in the same turn."""
        replica = self.ledgers.replica_of(LedgerId(ledger))
        replica.restore_entry(EntryId(entry), Epoch(1), EntryId(-1), is_recovery=False)
        self.journal.append_nowait(entry_record(ledger, entry, body), body, is_begun_soon=True)

    def add(
        self, ledger: int, entry: int, body: bytes, *, lac: int = -1, epoch: int = 1
    ) -> None:
        replica = self.ledgers.replica_of(LedgerId(ledger))
        replica.restore_entry(EntryId(entry), Epoch(epoch), EntryId(lac), is_recovery=False)
        self.journal.append_nowait(
            entry_record(ledger, entry, body, lac=lac, epoch=epoch), body
        )

    def settle(self) -> None:
        """Note that all damage was made good."""
        for damage in self.ledgers.damaged:
            self.journal.append_nowait(settle_record(damage))
            self.ledgers.settle(damage)

    async def read(self, ledger: int, entry: int) -> bytes | Answer:
        (answer,) = await self.entries.read(LedgerId(ledger), EntryId(entry), 1, 1 << 20)
        return bytes(answer.body) if answer.answer is Answer.HAVE else answer.answer


def promise(
    kind: RecordKind, ledger: int, epoch: int, *, flags: int = FLAG_FIRST
) -> JournalRecord:
    return JournalRecord(
        kind, flags, LedgerId(ledger), EntryId(0), Epoch(epoch), EntryId(0), 0, 0
    )


def entry_record(
    ledger: int,
    entry: int,
    body: bytes,
    *,
    lac: int = -1,
    epoch: int = 1,
    flags: int = NO_FLAGS,
) -> JournalRecord:
    return JournalRecord(
        RecordKind.ENTRY,
        flags,
        LedgerId(ledger),
        EntryId(entry),
        Epoch(epoch),
        EntryId(lac),
        len(body),
        crc32c(body),
    )


async def restarted(
    disk: Disk,
    *,
    noted: JournalEnd = NO_END,
    file_bytes_max: int = 1 << 30,
    cached_bytes_max: int = 0,
    ahead_bytes: int = 0,
) -> Running:
    """Restart without running: the disk can be inspected, and nothing is written."""

    def salt_source(count: int) -> bytes:
        return bytes(range(1, 1 + count))

    found = await restart_journal(
        disk,
        IDENTITY,
        noted=noted,
        cached_bytes_max=cached_bytes_max,
        salt_source=salt_source,
    )
    journal = Journal(
        disk,
        IDENTITY,
        found.ledgers,
        found.entries,
        found.files,
        found.opened,
        file_bytes_max=file_bytes_max,
        group_bytes_max=1 << 20,
        in_flight_bytes_max=8 << 20,
        mark_idle_s=0.05,
        ahead_bytes=ahead_bytes,
        salt_source=salt_source,
    )
    return Running(journal, found.ledgers, found.entries)


@asynccontextmanager
async def running(
    disk: Disk,
    *,
    file_bytes_max: int = 1 << 30,
    ahead_bytes: int = 0,
    noted: JournalEnd = NO_END,
    clean_stop: bool = True,
) -> AsyncIterator[Running]:
    """Restart and run; at the end stop cleanly, or like a killed process."""
    found = await restarted(
        disk, noted=noted, file_bytes_max=file_bytes_max, ahead_bytes=ahead_bytes
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(found.journal.run)
        yield found
        nursery.cancel_scope.cancel(reason="stopped or killed")
    if clean_stop:
        await found.journal.finish()
