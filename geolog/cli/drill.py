"""`geolog drill`: a cluster of its own is broken on purpose, and judged by counts."""

import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs
import click
import trio

from geolog.cli.exits import CheckFailedError
from geolog.cli.invocation import Noun, tell, this_invocation
from geolog.cli.output import plain, show
from geolog.cli.signals import ending_at_signals
from sim.cluster.local import LocalCluster, open_cluster
from sim.cluster.place import check_space, fresh_directory
from sim.cluster.plan import Shape, draw_plan
from sim.cluster.ports import free_ports
from sim.cluster.readyfile import write_whole
from sim.drills.kill_all import KillAllOptions, kill_all
from sim.drills.verdict import Verdict
from sim.drills.zombie_writer import ZombieOptions, zombie_writer

DRILLS = {
    "kill-all": "All processes are killed at once and restarted in random order, many times.",
    "zombie-writer": "A writer is stopped, another takes over, the first wakes up.",
}


@attrs.frozen(kw_only=True)
class DrillRun:
    """What one `geolog drill run` was asked for."""

    act: Callable[[LocalCluster], Awaitable[Verdict]]
    data_dir: Path | None
    nodes_per_region: int


@click.group(cls=Noun, name="drill")
def command() -> None:
    """Break a cluster on purpose and judge it."""


@command.command("ls")
def list_() -> None:
    """List the drills."""
    rows = [{"name": name, "what": what} for name, what in DRILLS.items()]
    show(rows, this_invocation().config.output)


@command.command()
@click.argument("name", type=click.Choice(list(DRILLS)))
@click.option("--times", type=click.IntRange(min=1), default=10, show_default=True, metavar="N")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--nodes-per-region", type=click.IntRange(min=2), default=2, show_default=True)
@click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--report", type=click.Path(path_type=Path, dir_okay=False), help="The verdict as JSON."
)
def run(
    *,
    name: str,
    times: int,
    seed: int,
    nodes_per_region: int,
    data_dir: Path | None,
    report: Path | None,
) -> None:
    """Run a drill on a cluster of its own: three regions, three ZooKeeper servers.

    --times is for kill-all. Ends with 10 if anything acknowledged was lost or changed.
    """

    async def act(cluster: LocalCluster) -> Verdict:
        if name == "kill-all":
            return await kill_all(cluster, KillAllOptions(times=times, seed=seed), tell)
        return await zombie_writer(cluster, ZombieOptions(seed=seed), tell)

    drill = DrillRun(act=act, data_dir=data_dir, nodes_per_region=nodes_per_region)
    verdict = trio.run(ending_at_signals, _run, drill)
    if verdict is None:
        raise click.Abort
    if report is not None:
        write_whole(report, json.dumps(plain(verdict), indent=2) + "\n")
    show(verdict, this_invocation().config.output)
    if not verdict.passed:
        raise CheckFailedError(f"the drill {name} failed: " + "; ".join(verdict.problems))


async def _run(drill: DrillRun) -> Verdict:
    shape = Shape(nodes_per_region=drill.nodes_per_region)
    directory = (drill.data_dir or fresh_directory()).absolute()
    try:
        check_space(directory)
        ports = free_ports(shape.ports_count)
        plan = draw_plan(shape, cluster="drill", directory=directory, ports=ports)
        async with open_cluster(plan) as cluster:
            return await drill.act(cluster)
    finally:
        if drill.data_dir is None:
            shutil.rmtree(directory, ignore_errors=True)
