"""`geolog bench relay`: measures one link between two regions."""

from pathlib import Path

import click

from geolog.cli.invocation import Verb, examples, tell, this_invocation
from geolog.cli.signals import run_to_a_signal
from geolog.cli.terminal.output import show
from geolog.settings.quantities import (
    format_bytes,
    parse_bytes,
    parse_bytes_per_second,
    parse_seconds,
)
from sim.processes.bench.figures import Figure
from sim.processes.bench.relay import RelayLoad, measure_relay
from sim.processes.bench.relay_backlog import BacklogLoad, measure_backlog
from sim.processes.bench.relay_failover import Failover, FailoverLoad, measure_failovers
from sim.processes.drills.timeline import Timeline

_COLUMNS = ("name", "value", "unit", "floor", "ratio", "goal")
_RECORD_BYTES_MIN, _RECORD_BYTES_MAX = 64, 1 << 20
_BACKLOG_BYTES_MIN = 1 << 20


@click.command(
    cls=Verb,
    epilog=examples(
        "geolog bench relay",
        "geolog bench relay --rtt 220ms --bandwidth 10MB/s -o json",
        "geolog bench relay --failovers 3 --plot relay.svg",
    ),
)
@click.option(
    "--rtt",
    "round_trips_s",
    type=parse_seconds,
    multiple=True,
    metavar="TIME",
    help="Emulated round trip; may be repeated. [default: 80ms and 220ms]",
)
@click.option(
    "--bandwidth",
    type=parse_bytes_per_second,
    default="20MB/s",
    show_default=True,
    metavar="RATE",
    help="Emulated bandwidth of the link, each way.",
)
@click.option(
    "--record-size",
    type=parse_bytes,
    default="16KiB",
    show_default=True,
    metavar="SIZE",
    help="Size of a record.",
)
@click.option(
    "--duration",
    type=parse_seconds,
    default="6s",
    show_default=True,
    metavar="TIME",
    help="Duration of each of the loads: two for each round trip, and one for each failover.",
)
@click.option(
    "--failovers",
    type=click.IntRange(0, 100),
    default=1,
    show_default=True,
    metavar="N",
    help="How often each end's coordinator is killed, and leaves, at 500 records a second of"
    " two senders; 0 leaves that out.",
)
@click.option(
    "--backlog",
    type=parse_bytes,
    metavar="SIZE",
    help="Instead, let a target catch up with SIZE of one stream while another is live, e.g."
    " 1GiB.",
)
@click.option(
    "--cap",
    type=parse_bytes_per_second,
    default="20MB/s",
    show_default=True,
    metavar="RATE",
    help="Most that relays send with --backlog (their --link-bandwidth).",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write a plot of the deliveries over time (SVG) to FILE.",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Directory for the data of the cluster. [default: a temporary directory]",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    metavar="N",
    help="Random seed for payloads.",
)
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
    """Measure a link between two regions, its price, and what the end of a relay costs.

    It always runs on a temporary cluster with emulated WAN. The floor of the throughput is the
    emulated bandwidth, or the WebSocket hop alone if that is less; that of the lag is half a
    round trip; that of appends with a dead target is appends without relay. Then, without
    emulated WAN, relays end in the middle of a load: records that the mirrors lost, gave twice
    or out of order, the longest silence, and the time until records sent afterwards came.

    With --backlog, it measures only how a target catches up: the rate, next to the cap of the
    relays, and the lag of another stream on the same link.
    """
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
