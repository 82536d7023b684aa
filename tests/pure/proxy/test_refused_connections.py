"""Refused connections give way to later ones, unless they are being answered in any case."""

from functools import partial

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from geolog.transport.seam import Address, ByteStream
from regions.proxy.refused_connections import (
    COUNT_MAX,
    KEPT_MAX,
    TIME_S,
    RefusedConnections,
)
from sim.fakes.memory_transport import MemoryNetwork

ASKERS_COUNT = KEPT_MAX + 4


async def test_the_oldest_gives_way_but_a_few_that_are_kept_do_not(
    autojump_clock: MockClock,
) -> None:
    refused, ended_s = RefusedConnections(), dict[int, float]()

    async def hold(number: int, stream: ByteStream, *, is_kept: bool) -> None:
        with refused.place(stream) as keep:
            if is_kept:
                keep()
            await trio.sleep(10 * TIME_S)
        ended_s[number] = trio.current_time()
        assert len(refused) <= COUNT_MAX

    began_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        transport = MemoryNetwork().transport("a")
        listener = await transport.listen(Address("a", 1))
        for number in range(COUNT_MAX + ASKERS_COUNT):
            stream = await transport.connect(listener.address)
            is_kept = number < ASKERS_COUNT
            nursery.start_soon(partial(hold, number, stream, is_kept=is_kept))
            await wait_all_tasks_blocked()

    kept = [number for number in range(COUNT_MAX + ASKERS_COUNT) if ended_s[number] > began_s]
    assert kept[:KEPT_MAX] == list(range(KEPT_MAX))
    assert len(kept) == COUNT_MAX
    assert {ended_s[number] - began_s for number in kept} == {TIME_S}
