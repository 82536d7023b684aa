"""`geolog bench relay`: measures one link between two regions."""

from pathlib import Path

import click

from geolog.cli.invocation import Verb, examples
from geolog.cli.late_import import done_by
from geolog.settings.quantities import (
    parse_bytes,
    parse_bytes_per_second,
    parse_seconds,
)


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
@done_by("geolog.cli.verbs.bench_relay")
def relay(**_: object) -> None:
    """Measure a link between two regions, its price, and what the end of a relay costs.

    It always runs on a temporary cluster with emulated WAN. The floor of the throughput is the
    emulated bandwidth, or the WebSocket hop alone if that is less; that of the lag is half a
    round trip; that of appends with a dead target is appends without relay. Then, without
    emulated WAN, relays end in the middle of a load: records that the mirrors lost, gave twice
    or out of order, the longest silence, and the time until records sent afterwards came.

    With --backlog, it measures only how a target catches up: the rate, next to the cap of the
    relays, and the lag of another stream on the same link.
    """
