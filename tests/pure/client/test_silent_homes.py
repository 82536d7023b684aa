"""How long a plan waits for a home that is lost."""

import trio
from trio.testing import MockClock

from geolog.client.relays.failovers import SilentHomes


async def test_plans_wait_less_for_a_home_that_has_not_answered_others(
    autojump_clock: MockClock,
) -> None:
    homes = SilentHomes()
    at_first_s = homes.patience_s("us-east")
    for _ in range(8):
        homes.on_silent("us-east")
    lost_s, other_s = homes.patience_s("us-east"), homes.patience_s("eu-west")
    await trio.sleep(100)
    later_s = homes.patience_s("us-east")
    homes.on_silent("us-east")
    homes.on_answered("us-east")

    assert lost_s < at_first_s == other_s == later_s == homes.patience_s("us-east")
