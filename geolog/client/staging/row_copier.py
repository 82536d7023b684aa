"""Appends numbered rows in order, and waits where a stream refuses them for a while.

A stream whose mirrors are too far behind refuses appends, and so does a busy write proxy. Rows
that were refused so are appended again, under the same seqs, until nothing was taken for long.

Rules: PROTOCOL S40.
"""

from collections.abc import Mapping

import attrs
import trio

from geolog.client.writing.writer import Writer
from geolog.client.writing.writer_pending import Pending
from topology.errors import ConflictError, GeologError, OverCapacityError

PENDING_MAX = 4096
"""Appends without an answer; the writer's window bounds their bytes."""

HELD_S_MAX = 600.0
"""Longest time without any row taken; then the copy fails, and a later one goes on."""


@attrs.frozen
class _Sent:
    """A row that was appended, and its answer."""

    seq: int
    value: bytes
    key: bytes | None
    headers: Mapping[str, bytes] | None
    pending: Pending


class RowCopier:
    """Copies rows with a named writer, each under the seq of its place."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._sent: list[_Sent] = []
        self.copied_count = 0
        """Rows that were appended and answered."""

    async def add(
        self, seq: int, value: bytes, key: bytes | None, headers: Mapping[str, bytes]
    ) -> None:
        """Append a row unless the log has it. Seqs rise. Raises errors of earlier rows."""
        if self._writer.is_appended(seq, key=key):
            return
        if len(self._sent) >= PENDING_MAX:
            await self.flush()
        await self._append(seq, value, key, headers or None)

    async def flush(self) -> None:
        """Wait until all rows are in the log.

        OverCapacityError: the stream has taken none for `HELD_S_MAX`.
        """
        moved_s = trio.current_time()
        while self._sent:
            taken_count = self.copied_count
            held = await self._wait_answers()
            if held is None:
                return
            now_s = trio.current_time()
            if self.copied_count > taken_count:
                moved_s = now_s
            if now_s - moved_s >= HELD_S_MAX:
                raise held
            await trio.sleep(held.retry_after_s)
            again, self._sent = self._sent, []
            for one in again:
                await self._append(one.seq, one.value, one.key, one.headers)

    async def _wait_answers(self) -> OverCapacityError | None:
        """Keep the rows that may be sent again; None if none has to be."""
        refused: list[_Sent] = []
        held: OverCapacityError | None = None
        behind: GeologError | None = None
        for one in self._sent:
            try:
                await one.pending.wait()
            except OverCapacityError as error:
                held = held or error
                refused.append(one)
            except ConflictError as error:
                # It came behind a refused one, or its seq has other bytes.
                behind = behind or error
                refused.append(one)
            else:
                self.copied_count += 1
        if behind is not None and held is None:
            raise behind
        self._sent = refused
        return held

    async def _append(
        self, seq: int, value: bytes, key: bytes | None, headers: Mapping[str, bytes] | None
    ) -> None:
        while True:
            try:
                pending = self._writer.append_nowait(value, key=key, headers=headers, seq=seq)
            except trio.WouldBlock:
                await self._writer.wait_writable()
            else:
                self._sent.append(_Sent(seq, value, key, headers, pending))
                return
