"""Reader of a stream that keeps its position in a cursor.

A record counts as done when the application asks for what comes after it; records are counted
together, once a batch. A block that ends without an error is done with all that it took.

Rules: PROTOCOL K5.
"""

from collections import deque
from collections.abc import Mapping
from typing import Protocol

from geolog.catalog.cursors import CursorLostError
from geolog.client.reading.reader import Items, Reader, RunSource
from geolog.client.reading.record import Gap, Record, RecordBatch
from geolog.client.reading.taken import taken_before, taken_to
from geolog.protocol.ids import Position
from topology.errors import ClosedError


class HeldRuns(RunSource, Protocol):
    """Runs of the partitions that a reader of a cursor has, each in one of its holds."""

    def hold_of(self, partition: int) -> int:
        """The hold that the last run of this partition belongs to."""
        ...

    @property
    def partitions(self) -> list[int]:
        """The partitions that are read now."""
        ...


class DoneKeeper(Protocol):
    """Keeps what the application is done with."""

    def on_done(self, partition: int, hold: int, position: Position) -> None:
        """The application is done with everything before this position."""
        ...

    async def wait_stored(self, holds: Mapping[int, int]) -> None:
        """Wait until all that is done in these holds is stored.

        CursorLostError if some of it will never be; then all the rest is stored.
        """
        ...


class CursorReader(Reader):
    """Reads the partitions of a stream that a cursor gives it."""

    def __init__(
        self,
        what: str,
        runs: HeldRuns,
        keeper: DoneKeeper,
        *,
        home_epoch: int,
        is_automatic: bool,
    ) -> None:
        super().__init__(what, runs)
        self._runs = runs
        self._keeper = keeper
        self._home_epoch = home_epoch
        self._is_automatic = is_automatic
        self._run: RecordBatch | Gap | None = None
        """The run that the application has in hand."""
        self._run_hold = 0
        self._item: Record | Gap | None = None
        """The item of that run that it has in hand, if it takes single ones."""
        self._taken: dict[int, tuple[int, Position]] = {}
        """Hold and position of what was taken, by partition."""
        self._settled: dict[int, tuple[int, Position]] = {}
        """The places taken when `commit` last ended: each is stored, or known to be lost."""
        self._ahead: deque[tuple[RecordBatch | Gap, int]] = deque()
        """The runs in a queue to the application, with their holds."""

    @property
    def partitions(self) -> list[int]:
        """The partitions that it reads now; none if it is a spare."""
        return self._runs.partitions

    async def commit(self) -> None:
        """Commit all that was taken; return when it is stored. CursorLostError."""
        marked = self._mark()
        try:
            await self._keeper.wait_stored({one: hold for one, (hold, _) in marked.items()})
        except CursorLostError:
            self._settled |= marked
            raise
        self._settled |= marked

    def commit_nowait(self) -> None:
        """Commit all that was taken, within about a second."""
        self._mark()

    def commit_through(self, partition: int, sequence: int) -> int | None:
        """Commit a partition's records up to this one, if its current hold has taken them.

        The hold; None if it has not.
        """
        taken = self._taken.get(partition)
        if self._run is not None and self._run.partition == partition:
            taken = self._run_hold, self._place(self._run, taken_to(self._run, self._item))
        if taken is None or sequence >= taken[1].sequence:
            return None
        hold, position = taken
        self._keeper.on_done(partition, hold, Position(position.home_epoch, sequence + 1))
        return hold

    async def wait_stored(self, partition: int, hold: int) -> None:
        """Wait until what is done in this hold of a partition is stored. CursorLostError."""
        await self._keeper.wait_stored({partition: hold})

    def runs_ahead(self) -> Items[RecordBatch | Gap]:
        """As `runs`, for a queue that tells by `on_taken` what the application has taken."""
        return Items(self._next_ahead)

    async def _next_ahead(self) -> RecordBatch | Gap:
        run = await super()._next_run()
        self._ahead.append((run, self._runs.hold_of(run.partition)))
        return run

    def on_taken(self, run: RecordBatch | Gap, sequence: int | None) -> None:
        """The application has taken a run of `runs_ahead`, and those before it."""
        while self._ahead and self._ahead[0][0] is not run:
            self._ahead.popleft()
        if self._ahead and sequence is not None:
            self._take(run, self._ahead[0][1], sequence)

    def finish(self, *, is_failed: bool) -> None:
        """The block is over: commit what is done, as the cursor is left."""
        if self._is_automatic:
            self._put_down(is_failed=is_failed)

    def _mark(self) -> dict[int, tuple[int, Position]]:
        """Mark all that was taken as done; hold and position of each partition."""
        if self._is_closed:
            raise ClosedError(f"the reader of {self._what} is closed: use it within its block")
        if self._run is not None:
            sequence = taken_to(self._run, self._item)
            self._taken[self._run.partition] = self._run_hold, self._place(self._run, sequence)
        marked = {
            one: taken for one, taken in self._taken.items() if taken != self._settled.get(one)
        }
        for partition, (hold, position) in marked.items():
            self._keeper.on_done(partition, hold, position)
        return marked

    async def _next_item(self) -> Record | Gap:
        self._item = await super()._next_item()
        return self._item

    async def _next_run(self) -> RecordBatch | Gap:
        self._put_down(is_failed=False)
        run = await super()._next_run()
        self._run, self._run_hold = run, self._runs.hold_of(run.partition)
        return run

    def _put_down(self, *, is_failed: bool) -> None:
        """The run in hand is taken; with `is_failed`, without the item in hand."""
        run, item = self._run, self._item
        self._run = self._item = None
        if run is None:
            return
        sequence = taken_before(item) if is_failed else taken_to(run, item)
        if sequence is not None:
            self._take(run, self._run_hold, sequence)

    def _take(self, run: RecordBatch | Gap, hold: int, sequence: int) -> None:
        position = self._place(run, sequence)
        self._taken[run.partition] = hold, position
        if self._is_automatic:
            self._keeper.on_done(run.partition, hold, position)

    def _place(self, run: RecordBatch | Gap, sequence: int) -> Position:
        home_epoch = run.epoch
        return Position(self._home_epoch if home_epoch is None else home_epoch, sequence)
