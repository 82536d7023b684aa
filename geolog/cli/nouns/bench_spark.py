"""`geolog bench spark`: measures batch reads by Spark."""

from pathlib import Path

import click

from geolog.cli.invocation import Verb, examples
from geolog.cli.late_import import done_by
from geolog.settings.quantities import parse_bytes


@click.command(
    cls=Verb,
    epilog=examples(
        "geolog bench spark",
        "geolog bench spark --record-size 1KiB --tasks 2 --turns 9 -o json",
    ),
)
@click.option(
    "--record-size",
    "record_sizes",
    type=parse_bytes,
    multiple=True,
    metavar="SIZE",
    help="Size of a value; may be repeated. [default: 100B and 1KiB]",
)
@click.option(
    "--size",
    type=parse_bytes,
    default="256MiB",
    show_default=True,
    metavar="SIZE",
    help="Bytes to write to each stream, then read.",
)
@click.option(
    "--tasks",
    "tasks_counts",
    type=click.IntRange(1, 1000),
    multiple=True,
    metavar="N",
    help="Tasks of a read, of which two run at once; may be repeated. [default: 1, 2 and 4]",
)
@click.option(
    "--turns",
    type=click.IntRange(1, 100),
    default=5,
    show_default=True,
    metavar="N",
    help="Turns that each way of reading has; each figure is the median of its turns.",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Directory on the disk to measure. [default: a temporary directory]",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    metavar="N",
    help="Random seed for payloads.",
)
@done_by("geolog.cli.verbs.bench_spark")
def spark(**_: object) -> None:
    """Measure how fast Spark reads a stream, next to the ceiling of any source in Python.

    Three sources are read in turns by Spark on two cores: the stream, one that yields the same
    batches from memory (the ceiling), and the same rows as Parquet on the local disk; and one
    process reads the stream as `geolog bench read` does. The floor is 1/(1/ceiling + 1/read):
    each record is read, then handed to Spark. The last figures are the memory of a task, and
    of one with ten times the records. Without --zookeeper, runs on a temporary cluster.
    """
