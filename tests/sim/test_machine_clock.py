"""The clocks of a simulated machine, by which leases are kept."""

import pytest
import trio
from trio.testing import MockClock

from sim.world.machine_clock import MachineClock


async def test_one_of_the_clocks_stands_still_while_the_machine_sleeps(
    autojump_clock: MockClock,
) -> None:
    clock = MachineClock(rate=1.0)
    before = clock.read()
    await trio.sleep(2)
    clock.fall_asleep()
    await trio.sleep(5)
    asleep = clock.read()
    clock.wake()
    await trio.sleep(1)
    after = clock.read()

    assert asleep.monotonic_s - before.monotonic_s == 2
    assert asleep.boottime_s - before.boottime_s == 7
    assert after.monotonic_s - asleep.monotonic_s == 1
    assert after.passed_s(before) == 8


async def test_a_clock_that_runs_slow_says_that_less_time_has_passed(
    autojump_clock: MockClock,
) -> None:
    clock = MachineClock(rate=0.99)
    before = clock.read()
    await trio.sleep(100)

    assert round(clock.read().passed_s(before), 6) == 99


@pytest.mark.parametrize("ahead_s", [{"monotonic_s": 9.0}, {"boottime_s": 9.0}])
async def test_a_clock_that_jumps_ahead_tells_the_lease_of_more_time_than_has_passed(
    autojump_clock: MockClock, ahead_s: dict[str, float]
) -> None:
    clock = MachineClock(rate=1.0)
    before = clock.read()
    await trio.sleep(1)
    clock.jump_ahead(**ahead_s)

    assert clock.read().passed_s(before) == 10
