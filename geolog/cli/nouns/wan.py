"""`geolog wan`: shows and changes the emulated links between the regions of a running demo."""

from functools import partial
from pathlib import Path

import attrs
import click
import trio

from geolog.cli.exits import CheckFailedError
from geolog.cli.invocation import Noun, examples, this_invocation
from geolog.cli.settings.roles import DEMO, DemoConfig
from geolog.cli.terminal.output import show as show_result
from geolog.settings.quantities import (
    parse_bytes_per_second,
    parse_seconds,
    parse_share,
    short_bytes,
)
from geolog.settings.sources import configured
from sim.processes.cluster.place import started_last
from sim.processes.wan.check import Accuracy
from sim.processes.wan.check import check as measure
from sim.processes.wan.conditions import ALL, Conditions, LinkChange
from sim.processes.wan.control import ask_change, ask_show

# These fit 80 columns; JSON has the rest.
LINK_COLUMNS = ("from", "to", "one way", "jitter", "bandwidth", "stalls", "state", "carried")

directory_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Directory of the demo. [default: from the settings, else the demo started last]",
)
one_way_option = click.option(
    "--one-way", "is_one_way", is_flag=True, help="Affect only the direction from FROM to TO."
)


@click.group(cls=Noun, name="wan")
def command() -> None:
    """Show and change the emulated WAN of a demo. FROM and TO are regions, or all."""
    this_invocation().takes_demo = False


@command.command(epilog=examples("geolog wan show"))
@directory_option
def show(data_dir: Path | None) -> None:
    """Show the current state of each link, in each direction."""
    _show(trio.run(ask_show, _directory(data_dir)))


@command.command(
    name="set",
    epilog=examples(
        "geolog wan set us-east eu-west --rtt 80ms --bandwidth 20MB/s",
        "geolog wan set all all --jitter 5ms --stall-rate 1%",
    ),
)
@click.argument("here", metavar="FROM")
@click.argument("there", metavar="TO")
@click.option("--rtt", metavar="TIME", help="Round-trip time, e.g. 80ms: half of it each way.")
@click.option("--jitter", metavar="TIME", help="Variation of the round-trip time, e.g. 5ms.")
@click.option(
    "--bandwidth",
    metavar="RATE",
    help="Bandwidth each way, shared by all connections, e.g. 20MB/s.",
)
@click.option("--stall-rate", metavar="SHARE", help="Share of sent pieces that stall, e.g. 1%.")
@click.option(
    "--stall",
    metavar="TIME",
    help="Duration of a stall, e.g. 200ms (the shortest retransmission time-out of TCP).",
)
@one_way_option
@directory_option
def set_links(
    here: str,
    there: str,
    *,
    rtt: str | None,
    jitter: str | None,
    bandwidth: str | None,
    stall_rate: str | None,
    stall: str | None,
    is_one_way: bool,
    data_dir: Path | None,
) -> None:
    """Change links; options not given leave theirs unchanged. Affects data sent from now on."""
    change = LinkChange(
        rtt_s=None if rtt is None else parse_seconds(rtt),
        jitter_s=None if jitter is None else parse_seconds(jitter),
        bandwidth_bytes_per_s=None if bandwidth is None else parse_bytes_per_second(bandwidth),
        stall_rate=None if stall_rate is None else parse_share(stall_rate),
        stall_s=None if stall is None else parse_seconds(stall),
    )
    if change.is_nothing:
        raise click.UsageError(
            "nothing to change: give --rtt, --jitter, --bandwidth, --stall-rate or --stall"
        )
    _change(data_dir, here, there, change, is_one_way=is_one_way)


@command.command(
    epilog=examples(
        "geolog wan cut ap-northeast all",
        "geolog wan cut us-east eu-west --one-way",
    )
)
@click.argument("here", metavar="FROM")
@click.argument("there", metavar="TO")
@one_way_option
@directory_option
def cut(here: str, there: str, *, is_one_way: bool, data_dir: Path | None) -> None:
    """Cut links: nothing arrives. Connections stay open and continue once healed."""
    _change(data_dir, here, there, LinkChange(is_cut=True), is_one_way=is_one_way)


@command.command(
    epilog=examples(
        "geolog wan heal",
        "geolog wan heal ap-northeast all",
    )
)
@click.argument("here", metavar="[FROM", default=ALL)
@click.argument("there", metavar="TO]", default=ALL)
@one_way_option
@directory_option
def heal(here: str, there: str, *, is_one_way: bool, data_dir: Path | None) -> None:
    """Heal links that were cut: all of them, or those from FROM to TO."""
    _change(data_dir, here, there, LinkChange(is_cut=False), is_one_way=is_one_way)


@command.command(epilog=examples("geolog wan check"))
@directory_option
def check(data_dir: Path | None) -> None:
    """Measure round trips through the emulator and compare them with the configured ones.

    Exits with 10 if a median is off by both more than 2 ms and more than 5%. Jitter, stalls, or
    a load above half the bandwidth can cause this too.
    """
    document = trio.run(ask_show, _directory(data_dir))
    links, probes = document["links"], document["probes"]
    assert isinstance(links, list)
    assert isinstance(probes, dict)
    directions = {(link["from"], link["to"]): _conditions(link) for link in links}
    found = trio.run(measure, str(document["gateway"]), probes, directions)
    rows = [_accuracy_row(each) for each in found]
    output = this_invocation().config.output
    show_result(found if output != "table" else rows, output)
    if bad := [f"{each.here}-{each.there}" for each in found if not each.is_good]:
        raise CheckFailedError(f"round trips differ from the configured ones: {', '.join(bad)}")


def _change(
    data_dir: Path | None, here: str, there: str, change: LinkChange, *, is_one_way: bool
) -> None:
    ask = partial(ask_change, is_one_way=is_one_way)
    _show(trio.run(ask, _directory(data_dir), here, there, change))


def _directory(data_dir: Path | None) -> Path:
    config = configured(DemoConfig, this_invocation().decide(DEMO))
    return data_dir or config.data_dir or started_last()


def _show(document: dict[str, object]) -> None:
    links, output = document["links"], this_invocation().config.output
    assert isinstance(links, list)
    if output == "table":
        show_result([_link_row(link) for link in links], output, LINK_COLUMNS)
    else:
        show_result(links, output)


def _conditions(link: dict[str, object]) -> Conditions:
    names = (field.name for field in attrs.fields(Conditions))
    return Conditions(**{name: link[name] for name in names})  # type: ignore[arg-type]  # From JSON.


def _link_row(link: dict[str, object]) -> dict[str, object]:
    conditions = _conditions(link)
    return {
        "from": link["from"],
        "to": link["to"],
        "one way": _ms(conditions.delay_s),
        "jitter": _ms(conditions.jitter_s),
        "bandwidth": f"{conditions.bandwidth_bytes_per_s / 1e6:g}MB/s",
        "stalls": f"{100 * conditions.stall_rate:g}%" if conditions.stall_rate else None,
        "state": "cut" if conditions.is_cut else "up",
        "carried": short_bytes(int(str(link["carried_bytes"]))),
    }


def _accuracy_row(accuracy: Accuracy) -> dict[str, object]:
    return {
        "from": accuracy.here,
        "to": accuracy.there,
        "configured": _ms(accuracy.asked_s),
        "median": "cut" if accuracy.median_s is None else _ms(accuracy.median_s),
        "off": None if accuracy.off_s is None else _ms(accuracy.off_s),
        "to connect": None if accuracy.dial_s is None else _ms(accuracy.dial_s),
        "good": accuracy.is_good,
    }


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.4g}ms"
