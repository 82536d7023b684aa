"""The work behind `geolog bench`."""

import random
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import attrs
import click

from geolog.cli.bench_site import SiteWanted, open_site
from geolog.cli.invocation import Invocation, tell, this_invocation
from geolog.cli.signals import run_to_a_signal
from geolog.cli.terminal.bench_table import bench_lines
from geolog.cli.terminal.output import show, table_medium
from geolog.cli.terminal.progress import Progress
from geolog.client.proxies.proxies import Via
from geolog.settings.quantities import format_bytes
from geolog.wire.limits import RECORD_BYTES_MAX
from sim.processes.bench.append import Load, measure_append
from sim.processes.bench.figures import Figure
from sim.processes.bench.read import ReadLoad, measure_interleaved, measure_read
from sim.processes.bench.tail import TailLoad, measure_tail

_DISK_BYTES_PER_S = 1_000_000_000

_COPIES = 3

_COLUMNS = ("name", "value", "unit", "floor", "ratio", "goal")

_READ_STORAGE_OPTIONS = ("--journal-file-bytes", "16MiB", "--tail-cache-bytes-max", "1MiB")
"""Small journal files, so that nearly all entries are in sealed ones; a small tail cache."""

# Goals for three nodes, three copies, an ack quorum of two and one writer.
_GOALS = {1 << 10: 0.6, 64 << 10: 0.75}


@attrs.frozen(kw_only=True)
class BenchOptions:
    """Options of one `geolog bench append`."""

    invocation: Invocation
    record_sizes: Sequence[int]
    duration_s: float
    in_flight_bytes: int
    is_one_at_a_time_too: bool
    is_proxied: bool
    ledgers_count: int
    data_dir: Path | None
    seed: int


@attrs.frozen(kw_only=True)
class BenchReadOptions:
    """Options of one `geolog bench read`."""

    invocation: Invocation
    load: ReadLoad
    interleaved: int | None
    readers_count: int
    data_dir: Path | None
    seed: int


@attrs.frozen(kw_only=True)
class TailOptions:
    """Options of one `geolog bench tail`."""

    invocation: Invocation
    load: TailLoad
    data_dir: Path | None
    seed: int


Options = TypeVar("Options", BenchOptions, BenchReadOptions, TailOptions)


def append(
    *,
    record_sizes: Sequence[int],
    duration: float,
    in_flight: int,
    single: bool,
    ledgers: int,
    via: Via,
    data_dir: Path | None,
    seed: int,
) -> None:
    """Measure the rate, throughput and latency of appends, next to the disk's floor."""
    for record_bytes in record_sizes:
        _check_record_size(record_bytes)
    options = BenchOptions(
        invocation=this_invocation(),
        record_sizes=record_sizes or (1 << 10, 64 << 10),
        duration_s=duration,
        in_flight_bytes=in_flight,
        is_one_at_a_time_too=single and ledgers == 1,
        ledgers_count=ledgers,
        is_proxied=via == "proxy",
        data_dir=data_dir,
        seed=seed,
    )
    figures = _figures(_measure_append, options)
    if options.invocation.config.output == "table":
        for line in bench_lines(figures, *table_medium()):
            print(line)
    else:
        _show(figures)


def read(
    *,
    record_size: int | None,
    size: int,
    interleaved: int | None,
    readers: int,
    data_dir: Path | None,
    seed: int,
) -> None:
    """Write a stream and measure reading it back."""
    record_bytes = record_size
    if record_bytes is None:
        record_bytes = 4096 if interleaved else 1024
    _check_record_size(record_bytes)
    options = BenchReadOptions(
        invocation=this_invocation(),
        load=ReadLoad(record_bytes=record_bytes, size_bytes=size),
        interleaved=interleaved,
        readers_count=readers,
        data_dir=data_dir,
        seed=seed,
    )
    _run(_measure_read, options)


def tail(
    *,
    record_size: int,
    rate: float,
    readers: int,
    duration: float,
    data_dir: Path | None,
    seed: int,
) -> None:
    """Measure the time from an append to its delivery to readers at the tail."""
    _check_record_size(record_size)
    options = TailOptions(
        invocation=this_invocation(),
        load=TailLoad(
            record_bytes=record_size,
            rate_per_s=rate,
            readers_count=readers,
            duration_s=duration,
        ),
        data_dir=data_dir,
        seed=seed,
    )
    _run(_measure_tail, options)


def _check_record_size(record_bytes: int) -> None:
    if not 1 <= record_bytes <= RECORD_BYTES_MAX:
        raise click.UsageError(
            f"--record-size {format_bytes(record_bytes)} is out of range: give 1B to "
            f"{format_bytes(RECORD_BYTES_MAX)}"
        )


def _run(measure: Callable[[Options], Awaitable[list[Figure]]], options: Options) -> None:
    _show(_figures(measure, options))


def _figures(
    measure: Callable[[Options], Awaitable[list[Figure]]], options: Options
) -> list[Figure]:
    return run_to_a_signal(measure, options)


def _show(figures: list[Figure]) -> None:
    output = this_invocation().config.output
    show(figures if output == "table" else {"figures": figures}, output, _COLUMNS)


def _payloads(rng: random.Random, record_bytes: int, pool_bytes: int) -> list[bytes]:
    return [rng.randbytes(record_bytes) for _ in range(max(2, pool_bytes // record_bytes))]


async def _measure_append(options: BenchOptions) -> list[Figure]:
    rng = random.Random(options.seed)

    def payloads_of(record_bytes: int, pool_bytes: int) -> list[bytes]:
        return _payloads(rng, record_bytes, pool_bytes)

    wanted = SiteWanted(
        streams_count=options.ledgers_count,
        is_proxied=options.is_proxied,
        data_dir=options.data_dir,
        needed_bytes=_disk_bytes(options),
    )
    async with open_site(options.invocation, wanted) as site:
        return await measure_append(
            site,
            _loads(options),
            duration_s=options.duration_s,
            payloads_of=payloads_of,
            tell=tell,
        )


async def _measure_read(options: BenchReadOptions) -> list[Figure]:
    load = options.load
    payloads = _payloads(random.Random(options.seed), load.record_bytes, 4 << 20)
    wanted = SiteWanted(
        streams_count=options.interleaved or 1,
        data_dir=options.data_dir,
        needed_bytes=2 * _COPIES * load.size_bytes,
        storage_options=_READ_STORAGE_OPTIONS,
    )
    measure = (
        measure_interleaved
        if options.interleaved
        else partial(measure_read, readers_count=options.readers_count)
    )
    async with open_site(options.invocation, wanted) as site:
        return await measure(site, load, payloads=payloads, tell=tell)


async def _measure_tail(options: TailOptions) -> list[Figure]:
    load = options.load
    filler = random.Random(options.seed).randbytes(max(0, load.record_bytes - 8))
    wanted = SiteWanted(
        data_dir=options.data_dir,
        needed_bytes=2 * _COPIES * load.record_bytes * load.records_count + (256 << 20),
    )
    async with open_site(options.invocation, wanted) as site:
        with Progress("appends", sys.stderr) as progress:
            return await measure_tail(site, load, filler=filler, progress=progress.at)


def _disk_bytes(options: BenchOptions) -> int:
    """Disk space the nodes may need: what a fast disk can take in that time."""
    ways_count = 2 if options.is_proxied else 1
    loads_count = len(options.record_sizes) + 1
    return round(_DISK_BYTES_PER_S * options.duration_s * loads_count * ways_count)


def _loads(options: BenchOptions) -> list[Load]:
    """Loads in order; single appends come first, as a disk syncs slowly after gigabytes."""
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
