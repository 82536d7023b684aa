"""The work behind `geolog bench relay`."""

from pathlib import Path

import click

from geolog.cli.invocation import tell, this_invocation
from geolog.cli.signals import run_to_a_signal
from geolog.cli.terminal.output import show
from geolog.settings.quantities import (
    format_bytes,
)
from sim.processes.bench.figures import Figure
from sim.processes.bench.relay import RelayLoad, measure_relay
from sim.processes.bench.relay_backlog import BacklogLoad, measure_backlog
from sim.processes.bench.relay_failover import Failover, FailoverLoad, measure_failovers
from sim.processes.drills.timeline import Timeline

_COLUMNS = ("name", "value", "unit", "floor", "ratio", "goal")

_RECORD_BYTES_MIN, _RECORD_BYTES_MAX = 64, 1 << 20

_BACKLOG_BYTES_MIN = 1 << 20


def relay(
    *,
    round_trips_s: tuple[float, ...],
    bandwidth: float,
    record_size: int,
    duration: float,
    failovers: int,
    backlog: int | None,
    cap: float,
    plot: Path | None,
    data_dir: Path | None,
    seed: int,
) -> None:
    """Measure a link between two regions, its price, and what the end of a relay costs."""
    invocation = this_invocation()
    if invocation.config.zookeeper:
        raise click.UsageError(
            "bench relay runs on a cluster of its own, with an emulated WAN: leave --zookeeper"
            " (and zookeeper in the settings) out"
        )
    if not _RECORD_BYTES_MIN <= record_size <= _RECORD_BYTES_MAX:
        raise click.UsageError(
            f"--record-size {format_bytes(record_size)} is out of range: give"
            f" {format_bytes(_RECORD_BYTES_MIN)} to {format_bytes(_RECORD_BYTES_MAX)}"
        )
    load = RelayLoad(
        round_trips_s=round_trips_s or (0.08, 0.22),
        bandwidth_bytes_per_s=bandwidth,
        record_bytes=record_size,
        duration_s=duration,
        seed=seed,
    )
    if backlog is not None:
        _show_backlog(backlog, cap, round_trips_s, plot, data_dir, seed)
        return
    if plot is not None and not failovers:
        raise click.UsageError("--plot shows failovers: leave out --failovers 0")
    timeline = Timeline(lane_kind="mirror", counted="records")

    async def measure(load: RelayLoad) -> tuple[list[Figure], list[Failover]]:
        figures = await measure_relay(load, data_dir=data_dir, tell=tell)
        if not failovers:
            return figures, []
        ends = FailoverLoad(runs_count=failovers, duration_s=duration)
        return figures, await measure_failovers(
            ends, data_dir=data_dir, tell=tell, timeline=timeline
        )

    measured = run_to_a_signal(measure, load)
    figures, ended = measured
    if plot is not None:
        plot.write_text(
            timeline.svg("Records of two mirrors while relays end"), encoding="utf-8"
        )
    output = invocation.config.output
    if output != "table":
        show({"figures": figures, "failovers": ended}, output)
        return
    show(figures, output, _COLUMNS)
    if ended:
        print()
        show(ended, output)


def _show_backlog(
    backlog_bytes: int,
    cap_bytes_per_s: float,
    round_trips_s: tuple[float, ...],
    plot: Path | None,
    data_dir: Path | None,
    seed: int,
) -> None:
    if plot is not None:
        raise click.UsageError("--plot shows failovers: leave out --backlog")
    if len(round_trips_s) > 1:
        raise click.UsageError("--backlog takes one --rtt")
    if backlog_bytes < _BACKLOG_BYTES_MIN:
        raise click.UsageError(
            f"--backlog {format_bytes(backlog_bytes)} is too small to measure: give at least"
            f" {format_bytes(_BACKLOG_BYTES_MIN)}"
        )
    load = BacklogLoad(
        backlog_bytes=backlog_bytes,
        cap_bytes_per_s=cap_bytes_per_s,
        round_trip_s=round_trips_s[0] if round_trips_s else 0.08,
        seed=seed,
    )

    async def measure(load: BacklogLoad) -> list[Figure]:
        return await measure_backlog(load, data_dir=data_dir, tell=tell)

    figures = run_to_a_signal(measure, load)
    output = this_invocation().config.output
    if output == "table":
        show(figures, output, _COLUMNS)
    else:
        show({"figures": figures}, output)
