"""`geolog stream`: make streams, look at them, change, seal, truncate and delete them."""

import textwrap
import time
from typing import Literal

import attrs
import click

from geolog.catalog.descriptions import PartitionDescription, StreamDescription
from geolog.catalog.stream_settings import parse_policy
from geolog.cli.arguments import confirm, partition_or_stream, stream_name
from geolog.cli.invocation import Noun, examples, tell, this_invocation
from geolog.cli.session import ask
from geolog.cli.settings.quantities import parse_bytes, parse_seconds
from geolog.cli.terminal.output import show
from geolog.client.reading.bounds import parse_bound
from topology.survive import Loss

_SIZES = ("ensemble_size", "write_quorum", "ack_quorum", "min_regions")


@click.group(cls=Noun, name="stream")
def command() -> None:
    """Make streams, look at them, change, seal, truncate and delete them."""


@command.command(
    epilog=examples(
        "geolog stream create shop/orders",
        "geolog stream create shop/clicks --partitions 4 --retention 7d",
        "geolog stream create shop/local --survive '1 rack'",
        "geolog stream create shop/small --ensemble 3 --write-quorum 3 --ack-quorum 2 \\",
        "    --min-regions 2",
    )
)
@click.argument("name", type=stream_name)
@click.option(
    "--mode",
    type=click.Choice(["global"]),
    default="global",
    help="global: durable in several regions before an append is answered.",
)
@click.option(
    "--survive",
    metavar="'1 region'",
    help="What the stream outlives, and so E, W, A, m and the policy: '1 node', '1 rack',"
    " '1 region', '1 region and 1 node' or '2 regions'.",
)
@click.option("--ensemble", "ensemble_size", type=int, metavar="E", help="Nodes of a segment.")
@click.option("--write-quorum", type=int, metavar="W", help="Copies of an entry.")
@click.option("--ack-quorum", type=int, metavar="A", help="Copies on disk before the answer.")
@click.option("--min-regions", type=int, metavar="M", help="Distinct regions among those.")
@click.option(
    "--durability",
    type=click.Choice(["regions", "count"]),
    default="regions",
    show_default=True,
    help="Whether an answer waits for M regions too, or for A copies alone.",
)
@click.option(
    "--policy",
    metavar="NAME",
    help="default, local_node, rack_aware, region_aware or zone_aware; --survive gives one.",
)
@click.option(
    "--segment-size",
    "segment_bytes",
    type=parse_bytes,
    default="64MiB",
    show_default=True,
    metavar="SIZE",
    help="At which size a segment is closed.",
)
@click.option(
    "--partitions",
    type=int,
    default=1,
    show_default=True,
    metavar="N",
    help="Logs that it is made of, each with an order of its own.",
)
@click.option(
    "--segment-age",
    "segment_age_s",
    type=parse_seconds,
    default="1h",
    show_default=True,
    metavar="TIME",
    help="After how long a segment is closed though it is not full.",
)
@click.option(
    "--retention",
    "retention_s",
    type=parse_seconds,
    metavar="TIME",
    help="How long records are kept at least, as 7d. Default: forever.",
)
@click.option(
    "--retention-bytes",
    type=parse_bytes,
    metavar="SIZE",
    help="How much each partition keeps at least, as 10GiB. Default: all.",
)
@click.option(
    "--writer-retention",
    "writer_retention_s",
    type=parse_seconds,
    default="7d",
    show_default=True,
    metavar="TIME",
    help="How long a named writer that is idle is remembered.",
)
@click.option(
    "--if-not-exists",
    is_flag=True,
    help="A stream that exists with these settings is no error.",
)
def create(
    *,
    name: str,
    survive: str | None,
    policy: str | None,
    if_not_exists: bool,
    **settings: object,
) -> None:
    """Create the stream NAMESPACE/NAME.

    Without --survive, quorum sizes and another --policy it survives the loss of one region.
    Quorum sizes that you leave out are chosen so that it still does; where none do, the answer
    says that it does NOT survive losing a region, and why. The choice is explained, with its
    cost.
    """
    has_sizes = any(settings[size] is not None for size in _SIZES)
    if survive is not None and has_sizes:
        raise click.UsageError("give --survive, or the quorum sizes, not both")
    if survive is not None:
        Loss.parse(survive)
    if policy is not None:
        parse_policy(policy)
    if not has_sizes and policy in (None, "region_aware"):
        survive = survive or "1 region"
    description = ask(
        lambda log: log.create_stream(
            name,
            survive=survive,
            policy=policy,
            if_not_exists=if_not_exists,
            **settings,  # type: ignore[arg-type] # Options are named and typed as its settings.
        ),
        minds_region=True,
    )
    if description.survives_region is False and survive is None:
        tell(
            f"warning: {name} does NOT survive losing a region:"
            f" {description.survives_region_why_not}"
        )
    _show(description)


def _show(description: StreamDescription) -> None:
    """A stream as one document; for people its settings, then a line for each partition."""
    output = this_invocation().config.output
    if output != "table":
        show(description, output)
        return
    document = attrs.asdict(description, recurse=False)
    for name in ("partition_list", "explanation", "survives_region_why_not"):
        del document[name]
    if description.survives_region is None:
        del document["survives_region"]
    if description.retention_s is None:
        document["retention_s"] = "forever"
    if description.retention_bytes is None:
        document["retention_bytes"] = "all"
    document["survive"] = description.survive or "as its quorums say"
    show(document, output)
    for line in description.explanation:
        print(textwrap.fill(line, 96, initial_indent="  - ", subsequent_indent="    "))
    print()
    show([_partition_row(one) for one in description.partition_list], output)


def _partition_row(partition: PartitionDescription) -> dict[str, object]:
    """One partition, in a line of 80 columns."""
    return {
        "partition": partition.partition,
        "owner": partition.owner,
        "is_alive": partition.owner_is_alive,
        "segments": partition.segments_count,
        "first_sequence": partition.first_sequence,
        "completed_to": partition.completed_sequence,
    }


@command.command(
    "ls",
    epilog=examples(
        "geolog stream ls",
        "geolog stream ls shop -o jsonl",
    ),
)
@click.argument("namespace", required=False)
def list_(namespace: str | None) -> None:
    """List the streams, of one NAMESPACE or all."""
    names = ask(lambda log: log.list_streams(namespace))
    output = this_invocation().config.output
    where = "" if namespace is None else f" in {namespace!r}"
    show(
        names if output == "table" else [{"name": name} for name in names],
        output,
        empty=f"no streams{where}; geolog stream create NAMESPACE/NAME makes one",
    )


@command.command(
    epilog=examples(
        "geolog stream describe shop/orders",
        "geolog stream describe shop/orders -o json",
    )
)
@click.argument("name", type=stream_name)
def describe(name: str) -> None:
    """Show how the stream is kept, and how far it reaches."""
    _show(ask(lambda log: log.describe_stream(name)))


def _seconds_or_all(text: str) -> float | Literal["forever"]:
    """A time, or `forever`."""
    return "forever" if text == "forever" else parse_seconds(text)


def _bytes_or_all(text: str) -> int | Literal["all"]:
    """A size, or `all`."""
    return "all" if text == "all" else parse_bytes(text)


@command.command(
    epilog=examples(
        "geolog stream update shop/orders --retention 7d --retention-bytes 10GiB",
        "geolog stream update shop/orders --retention forever",
    )
)
@click.argument("name", type=stream_name)
@click.option("--partitions", type=int, metavar="N", help="More than before; never less.")
@click.option(
    "--segment-size",
    "segment_bytes",
    type=parse_bytes,
    metavar="SIZE",
    help="At which it is closed, as 64MiB.",
)
@click.option(
    "--segment-age",
    "segment_age_s",
    type=parse_seconds,
    metavar="TIME",
    help="At which it is closed, as 1h.",
)
@click.option(
    "--retention",
    "retention_s",
    type=_seconds_or_all,
    metavar="TIME|forever",
    help="How long records are kept at least, as 7d.",
)
@click.option(
    "--retention-bytes",
    type=_bytes_or_all,
    metavar="SIZE|all",
    help="How much each partition keeps at least, as 10GiB.",
)
@click.option(
    "--writer-retention",
    "writer_retention_s",
    type=parse_seconds,
    metavar="TIME",
    help="How long a named writer that is idle is remembered, as 7d.",
)
def update(*, name: str, **settings: object) -> None:
    """Change settings of the stream; what is not given stays.

    Writers that begin from now on go by them.
    """
    given = {
        key: None if value in ("forever", "all") else value
        for key, value in settings.items()
        if value is not None
    }
    if not given:
        raise click.UsageError("nothing is to be changed: give a setting, as --retention 7d")
    description = ask(
        lambda log: log.update_stream(
            name,
            **given,  # type: ignore[arg-type] # Options are named and typed as its settings.
        )
    )
    _show(description)


@command.command(
    epilog=examples(
        "geolog stream seal shop/orders",
        "geolog stream seal shop/orders --yes",
    )
)
@click.argument("name", type=stream_name)
def seal(name: str) -> None:
    """Let nothing be appended any more; its writers are fenced, its records stay.

    It cannot be undone.
    """
    confirm(f"Seal {name} for good?")
    _show(ask(lambda log: log.seal_stream(name)))


@command.command(
    epilog=examples(
        "geolog stream truncate shop/orders --before sequence:1000",
        "geolog stream truncate shop/orders --before time:-7d --yes",
    )
)
@click.argument("name", metavar="STREAM", type=partition_or_stream)
@click.option(
    "--before",
    required=True,
    metavar="POSITION",
    help="latest, last:N, DLSN, sequence:N, time:RFC3339, time:-1h, txid:N.",
)
def truncate(*, name: str, before: str) -> None:
    """Cut off the records of STREAM before a position, for good.

    A DLSN, sequence or transaction id names a place in one partition: STREAM#P, if there are
    several. Says at which sequence each partition begins now.
    """
    bound = parse_bound(before, now_us=_now_us)
    confirm(f"Cut off the records of {name} before {before}?")
    firsts = ask(lambda log: log.truncate_stream(name, before=bound))
    found = [{"partition": number, "first_sequence": first} for number, first in firsts.items()]
    show(found, this_invocation().config.output)


def _now_us() -> int:
    return time.time_ns() // 1000  # noqa: TID251 - `time:-1h` means an hour before now.


@command.command(
    epilog=examples(
        "geolog stream delete shop/orders",
        "geolog stream delete shop/orders --yes",
    )
)
@click.argument("name", type=stream_name)
def delete(name: str) -> None:
    """Delete the stream and all its records, for good."""
    confirm(f"Delete {name} and all its records?")
    ask(lambda log: log.delete_stream(name))
