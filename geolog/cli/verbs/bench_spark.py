"""The work behind `geolog bench spark`."""

import random
from functools import partial
from pathlib import Path

import click

from geolog.cli.bench_site import SiteWanted, open_site
from geolog.cli.invocation import Invocation, tell, this_invocation
from geolog.cli.signals import run_to_a_signal
from geolog.cli.spark_needs import check_spark
from geolog.cli.terminal.output import show
from geolog.settings.quantities import format_bytes
from geolog.wire.limits import RECORD_BYTES_MAX
from sim.processes.bench.figures import Figure

_COLUMNS = ("name", "value", "unit", "floor", "ratio", "goal")

_COPIES = 3

_PAYLOADS_BYTES = 4 << 20


def spark(
    *,
    record_sizes: tuple[int, ...],
    size: int,
    tasks_counts: tuple[int, ...],
    turns: int,
    data_dir: Path | None,
    seed: int,
) -> None:
    """Measure how fast Spark reads a stream, next to the ceiling of any source in Python."""
    sizes = record_sizes or (100, 1 << 10)
    for record_bytes in sizes:
        if not 1 <= record_bytes <= RECORD_BYTES_MAX:
            raise click.UsageError(
                f"--record-size {format_bytes(record_bytes)} is out of range: give 1B to "
                f"{format_bytes(RECORD_BYTES_MAX)}"
            )
    check_spark("bench spark")
    invocation = this_invocation()
    measure = partial(
        _measure,
        record_sizes=sizes,
        size_bytes=size,
        tasks_counts=tasks_counts or (1, 2, 4),
        turns=turns,
        data_dir=data_dir,
        seed=seed,
    )
    figures = run_to_a_signal(measure, invocation)
    output = invocation.config.output
    show(figures if output == "table" else {"figures": figures}, output, _COLUMNS)


async def _measure(
    invocation: Invocation,
    *,
    record_sizes: tuple[int, ...],
    size_bytes: int,
    tasks_counts: tuple[int, ...],
    turns: int,
    data_dir: Path | None,
    seed: int,
) -> list[Figure]:
    from sim.processes.bench.spark import SparkLoad, measure_spark

    rng = random.Random(seed)

    def payloads_of(record_bytes: int) -> list[bytes]:
        count = max(2, _PAYLOADS_BYTES // record_bytes)
        return [rng.randbytes(record_bytes) for _ in range(count)]

    load = SparkLoad(
        record_sizes=record_sizes, size_bytes=size_bytes, tasks_counts=tasks_counts, turns=turns
    )
    wanted = SiteWanted(
        streams_count=len(record_sizes),
        data_dir=data_dir,
        needed_bytes=(2 * _COPIES + 2) * size_bytes * len(record_sizes),
    )
    async with open_site(invocation, wanted) as site:
        return await measure_spark(site, load, payloads_of=payloads_of, tell=tell)
