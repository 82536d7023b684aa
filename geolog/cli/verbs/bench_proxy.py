"""The work behind `geolog bench proxy`."""

import sys
from functools import partial
from pathlib import Path

import click

from geolog.cli.invocation import tell, this_invocation
from geolog.cli.signals import run_to_a_signal
from geolog.cli.terminal.output import show
from sim.processes.bench.proxy import LOADS_COUNT, ProxyLoad, ProxyReport, measure_proxy

_COLUMNS = ("name", "value", "unit", "floor", "ratio", "goal")

_RECORD_BYTES_MAX = 1 << 16

_DISK_BYTES_PER_S = 300_000_000
"""A fast disk takes no more, of all copies."""


def proxy(
    *,
    record_size: int,
    duration: float,
    in_flight: int,
    profile: Path | None,
    data_dir: Path | None,
    seed: int,
) -> None:
    """Measure the appends that one write proxy takes, next to what its frames alone cost."""
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
