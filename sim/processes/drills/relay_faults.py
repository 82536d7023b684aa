"""The faults of the drill `relay-matrix`: ends of relays, and links that fail.

Each is at places and times by chance, and is over when its function returns: the cluster is
whole again, or on its way. The text that is returned says what was done.
"""

from collections.abc import Awaitable, Callable, Mapping

import trio

from sim.processes.drills.relay_clocks import step_clocks
from sim.processes.drills.relay_evictions import evict
from sim.processes.drills.relay_promises import meet_bound, stand_still
from sim.processes.drills.relay_replays import kill_in_replay
from sim.processes.drills.relay_stream_faults import grow, make_again, truncate
from sim.processes.drills.relay_versions import meet_foreign_homes, meet_foreign_targets
from sim.processes.drills.relayed_regions import RelayedRegions
from sim.processes.wan.conditions import LinkChange

RelayFault = Callable[[RelayedRegions], Awaitable[str]]

OTHERS_PAUSE_S_MAX = 3.0
"""How long mirrors may stand still that a slow or dead target does not concern."""

_PARTED_S_MIN = 2 * OTHERS_PAUSE_S_MAX
"""A target is slow or dead for this long at least: a home that has all others wait for it is
found out."""

_TOGETHER_S = 0.05
_CUT, _HEALED = LinkChange(is_cut=True), LinkChange(is_cut=False)
_SLOW_BYTES_PER_S = 4e3
"""Less than what a writer's records and their headers take."""
_FLAPS = 8


async def kill_coordinator(regions: RelayedRegions) -> str:
    """SIGKILL of one coordinator, which sends and receives."""
    region = regions.rng.choice(regions.regions)
    victim, _ = await regions.members(region)
    epoch = await regions.epoch(region)
    regions.note(f"kill {victim}")
    await regions.cluster.kill(victim)
    try:
        await regions.wait_epoch(region, epoch + 1)
    finally:
        await regions.cluster.start(victim)
    return f"killed {victim}"


async def kill_group(regions: RelayedRegions) -> str:
    """SIGKILL of the coordinator and of all that stand by, within 50 ms."""
    region = regions.rng.choice(regions.regions)
    coordinator, others = await regions.members(region)
    victims = [coordinator, *others]
    regions.rng.shuffle(victims)
    await _kill_within(regions, victims)
    return f"killed {' and '.join(victims)}"


async def kill_both_ends(regions: RelayedRegions) -> str:
    """SIGKILL of the coordinators at both ends of a link, within 50 ms."""
    victims = [(await regions.members(one))[0] for one in regions.any_two()]
    await _kill_within(regions, victims)
    return f"killed {' and '.join(victims)}"


async def freeze(regions: RelayedRegions) -> str:
    """SIGSTOP of a coordinator, and SIGCONT when another one has taken over."""
    region = regions.rng.choice(regions.regions)
    victim, _ = await regions.members(region)
    epoch = await regions.epoch(region)
    regions.note(f"stop {victim}")
    await regions.cluster.pause(victim)
    try:
        await regions.wait_epoch(region, epoch + 1)
        await trio.sleep(regions.rng.uniform(0, 1))
    finally:
        await regions.cluster.resume(victim)
    return f"stopped {victim} until another one coordinated"


async def lose_leave(regions: RelayedRegions) -> str:
    """A coordinator leaves in good order, and what it says of it does not reach a region."""
    region, other = regions.any_two()
    victim, _ = await regions.members(region)
    epoch = await regions.epoch(region)
    regions.note(f"{victim} leaves, cut off from {other}")
    await regions.cluster.change_link(region, other, _CUT)
    try:
        await regions.cluster.stop(victim)
    finally:
        await regions.cluster.change_link(region, other, _HEALED)
    try:
        await regions.wait_epoch(region, epoch + 1)
    finally:
        await regions.cluster.start(victim)
    return f"{victim} left, cut off from {other}"


async def cut(regions: RelayedRegions) -> str:
    """No byte passes between two regions, either way."""
    here, there = regions.any_two()
    text = f"cut off between {here} and {there}"
    await _cut(regions, (here, there), text, is_one_way=False)
    return f"{text} for {regions.outage_s:.0f} s"


async def cut_one_way(regions: RelayedRegions) -> str:
    """No byte passes from one region to another; back they do. All ways take turns.

    So entries of one stream do not pass, and answers about entries of another.
    """
    here, there = regions.next_way()
    text = f"cut off from {here} to {there}"
    begin_s = trio.current_time()
    await _cut(regions, (here, there), text, is_one_way=True)
    await regions.wait_moved()
    for what, home, region in (("entries", here, there), ("answers", there, here)):
        pause_s = regions.pause_of(home, region, begin_s)
        regions.measure(f"cut-one-way_of_{what}_pause_s", pause_s)
        text += f", the mirror without {what} stood still for {pause_s:.1f} s"
    return text


async def flap(regions: RelayedRegions) -> str:
    """A link that fails and heals many times."""
    here, there = regions.any_two()
    regions.note(f"{here}-{there} flaps")
    try:
        for _ in range(_FLAPS):
            await regions.cluster.change_link(here, there, _CUT)
            await trio.sleep(regions.rng.uniform(0, regions.outage_s / _FLAPS))
            await regions.cluster.change_link(here, there, _HEALED)
            await trio.sleep(regions.rng.uniform(0, regions.outage_s / _FLAPS))
    finally:
        await regions.cluster.change_link(here, there, _HEALED)
    return f"cut and healed {here}-{there} {_FLAPS} times"


async def slow_down(regions: RelayedRegions) -> str:
    """A link that takes fewer bytes than are written: small buffers do not last."""
    here, there = regions.any_two()
    slow = LinkChange(bandwidth_bytes_per_s=_SLOW_BYTES_PER_S)
    begin_s = trio.current_time()
    regions.note(f"{here}-{there} is slow")
    await regions.cluster.change_link(here, there, slow, is_one_way=True)
    try:
        await trio.sleep(max(regions.outage_s, _PARTED_S_MIN))
    finally:
        well = LinkChange(bandwidth_bytes_per_s=125e6)
        await regions.cluster.change_link(here, there, well, is_one_way=True)
    await regions.wait_moved()
    pause_s = regions.pause_s(begin_s, link=(here, there))
    _check_others(regions, f"while {here}-{there} was slow", pause_s)
    return f"slowed {here}-{there} down; other mirrors paused for {pause_s:.2f} s"


async def lose_target(regions: RelayedRegions) -> str:
    """All relays of a region are away for a while."""
    region = regions.rng.choice(regions.regions)
    coordinator, others = await regions.members(region)
    victims = [coordinator, *others]
    begin_s = trio.current_time()
    try:
        for victim in victims:
            regions.note(f"kill {victim}")
            await regions.cluster.kill(victim)
        await trio.sleep(max(regions.outage_s, _PARTED_S_MIN))
    finally:
        for victim in victims:
            await regions.cluster.start(victim)
    await regions.wait_moved()
    pause_s = regions.pause_s(begin_s, without=[region])
    _check_others(regions, f"while {region} had no relays", pause_s)
    return f"ended the relays of {region}; other mirrors paused for {pause_s:.2f} s"


RELAY_FAULTS: Mapping[str, RelayFault] = {
    "coordinator": kill_coordinator,
    "group": kill_group,
    "both-ends": kill_both_ends,
    "during-replay": kill_in_replay,
    "zombie": freeze,
    "lost-leave": lose_leave,
    "cut": cut,
    "cut-one-way": cut_one_way,
    "flapping": flap,
    "slow-link": slow_down,
    "dead-target": lose_target,
    "clocks": step_clocks,
    "versions": meet_foreign_targets,
    "foreign-home": meet_foreign_homes,
    "made-again": make_again,
    "truncated": truncate,
    "grown": grow,
    "bounded": meet_bound,
    "evicted": evict,
    "standstill": stand_still,
}


async def _kill_within(regions: RelayedRegions, victims: list[str]) -> None:
    """Kill these relays within 50 ms, and start them again."""
    waits_s = [0.0, *(regions.rng.uniform(0, _TOGETHER_S) for _ in victims[1:])]

    async def kill(victim: str, wait_s: float) -> None:
        await trio.sleep(wait_s)
        regions.note(f"kill {victim}")
        await regions.cluster.kill(victim)

    try:
        async with trio.open_nursery() as nursery:
            for victim, wait_s in zip(victims, waits_s, strict=True):
                nursery.start_soon(kill, victim, wait_s)
    finally:
        for victim in victims:
            await regions.cluster.start(victim)


async def _cut(
    regions: RelayedRegions, link: tuple[str, str], text: str, *, is_one_way: bool
) -> None:
    regions.note(text)
    await regions.cluster.change_link(*link, _CUT, is_one_way=is_one_way)
    try:
        await trio.sleep(regions.outage_s)
    finally:
        await regions.cluster.change_link(*link, _HEALED, is_one_way=is_one_way)


def _check_others(regions: RelayedRegions, when: str, pause_s: float) -> None:
    if pause_s > OTHERS_PAUSE_S_MAX:
        regions.problems.append(f"{when}, other mirrors stood still for {pause_s:.1f} s")
