"""`geolog bench proxy`: measures what one write proxy takes."""

import sys
from functools import partial
from pathlib import Path

import click

from geolog.cli.invocation import Verb, examples, tell, this_invocation
from geolog.cli.signals import run_to_a_signal
from geolog.cli.terminal.output import show
from geolog.settings.quantities import parse_bytes, parse_seconds
from sim.processes.bench.proxy import LOADS_COUNT, ProxyLoad, ProxyReport, measure_proxy

_COLUMNS = ("name", "value", "unit", "floor", "ratio", "goal")
_RECORD_BYTES_MAX = 1 << 16
_DISK_BYTES_PER_S = 300_000_000
"""A fast disk takes no more, of all copies."""


@click.command(
    cls=Verb,
    epilog=examples(
        "geolog bench proxy",
        "geolog bench proxy --duration 20s -o json",
        "geolog bench proxy --profile proxy.prof",
    ),
)
@click.option(
    "--record-size",
    type=parse_bytes,
    default="100B",
    show_default=True,
    metavar="SIZE",
    help="Size of a record.",
)
@click.option(
    "--duration",
    type=parse_seconds,
    default="5s",
    show_default=True,
    metavar="TIME",
    help="Duration of each of the five loads.",
)
@click.option(
    "--in-flight",
    type=click.IntRange(1, 10_000),
    default=64,
    show_default=True,
    metavar="N",
    help="Frames that are unanswered at a time.",
)
@click.option(
    "--profile",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Profile the proxy with cProfile, which slows it down: write the profile to FILE, and"
    " print the functions with the most time of their own.",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Directory for the cluster. [default: a temporary directory]",
)
@click.option(
    "--seed", type=int, default=0, show_default=True, metavar="N", help="Random seed."
)
def proxy(
    *,
    record_size: int,
    duration: float,
    in_flight: int,
    profile: Path | None,
    data_dir: Path | None,
    seed: int,
) -> None:
    """Measure the appends that one write proxy takes, next to what its frames alone cost.

    One WebSocket sends JSON, then MessagePack, with 100 records a frame and with one; then
    geolog's own client sends sealed batches. The floor of a load is 1/(1/codec + 1/WebSocket):
    the codec decodes the frames and encodes the answers in one process, and the WebSocket
    carries the same frames to a server that only answers. The cluster is temporary, on this
    machine: nodes, proxy and client share its cores.
    """
    if this_invocation().config.zookeeper:
        raise click.UsageError(
            "bench proxy loads one proxy of a cluster of its own: leave out --zookeeper"
        )
    if not 1 <= record_size <= _RECORD_BYTES_MAX:
        raise click.UsageError(
            f"--record-size {record_size}: give 1B to 64KiB, so that a frame holds 100 of them"
        )
    load = ProxyLoad(
        record_bytes=record_size,
        duration_s=duration,
        frames_in_flight=in_flight,
        profile=profile,
        seed=seed,
    )
    report = run_to_a_signal(partial(_measure, data_dir=data_dir), load)
    output = this_invocation().config.output
    shown = report.figures if output == "table" else {"figures": report.figures}
    show(shown, output, _COLUMNS)
    if report.profile:
        print(report.profile, file=sys.stderr)


async def _measure(load: ProxyLoad, *, data_dir: Path | None) -> ProxyReport:
    return await measure_proxy(
        load,
        data_dir=data_dir,
        needed_bytes=round(_DISK_BYTES_PER_S * load.duration_s * LOADS_COUNT),
        tell=tell,
    )
