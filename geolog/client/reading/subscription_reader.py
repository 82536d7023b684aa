"""Reader of all streams of a pattern. It knows how far the application has come in each."""

from collections import deque
from typing import Protocol

from geolog.client.reading.reader import Items, Reader, RunSource
from geolog.client.reading.record import Gap, Record, RecordBatch
from geolog.client.reading.saved_positions import saved_texts
from geolog.client.reading.taken import taken_to
from geolog.protocol.ids import Position
from geolog.protocol.subscription import SubscribedPartition, Subscription


class SubscribedRuns(RunSource, Protocol):
    """Runs of the partitions of a subscription."""

    @property
    def partition(self) -> SubscribedPartition:
        """The partition of the last run."""
        ...

    def home_epoch_of(self, partition: SubscribedPartition) -> int:
        """The home epoch of its stream, as last seen."""
        ...


class SubscriptionReader(Reader):
    """Reads the streams of a pattern, each partition in order."""

    def __init__(self, what: str, runs: SubscribedRuns, subscription: Subscription) -> None:
        super().__init__(what, runs)
        self._runs = runs
        self._subscription = subscription
        self._run: RecordBatch | Gap | None = None
        """The run that the application has in hand."""
        self._item: Record | Gap | None = None
        """The item of that run that it has in hand, if it takes single ones."""
        self._partition: SubscribedPartition | None = None
        """The partition of that run."""
        self._ahead: deque[tuple[RecordBatch | Gap, SubscribedPartition]] = deque()
        """The runs in a queue to the application."""

    async def positions(self) -> dict[str, str]:
        """Where to go on after all that was taken, by partition: to save, and to resume."""
        if self._run is not None and self._partition is not None:
            self._take(self._partition, self._run, taken_to(self._run, self._item))
        return saved_texts(self._subscription.positions())

    def runs_ahead(self) -> Items[RecordBatch | Gap]:
        """As `runs`, for a queue that tells by `on_taken` what the application has taken."""
        return Items(self._next_ahead)

    async def _next_ahead(self) -> RecordBatch | Gap:
        run = await super()._next_run()
        self._ahead.append((run, self._runs.partition))
        return run

    def on_taken(self, run: RecordBatch | Gap, sequence: int | None) -> None:
        """The application has taken a run of `runs_ahead`, and those before it."""
        while self._ahead and self._ahead[0][0] is not run:
            self._ahead.popleft()
        if self._ahead and sequence is not None:
            self._take(self._ahead[0][1], run, sequence)

    async def _next_item(self) -> Record | Gap:
        self._item = await super()._next_item()
        return self._item

    async def _next_run(self) -> RecordBatch | Gap:
        if self._run is not None and self._partition is not None:
            self._take(self._partition, self._run, taken_to(self._run, self._item))
        self._run = self._item = None
        run = await super()._next_run()
        self._run, self._partition = run, self._runs.partition
        return run

    def _take(
        self, partition: SubscribedPartition, run: RecordBatch | Gap, sequence: int
    ) -> None:
        epoch = run.epoch
        if epoch is None:
            epoch = self._runs.home_epoch_of(partition)
        self._subscription.on_taken(partition, Position(epoch, sequence))
