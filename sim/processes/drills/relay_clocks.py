"""A fault of the drill `relay-matrix`: wall clocks that jump, also that of the owners.

No record may be lost by that, and no lag be told too small: lags say how much the loss of a
home would cost.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import trio

from sim.processes.drills.relay_replays import report_of
from sim.processes.drills.relayed_regions import RelayedRegions

_STEPS = 3
_STEP_HOURS_MAX = 6
_SKEW_S_MAX = 2.0
"""How far clocks stay apart once they have jumped."""

_LAG_S_MIN = 4.0
"""So far behind is the target that is paused meanwhile."""
_REPORT_S = 2.0
"""How old a report may be, and that of an owner."""


async def step_clocks(regions: RelayedRegions) -> str:
    """Wall clocks of a region's relays and nodes, and of owners, jump by hours, each by itself.

    One target of the region's stream is paused meanwhile, so its true lag is known.
    """
    region = regions.rng.choice(regions.regions)
    [stream] = [one for one in regions.streams if one.home == region]
    mirror = regions.rng.choice(stream.mirrors)
    coordinator, others = await regions.members(region)
    nodes = [f"{region}-storage-{number}" for number in (1, 2)]
    servers = [coordinator, *others, *nodes]
    log = regions.logs[region]
    regions.note(f"clocks of {region} jump")
    with _own_clock() as own:
        try:
            await log.pause_relay(stream.name, targets=[mirror.region])
            for _ in range(_STEPS):
                for one in servers:
                    regions.cluster.set_clock(one, 3600 * _hours(regions))
                own.set(3600 * _hours(regions))
                await trio.sleep(regions.rng.uniform(0, regions.outage_s / _STEPS))
            await trio.sleep_until(trio.current_time() + _LAG_S_MIN)
            true_s = trio.current_time() - mirror.at_s[-1]
            told = await report_of(log, stream.name, mirror.region)
            told_s = told.lag_s or 0.0
            if told_s < true_s - _REPORT_S:
                regions.problems.append(
                    f"{region} told a lag of {told_s:.1f} s of {mirror.region}, which had got"
                    f" no record for {true_s:.1f} s"
                )
        finally:
            for one in servers:
                regions.cluster.set_clock(one, regions.rng.uniform(-_SKEW_S_MAX, _SKEW_S_MAX))
            await log.resume_relay(stream.name)
    return (
        f"set the clocks of {region} and of the owners off by up to {_STEP_HOURS_MAX} hours,"
        f" {_STEPS} times; a target that lacked {true_s:.1f} s of records was told to be"
        f" {told_s:.1f} s behind"
    )


def _hours(regions: RelayedRegions) -> float:
    return regions.rng.uniform(-_STEP_HOURS_MAX, _STEP_HOURS_MAX)


@attrs.define
class _OwnClock:
    offset_ns: int = 0

    def set(self, offset_s: float) -> None:
        """Let the drill's own wall clock be so far ahead: owners give times by it."""
        self.offset_ns = round(offset_s * 1e9)


@contextmanager
def _own_clock() -> Iterator[_OwnClock]:
    """A wall clock of this process that can be set, for the length of the block."""
    own, true_ns = _OwnClock(), time.time_ns  # noqa: TID251 - the clock that is bent.
    time.time_ns = lambda: true_ns() + own.offset_ns  # noqa: TID251 - likewise.
    try:
        yield own
    finally:
        time.time_ns = true_ns  # noqa: TID251 - likewise.
