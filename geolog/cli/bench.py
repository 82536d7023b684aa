"""`geolog bench`: figures of acknowledged work beside the floor measured in the same run."""

import random
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import click
import trio

from geolog.cli.invocation import Invocation, Noun, tell, this_invocation
from geolog.cli.output import show
from geolog.cli.quantities import format_bytes, parse_bytes, parse_seconds
from geolog.cli.session import open_log
from geolog.cli.settings import parse_address
from geolog.cli.signals import ending_at_signals
from geolog.client.connect import connect
from geolog.client.log import Log
from geolog.wire.limits import RECORD_BYTES_MAX
from sim.bench.append import Load, Site, measure_append
from sim.bench.figures import Figure
from sim.bench.own_cluster import open_own_cluster
from sim.cluster.place import fresh_directory

_STREAM = "bench/append"
_DISK_BYTES_PER_S = 1_000_000_000
_COLUMNS = ("name", "value", "unit", "floor", "ratio", "goal")

# Goals on three nodes with three copies, two of them answered for, one writer.
_GOALS = {1 << 10: 0.6, 64 << 10: 0.75}


@attrs.frozen(kw_only=True)
class BenchOptions:
    """What one `geolog bench append` was asked for."""

    invocation: Invocation
    record_sizes: Sequence[int]
    duration_s: float
    in_flight_bytes: int
    is_one_at_a_time_too: bool
    data_dir: Path | None
    seed: int


@click.group(cls=Noun, name="bench")
def command() -> None:
    """Measure, with the floor that the disk sets beside each figure."""


@command.command()
@click.option(
    "--record-size",
    "record_sizes",
    type=parse_bytes,
    multiple=True,
    metavar="SIZE",
    help="May be given several times; default 1KiB and 64KiB.",
)
@click.option(
    "--duration", type=parse_seconds, default="10s", metavar="TIME", help="Each load's."
)
@click.option(
    "--in-flight",
    type=parse_bytes,
    default="8MiB",
    metavar="SIZE",
    help="Unanswered at a time.",
)
@click.option("--single/--no-single", default=True, help="Also one record at a time.")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="On the disk to measure; default: a temporary directory.",
)
@click.option("--seed", type=int, default=0, help="Of the payloads.")
def append(
    *,
    record_sizes: Sequence[int],
    duration: float,
    in_flight: int,
    single: bool,
    data_dir: Path | None,
    seed: int,
) -> None:
    """One writer appends; rate, MB/s and latencies of acknowledged appends, beside the floor.

    The floor of the throughput is what as many processes as there are nodes reach together with
    write and fdatasync of the run's own mean write size, divided by the copies of an entry; the
    payload cannot be compressed. Without --zookeeper it starts and ends a cluster of its own.
    """
    for record_bytes in record_sizes:
        if not 1 <= record_bytes <= RECORD_BYTES_MAX:
            raise click.UsageError(
                f"--record-size {format_bytes(record_bytes)}: a record of the bench has 1B to "
                f"{format_bytes(RECORD_BYTES_MAX)}"
            )
    options = BenchOptions(
        invocation=this_invocation(),
        record_sizes=record_sizes or (1 << 10, 64 << 10),
        duration_s=duration,
        in_flight_bytes=in_flight,
        is_one_at_a_time_too=single,
        data_dir=data_dir,
        seed=seed,
    )
    figures = trio.run(ending_at_signals, _measure, options)
    if figures is None:
        raise click.Abort
    output = options.invocation.config.output
    show(figures if output == "table" else {"figures": figures}, output, _COLUMNS)


async def _measure(options: BenchOptions) -> list[Figure]:
    rng = random.Random(options.seed)

    def payloads_of(record_bytes: int, pool_bytes: int) -> list[bytes]:
        return [rng.randbytes(record_bytes) for _ in range(max(2, pool_bytes // record_bytes))]

    async with _open_site(options) as site:
        return await measure_append(
            site,
            _loads(options),
            duration_s=options.duration_s,
            payloads_of=payloads_of,
            tell=tell,
        )


def _disk_bytes(options: BenchOptions) -> int:
    """What the nodes may store: three copies of what a fast disk takes in that time."""
    return round(_DISK_BYTES_PER_S * options.duration_s * (len(options.record_sizes) + 1))


def _loads(options: BenchOptions) -> list[Load]:
    """The single appends come first: a disk that has just taken gigabytes syncs late."""
    single = Load(
        name="1KiB one at a time",
        record_bytes=1 << 10,
        in_flight_bytes=options.in_flight_bytes,
        is_one_at_a_time=True,
    )
    many = [
        Load(
            name=format_bytes(size),
            record_bytes=size,
            in_flight_bytes=options.in_flight_bytes,
            floor_share_goal=_GOALS.get(size),
        )
        for size in options.record_sizes
    ]
    return [single, *many] if options.is_one_at_a_time_too else many


@asynccontextmanager
async def _open_site(options: BenchOptions) -> AsyncIterator[Site]:
    config = options.invocation.config
    if config.zookeeper:
        directory = options.data_dir or fresh_directory()
        try:
            async with open_log(options.invocation) as log:
                yield await _site(log, config.cluster, directory)
        finally:
            if options.data_dir is None:
                shutil.rmtree(directory, ignore_errors=True)
        return
    tell("starting three nodes in three regions, and a ZooKeeper server")
    async with (
        open_own_cluster(options.data_dir, needed_bytes=_disk_bytes(options)) as plan,
        connect(zookeeper=plan.zookeeper, cluster=plan.cluster, region=plan.regions[0]) as log,
    ):
        yield await _site(log, plan.cluster, plan.directory)


async def _site(log: Log, cluster: str, directory: Path) -> Site:
    """Three copies, two of them on disk, in two regions, before the answer."""
    stream = await log.create_stream(
        _STREAM,
        ensemble_size=3,
        write_quorum=3,
        ack_quorum=2,
        min_regions=2,
        segment_bytes=1 << 30,
        if_not_exists=True,
    )
    nodes = [parse_address(node.address) for node in await log.list_nodes()]
    return Site(
        log=log,
        cluster=cluster,
        stream=_STREAM,
        write_quorum=stream.write_quorum,
        nodes=nodes,
        directory=directory,
    )
