"""Copies what a fork left behind into a stream, each record once.

Records go under a writer id of their own, `diverged/STREAM/PARTITION/EPOCH`, with their old
sequences as seqs. Under the ids and seqs of their writers they would count as repeats of what
those have appended since; those are kept in headers. An export that was interrupted can be
repeated, and the same records kept in two regions are appended once.

Rules: PROTOCOL H24.
"""

from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from geolog.client.reading.reader import Reader
from geolog.client.reading.record import Gap, Record, RecordBatch
from geolog.client.writing.writer import Writer
from geolog.client.writing.writer_pending import Pending
from topology.errors import DataLostError

HEADER_WRITER = "diverged-writer"
HEADER_SEQ = "diverged-seq"
HEADER_TIME_US = "diverged-time-us"
HEADER_TRANSACTION_ID = "diverged-transaction-id"

_PENDING_MAX = 1024

OpenWriter = Callable[[str], AbstractAsyncContextManager[Writer]]
"""Opens the writer of this id to the stream into which is exported."""


def writer_id_of(stream: str, partition: int, home_epoch: int) -> str:
    """The writer id under which records of a dead branch are exported."""
    return f"diverged/{stream}/{partition}/{home_epoch}"


async def export_into(
    reader: Reader, open_writer: OpenWriter, progress: Callable[[int], None]
) -> int:
    """Append all records of a divergence; returns how many there were.

    progress: called with the number of records that are appended so far. Errors as of
    appending; DataLostError if records of it are missing.
    """
    appended_count = 0
    runs = reader.runs()
    run = await anext(runs, None)
    while run is not None:
        if isinstance(run, Gap):
            raise DataLostError(
                f"records {run.from_sequence} to {run.to_sequence - 1} of it are gone"
            )
        epoch = run.epoch
        writer_id = writer_id_of(run.stream, run.partition, epoch)
        async with open_writer(writer_id) as writer:
            pending: deque[Pending] = deque()
            while isinstance(run, RecordBatch) and run.epoch == epoch:
                for record in run:
                    await writer.wait_writable()
                    pending.append(_append(writer, record))
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
