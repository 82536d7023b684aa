"""All that can break a link between regions, one fault after the other, in one cluster.

Every region writes a stream of its own and mirrors those of the others, and a reader follows
each mirror. The faults of `RELAY_FAULTS` take turns at random instants. After each, every
mirror must move again; in the end, every region is compared with the acknowledged records.
"""

import random
import statistics
from collections.abc import Callable, Sequence

import attrs
import trio

from sim.processes.drills.drilled_cluster import DrilledCluster
from sim.processes.drills.relay_faults import RELAY_FAULTS
from sim.processes.drills.relayed_regions import open_relayed_regions
from sim.processes.drills.timeline import Timeline
from sim.processes.drills.verdict import Verdict

WINDOW_BYTES = 64 << 20
"""Of relays by default, such as those of a demo."""


@attrs.frozen(kw_only=True)
class RelayMatrixOptions:
    """The faults, how often each is caused, their timing, and the seed."""

    times: int = 1
    faults: Sequence[str] = tuple(RELAY_FAULTS)
    """Names in `RELAY_FAULTS`."""
    outage_s: float = 3.0
    """How long links are cut and regions are away."""
    window_bytes: int = WINDOW_BYTES
    """The window of the relays of the cluster."""
    seed: int = 0
    up_s_max: float = 1.0
    """Maximum time that all is well before the next fault."""


async def relay_matrix(
    cluster: DrilledCluster,
    options: RelayMatrixOptions,
    tell: Callable[[str], None],
    timeline: Timeline,
) -> Verdict:
    """Run the drill on a running cluster with two relays or more in each region."""
    rng = random.Random(options.seed)
    pauses_s: dict[str, list[float]] = {name: [] for name in options.faults}
    turns = [name for name in options.faults for _ in range(options.times)]
    rng.shuffle(turns)
    rounds = []
    async with open_relayed_regions(
        cluster,
        "drill/relay-matrix",
        timeline,
        rng=rng,
        outage_s=options.outage_s,
        window_bytes=options.window_bytes,
    ) as regions:
        for number, name in enumerate(turns, 1):
            await regions.wait_whole()
            await trio.sleep(rng.uniform(0, options.up_s_max))
            begin_s = trio.current_time()
            told = await RELAY_FAULTS[name](regions)
            healed_s = trio.current_time()
            await regions.wait_moved()
            catch_up_s = trio.current_time() - healed_s
            pause_s = regions.pause_s(begin_s)
            pauses_s[name].append(pause_s)
            rounds.append({"turn": number, "pause_s_max": pause_s, "catch_up_s": catch_up_s})
            tell(
                f"{number} of {len(turns)}, {name}: {told}; a mirror stood still for at most"
                f" {pause_s:.2f} s, and all had caught up {catch_up_s:.2f} s after the fault"
            )
        problems, counts = await regions.end()
    problems = [*regions.problems, *problems]
    figures = {"catch_up_s_max": max(one["catch_up_s"] for one in rounds)}
    for name, each_s in pauses_s.items():
        figures[f"{name}_pause_s_median"] = statistics.median(each_s)
        figures[f"{name}_pause_s_max"] = max(each_s)
    for name, each in regions.measured.items():
        figures[f"{name}_median"] = statistics.median(each)
        figures[f"{name}_max"] = max(each)
    figures |= {f"cut_{here}_to_{there}": n for (here, there), n in regions.cuts.items()}
    return Verdict(
        drill="relay-matrix",
        passed=not problems,
        problems=problems,
        counts={"faults": len(turns), **counts},
        figures=figures,
        rounds=rounds,
        seed=options.seed,
    )
