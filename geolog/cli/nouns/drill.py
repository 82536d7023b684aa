"""`geolog drill`: breaks a temporary cluster on purpose and checks that nothing is lost."""

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import attrs
import click
from click.core import ParameterSource

from geolog.cli.exits import CheckFailedError
from geolog.cli.invocation import Noun, examples, tell, this_invocation
from geolog.cli.signals import run_to_a_signal
from geolog.cli.terminal.output import show
from geolog.settings.quantities import parse_seconds
from sim.processes.cluster.local import LocalCluster, open_cluster
from sim.processes.cluster.place import check_space, fresh_directory, started_last
from sim.processes.cluster.plan import REGIONS_DEFAULT, ClusterShape, ServerKind, draw_plan
from sim.processes.cluster.ports import held_ports
from sim.processes.drills.drilled_cluster import DemoCluster, DrilledCluster, OwnCluster
from sim.processes.drills.failover import FAILOVER_FAULTS, FailoverOptions, failover
from sim.processes.drills.kill_all import KillAllOptions, kill_all
from sim.processes.drills.kill_random import KillRandomOptions, kill_random
from sim.processes.drills.loaded_proxy import (
    SHAPE,
    LoadedProxy,
    create_loaded_stream,
    proxy_of_cluster,
    proxy_of_demo,
)
from sim.processes.drills.power_loss import PowerLossOptions, power_loss
from sim.processes.drills.power_loss_all import AllNodesOptions, power_loss_all
from sim.processes.drills.proxy_kill import ProxyFault, ProxyKillOptions, proxy_kill
from sim.processes.drills.proxy_mutations import (
    MESSAGES_COUNT,
    MutationsOptions,
    proxy_mutations,
)
from sim.processes.drills.proxy_overload import (
    PROXY_OPTIONS,
    ProxyOverloadOptions,
    proxy_overload,
)
from sim.processes.drills.proxy_slow_sockets import SlowSocketsOptions, proxy_slow_sockets
from sim.processes.drills.region_loss import RegionLossOptions, region_loss
from sim.processes.drills.region_loss_regional import (
    RegionalLossOptions,
    region_loss_regional,
)
from sim.processes.drills.relay_faults import RELAY_FAULTS
from sim.processes.drills.relay_kill import RelayKillOptions, relay_kill
from sim.processes.drills.relay_matrix import WINDOW_BYTES, RelayMatrixOptions, relay_matrix
from sim.processes.drills.relay_wipe import RelayWipeOptions, relay_wipe
from sim.processes.drills.report import write_report
from sim.processes.drills.spark_restarts import SparkRestartsOptions, spark_restarts
from sim.processes.drills.switch_over import SWITCH_FAULTS, SwitchOverOptions, switch_over
from sim.processes.drills.timeline import Timeline
from sim.processes.drills.verdict import Verdict
from sim.processes.drills.zombie_writer import ZombieOptions, zombie_writer
from sim.processes.wan.conditions import ALL, LinkChange, Wan

DRILLS = {
    "kill-all": "Kill all processes at once and restart them in random order, many times.",
    "kill-random": "Kill random storage nodes under load and restart them, many times.",
    "proxy-kill": "Kill, drain or stop the proxy that owns a stream, under load, many times.",
    "relay-kill": "Kill, drain or stop coordinators of relays, under load, many times.",
    "relay-matrix": "Break relays and the links between regions in all ways, under load.",
    "relay-wipe": "Wipe the disks of a region that mirrors a stream, under load, many times.",
    "switch-over": "Move the home of a stream under load, and break that in all ways.",
    "failover": "Lose the home of a stream under load, fail it over, and have it back.",
    "region-loss-regional": "Kill a region that is the home of streams, and fail them over.",
    "region-loss": "Kill a whole region under load and restart it, several times.",
    "spark-restarts": "Restart a query with Spark, and kill its driver, many times.",
    "proxy-overload": "Offer a proxy three times what it takes, and compare with its peak.",
    "proxy-slow-sockets": "Hold thousands of silent connections to a proxy, next to good ones.",
    "proxy-mutations": "Send a proxy messages that are almost right, very many.",
    "power-loss": "Drop the bytes that a storage node has not synced, many times.",
    "zombie-writer": "Freeze a writer, let another take over, then wake the first.",
}

_OF_LOADS = ("proxy-overload", "proxy-slow-sockets", "proxy-mutations")
"""Drills that load one proxy, which nothing breaks."""

_DRILL_OF_OPTION = {
    "times": (
        "kill-all",
        "proxy-kill",
        "relay-kill",
        "relay-matrix",
        "relay-wipe",
        "region-loss",
        "region-loss-regional",
        "spark-restarts",
        "switch-over",
        "failover",
    ),
    "kills": ("kill-random",),
    "loops": ("power-loss",),
    "duration": ("proxy-overload", "proxy-slow-sockets"),
    "messages": ("proxy-mutations",),
    "replay": ("proxy-mutations",),
    "all_nodes": ("power-loss",),
    "fault": ("proxy-kill", "relay-kill", "relay-matrix", "switch-over", "failover"),
    "outage": ("relay-matrix",),
    "targets": ("relay-matrix",),
    "on_isolation": ("failover",),
    "on_demo": (
        *_OF_LOADS,
        "proxy-kill",
        "relay-kill",
        "relay-matrix",
        "region-loss",
        "region-loss-regional",
        "switch-over",
        "failover",
    ),
    "nodes_per_region": (
        "kill-all",
        "kill-random",
        "proxy-kill",
        "relay-kill",
        "relay-matrix",
        "relay-wipe",
        "region-loss",
        "region-loss-regional",
        "spark-restarts",
        "switch-over",
        "failover",
        "zombie-writer",
    ),
}
_TIMES_DEFAULT = {
    "kill-all": 10,
    "proxy-kill": 20,
    "relay-kill": 20,
    "relay-matrix": 1,
    "relay-wipe": 2,
    "region-loss": 3,
    "switch-over": 1,
    "failover": 1,
    "region-loss-regional": 1,
    "spark-restarts": 20,
}
_FAILING = Path("proxy-mutations.jsonl")
"""Where messages are written that met a bug, from the working directory."""
_ENDS: tuple[ProxyFault, ...] = ("kill", "drain", "pause")
_FAULTS: dict[str, Sequence[str]] = {
    "relay-matrix": tuple(RELAY_FAULTS),
    "switch-over": SWITCH_FAULTS,
    "failover": FAILOVER_FAULTS,
}
"""Of the drills that cause several kinds."""
_PROXIES = {
    "proxy-kill": 1,
    "region-loss": 1,
    "region-loss-regional": 2,
    "switch-over": 2,
    "failover": 2,
}
"""In each region."""
_OF_OWN_CLUSTERS = ("clocks", "foreign-home")
_WITH_RELAYS = (
    "relay-kill",
    "relay-matrix",
    "relay-wipe",
    "switch-over",
    "failover",
    "region-loss-regional",
)
_MATRIX_LINK = LinkChange(rtt_s=0.02)
_MATRIX_REGIONS = (*REGIONS_DEFAULT, "us-west", "sa-east")
_MATRIX_WINDOW_BYTES = 1 << 20
_MATRIX_RELAY_OPTIONS = ("--buffer-entries", "64", "--window-bytes", "1MiB")
"""So few entries that outages of a second exceed the buffers of relays. The window is small, so
that what is sent again can exceed it."""
_LOOPS_DEFAULT = 500
_LOOPS_DEFAULT_ALL = 20


@attrs.frozen(kw_only=True)
class DrillRun:
    """Options of one `geolog drill run`."""

    name: str
    times: int | None
    kills: int
    loops: int | None
    duration_s: float
    messages: int
    replay: Path | None
    all_nodes: bool
    faults: tuple[str, ...]
    outage_s: float
    targets: int
    on_isolation: Literal["continue", "stop"]
    on_demo: bool
    seed: int
    nodes_per_region: int
    data_dir: Path | None
    timeline: Timeline = attrs.field(factory=Timeline)


@click.group(cls=Noun, name="drill")
def command() -> None:
    """Break a temporary cluster on purpose and check that nothing is lost."""
    this_invocation().takes_demo = False


@command.command(
    "ls",
    epilog=examples("geolog drill ls"),
)
def list_() -> None:
    """List the drills."""
    rows = [{"name": name, "what": what} for name, what in DRILLS.items()]
    show(rows, this_invocation().config.output)


@command.command(
    epilog=examples(
        "geolog drill run kill-all --times 3",
        "geolog drill run power-loss --loops 500 --report verdict",
    )
)
@click.argument("name", metavar="DRILL", type=click.Choice(list(DRILLS)))
@click.option(
    "--times",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of faults (kill-all, proxy-kill, relay-kill, relay-wipe, region-loss,"
    " region-loss-regional, spark-restarts), or of each fault (relay-matrix, switch-over,"
    " failover). [default: 10 for kill-all, 20 for proxy-kill, relay-kill and spark-restarts,"
    " 2 for relay-wipe, 3 for region-loss, 1 for the others]",
)
@click.option(
    "--kills",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    metavar="N",
    help="Number of kills (kill-random).",
)
@click.option(
    "--loops",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Number of power losses (power-loss). [default: {_LOOPS_DEFAULT};"
    f" {_LOOPS_DEFAULT_ALL} with --all-nodes]",
)
@click.option(
    "--duration",
    type=parse_seconds,
    default="1m",
    show_default=True,
    metavar="TIME",
    help="Time under load (proxy-overload, proxy-slow-sockets); they run about twice as long.",
)
@click.option(
    "--messages",
    type=click.IntRange(min=1),
    default=MESSAGES_COUNT,
    show_default=True,
    metavar="N",
    help="Number of changed messages (proxy-mutations).",
)
@click.option(
    "--replay",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="Send the messages of this file, which a run that failed has written"
    " (proxy-mutations).",
)
@click.option(
    "--all-nodes", is_flag=True, help="Cut the power of a whole cluster at once (power-loss)."
)
@click.option(
    "--fault",
    "faults",
    type=click.Choice([*_ENDS, *RELAY_FAULTS, *SWITCH_FAULTS, *FAILOVER_FAULTS]),
    metavar="NAME",
    multiple=True,
    help="Fault to cause. proxy-kill, relay-kill: kill the proxy or relay (SIGKILL), drain it"
    " (SIGTERM), or pause it (SIGSTOP) until another one has taken over. [default: kill]"
    f" relay-matrix, repeatable: {', '.join(RELAY_FAULTS)}. [default: all]"
    f" switch-over, repeatable: {', '.join(SWITCH_FAULTS)}. [default: all] failover,"
    f" repeatable, the state of the home: {', '.join(FAILOVER_FAULTS)}. [default: all]",
)
@click.option(
    "--outage",
    type=parse_seconds,
    default="3s",
    show_default=True,
    metavar="TIME",
    help="How long links are cut and regions are away (relay-matrix).",
)
@click.option(
    "--targets",
    type=click.IntRange(min=2, max=len(_MATRIX_REGIONS) - 1),
    default=2,
    show_default=True,
    metavar="N",
    help="Targets of each stream, one less than there are regions (relay-matrix).",
)
@click.option(
    "--on-isolation",
    type=click.Choice(["continue", "stop"]),
    default="continue",
    show_default=True,
    help="Behaviour of the stream's home while it is cut off (failover).",
)
@click.option(
    "--on-demo",
    is_flag=True,
    help="Use a running demo in place of a temporary cluster: the one in --data-dir, or the one"
    " started last (proxy-kill, relay-kill, relay-matrix, region-loss, region-loss-regional,"
    " switch-over, failover, proxy-overload, proxy-slow-sockets, proxy-mutations).",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    metavar="N",
    help="Random seed for the drill's choices and their timing.",
)
@click.option(
    "--nodes-per-region",
    type=click.IntRange(min=2),
    default=2,
    show_default=True,
    metavar="N",
    help="Storage nodes in each region (not for power-loss).",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Directory for data and logs; it is kept. [default: a temporary directory]",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Directory for the verdict as JSON and Markdown, and a timeline if the drill has one;"
    " or a file for the JSON alone, e.g. verdict.json.",
)
@click.pass_context
def run(
    context: click.Context,
    *,
    name: str,
    times: int | None,
    kills: int,
    loops: int | None,
    duration: float,
    messages: int,
    replay: Path | None,
    all_nodes: bool,
    faults: tuple[str, ...],
    outage: float,
    targets: int,
    on_isolation: Literal["continue", "stop"],
    on_demo: bool,
    seed: int,
    nodes_per_region: int,
    data_dir: Path | None,
    report: Path | None,
) -> None:
    """Run a drill on a temporary cluster of three regions and three ZooKeeper servers.

    DRILL is kill-all, kill-random, proxy-kill, relay-kill, relay-matrix, relay-wipe,
    switch-over, failover, region-loss, region-loss-regional, power-loss, zombie-writer,
    spark-restarts, proxy-overload, proxy-slow-sockets or proxy-mutations: "geolog drill ls"
    describes them. power-loss starts no servers: its nodes run in this process, on real files.
    spark-restarts needs PySpark. The three last have a cluster of one region with one proxy.

    Exits with 10 if anything acknowledged was lost or changed, or a proxy served too badly.
    """
    _check_options(context, name)
    drill = DrillRun(
        name=name,
        times=times,
        kills=kills,
        loops=loops,
        duration_s=duration,
        messages=messages,
        replay=replay,
        all_nodes=all_nodes,
        faults=faults,
        outage_s=outage,
        targets=targets,
        on_isolation=on_isolation,
        on_demo=on_demo,
        seed=seed,
        nodes_per_region=nodes_per_region,
        data_dir=data_dir,
    )
    verdict = run_to_a_signal(_run, drill)
    if report is not None:
        write_report(report, verdict, drill.timeline)
    show(verdict, this_invocation().config.output)
    if not verdict.passed:
        raise CheckFailedError(f"drill {name} failed: " + "; ".join(verdict.problems))


def _check_options(context: click.Context, name: str) -> None:
    """Refuse an option of another drill, which would be ignored."""
    for option, drills in _DRILL_OF_OPTION.items():
        source = "faults" if option == "fault" else option
        is_given = context.get_parameter_source(source) is ParameterSource.COMMANDLINE
        if is_given and name not in drills:
            flag = "--" + option.replace("_", "-")
            raise click.UsageError(f"{flag} applies to {', '.join(drills)}, not to {name}")
    known = _FAULTS.get(name, _ENDS)
    for fault in context.params["faults"]:
        if fault not in known:
            raise click.UsageError(
                f"--fault {fault} is not a fault of {name}: give {', '.join(known)}"
            )
    if name not in _FAULTS and len(context.params["faults"]) > 1:
        raise click.UsageError(f"--fault: {name} causes one kind of fault; give it once")
    for option in ("nodes_per_region", "targets"):
        is_given = context.get_parameter_source(option) is ParameterSource.COMMANDLINE
        if context.params["on_demo"] and is_given:
            flag = "--" + option.replace("_", "-")
            raise click.UsageError(
                f"{flag} applies to a temporary cluster: drop it, or drop --on-demo"
            )


async def _run(drill: DrillRun) -> Verdict:
    if drill.on_demo:
        kind: ServerKind = "relay" if drill.name in _WITH_RELAYS else "proxy"
        place = drill.data_dir or started_last()
        demo = await DemoCluster.find(place, kind)
        if drill.name in _OF_LOADS:
            await create_loaded_stream(demo)
            return await _load(drill, await proxy_of_demo(place))
        return await _break_proxies(drill, demo)
    directory = (drill.data_dir or fresh_directory()).absolute()
    try:
        check_space(directory)
        if drill.name == "power-loss":
            return await _lose_power(drill, directory)
        if drill.name in _OF_LOADS:
            return await _load_own_proxy(drill, directory)
        return await _run_on_cluster(drill, directory)
    finally:
        if drill.data_dir is None:
            shutil.rmtree(directory, ignore_errors=True)


async def _lose_power(drill: DrillRun, directory: Path) -> Verdict:
    # The nodes in this process would warn of what the drill does to them.
    logging.getLogger("regions").setLevel(logging.CRITICAL)
    logging.getLogger("geolog").setLevel(logging.CRITICAL)
    loops = drill.loops or (_LOOPS_DEFAULT_ALL if drill.all_nodes else _LOOPS_DEFAULT)
    if drill.all_nodes:
        return await power_loss_all(
            AllNodesOptions(loops=loops, seed=drill.seed), directory, tell
        )
    return await power_loss(PowerLossOptions(loops=loops, seed=drill.seed), directory, tell)


async def _load_own_proxy(drill: DrillRun, directory: Path) -> Verdict:
    shape = SHAPE
    if drill.name == "proxy-overload":
        shape = attrs.evolve(SHAPE, proxy_options=PROXY_OPTIONS)
    with held_ports(shape.ports_count) as ports:
        plan = draw_plan(shape, cluster="drill", directory=directory, ports=ports)
        async with open_cluster(plan) as cluster:
            await create_loaded_stream(OwnCluster(cluster))
            return await _load(drill, proxy_of_cluster(cluster))


async def _load(drill: DrillRun, proxy: LoadedProxy) -> Verdict:
    match drill.name:
        case "proxy-overload":
            overload = ProxyOverloadOptions(duration_s=drill.duration_s, seed=drill.seed)
            return await proxy_overload(proxy, overload, tell)
        case "proxy-slow-sockets":
            slow = SlowSocketsOptions(duration_s=drill.duration_s, seed=drill.seed)
            return await proxy_slow_sockets(proxy, slow, tell)
        case "proxy-mutations":
            changed = MutationsOptions(
                messages_count=drill.messages,
                seed=drill.seed,
                replay=drill.replay,
                failing=_FAILING,
            )
            return await proxy_mutations(proxy, changed, tell)
        case other:
            raise AssertionError(other)


async def _run_on_cluster(drill: DrillRun, directory: Path) -> Verdict:
    is_matrix = drill.name == "relay-matrix"
    regions = _MATRIX_REGIONS[: drill.targets + 1]
    wan = Wan.between(regions).changed(ALL, ALL, _MATRIX_LINK, is_one_way=True)
    shape = ClusterShape(
        regions=regions,
        wan=wan if is_matrix or drill.name == "failover" else None,
        relay_options=_MATRIX_RELAY_OPTIONS if is_matrix else (),
        nodes_per_region=drill.nodes_per_region,
        proxies_per_region=_PROXIES.get(drill.name, 0),
        relays_per_region=2 if drill.name in _WITH_RELAYS else 0,
        has_settable_clocks=is_matrix,
        # Else all kills within 30 s of the first wait for the end of a session.
        proxy_options=("--early-takeover-pause", "100ms"),
    )
    with held_ports(shape.ports_count) as ports:
        plan = draw_plan(shape, cluster="drill", directory=directory, ports=ports)
        async with open_cluster(plan) as cluster:
            return await _break(drill, cluster)


async def _break(drill: DrillRun, cluster: LocalCluster) -> Verdict:
    match drill.name:
        case "kill-all":
            return await kill_all(
                cluster,
                KillAllOptions(
                    times=drill.times or _TIMES_DEFAULT[drill.name], seed=drill.seed
                ),
                tell,
            )
        case (
            "proxy-kill"
            | "relay-kill"
            | "relay-matrix"
            | "region-loss"
            | "region-loss-regional"
            | "switch-over"
            | "failover"
        ):
            return await _break_proxies(drill, OwnCluster(cluster))
        case "kill-random":
            return await kill_random(
                cluster,
                KillRandomOptions(kills=drill.kills, seed=drill.seed),
                tell,
                drill.timeline,
            )
        case "relay-wipe":
            wipes = RelayWipeOptions(
                times=drill.times or _TIMES_DEFAULT[drill.name], seed=drill.seed
            )
            return await relay_wipe(cluster, wipes, tell, drill.timeline)
        case "spark-restarts":
            restarts = SparkRestartsOptions(
                times=drill.times or _TIMES_DEFAULT[drill.name], seed=drill.seed
            )
            return await spark_restarts(cluster, restarts, tell)
        case "zombie-writer":
            return await zombie_writer(cluster, ZombieOptions(seed=drill.seed), tell)
        case other:
            raise AssertionError(other)


def _faults_of(cluster: DrilledCluster) -> tuple[str, ...]:
    """All faults that can be caused there.

    A demo has the machine's clock, and its relays would go on to dial a foreign home.
    """
    is_own = isinstance(cluster, OwnCluster)
    return tuple(name for name in RELAY_FAULTS if is_own or name not in _OF_OWN_CLUSTERS)


async def _break_proxies(drill: DrillRun, cluster: DrilledCluster) -> Verdict:
    """Run a drill on a cluster with proxies or relays, which may be a demo."""
    times = drill.times or _TIMES_DEFAULT[drill.name]
    if drill.name == "relay-matrix":
        is_own = isinstance(cluster, OwnCluster)
        matrix = RelayMatrixOptions(
            times=times,
            faults=drill.faults or _faults_of(cluster),
            outage_s=drill.outage_s,
            seed=drill.seed,
            window_bytes=_MATRIX_WINDOW_BYTES if is_own else WINDOW_BYTES,
        )
        return await relay_matrix(cluster, matrix, tell, drill.timeline)
    if drill.name == "switch-over":
        faults = drill.faults or SWITCH_FAULTS
        moves = SwitchOverOptions(times=times, faults=faults, seed=drill.seed)
        return await switch_over(cluster, moves, tell, drill.timeline)
    if drill.name == "region-loss-regional":
        whole = RegionalLossOptions(times=times, seed=drill.seed)
        return await region_loss_regional(cluster, whole, tell, drill.timeline)
    if drill.name == "failover":
        states = drill.faults or FAILOVER_FAULTS
        losses = FailoverOptions(
            times=times, faults=states, seed=drill.seed, on_isolation=drill.on_isolation
        )
        return await failover(cluster, losses, tell, drill.timeline)
    fault = next((one for one in _ENDS if one in drill.faults), _ENDS[0])
    if drill.name == "relay-kill":
        ends = RelayKillOptions(times=times, fault=fault, seed=drill.seed)
        return await relay_kill(cluster, ends, tell, drill.timeline)
    if drill.name == "proxy-kill":
        kill = ProxyKillOptions(times=times, fault=fault, seed=drill.seed)
        return await proxy_kill(cluster, kill, tell, drill.timeline)
    loss = RegionLossOptions(times=times, seed=drill.seed)
    return await region_loss(cluster, loss, tell, drill.timeline)
