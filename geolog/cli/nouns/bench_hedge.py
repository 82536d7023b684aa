"""`geolog bench hedge`: measures what a late replica costs a reader, hedged and not."""

from pathlib import Path

import attrs
import click

from geolog.cli.invocation import Invocation, Verb, examples, tell, this_invocation
from geolog.cli.signals import run_to_a_signal
from geolog.cli.terminal.output import show
from geolog.settings.quantities import parse_bytes, parse_seconds
from sim.processes.bench.hedge.hedge import CASES, HedgeLoad, HedgeReport, measure_hedge
from sim.processes.bench.hedge.hedge_site import open_hedge_site

_ROUND_TRIP_S = 0.04
_RATE_MAX, _ENTRIES_MAX = 1_000, 100_000
_JUDGED = ("name", "value", "unit", "floor", "ratio", "goal")


@attrs.frozen(kw_only=True)
class HedgeOptions:
    """Options of one `geolog bench hedge`."""

    load: HedgeLoad
    entries_count: int
    record_bytes: int
    data_dir: Path | None
    only: str | None


@click.command(
    cls=Verb,
    epilog=examples(
        "geolog bench hedge",
        "geolog bench hedge --duration 5m --plot hedge.svg -o json",
        "geolog bench hedge --only cut-off",
    ),
)
@click.option(
    "--rate",
    type=click.IntRange(1, _RATE_MAX),
    default=100,
    show_default=True,
    metavar="N",
    help="Reads per second under each policy.",
)
@click.option(
    "--duration",
    type=parse_seconds,
    default="95s",
    show_default=True,
    metavar="TIME",
    help="Duration of all scenarios together.",
)
@click.option(
    "--only",
    type=click.Choice([case.replace(" ", "-") for case in CASES]),
    help="Run this case alone, after the healthy one; each takes its share of --duration.",
)
@click.option(
    "--record-size",
    type=parse_bytes,
    default="1KiB",
    show_default=True,
    metavar="SIZE",
    help="Size of a record; each is an entry of its own.",
)
@click.option(
    "--entries",
    type=click.IntRange(1, _ENTRIES_MAX),
    default=300,
    show_default=True,
    metavar="N",
    help="Number of entries to read from.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write a plot of the latency distributions (SVG) to FILE.",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Directory for the cluster. [default: a temporary directory]",
)
def hedge(
    *,
    rate: int,
    duration: float,
    only: str | None,
    record_size: int,
    entries: int,
    plot: Path | None,
    data_dir: Path | None,
) -> None:
    """Measure reads while a replica stalls, is cut off, paused or slow.

    One process reads single entries from a temporary cluster of two regions, 40 ms apart, under
    three hedge policies at once: auto, off, and BookKeeper's (again after 2 s, losers are not
    cancelled). Both replicas in its region are well at first; then one stalls at 1 % of its
    reads for 500 ms; then the region is cut off; then one node is paused (SIGSTOP); then all
    nodes are slow.
    """
    invocation = this_invocation()
    _check_own_cluster(invocation)
    options = HedgeOptions(
        load=HedgeLoad(rate_per_s=rate, duration_s=duration),
        entries_count=entries,
        record_bytes=record_size,
        data_dir=data_dir,
        only=None if only is None else only.replace("-", " "),
    )
    report = run_to_a_signal(_measure, options)
    if plot is not None:
        plot.write_text(report.svg(), encoding="utf-8")
    _show(invocation, report)


def _check_own_cluster(invocation: Invocation) -> None:
    if invocation.config.zookeeper:
        raise click.UsageError(
            "bench hedge pauses and cuts off nodes, so it needs a cluster of its own: leave out"
            " --zookeeper"
        )


async def _measure(options: HedgeOptions) -> HedgeReport:
    tell("starting two nodes in each of two regions, and a ZooKeeper server")
    async with open_hedge_site(
        options.data_dir,
        entries_count=options.entries_count,
        record_bytes=options.record_bytes,
        round_trip_s=_ROUND_TRIP_S,
    ) as site:
        return await measure_hedge(site, options.load, only=options.only, tell=tell)


def _show(invocation: Invocation, report: HedgeReport) -> None:
    output = invocation.config.output
    if output != "table":
        show(report.document(), output)
        return
    show(report.latencies, "table")
    print()
    show([each for each in report.figures if each.goal is not None], "table", _JUDGED)
    print()
    show(report.stages, "table")
