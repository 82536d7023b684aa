"""Drills report the problems that they look for."""

from collections.abc import Sequence as Several

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.client.reading.record import Gap, GapReason
from geolog.protocol.failover_record import FailoverRecord, RangeAtRisk
from geolog.protocol.ids import DLSN, Sequence
from sim.processes.drills.failover import above_ranges
from sim.processes.drills.kill_random import DrilledStream, silent_streams
from sim.processes.drills.relay_evictions import gap_problems
from sim.processes.drills.relay_stream_faults import Content, disorder
from sim.processes.drills.writer_process import Acknowledged


async def test_a_stream_that_is_never_answered_again_after_the_kills_is_a_problem(
    autojump_clock: MockClock,
) -> None:
    an_answer = Acknowledged(b"value", DLSN(1, 0, 0), 0)
    goes_on = DrilledStream("drill/goes-on", acknowledged=[an_answer])
    stands_still = DrilledStream("drill/stands-still", acknowledged=[an_answer])
    told: list[str] = []

    async def judge() -> None:
        told.extend(await silent_streams([goes_on, stands_still]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(judge)
        await trio.sleep(20)
        goes_on.acknowledged.append(an_answer)

    assert told == ["drill/stands-still: no append was answered in 60 s after the last kill"]


def test_records_above_the_range_that_was_told_are_a_problem_unless_nobody_could_know() -> None:
    """The home told that it had come to 12; records 10 to 14 were left behind."""
    left_behind = [
        Acknowledged(b"%d" % number, DLSN(1, number, 0), number) for number in range(10, 15)
    ]
    heard_us = 1_000_000_000
    answered_us = {one.value: heard_us - 60e6 for one in left_behind}
    answered_us[b"14"] = heard_us - 1e6
    told = RangeAtRisk(
        partition=0, from_sequence=Sequence(10), to_sequence=Sequence(12), heard_us=heard_us
    )

    def above(range_at_risk: RangeAtRisk, home_epoch: int = 2) -> list[int]:
        failover = FailoverRecord(
            home_epoch=home_epoch,
            home_before="us-east",
            home="eu-west",
            decided_us=heard_us,
            who="operator",
            ranges=(range_at_risk,),
        )
        found = above_ranges(left_behind, answered_us, [failover])
        return [one.sequence for one in found]

    assert above(told) == [12, 13]
    assert above(attrs.evolve(told, to_sequence=Sequence(15))) == []
    assert above(attrs.evolve(told, heard_us=None)) == []
    assert above(told, home_epoch=3) == []


def read(values: Several[bytes], sequences: Several[int]) -> Content:
    """The records that a reader of one partition got, in this order."""
    places = [
        (DLSN(1, sequence, 0), sequence, value)
        for sequence, value in zip(sequences, values, strict=True)
    ]
    return Content({0: places}, [])


@pytest.mark.parametrize(
    ("values", "sequences", "fault"),
    [
        ([b"a", b"b", b"c"], [4, 5, 6], None),
        ([b"b", b"a", b"c"], [4, 5, 6], "not in the order of the appends"),
        ([b"a", b"b", b"c"], [4, 6, 5], "positions do not follow each other"),
        ([b"a", b"c"], [4, 6], "positions do not follow each other"),
    ],
)
def test_records_out_of_order_are_a_problem(
    values: list[bytes], sequences: list[int], fault: str | None
) -> None:
    told = disorder("here", read(values, sequences), [b"a", b"b", b"c"])

    assert told == ([] if fault is None else [f"here, partition 0: {fault}"])


@pytest.mark.parametrize(
    ("gaps", "sequences", "problems_count"),
    [
        ([(1, 3, GapReason.EVICTED)], [0, 3], 0),
        ([(1, 2, GapReason.EVICTED)], [0, 3], 1),
        ([(1, 3, GapReason.TRIMMED)], [0, 3], 1),
        ([], [0, 3], 1),
        ([], [0, 1, 2, 3], 1),
        ([(1, 3, GapReason.EVICTED)], [0, 3, 3], 1),
    ],
)
def test_what_a_mirror_leaves_out_must_be_the_gap_that_its_reader_is_given(
    gaps: list[tuple[int, int, GapReason]], sequences: list[int], problems_count: int
) -> None:
    values = [b"%d" % number for number in range(4)]
    found = read([values[one] for one in sequences], sequences)
    found.gaps.extend(
        Gap("shop/carts", 0, reason, first, after) for first, after, reason in gaps
    )

    _, problems = gap_problems("here", found, values)

    assert len(problems) == problems_count, problems
