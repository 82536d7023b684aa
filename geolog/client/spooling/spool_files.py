"""The files of an open spool, and what is decided about them: one change at a time."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

import trio

from geolog.client.spooling.spool_directory import RefusedRecord, SpoolDirectory
from geolog.client.spooling.spool_facts import SpoolFacts
from geolog.client.writing.record_fields import RecordFields
from geolog.protocol.batch_seqs import BatchSeqs
from geolog.protocol.spool_queue import SpooledFrame, SpoolQueue
from geolog.wire.batch import SealedBatch
from geolog.wire.spool_frame import SpoolMark, encode_frame

T = TypeVar("T")


class SpoolFiles:
    """Performs on disk what the queue says, in threads."""

    def __init__(
        self,
        directory: SpoolDirectory,
        queue: SpoolQueue,
        *,
        spool_bytes: int,
        file_bytes: int,
        refused: dict[int, frozenset[int]],
    ) -> None:
        self._directory = directory
        self._queue = queue
        self._spool_bytes = spool_bytes
        self._file_bytes = file_bytes
        self._lock = trio.Lock()
        self._refused = {frame: set(rows) for frame, rows in refused.items()}

    def __repr__(self) -> str:
        return f"SpoolFiles({self._directory!r})"

    @property
    def path(self) -> str:
        """The directory."""
        return str(self._directory.path)

    @property
    def facts(self) -> SpoolFacts:
        """The writer of the spool, and facts that it has learned."""
        return self._directory.facts

    def seq_in_log(self, seq: int) -> int:
        """The seq in the log of a seq in a frame."""
        return seq + (self.facts.seq_base or 0)

    def seq_in_frame(self, seq: int) -> int:
        """The seq in its frame of a seq in the log."""
        return seq - (self.facts.seq_base or 0)

    def refused_rows(self, frame: int) -> set[int]:
        """The rows of a frame that were refused for good."""
        return self._refused.get(frame, set())

    async def learn(self, change: Callable[[SpoolFacts], SpoolFacts]) -> None:
        """Change what is known. SpoolWriteError."""
        async with self._lock:
            learned = change(self.facts)
            if learned != self.facts:
                await _in_thread(partial(self._directory.write_facts, learned))

    async def write(self, seqs: BatchSeqs, sealed: SealedBatch) -> None:
        """Write a frame and sync it. SpoolWriteError."""
        async with self._lock:
            number = self._queue.number_next
            data = encode_frame(number, seqs, sealed)
            await self._delete(room_bytes=len(data), limit_bytes=self._spool_bytes)
            file, offset = await _in_thread(
                partial(self._directory.write_frame, data, file_bytes=self._file_bytes)
            )
            self._queue.on_synced(
                SpooledFrame(
                    number=number,
                    file=file,
                    offset=offset,
                    length_bytes=len(data),
                    seq_first=seqs.first,
                    seq_last=seqs.last,
                    count=seqs.count,
                )
            )

    async def move_mark(self) -> None:
        """Write the mark if it is due, and delete what it leaves. SpoolWriteError."""
        async with self._lock:
            due = self._queue.mark_due()
            if due is None:
                return
            await _in_thread(partial(self._directory.write_mark, SpoolMark(*due)))
            self._queue.on_marked(*due)
            await self._delete(room_bytes=0, limit_bytes=self._spool_bytes)

    async def keep_aside(self, frame: SpooledFrame, row: int, record: RefusedRecord) -> None:
        """Keep a record that the log refuses for good. SpoolWriteError."""
        async with self._lock:
            await _in_thread(partial(self._directory.write_refused, frame.number, row, record))
            self._refused.setdefault(frame.number, set()).add(row)

    async def read(
        self, frame: SpooledFrame, rows: Sequence[int]
    ) -> list[tuple[int, RecordFields]]:
        """These records of a frame, with their seqs in the log. SpoolDamagedError."""
        found, batch = await _in_thread(partial(self._directory.read, frame))
        seqs = list(found.seqs)
        return [
            (
                row,
                RecordFields(
                    value=batch.value(row),
                    key=batch.key(row),
                    headers=batch.headers(row) or None,
                    transaction_id=batch.transaction_id(row),
                    seq=self.seq_in_log(seqs[row]),
                    created_us=batch.created_us(row),
                ),
            )
            for row in rows
        ]

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Delete and write nothing within the block."""
        async with self._lock:
            yield

    async def _delete(self, *, room_bytes: int, limit_bytes: int) -> None:
        for file in self._queue.to_delete(room_bytes=room_bytes, limit_bytes=limit_bytes):
            await _in_thread(partial(self._directory.delete, file))
            self._queue.on_deleted(file)
            for number in [one for one in self._refused if one < self._queue.number_oldest]:
                del self._refused[number]


async def _in_thread(work: Callable[[], T]) -> T:
    return await trio.to_thread.run_sync(work)
