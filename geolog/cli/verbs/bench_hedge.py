"""The work behind `geolog bench hedge`."""

from pathlib import Path

import attrs
import click

from geolog.cli.invocation import Invocation, tell, this_invocation
from geolog.cli.signals import run_to_a_signal
from geolog.cli.terminal.output import show
from sim.processes.bench.hedge.hedge import HedgeLoad, HedgeReport, measure_hedge
from sim.processes.bench.hedge.hedge_site import open_hedge_site

_ROUND_TRIP_S = 0.04

_JUDGED = ("name", "value", "unit", "floor", "ratio", "goal")


@attrs.frozen(kw_only=True)
class HedgeOptions:
    """Options of one `geolog bench hedge`."""

    load: HedgeLoad
    entries_count: int
    record_bytes: int
    data_dir: Path | None
    only: str | None


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
    """Measure reads while a replica stalls, is cut off, paused or slow."""
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
