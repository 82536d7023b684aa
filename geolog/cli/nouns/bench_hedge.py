"""`geolog bench hedge`: measures what a late replica costs a reader, hedged and not."""

from pathlib import Path

import click

from geolog.cli.invocation import Verb, examples
from geolog.cli.late_import import done_by
from geolog.settings.quantities import parse_bytes, parse_seconds
from sim.processes.bench.hedge.cases import CASES

_RATE_MAX, _ENTRIES_MAX = 1_000, 100_000


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
@done_by("geolog.cli.verbs.bench_hedge")
def hedge(**_: object) -> None:
    """Measure reads while a replica stalls, is cut off, paused or slow.

    One process reads single entries from a temporary cluster of two regions, 40 ms apart, under
    three hedge policies at once: auto, off, and BookKeeper's (again after 2 s, losers are not
    cancelled). Both replicas in its region are well at first; then one stalls at 1 % of its
    reads for 500 ms; then the region is cut off; then one node is paused (SIGSTOP); then all
    nodes are slow.
    """
