"""Opens readers of a cursor: one lease, and one or more readers that divide what it gives."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from geolog.background import open_background
from geolog.client.cursors.cursor_keeper import CursorKeeper, open_keeper
from geolog.client.cursors.cursor_reader import CursorReader
from geolog.client.cursors.cursor_runs import CursorRange, CursorRuns
from geolog.protocol.cursor_lease import BeginReading
from topology.errors import GeologError


class DividedReading:
    """Gives partition P to reader P modulo the number of readers."""

    def __init__(self, all_runs: Sequence[CursorRuns]) -> None:
        self._all_runs = all_runs

    def begin(self, order: BeginReading) -> None:
        """Read a partition."""
        self._runs_of(order.partition).begin(order)

    def end(self, partition: int) -> None:
        """Read a partition no more."""
        self._runs_of(partition).end(partition)

    def settle(self) -> None:
        """Nothing more is to be begun, as far as is known."""
        for runs in self._all_runs:
            runs.settle()

    def fail(self, error: GeologError) -> None:
        """The cursor is lost to all readers."""
        for runs in self._all_runs:
            runs.fail(error)

    def _runs_of(self, partition: int) -> CursorRuns:
        return self._all_runs[partition % len(self._all_runs)]


@asynccontextmanager
async def open_cursor_readers(
    keeper: CursorKeeper,
    wanted: CursorRange,
    *,
    what: str,
    home_epoch: int,
    count: int,
    is_automatic: bool,
) -> AsyncIterator[list[CursorReader]]:
    """Join the cursor and read. A block that ends without an error commits what was taken."""
    async with open_background() as nursery:
        all_runs = [CursorRuns(nursery, wanted, keeper.on_done) for _ in range(count)]
        async with open_keeper(keeper, DividedReading(all_runs)):
            readers = [
                CursorReader(
                    what, runs, keeper, home_epoch=home_epoch, is_automatic=is_automatic
                )
                for runs in all_runs
            ]
            is_failed = True
            try:
                yield readers
                is_failed = False
            finally:
                for reader in readers:
                    reader.finish(is_failed=is_failed)
                    reader.close()
