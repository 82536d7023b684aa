"""`geolog bench proxy`: measures what one write proxy takes."""

from pathlib import Path

import click

from geolog.cli.invocation import Verb, examples
from geolog.cli.late_import import done_by
from geolog.settings.quantities import parse_bytes, parse_seconds


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
@done_by("geolog.cli.verbs.bench_proxy")
def proxy(**_: object) -> None:
    """Measure the appends that one write proxy takes, next to what its frames alone cost.

    One WebSocket sends JSON, then MessagePack, with 100 records a frame and with one; then
    geolog's own client sends sealed batches. The floor of a load is 1/(1/codec + 1/WebSocket):
    the codec decodes the frames and encodes the answers in one process, and the WebSocket
    carries the same frames to a server that only answers. The cluster is temporary, on this
    machine: nodes, proxy and client share its cores.
    """
