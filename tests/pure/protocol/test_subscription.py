"""Subscriptions in random histories against a naive model, and proof that checks can fail."""

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.ids import Position
from geolog.protocol.stream_state import StreamName
from geolog.protocol.subscription import (
    JoinPartition,
    LeavePartition,
    SeenStream,
    SubscribedPartition,
    Subscription,
)

NAMES = [StreamName("shop", name) for name in ("carts", "orders", "refunds")]
Record = tuple[SubscribedPartition, int]


class SubscriptionHistory:
    """A catalog of streams with records, an application, and what each of them did.

    The application gets records in the order in which they were read, some time later. Now and
    then it saves its positions and begins again with them.
    """

    def __init__(self, seed: int, core: type[Subscription] = Subscription) -> None:
        self.rng = random.Random(seed)
        self.core_type = core
        self.core = core({})
        self.streams: dict[StreamName, SeenStream] = {}
        self.sealed: set[str] = set()
        self.records: dict[SubscribedPartition, int] = {}
        """Records in each partition that ever was."""
        self.lives_count = 0
        self.joined: set[SubscribedPartition] = set()
        """Those that are read now."""
        self.ever_joined: set[SubscribedPartition] = set()
        self.queue: list[Record] = []
        self.taken: list[Record] = []

    def run(self) -> None:
        for _ in range(self.rng.randrange(10, 80)):
            self.rng.choice(
                [
                    self._create,
                    self._grow,
                    self._append,
                    self._append,
                    self._seal,
                    self._delete,
                    self._look,
                    self._look,
                    self._read,
                    self._read,
                    self._read,
                    self._take,
                    self._take,
                    self._begin_again,
                ]
            )()
        self._finish()
        self._check()

    # ------------------------------------------------------------ the catalog

    def _create(self) -> None:
        free = [name for name in NAMES if name not in self.streams]
        if free:
            self.lives_count += 1
            name = self.rng.choice(free)
            self._put(SeenStream(name, f"life{self.lives_count}", self.rng.randint(1, 2)))

    def _put(self, stream: SeenStream) -> None:
        self.streams[stream.name] = stream
        for one in stream.each():
            self.records.setdefault(one, 0)

    def _some(self) -> SeenStream | None:
        found = [self.streams[name] for name in sorted(self.streams)]
        return self.rng.choice(found) if found else None

    def _grow(self) -> None:
        if (stream := self._some()) is not None and stream.life not in self.sealed:
            self._put(SeenStream(stream.name, stream.life, stream.partitions + 1))

    def _append(self) -> None:
        if (stream := self._some()) is not None and stream.life not in self.sealed:
            self.records[self.rng.choice(stream.each())] += self.rng.randint(1, 3)

    def _seal(self) -> None:
        if (stream := self._some()) is not None:
            self.sealed.add(stream.life)

    def _delete(self) -> None:
        if (stream := self._some()) is not None:
            del self.streams[stream.name]

    # ------------------------------------------------------------ the shell

    def _look(self) -> None:
        self._perform(self.core.on_streams(self.streams.values()))

    def _perform(self, effects: Iterable[JoinPartition | LeavePartition]) -> None:
        for effect in effects:
            match effect:
                case JoinPartition(one, position):
                    assert one not in self.ever_joined, "joined twice in its life"
                    assert position == self.core.place_of(one)
                    self.joined.add(one)
                    self.ever_joined.add(one)
                case LeavePartition(one):
                    assert one in self.joined, "left, and was not read"
                    self.joined.remove(one)

    def _read(self) -> None:
        if not self.joined:
            return
        one = self.rng.choice(sorted(self.joined))
        place = self.core.place_of(one)
        first = 0 if place is None else place.sequence
        end = min(self.records[one], first + self.rng.randint(1, 3))
        self.queue += [(one, sequence) for sequence in range(first, end)]
        if end > first:
            self.core.on_read(one, Position(1, end))
        elif one.life in self.sealed:
            self.core.on_over(one)
            self.joined.remove(one)

    def _take(self) -> None:
        if self.queue:
            one, sequence = self.queue.pop(0)
            self.taken.append((one, sequence))
            self.core.on_taken(one, Position(1, sequence + 1))

    def _begin_again(self) -> None:
        self.core = self.core_type(self.core.positions())
        self.joined.clear()
        self.ever_joined.clear()
        self.queue.clear()
        if self.rng.random() < 0.5:
            self._look()

    def _finish(self) -> None:
        self._look()
        for _ in range(3 * sum(self.records.values()) + 10 * len(self.records)):
            self._read()
        while self.queue:
            self._take()

    def _check(self) -> None:
        """The naive model: of each stream that is there, every record once, in order."""
        assert len(self.taken) == len(set(self.taken)), "a record was taken twice"
        for stream in self.streams.values():
            for one in stream.each():
                found = [sequence for taken, sequence in self.taken if taken == one]
                assert found == list(range(self.records[one])), f"{one} lacks records"


@given(st.integers(0, 1 << 32))
def test_every_record_is_taken_once_in_order_whatever_comes_and_goes(seed: int) -> None:
    SubscriptionHistory(seed).run()


class ByNameAlone(Subscription):
    """Takes the position of a deleted stream for the one that was made again."""

    def __init__(self, saved: dict[SubscribedPartition, Position]) -> None:
        super().__init__(saved)
        self.by_name = {(one.stream, one.number): place for one, place in saved.items()}

    def on_streams(self, streams: Iterable[SeenStream]) -> list[JoinPartition | LeavePartition]:
        effects = super().on_streams(streams)
        for effect in effects:
            if isinstance(effect, JoinPartition) and effect.position is None:
                one = effect.partition
                place = self.by_name.get((one.stream, one.number))
                if place is not None:
                    self.on_read(one, place)
        return [
            JoinPartition(one.partition, self.place_of(one.partition))
            if isinstance(one, JoinPartition)
            else one
            for one in effects
        ]


class SavesWhatWasRead(Subscription):
    """Counts records as taken that the application has not had yet."""

    def positions(self) -> dict[SubscribedPartition, Position]:
        read = {one: self.place_of(one) for one in self._progress}
        return self._saved | {one: place for one, place in read.items() if place is not None}


class ForgetsUnseen(Subscription):
    """Forgets the saved positions of partitions that were not seen at once."""

    def positions(self) -> dict[SubscribedPartition, Position]:
        return {one: at for one, at in super().positions().items() if one not in self._saved}


class JoinsAgain(Subscription):
    """Joins sealed streams again that were read to their end."""

    def on_over(self, partition: SubscribedPartition) -> None:
        del self._progress[partition]


@pytest.mark.parametrize("core", [ByNameAlone, SavesWhatWasRead, ForgetsUnseen, JoinsAgain])
def test_the_histories_find_planted_faults(core: type[Subscription]) -> None:
    def finds(seed: int) -> bool:
        try:
            SubscriptionHistory(seed, core).run()
        except AssertionError:
            return True
        return False

    assert any(finds(seed) for seed in range(2000))
