"""`geolog bench relay`: measures one link between two regions."""

from functools import partial
from pathlib import Path

import click
import trio

from geolog.cli.invocation import Verb, examples, tell, this_invocation
from geolog.cli.settings.quantities import (
    format_bytes,
    parse_bytes,
    parse_bytes_per_second,
    parse_seconds,
)
from geolog.cli.signals import ending_at_signals
from geolog.cli.terminal.output import show
from sim.processes.bench.relay import RelayLoad, measure_relay

_COLUMNS = ("name", "value", "unit", "floor", "ratio", "goal")
_RECORD_BYTES_MIN, _RECORD_BYTES_MAX = 64, 1 << 20


@click.command(
    cls=Verb,
    epilog=examples(
        "geolog bench relay",
        "geolog bench relay --rtt 220ms --bandwidth 10MB/s -o json",
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
    help="Duration of each of the loads: two for each round trip, and one at the end.",
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
    data_dir: Path | None,
    seed: int,
) -> None:
    """Measure a link between two regions: throughput, lag, and what it costs appends.

    It always runs on a temporary cluster with emulated WAN. The floor of the throughput is the
    emulated bandwidth, or the WebSocket hop alone if that is less; that of the lag is half a
    round trip; that of appends with a dead target is appends without relay.
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
    figures = trio.run(
        ending_at_signals, partial(measure_relay, data_dir=data_dir, tell=tell), load
    )
    if figures is None:
        raise click.Abort
    output = invocation.config.output
    show(figures if output == "table" else {"figures": figures}, output, _COLUMNS)
