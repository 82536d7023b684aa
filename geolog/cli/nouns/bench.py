"""`geolog bench`: measures acknowledged work against a floor measured in the same run."""

from pathlib import Path

import click

from geolog.cli.invocation import Noun, examples, this_invocation
from geolog.cli.late_import import done_by
from geolog.cli.nouns.bench_hedge import hedge
from geolog.cli.nouns.bench_proxy import proxy
from geolog.cli.nouns.bench_relay import relay
from geolog.cli.nouns.bench_spark import spark
from geolog.settings.quantities import parse_bytes, parse_seconds

_LEDGERS_MAX = 10_000

_data_dir = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Directory on the disk to measure. [default: a temporary directory]",
)

_seed = click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    metavar="N",
    help="Random seed for payloads.",
)


@click.group(cls=Noun, name="bench")
def command() -> None:
    """Measure appends and reads, next to what the disk alone can do (its floor)."""
    this_invocation().takes_demo = False


command.add_command(hedge)


command.add_command(proxy)


command.add_command(relay)


command.add_command(spark)


@command.command(
    epilog=examples(
        "geolog bench append",
        "geolog bench append --duration 30s --ledgers 100 -o json",
    )
)
@click.option(
    "--record-size",
    "record_sizes",
    type=parse_bytes,
    multiple=True,
    metavar="SIZE",
    help="Size of a record; may be repeated. [default: 1KiB and 64KiB]",
)
@click.option(
    "--duration",
    type=parse_seconds,
    default="10s",
    show_default=True,
    metavar="TIME",
    help="Duration of each load.",
)
@click.option(
    "--in-flight",
    type=parse_bytes,
    default="8MiB",
    show_default=True,
    metavar="SIZE",
    help="Bytes in flight (not yet acknowledged).",
)
@click.option(
    "--single/--no-single",
    default=True,
    show_default=True,
    help="Also append one record at a time (with one ledger).",
)
@click.option(
    "--ledgers",
    type=click.IntRange(1, _LEDGERS_MAX),
    default=1,
    show_default=True,
    metavar="N",
    help="Write N streams at once, one ledger each.",
)
@click.option(
    "--via",
    type=click.Choice(["direct", "proxy"]),
    default="direct",
    show_default=True,
    help="Writers own their streams (direct), or also measure writers that go through write"
    " proxies, and the WebSocket hop to a proxy alone (proxy).",
)
@_data_dir
@_seed
@done_by("geolog.cli.verbs.bench")
def append(**_: object) -> None:
    """Measure the rate, throughput and latency of appends, next to the disk's floor.

    To measure the throughput floor, one process per node only writes and syncs (fdatasync)
    blocks of the run's mean write size; the floor is their total throughput, divided by the
    copies of an entry. Payloads are incompressible. Without --zookeeper, runs on a temporary
    cluster.
    """


@command.command(
    epilog=examples(
        "geolog bench read",
        "geolog bench read --interleaved 50 --data-dir /mnt/disk",
    )
)
@click.option(
    "--record-size",
    type=parse_bytes,
    metavar="SIZE",
    help="Size of a record. [default: 1KiB; 4KiB with --interleaved]",
)
@click.option(
    "--size",
    type=parse_bytes,
    default="256MiB",
    show_default=True,
    metavar="SIZE",
    help="Bytes to write, then read.",
)
@click.option(
    "--interleaved",
    type=click.IntRange(2, _LEDGERS_MAX),
    metavar="N",
    help="Write N ledgers in turns, one entry each, then read some of them one after another.",
)
@click.option(
    "--readers",
    type=click.IntRange(1, 1000),
    default=8,
    show_default=True,
    metavar="N",
    help="Number of readers that read the stream at once, at the end.",
)
@_data_dir
@_seed
@done_by("geolog.cli.verbs.bench")
def read(**_: object) -> None:
    """Write a stream and measure reading it back: cold, warm, and by several readers at once.

    The floor is one process that reads the same bytes from the same disk, equally cold or warm.
    Entries of interleaved ledgers are not adjacent on disk, so that process makes one call per
    entry. The last figure is the processor time that one more reader costs the nodes.
    With --zookeeper the nodes' disks are unknown, so there is no floor.
    """


@command.command(epilog=examples("geolog bench tail --readers 3"))
@click.option(
    "--record-size",
    type=parse_bytes,
    default="1KiB",
    show_default=True,
    metavar="SIZE",
    help="Size of a record.",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    default=200,
    show_default=True,
    metavar="N",
    help="Appends per second.",
)
@click.option(
    "--readers",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    metavar="N",
    help="Number of readers at the tail.",
)
@click.option(
    "--duration",
    type=parse_seconds,
    default="10s",
    show_default=True,
    metavar="TIME",
    help="Duration of the run.",
)
@_data_dir
@_seed
@done_by("geolog.cli.verbs.bench")
def tail(**_: object) -> None:
    """Measure the time from an append to its delivery to readers at the tail.

    Appends at a light rate. Readers run in the owner's region. The floor of the p99 latency is
    the p99 of the appends in the same run.
    """
