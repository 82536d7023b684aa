"""Reader of a stream: records, batches or runs in order, from any source of runs."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Generic, Protocol, TypeVar

import attrs

from geolog.client.reading.record import Gap, GapReason, Record, RecordBatch
from topology.errors import ClosedError, GeologError, InvalidArgumentError, TrimmedError, public

T = TypeVar("T")


class RunSource(Protocol):
    """Where the runs of a reader come from. `next_run` raises StopAsyncIteration at the end."""

    async def next_run(self) -> RecordBatch | Gap:
        """The next run of records, or the next gap."""
        ...

    def close(self) -> None:
        """Drop what was read ahead: the block is over."""
        ...


class Reader:
    """Reads one stream, or those of a pattern, in order. `Log.open_reader` opens it.

    Iterating raises ReadTrimmedError where records were trimmed; its `gap` says which. Iterate
    again to go on after them. `items` and `runs` give a `Gap` in their place instead. Iterating
    passes over local-only records of other regions; `items` and `runs` give a `Gap` for them.
    """

    def __init__(self, what: str, source: RunSource) -> None:
        self._what = what
        self._source = source
        self._failure: GeologError | None = None
        self._is_closed = False
        self._records: Iterator[Record] = iter(())

    def __repr__(self) -> str:
        return f"Reader({self._what})"

    def close(self) -> None:
        """Drop the records read ahead and refuse further reads: the block is over."""
        self._is_closed = True
        self._source.close()
        self._records = iter(())

    def __aiter__(self) -> "Reader":
        return self

    async def __anext__(self) -> Record:
        while isinstance(item := await self._next_item(), Gap):
            if item.reason is not GapReason.LOCAL_ONLY:
                raise ReadTrimmedError(item)
        return item

    def items(self) -> "Items[Record | Gap]":
        """Iterate over records, and a Gap wherever records were trimmed."""
        return Items(self._next_item)

    def batches(self) -> "Items[RecordBatch]":
        """Iterate over batches: records with consecutive sequences. ReadTrimmedError."""
        return Items(self._next_batch)

    def runs(self) -> "Items[RecordBatch | Gap]":
        """Iterate over batches, and a Gap wherever records were trimmed."""
        return Items(self._next_run)

    def runs_ahead(self) -> "Items[RecordBatch | Gap]":
        """As `runs`, for a queue that tells by `on_taken` what the application has taken."""
        return self.runs()

    def on_taken(self, run: RecordBatch | Gap, sequence: int | None) -> None:
        """The application has taken a run, up to this sequence; None if nothing of it."""

    async def positions(self) -> dict[str, str]:
        """Where to go on after all that was taken, by partition: of a reader of a pattern.

        Save them, e.g. as JSON, and give them to `open_reader` the next time.
        """
        raise InvalidArgumentError(
            f"{self._what} is one stream: its records have positions, and a cursor keeps them."
            " A reader of a pattern, e.g. 'shop/*', has positions of all its streams"
        )

    @property
    def partitions(self) -> list[int]:
        """The partitions that a reader with a cursor reads now; none if it is a spare."""
        raise no_cursor()

    async def commit(self) -> None:
        """Commit all that was taken to the cursor; return when it is stored.

        A partition's position is stored at most once a second, so this may take that long.
        CursorLostError if some of it will not be stored, because another reader has the cursor
        or the partition, or because its position was set. All the rest is stored then.
        """
        raise no_cursor()

    def commit_nowait(self) -> None:
        """Commit all that was taken to the cursor, within about a second."""
        raise no_cursor()

    def commit_through(self, partition: int, sequence: int) -> int | None:  # noqa: ARG002 - for `CursorReader`.
        """Commit a partition's records up to this one, if its current hold has taken them.

        The hold; None if it has not.
        """
        raise no_cursor()

    async def wait_stored(self, partition: int, hold: int) -> None:  # noqa: ARG002 - Likewise.
        """Wait until what is done in this hold of a partition is stored. CursorLostError."""
        raise no_cursor()

    async def _next_item(self) -> Record | Gap:
        record = next(self._records, None)
        while record is None:
            run = await self._next_run()
            if isinstance(run, Gap):
                return run
            self._records = iter(run)
            record = next(self._records, None)
        return record

    async def _next_batch(self) -> RecordBatch:
        while isinstance(run := await self._next_run(), Gap):
            if run.reason is not GapReason.LOCAL_ONLY:
                raise ReadTrimmedError(run)
        return run

    async def _next_run(self) -> RecordBatch | Gap:
        """The next run. StopAsyncIteration at the end; ClosedError when closed."""
        if self._is_closed:
            raise ClosedError(f"the reader of {self._what} is closed: use it within its block")
        if self._failure is not None:
            raise self._failure  # Each time: a failed read never looks like a short one.
        try:
            return await self._source.next_run()
        except GeologError as error:
            self._failure = error
            raise


def no_cursor() -> InvalidArgumentError:
    """The error for a commit of a reader without a cursor."""
    return InvalidArgumentError("this reader has no cursor: open it with cursor='NAME'")


@attrs.frozen
class Items(Generic[T]):
    """Iterates over the same reader in other units."""

    _next: Callable[[], Awaitable[T]]

    def __aiter__(self) -> "Items[T]":
        return self

    async def __anext__(self) -> T:
        return await self._next()


@public
class ReadTrimmedError(TrimmedError):
    """Records in the range of a read are not in the stream; `gap` says which, and why.

    Read on after them.
    """

    def __init__(self, gap: Gap) -> None:
        first = "the first requested" if gap.from_sequence is None else gap.from_sequence
        where = f"{gap.stream}#{gap.partition}"
        lost = (
            "the record that was asked for"
            if gap.from_sequence is None
            else f"records {first} to {gap.to_sequence - 1}"
        )
        super().__init__(
            f"{where}: the home was failed over; {lost} of the former home is not part of the"
            f" stream. It goes on at {gap.sequence_next}, in"
            f" home epoch {gap.epoch} (geolog relay divergence ls {gap.stream})"
            if gap.reason is GapReason.DIVERGED
            else f"{where}: records were trimmed, from {first} to {gap.to_sequence - 1}; the"
            f" first one left is {gap.to_sequence}"
        )
        self.gap = gap
