"""The law that a mirror goes on without a gap judges rows that it has seen to their end."""

from collections.abc import Mapping
from typing import cast

import attrs

from geolog.protocol.ids import EntryId, Epoch, LedgerId, Sequence
from geolog.protocol.stream_state import SegmentRecord, TrimRecord
from sim.laws.state.law_20_gaps_are_recorded import GapsAreRecorded
from sim.laws.state.seen import Look, MirrorKey

MIRROR = ("eu-west", 0)


@attrs.frozen
class MirrorLook:
    """A look at one mirror: the parts that the law reads."""

    rows: tuple[SegmentRecord, ...]

    made_again: frozenset[MirrorKey] = frozenset()
    dropped: Mapping[MirrorKey, int] = attrs.field(factory=dict)

    @property
    def log_trims(self) -> Mapping[MirrorKey, TrimRecord]:
        return {MIRROR: TrimRecord()}

    @property
    def logs(self) -> Mapping[MirrorKey, Mapping[int, SegmentRecord]]:
        return {MIRROR: {row.row_number: row for row in self.rows}}


def row(number: int, first: int, last: int | None) -> SegmentRecord:
    opened = SegmentRecord(
        segment=number,
        ledger=LedgerId(number),
        home_epoch=1,
        first_sequence=Sequence(first),
        owner_epoch=Epoch(1),
        activated_us=0,
    )
    if last is None:
        return opened
    return attrs.evolve(opened, last_sequence=Sequence(last), last_entry=EntryId(0))


def told(*looks: tuple[SegmentRecord, ...]) -> list[str]:
    law = GapsAreRecorded()
    return [words for rows in looks for words in law.breaches(cast("Look", MirrorLook(rows)))]


def test_a_row_that_was_completed_and_trimmed_between_two_looks_is_no_gap() -> None:
    first, second = row(1, 0, 33), row(2, 34, None)

    assert told((first, second), (row(3, 44, None),)) == []


def test_a_row_that_does_not_follow_the_one_before_is_told() -> None:
    first, second = row(1, 0, 33), row(2, 34, 39)

    [words] = told((first, second), (row(3, 44, None),))

    assert "ended at 40, and goes on at 44 without a gap" in words
