"""Readers of a cursor gain, keep, give up and lose partitions; late commits are refused."""

import random
from collections.abc import Callable

import attrs
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.cursor_lease import (
    BeginReading,
    ClaimPartitions,
    CommitPositions,
    CursorLease,
    CursorView,
    Effect,
    EndReading,
    JoinCursor,
    LookAtCursor,
    PartitionCommit,
    Request,
)
from geolog.protocol.cursor_state import CursorPartition, PartitionStanding, is_of_reader
from geolog.protocol.ids import Position


@attrs.define
class Store:
    """Metadata as a dictionary; the naive judge of every compare-and-set."""

    partitions_count: int
    readers: dict[str, int] = attrs.field(factory=dict)
    """The session of each reader that is there."""
    records: dict[int, PartitionStanding] = attrs.field(factory=dict)

    def join(self, reader: str, session: int) -> None:
        for former in [one for one in self.readers if is_of_reader(one, reader)]:
            del self.readers[former]
        self.readers[reader] = session

    def view(self) -> CursorView:
        return CursorView(
            frozenset(self.readers),
            [self.standing(number) for number in range(self.partitions_count)],
        )

    def standing(self, number: int) -> PartitionStanding:
        return self.records.get(number, PartitionStanding())

    def write(
        self, reader: str, number: int, seen: PartitionStanding, record: CursorPartition
    ) -> PartitionStanding | None:
        now = self.standing(number)
        if reader not in self.readers or now.version != seen.version:
            return None
        if record.reader == now.record.reader:
            assert record.moved(now.record.position) == record
        else:  # Only a claim or a last commit changes the reader.
            assert record.reader in (reader, "")
            assert now.record.reader not in self.readers or record.reader == ""
        version = 0 if now.version is None else now.version + 1
        self.records[number] = PartitionStanding(record, version)
        return self.records[number]


@attrs.define(eq=False)
class Process:
    """A reader's process: its session, its core, and where it has read to."""

    store: Store
    session: int
    lease: CursorLease = attrs.field(init=False)
    reads: dict[int, tuple[int, int]] = attrs.field(factory=dict)
    """Hold and next sequence, by partition."""
    done: dict[tuple[int, int], Position] = attrs.field(factory=dict)
    """How far each partition was read in each hold."""

    def __attrs_post_init__(self) -> None:
        self.lease = CursorLease(f"p{self.session}", random.Random(0))

    def step(self, now_s: float, *, loses_answer: bool = False) -> None:
        request = self.lease.due(self.session, now_s)
        if request is None:
            return
        answers = self.perform(request, now_s)
        if loses_answer:
            self.lease.on_failed(now_s)
            return
        for answer in answers:
            self.apply(answer() or [])

    def perform(
        self, request: Request, now_s: float
    ) -> list[Callable[[], list[Effect] | None]]:
        """Carry the request out; the answers, not yet told."""
        lease = self.lease
        match request:
            case JoinCursor(reader):
                self.store.join(reader, self.session)
                return [lambda: lease.on_joined(reader, self.session)]
            case LookAtCursor():
                view = self.store.view()
                return [lambda: lease.on_view(view, now_s)]
            case ClaimPartitions(standings):
                return [self.claim(number, seen) for number, seen in standings.items()]
            case CommitPositions(commits):
                return [self.commit(one) for one in commits]

    def claim(self, number: int, seen: PartitionStanding) -> Callable[[], list[Effect] | None]:
        record = attrs.evolve(seen.record, reader=self.lease.reader)
        found = self.store.write(self.lease.reader, number, seen, record)
        if found is None:
            return lambda: self.lease.on_claim_refused(number)
        return lambda: self.lease.on_claimed(number, found)

    def commit(self, one: PartitionCommit) -> Callable[[], list[Effect] | None]:
        record = attrs.evolve(
            one.standing.record.moved(one.position),
            reader="" if one.is_last else self.lease.reader,
        )
        found = self.store.write(self.lease.reader, one.partition, one.standing, record)
        if found is None:
            return lambda: self.lease.on_commit_refused(one.partition)
        return lambda: self.lease.on_committed(one.partition, found)

    def apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case BeginReading(partition, hold, position):
                    assert partition not in self.reads
                    self.reads[partition] = hold, 0 if position is None else position.sequence
                case EndReading(partition):
                    del self.reads[partition]

    def read_on(self) -> None:
        for partition, (hold, sequence) in self.reads.items():
            self.done[partition, hold] = Position(1, sequence + 1)
            self.lease.commits.on_done(partition, hold, Position(1, sequence + 1))
            self.reads[partition] = hold, sequence + 1


def settle(processes: list[Process], now_s: float) -> None:
    for _ in range(60):
        now_s += 0.5
        for process in processes:
            process.lease.on_news()
            for _ in range(4):
                process.step(now_s)


STEPS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from(["step", "step", "step", "read", "lost answer", "session", "news"]),
        st.floats(0.0, 2.0),
    ),
    max_size=80,
)


@given(st.integers(1, 5), st.integers(1, 4), STEPS)
def test_after_any_history_each_partition_has_one_reader(
    partitions_count: int, processes_count: int, steps: list[tuple[int, str, float]]
) -> None:
    store, now_s, sessions_count = Store(partitions_count), 0.0, processes_count
    processes = [Process(store, number + 1) for number in range(processes_count)]
    for which, step, pause_s in steps:
        now_s += pause_s
        process = processes[which % processes_count]
        match step:
            case "read":
                process.read_on()
            case "session":  # Expired: metadata takes the reader away before its process knows.
                store.readers = {
                    reader: session
                    for reader, session in store.readers.items()
                    if session != process.session
                }
                sessions_count += 1
                process.session = sessions_count
            case "news":
                process.lease.on_news()
            case _:
                process.step(now_s, loses_answer=step == "lost answer")
    settle(processes, now_s)

    reads = [number for process in processes for number in process.reads]
    assert sorted(reads) == list(range(partitions_count))
    shares = [len(process.reads) for process in processes]
    assert max(shares) - min(shares) <= 1
    for process in processes:
        assert process.lease.is_settled
        for number in process.reads:
            assert store.standing(number).record.reader == process.lease.reader
        for (number, hold), position in process.done.items():
            assert process.lease.commits.is_stored(number, hold) != (
                process.lease.is_lost(number, hold)
            )
            if process.lease.commits.is_stored(number, hold):
                stored = store.standing(number).record.position
                assert stored is not None
                assert stored >= position


def two_readers() -> tuple[Store, Process, Process]:
    store = Store(2)
    first, second = Process(store, 1), Process(store, 2)
    settle([first], 0.0)
    return store, first, second


def test_a_reader_that_joins_gets_what_the_others_give_up() -> None:
    _, first, second = two_readers()
    assert sorted(first.reads) == [0, 1]

    settle([first, second], 100.0)

    assert (len(first.reads), len(second.reads)) == (1, 1)


def test_a_reader_paused_past_its_lease_is_refused_and_ends_reading() -> None:
    store, first, second = two_readers()
    first.read_on()
    store.readers.clear()
    settle([second], 100.0)
    second.read_on()
    second.read_on()
    settle([second], 200.0)

    first.step(300.0)  # A commit under the lease that ended.

    assert store.standing(0).record.position == Position(1, 2)
    first.session = 9
    settle([first, second], 400.0)
    assert (len(first.reads), len(second.reads)) == (1, 1)
    assert store.standing(0).record.position == Position(1, 2)


def test_a_lost_session_that_nobody_used_keeps_the_partitions_without_reading_again() -> None:
    store, first, _ = two_readers()
    holds = {number: hold for number, (hold, _) in first.reads.items()}
    store.readers.clear()
    first.session = 5

    settle([first], 100.0)

    assert {number: hold for number, (hold, _) in first.reads.items()} == holds
    assert store.standing(0).record.reader == first.lease.reader


def test_a_reader_that_leaves_stores_what_is_done_and_names_nobody() -> None:
    _, first, _ = two_readers()
    first.read_on()

    last = first.lease.last_commits()

    assert [(one.partition, one.position, one.is_last) for one in last] == [
        (0, Position(1, 1), True),
        (1, Position(1, 1), True),
    ]
