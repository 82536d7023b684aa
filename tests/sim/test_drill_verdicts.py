"""Drills report the problems that they look for."""

import trio
from trio.testing import MockClock

from geolog.protocol.ids import DLSN
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
