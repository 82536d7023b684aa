"""All faults: each strikes something, lasts for a while, and ends.

A fault is a context manager. It begins on entry, yields the name of what it struck (None if
there was nothing to strike), and ends on exit. Most strike at any time, or right after a
ledger's record changes; ambushes wait for a moment of their own.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from random import Random

import trio

from sim.world.apps.failing_over import (
    HOME_CUT_OFF,
    HOME_HEARS_LATE,
    HOME_LOST,
    HOME_LOST_AGAIN,
    LEASE_CLOCK,
)
from sim.world.draws.move_draws import AMBUSH_MOVE
from sim.world.draws.proxy_draws import DRAIN
from sim.world.draws.relay_draws import (
    AMBUSH_REPLAY,
    COORDINATORS_GONE,
    CUT_REGIONS,
    CUT_REGIONS_ONE_WAY,
    DRAIN_RELAY,
    FLAPPING_LINK,
    LOST_LEAVE,
    OTHER_VERSION,
    RELAYS_GONE,
    SLOW_ONE_WAY,
    SLOW_TARGET,
    STRANGER,
    ZOMBIE_RELAY,
)
from sim.world.draws.session_draws import LEADER_DEPOSED, SESSION_BEHIND
from sim.world.faults import disks as fault_disks
from sim.world.faults import links as fault_links
from sim.world.faults import metadata as fault_metadata
from sim.world.faults import processes as fault_processes
from sim.world.faults import relay_faults, relay_versions
from sim.world.faults.ambushes import AMBUSHES, Ambush
from sim.world.faults.lost_homes import (
    home_cut_off,
    home_hears_late,
    home_lost,
    home_lost_again,
    lease_clock,
)
from sim.world.faults.move_ambushes import ambush_move
from sim.world.world import World

Fault = Callable[[World, Random], AbstractContextManager[str | None]]

_AMBUSH_S_MAX = 5.0
_AMBUSH_ROUND_TRIPS = 4


async def strike_for_ever(world: World, kind: str, strikes_per_s: float, rng: Random) -> None:
    """Strike with one kind of fault again and again; cancellation ends the current one."""
    while True:
        await trio.sleep(rng.expovariate(strikes_per_s))
        fault = FAULTS[kind]
        begun = (
            _in_ambush(world, fault, rng)
            if isinstance(fault, Ambush)
            else _after_change(world, fault, rng)
        )
        async with begun as struck:
            if struck is None:
                continue
            world.struck[kind] += 1
            world.trace.add("-", "fault-on", f"{kind} {struck}")
            try:
                await trio.sleep(rng.random() * world.options.hazards.duration_s_max)
            finally:
                world.trace.add("-", "fault-off", f"{kind} {struck}")


@asynccontextmanager
async def _in_ambush(world: World, ambush: Ambush, rng: Random) -> AsyncIterator[str | None]:
    """Wait for the ambush's moment, then strike."""
    while True:
        process, details = await world.trace.wait(ambush.event)
        async with ambush.strike(world, rng, process, details) as struck:
            if struck is not None:
                yield struck
                return


@asynccontextmanager
async def _after_change(world: World, fault: Fault, rng: Random) -> AsyncIterator[str | None]:
    """Strike now, or, if hazards lie in wait, soon after a ledger's record changes."""
    if world.options.hazards.lies_in_wait:
        with trio.move_on_after(_AMBUSH_S_MAX):
            await world.seams.ledger_changed.wait()
        round_trip_s = 2 * world.options.links.latency_s_across
        await trio.sleep(rng.random() * _AMBUSH_ROUND_TRIPS * round_trip_s)
    with fault(world, rng) as struck:
        yield struck


FAULTS: dict[str, Fault | Ambush] = {
    "kill-node": fault_processes.kill_node,
    "power-loss-node": fault_processes.power_loss_node,
    "power-loss-region": fault_processes.power_loss_region,
    "power-loss-all": fault_processes.power_loss_all,
    "kill-client": fault_processes.kill_client,
    DRAIN: fault_processes.drain_proxy,
    DRAIN_RELAY: fault_processes.drain_relay,
    COORDINATORS_GONE: fault_processes.coordinators_gone,
    ZOMBIE_RELAY: fault_processes.zombie_relay,
    RELAYS_GONE: relay_faults.relays_gone,
    LOST_LEAVE: relay_faults.lost_leave,
    "pause-process": fault_processes.pause_process,
    "zombie-writer": fault_processes.zombie_writer,
    "cut-writer": fault_links.cut_writer,
    "cut-link": fault_links.cut_link,
    "cut-one-way": fault_links.cut_one_way,
    CUT_REGIONS: relay_faults.cut_regions,
    CUT_REGIONS_ONE_WAY: relay_faults.cut_regions_one_way,
    FLAPPING_LINK: Ambush("deliver", relay_faults.flapping_link),
    SLOW_TARGET: relay_faults.slow_target,
    SLOW_ONE_WAY: relay_faults.slow_one_way,
    OTHER_VERSION: relay_versions.other_version,
    STRANGER: Ambush("deliver", relay_versions.stranger),
    "isolate-region": fault_links.isolate_region,
    "isolate-host": fault_links.isolate_host,
    "reset-connection": fault_links.reset_connection,
    "slow-host": fault_links.slow_host,
    "slow-disk": fault_disks.slow_disk,
    "disk-error": fault_disks.disk_error,
    "disk-full": fault_disks.disk_full,
    "wrong-disk": fault_disks.wrong_disk,
    "bit-rot": fault_disks.bit_rot,
    "unreadable-sector": fault_disks.unreadable_sector,
    "replaced-disk": fault_disks.replaced_disk,
    "metadata-cut": fault_metadata.metadata_cut,
    "metadata-away": fault_metadata.metadata_away,
    "metadata-lag": fault_metadata.metadata_lag,
    "metadata-expiry": fault_metadata.metadata_expiry,
    "metadata-answer-lost": fault_metadata.metadata_answer_lost,
    LEADER_DEPOSED: fault_metadata.leader_deposed,
    SESSION_BEHIND: fault_metadata.session_behind,
    "clock-jump": fault_metadata.clock_jump,
    "clock-skew": fault_metadata.clock_skew,
    "far-clock": fault_metadata.far_clock,
    "store-clock": fault_metadata.store_clock,
    **AMBUSHES,
    HOME_CUT_OFF: home_cut_off,
    HOME_HEARS_LATE: home_hears_late,
    HOME_LOST: home_lost,
    HOME_LOST_AGAIN: Ambush("done", home_lost_again),
    LEASE_CLOCK: lease_clock,
    AMBUSH_MOVE: Ambush("call", ambush_move),
    AMBUSH_REPLAY: Ambush("log", relay_faults.ambush_replay),
}
"""Every fault, by the name that options and trace use."""
