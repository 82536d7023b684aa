"""Copies what a fork left behind into a stream, each record once.

Records go under a writer id of their own, `diverged/STREAM/PARTITION/EPOCH`, with their old
sequences as seqs; EPOCH is that of the home that left them behind. Under the ids and seqs of
their writers they would count as repeats of what those have appended since; those are kept in
headers. An export that was interrupted can be repeated, and the same records kept in two
regions are appended once. Local-only records are left out: the stream may have its home in
another region, or relays.

Rules: PROTOCOL H24 and H26.
"""

from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing

import trio

from geolog.client.reading.reader import Reader
from geolog.client.reading.record import GapReason, Record, RecordBatch
from geolog.client.writing.writer import Writer
from geolog.client.writing.writer_pending import Pending
from geolog.protocol.home_record import Fork
from geolog.protocol.ids import SegmentEntry
from topology.errors import DataLostError

HEADER_WRITER = "diverged-writer"
HEADER_SEQ = "diverged-seq"
HEADER_TIME_US = "diverged-time-us"
HEADER_TRANSACTION_ID = "diverged-transaction-id"

_PENDING_MAX = 1024

OpenWriter = Callable[[str], AbstractAsyncContextManager[Writer]]
"""Opens the writer of this id to the stream into which is exported."""


def writer_id_of(run: RecordBatch, forks: Sequence[Fork]) -> str:
    """The writer id under which the records of a dead branch from here on are exported.

    It names the home that left them behind: the first later one that began before them. So it
    is the same in every region that keeps them, and their sequences rise under it. A run that
    does not begin at the fork, because its region had trimmed the rest, gets an id of its own:
    it must not hide what another region has from the fork on.
    """
    left_by = left_behind_by(run, forks)
    name = f"diverged/{run.stream}/{run.partition}/{run.epoch + 1}"
    if left_by is None:
        return f"{name}/{run.first_sequence}"
    name = f"diverged/{run.stream}/{run.partition}/{left_by.home_epoch}"
    first = run.first_sequence + run.first_row
    return name if first == left_by.sequence else f"{name}/{first}"


def left_behind_by(run: RecordBatch, forks: Sequence[Fork]) -> Fork | None:
    """The fork of the first later home that began before these records."""
    entry = SegmentEntry(run.entry)
    later = [
        one for one in forks if one.home_epoch > run.epoch and one.is_before(run.segment, entry)
    ]
    return min(later, key=lambda one: one.home_epoch, default=None)


async def export_into(
    reader: Reader,
    forks: Sequence[Fork],
    open_writer: OpenWriter,
    progress: Callable[[int], None],
    left_out: Callable[[int], None],
) -> int:
    """Append all records of a divergence; returns how many there were.

    forks: of the partition. progress, left_out: called with the number of records that are
    appended so far, and of those that are left out. Errors as of appending; DataLostError if
    records of it are missing.
    """
    appended_count = 0
    async with aclosing(_relayable(reader, left_out)) as runs:
        run = await anext(runs, None)
        while run is not None:
            left_by = left_behind_by(run, forks)
            async with open_writer(writer_id_of(run, forks)) as writer:
                pending: deque[Pending] = deque()
                while run is not None and left_behind_by(run, forks) == left_by:
                    for record in run:
                        # An export before this one went as far: its writer remembers no more.
                        if writer.is_appended(record.sequence, key=record.key):
                            appended_count += 1
                            continue
                        pending.append(await _appended(writer, record))
                        while len(pending) > _PENDING_MAX:
                            await pending.popleft().wait()
                            appended_count += 1
                    progress(appended_count)
                    run = await anext(runs, None)
                for one in pending:
                    await one.wait()
                    appended_count += 1
            progress(appended_count)
    return appended_count


async def _relayable(
    reader: Reader, left_out: Callable[[int], None]
) -> AsyncGenerator[RecordBatch, None]:
    """The runs of records that may leave their region. DataLostError if others are gone."""
    left_count = 0
    async for run in reader.runs():
        if isinstance(run, RecordBatch) and not run.is_local_only:
            yield run
            continue
        if isinstance(run, RecordBatch):
            left_count += len(run)
        elif run.reason is GapReason.LOCAL_ONLY and run.from_sequence is not None:
            left_count += run.to_sequence - run.from_sequence
        else:
            raise DataLostError(
                f"records {run.from_sequence} to {run.to_sequence - 1} of the divergence are"
                " gone from the region that keeps it"
            )
        left_out(left_count)


async def _appended(writer: Writer, record: Record) -> Pending:
    while True:
        try:
            return _append(writer, record)
        except trio.WouldBlock:
            await writer.wait_writable()


def _append(writer: Writer, record: Record) -> Pending:
    headers = dict(record.headers)
    headers[HEADER_TIME_US] = b"%d" % record.timestamp_us
    if record.writer_id is not None:
        headers[HEADER_WRITER] = record.writer_id.encode()
        headers[HEADER_SEQ] = b"%d" % record.seq if record.seq is not None else b""
    if record.transaction_id is not None:
        headers[HEADER_TRANSACTION_ID] = b"%d" % record.transaction_id
    return writer.append_nowait(
        record.value, key=record.key, headers=headers, seq=record.sequence
    )
