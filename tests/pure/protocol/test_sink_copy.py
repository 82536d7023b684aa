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
    ledgers_count: int = 0
    log: dict[int, Row] = attrs.field(factory=dict)
    """By seq: the stream's own memory of the named writer."""

    def stage(self, rows: list[Row]) -> StagedPart:
        self.ledgers_count += 1
        ledger = LedgerId(self.ledgers_count)
        self.staged[ledger] = rows
        return StagedPart(ledger, "a/b", len(rows))

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
                if any(part.ledger not in store.staged for part in record.parts):
                    self.outcome = "staging is gone"
                else:
                    self._hold(record, version)
            case FinishCopy(record):
                self._hold(record, version)
            case Finished():
                for ledger in garbage_of(store.record, store.staged):
                    del store.staged[ledger]
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
    starts_count = 0
    for batch, size in enumerate(sizes):
        rows = [(batch, place) for place in range(size)]
        running: list[Driver] = []
        while not any(driver.outcome == "finished" for driver in running):
            if not running or (len(running) < 4 and rng.random() < 0.5):
                starts_count += 1
                cut = rng.randint(0, size)
                parts = (store.stage(rows[:cut]), store.stage(rows[cut:]))
                running.append(Driver(store, StagedBatch(batch, parts, f"d{starts_count}")))
            going = [driver for driver in running if not driver.outcome]
            if not going:
                running.clear()
                continue
            driver = rng.choice(going)
            if len(running) < 4 and rng.random() < 0.1:
                driver.outcome = "died"
            else:
                driver.step()
        for driver in running:  # Those that are left may still act: nothing comes twice.
            while not driver.outcome:
                driver.step()
        done = [(one, place) for one in range(batch + 1) for place in range(sizes[one])]
        assert [store.log[seq] for seq in sorted(store.log)] == done
        assert sorted(store.log) == list(range(len(done)))
    last = Driver(store, StagedBatch(len(sizes), (), "last"))
    while not last.outcome:
        last.step()
    assert not store.staged


def a_part(ledger: int, records_count: int = 2) -> StagedPart:
    return StagedPart(LedgerId(ledger), "a/b", records_count)


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
    listed = [LedgerId(number) for number in (7, 2, 1)]

    assert garbage_of(COPYING, listed) == [7]
    assert garbage_of(COPYING.copied(), listed) == [1, 2, 7]


@pytest.mark.parametrize(("known", "given"), [("", ""), ("/here", ""), ("", "/here")])
def test_a_batch_with_other_rows_is_no_repeat_unless_its_query_is_known(
    known: str, given: str
) -> None:
    written = attrs.evolve(COPYING.copied(), checkpoint=known)
    as_many = StagedBatch(3, (a_part(5, 1), a_part(6, 3)), "two", checkpoint=given)
    fewer = attrs.evolve(as_many, parts=(a_part(5, 3),))

    assert on_commit(written, as_many) == Finished(is_own_list=False)
    step = on_commit(written, fewer)
    assert isinstance(step, RefuseBatch)
    assert "written with 4 records, and this one has 3: another query" in step.why
    certain = attrs.evolve(fewer, checkpoint="/here")
    assert on_commit(attrs.evolve(written, checkpoint="/here"), certain) == Finished(
        is_own_list=False
    )


@pytest.mark.parametrize(
    ("given_batch", "why"),
    [
        (StagedBatch(2, (a_part(5),), "two"), "batch 2 of 's' comes after batch 3"),
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
