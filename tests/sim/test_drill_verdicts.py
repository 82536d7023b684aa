"""Drills report the problems that they look for."""

import attrs
import trio
from trio.testing import MockClock

from geolog.protocol.failover_record import FailoverRecord, RangeAtRisk
from geolog.protocol.ids import DLSN, Sequence
from sim.processes.drills.failover import above_ranges
from sim.processes.drills.kill_random import DrilledStream, silent_streams
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
