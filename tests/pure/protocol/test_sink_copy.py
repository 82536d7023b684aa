"""Each batch is copied once and all staging goes, whichever drivers die or interfere."""

import random

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.ids import LedgerId
from geolog.protocol.sink_copy import (
    FinishCopy,
    Finished,
    RecordNext,
    RefuseBatch,
    SinkRecord,
    StagedBatch,
    StagedLedger,
    StagedPart,
    garbage_of,
    on_commit,
)

Row = tuple[int, int]
"""A record as the query means it: its batch and its place there."""


@attrs.define
class Store:
    """The shared state: the sink's record, its list of staging, and the log of one stream."""

    record: SinkRecord = attrs.field(factory=lambda: SinkRecord(sink="s"))
    version: int = 0
    staged: dict[LedgerId, list[Row]] = attrs.field(factory=dict)
    listed: dict[LedgerId, StagedLedger] = attrs.field(factory=dict)
    ledgers_count: int = 0
    log: dict[int, Row] = attrs.field(factory=dict)
    """By seq: the stream's own memory of the named writer."""

    def stage(self, batch: int, run: str, rows: list[Row]) -> StagedPart:
        self.ledgers_count += 1
        ledger = LedgerId(self.ledgers_count)
        self.staged[ledger] = rows
        self.listed[ledger] = StagedLedger(ledger, batch, run)
        return StagedPart(ledger, "a/b", len(rows))

    def drop_garbage(self, *ended_runs: str) -> None:
        for one in garbage_of(self.record, self.listed.values(), ended_runs=ended_runs):
            del self.staged[one.ledger], self.listed[one.ledger]

    def replace(self, record: SinkRecord, version: int) -> bool:
        if version != self.version:
            return False
        self.record, self.version = record, version + 1
        return True


@attrs.define
class Driver:
    """Commits one batch, a step at a time; between two steps anything may happen."""

    store: Store
    given: StagedBatch
    held: tuple[SinkRecord, int] | None = None
    to_copy: list[tuple[int, Row]] = attrs.field(factory=list)
    outcome: str = ""

    @classmethod
    def staging(cls, store: Store, batch: int, rows: list[Row], cut: int) -> "Driver":
        name = f"d{store.ledgers_count}"
        parts = tuple(store.stage(batch, name, part) for part in (rows[:cut], rows[cut:]))
        return cls(store, StagedBatch(batch, parts, name, name))

    def abort(self) -> None:
        self.store.drop_garbage(self.given.run)

    def step(self) -> None:
        if self.held is None:
            self._decide()
        elif self.to_copy:
            seq, row = self.to_copy.pop(0)
            assert self.store.log.setdefault(seq, row) == row, "a seq stands for one record"
        else:
            record, version = self.held
            self.held = None
            if not self.store.replace(record.copied(), version):
                self.outcome = "overtaken"

    def _decide(self) -> None:
        store = self.store
        version = store.version
        match on_commit(store.record, self.given):
            case RecordNext(record):
                assert all(part.ledger in store.staged for part in record.parts), (
                    "nobody drops what a driver may yet record"
                )
                self._hold(record, version)
            case FinishCopy(record):
                self._hold(record, version)
            case Finished():
                store.drop_garbage()
                self.outcome = "finished"
            case RefuseBatch():
                self.outcome = "refused"

    def _hold(self, record: SinkRecord, version: int) -> None:
        assert self.store.replace(record, version)
        self.held = record, self.store.version
        self.to_copy = [
            (seq + place, row)
            for part, seq in record.places()
            for place, row in enumerate(self.store.staged[part.ledger])
        ]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.integers(0, 1 << 32))
def test_every_batch_is_in_the_log_once_and_in_order_if_drivers_die(
    sizes: list[int], seed: int
) -> None:
    """The naive model: the log is the batches, one after the other, up to the last one."""
    store = Store()
    rng = random.Random(seed)
    running: list[Driver] = []
    for batch, size in enumerate(sizes):
        rows = [(batch, place) for place in range(size)]
        while not any(driver.outcome == "finished" for driver in running):
            if not running or (len(running) < 4 and rng.random() < 0.5):
                running.append(Driver.staging(store, batch, rows, rng.randint(0, size)))
            going = [driver for driver in running if not driver.outcome]
            if not going:
                running.clear()
                continue
            driver = rng.choice(going)
            if len(running) < 4 and rng.random() < 0.1:
                driver.outcome = "died"
            else:
                driver.step()
                if driver.outcome not in ("", "finished"):
                    driver.abort()
        left, running = running, []
        if batch + 1 < len(sizes):  # The one that finished stages what comes next.
            rows = [(batch + 1, place) for place in range(sizes[batch + 1])]
            running.append(Driver.staging(store, batch + 1, rows, rng.randint(0, len(rows))))
        for driver in left:  # Those that are left may still act: nothing comes twice.
            while not driver.outcome:
                driver.step()
            if driver.outcome != "died":
                driver.abort()
        done = [(one, place) for one in range(batch + 1) for place in range(sizes[one])]
        assert [store.log[seq] for seq in sorted(store.log)] == done
        assert sorted(store.log) == list(range(len(done)))
    assert not store.staged, "all runs have ended, and each has aborted what it staged"


def a_part(ledger: int, records_count: int = 2, *, digest: int = 0) -> StagedPart:
    return StagedPart(LedgerId(ledger), "a/b", records_count, digest)


COPYING = SinkRecord(
    sink="s", batch=3, parts=(a_part(1), a_part(2)), seq_first=10, is_copied=False, copier="one"
)


def test_parts_are_numbered_through_in_the_order_of_tasks() -> None:
    assert list(COPYING.places()) == [(a_part(1), 10), (a_part(2), 12)]


def test_the_next_batch_begins_with_the_seq_behind_the_last() -> None:
    step = on_commit(COPYING.copied(), StagedBatch(4, (a_part(5),), "one"))

    assert isinstance(step, RecordNext)
    assert (step.record.seq_first, step.record.batch) == (14, 4)
    assert not step.record.is_copied


def test_a_later_batch_waits_until_the_copy_before_it_is_finished() -> None:
    step = on_commit(COPYING, StagedBatch(4, (a_part(5),), "two"))

    assert step == FinishCopy(attrs.evolve(COPYING, copier="two"))


def test_what_is_being_copied_is_no_garbage_and_all_else_is() -> None:
    listed = [StagedLedger(LedgerId(number), 3, "run") for number in (7, 2, 1)]

    assert [one.ledger for one in garbage_of(COPYING, listed)] == [7]
    assert [one.ledger for one in garbage_of(COPYING.copied(), listed)] == [1, 2, 7]


def test_what_is_staged_for_a_later_batch_is_dropped_by_its_own_run_only() -> None:
    earlier, later = StagedLedger(LedgerId(8), 2, "one"), StagedLedger(LedgerId(9), 4, "two")

    assert garbage_of(COPYING, [earlier, later], ended_runs={"one"}) == [earlier]
    assert garbage_of(COPYING, [earlier, later], ended_runs={"two"}) == [earlier, later]


@pytest.mark.parametrize(("known", "given"), [("", ""), ("/here", ""), ("", "/here")])
def test_a_batch_with_other_rows_is_no_repeat(known: str, given: str) -> None:
    written = attrs.evolve(COPYING.copied(), checkpoint=known)
    as_many = StagedBatch(3, (a_part(5, 1), a_part(6, 3)), "two", checkpoint=given)
    fewer = attrs.evolve(as_many, parts=(a_part(5, 3),))

    assert on_commit(written, as_many) == Finished(is_as_given=True)
    step = on_commit(written, attrs.evolve(fewer, is_loss_accepted=True))
    assert isinstance(step, RefuseBatch)
    assert "written with 4 records, and this one has 3: another query" in step.why


def test_a_query_that_repeats_a_batch_with_more_rows_is_told_so() -> None:
    """Its checkpoints were restored, so Spark planned the batch again, up to a later end."""
    written = attrs.evolve(COPYING.copied(), query="one")
    more = StagedBatch(3, (a_part(5, 9),), "two", query="one")
    elsewhere = attrs.evolve(more, parts=(StagedPart(LedgerId(5), "a/c", 4),))

    step = on_commit(written, more)
    assert isinstance(step, RefuseBatch)
    assert "before with 4 records for a/b, and now it has 9 records for a/b" in step.why
    assert "give it a new writer" in step.why
    assert isinstance(on_commit(written, elsewhere), RefuseBatch)
    accepted = attrs.evolve(more, is_loss_accepted=True)
    assert on_commit(written, accepted) == Finished(is_as_given=False)


def test_a_query_may_repeat_a_batch_with_other_rows_if_they_are_as_many() -> None:
    """A query that makes up keys, for example, has others each time."""
    written = attrs.evolve(COPYING, query="one", parts=(a_part(1, digest=7),)).copied()
    other = StagedBatch(3, (a_part(5, digest=8),), "two", query="one")
    unknown = attrs.evolve(other, parts=(a_part(5),))

    assert on_commit(written, other) == Finished(is_as_given=False)
    assert on_commit(written, unknown) == Finished(is_as_given=True)


@pytest.mark.parametrize(
    "parts",
    [
        (StagedPart(LedgerId(5), "a/b", 5),),
        (StagedPart(LedgerId(5), "a/b", 4, digest=8),),
        (StagedPart(LedgerId(5), "a/b", 2, 3), StagedPart(LedgerId(6), "a/c", 2, 4)),
        (),
    ],
)
def test_a_batch_write_that_finishes_another_ones_copy_fails_if_it_has_other_rows(
    parts: tuple[StagedPart, ...],
) -> None:
    left = attrs.evolve(COPYING, batch=0, parts=(a_part(1, digest=3), a_part(2, digest=4)))
    run = StagedBatch(0, parts, "two", is_repeatable=False)

    step = on_commit(left, run)
    assert step == FinishCopy(attrs.evolve(left, copier="two"))
    step = on_commit(step.record.copied(), run)
    assert isinstance(step, RefuseBatch)
    assert "Its 4 records are written now; the" in step.why


def test_a_batch_write_that_repeats_one_which_was_killed_is_finished() -> None:
    """Tasks may divide the rows in another way."""
    left = attrs.evolve(COPYING, batch=0, parts=(a_part(1, digest=3), a_part(2, digest=4)))
    copied = attrs.evolve(left, copier="two").copied()
    again = StagedBatch(0, (a_part(7, 4, digest=7),), "two", is_repeatable=False)

    assert on_commit(copied, again) == Finished(is_as_given=True)


def test_a_batch_write_without_rows_does_not_use_its_name_up() -> None:
    known = SinkRecord(sink="s")

    assert on_commit(known, StagedBatch(0, (), "one", is_repeatable=False)) == Finished(
        is_as_given=True
    )
    assert isinstance(on_commit(known, StagedBatch(0, (), "one")), RecordNext)


def test_the_record_of_a_copied_batch_keeps_one_line_for_each_stream() -> None:
    """Those of queries stay for good."""
    parts = (a_part(1, digest=3), StagedPart(LedgerId(2), "a/c", 1, 9), a_part(3, digest=4))
    copied = attrs.evolve(COPYING, parts=parts).copied_into("a/b").copied()

    assert copied.parts == (a_part(1, 4, digest=7), parts[1])
    assert (copied.records_count, copied.streams_done) == (5, ())


def test_streams_that_have_their_records_are_not_copied_into_again() -> None:
    parts = tuple(StagedPart(LedgerId(n), name, 1) for n, name in enumerate("abca"))
    record = attrs.evolve(COPYING, parts=parts)

    assert record.streams_left() == ["a", "b", "c"]
    assert record.copied_into("b").streams_left() == ["a", "c"]


def test_a_query_whose_checkpoints_are_spelled_in_another_way_is_refused() -> None:
    """To its last batch, which it repeats, the sink would be a new one."""
    known = SinkRecord(sink="checkpoint:hdfs://name/chk")

    step = on_commit(known, StagedBatch(41, (a_part(5),), "two", query="one"))

    assert isinstance(step, RefuseBatch)
    assert "was spelled otherwise before, spell it so again" in step.why
    assert isinstance(
        on_commit(known, StagedBatch(0, (a_part(5),), "two", query="one")), RecordNext
    )
    assert isinstance(
        on_commit(SinkRecord(sink="named"), StagedBatch(41, (a_part(5),), "two")), RecordNext
    )


@pytest.mark.parametrize(
    ("given_batch", "why"),
    [
        (StagedBatch(2, (a_part(5),), "two"), "batch 2 of 's' is out of date: batch 3"),
        (
            StagedBatch(3, (a_part(5),), "two", is_repeatable=False),
            "has written its 4 records already",
        ),
        (StagedBatch(4, (), "two", checkpoint="/other"), "belongs to the query with"),
    ],
)
def test_a_batch_that_is_not_the_next_is_refused(given_batch: StagedBatch, why: str) -> None:
    known = attrs.evolve(COPYING.copied(), checkpoint="/here")

    step = on_commit(known, given_batch)

    assert isinstance(step, RefuseBatch)
    assert why in step.why
