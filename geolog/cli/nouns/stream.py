"""`geolog stream`: create, list, describe, change, seal, truncate and delete streams."""

from collections.abc import Callable
from typing import Literal, ParamSpec

import click

from geolog.cli.arguments import partition_or_stream, stream_name
from geolog.cli.choices import SORT_KEYS
from geolog.cli.invocation import Noun, examples
from geolog.cli.late_import import done_by
from geolog.settings.quantities import parse_bytes, parse_seconds
from topology.errors import InvalidArgumentError

P = ParamSpec("P")


def parse_regions(text: str) -> tuple[str, ...]:
    """Parse names of regions, separated by commas; `none` and nothing name none."""
    named = tuple(one for one in (part.strip() for part in text.split(",")) if one)
    return () if named == ("none",) else named


_isolation_option = click.option(
    "--on-isolation",
    type=click.Choice(["continue", "stop"]),
    help="While the home is cut off from ZooKeeper: continue keeps acknowledging appends, which"
    " a failover may leave behind; stop refuses them within seconds. [default: continue]",
)


def _retention_options(verb: Callable[P, None]) -> Callable[P, None]:
    """Add the options for trimmed records that mirrors lack."""
    for option in (
        click.option(
            "--relay-evict-bytes",
            type=parse_bytes,
            metavar="SIZE",
            help="With --relay-retention evict: trimmed bytes of each partition to keep for a"
            " mirror that lacks them. [default: 1GiB]",
        ),
        click.option(
            "--relay-retention",
            type=click.Choice(["hold", "evict"]),
            help="Records that retention or truncate would drop and a mirror lacks: hold keeps"
            " them all; evict keeps some, and the mirror goes on behind a gap. [default: hold]",
        ),
    ):
        verb = option(verb)
    return verb


def _rpo_options(verb: Callable[P, None]) -> Callable[P, None]:
    """Add the options that bound what the loss of a home could cost."""
    for option in (
        click.option(
            "--rpo-targets",
            metavar="all|any|R,R",
            help="Mirrors that count for --rpo-max: all of them, any one, or those in these"
            " regions. [default: all]",
        ),
        click.option(
            "--rpo-max",
            type=_rpo_max,
            metavar="TIME|SIZE|none",
            help="Refuse appends while mirrors are further behind than this, e.g. 5s, or 64MiB"
            " in a partition. [default: none]",
        ),
    ):
        verb = option(verb)
    return verb


def _rpo_max(text: str) -> dict[str, float | int | None]:
    """The settings that a bound on a loss stands for; none turns it off."""
    if text == "none":
        return {"rpo_max_s": None, "rpo_max_bytes": None}
    try:
        return {"rpo_max_s": parse_seconds(text)}
    except InvalidArgumentError as not_seconds:
        try:
            return {"rpo_max_bytes": parse_bytes(text)}
        except InvalidArgumentError:
            raise InvalidArgumentError(
                f"{text!r} is neither a time, e.g. 5s, nor a size, e.g. 64MiB, nor 'none'"
            ) from not_seconds


@click.group(cls=Noun, name="stream")
def command() -> None:
    """Create, list, describe, change, seal, truncate and delete streams."""


@command.command(
    epilog=examples(
        "geolog stream create shop/orders",
        "geolog stream create shop/clicks --partitions 4 --retention 7d",
        "geolog stream create shop/local --survive '1 rack'",
        "geolog stream create shop/carts --mode regional --home us-east --relay-to eu-west",
        "geolog stream create shop/small --ensemble 3 --write-quorum 3 --ack-quorum 2 \\",
        "    --min-regions 2",
    )
)
@click.argument("name", metavar="STREAM", type=stream_name)
@click.option(
    "--mode",
    type=click.Choice(["global", "regional"]),
    help="Replication mode. global: acknowledge an append once it is durable in several"
    " regions; regional: once it is durable in the home region. [default: the namespace's, else"
    " global]",
)
@click.option(
    "--home",
    metavar="REGION",
    help="Home of a regional stream: the region of all its copies. [default: the namespace's,"
    " else --region]",
)
@click.option(
    "--relay-to",
    type=parse_regions,
    metavar="R,R|none",
    help="Regions that mirror a regional stream, e.g. eu-west,ap-northeast. [default: the"
    " namespace's, else none]",
)
@click.option(
    "--relay-from",
    default="earliest",
    show_default=True,
    metavar="POSITION",
    help="Where mirrors begin: earliest or latest; a new stream has no other place.",
)
@_retention_options
@_rpo_options
@_isolation_option
@click.option(
    "--survive",
    metavar="LOSS",
    help="Failures to survive: '1 node', '1 rack', '1 region', '1 region and 1 node' or"
    " '2 regions'. Chooses the quorum sizes and the policy. [default: '1 region', unless"
    " sizes or --policy are given]",
)
@click.option(
    "--ensemble",
    "ensemble_size",
    type=int,
    metavar="E",
    help="Ensemble size: nodes that the entries of a segment are spread over.",
)
@click.option(
    "--write-quorum", type=int, metavar="W", help="Write quorum: copies of each entry."
)
@click.option(
    "--ack-quorum",
    type=int,
    metavar="A",
    help="Ack quorum: copies on disk before an append is acknowledged.",
)
@click.option(
    "--min-regions",
    type=int,
    metavar="M",
    help="Regions that the copies of an ack quorum must span.",
)
@click.option(
    "--durability",
    type=click.Choice(["regions", "count"]),
    default="regions",
    show_default=True,
    help="Acknowledge an append after A copies in at least M regions, or after A copies alone.",
)
@click.option(
    "--policy",
    metavar="NAME",
    help="Placement policy: default, local_node, rack_aware, region_aware, zone_aware, or one"
    " of an installed package. [default: chosen by --survive]",
)
@click.option(
    "--segment-size",
    "segment_bytes",
    type=parse_bytes,
    default="64MiB",
    show_default=True,
    metavar="SIZE",
    help="Roll to a new segment at this size, e.g. 64MiB.",
)
@click.option(
    "--partitions",
    type=int,
    default=1,
    show_default=True,
    metavar="N",
    help="Number of partitions; records are ordered within each.",
)
@click.option(
    "--segment-age",
    "segment_age_s",
    type=parse_seconds,
    default="1h",
    show_default=True,
    metavar="TIME",
    help="Roll to a new segment at this age, even if it is not full, e.g. 1h.",
)
@click.option(
    "--retention",
    "retention_s",
    type=parse_seconds,
    metavar="TIME",
    help="Keep records for at least this long, e.g. 7d. [default: forever]",
)
@click.option(
    "--retention-bytes",
    type=parse_bytes,
    metavar="SIZE",
    help="Keep at least this much of each partition, e.g. 10GiB. [default: all]",
)
@click.option(
    "--writer-retention",
    "writer_retention_s",
    type=parse_seconds,
    default="7d",
    show_default=True,
    metavar="TIME",
    help="Forget a named writer (append --writer) after it has been idle for this long, e.g."
    " 7d.",
)
@click.option(
    "--if-not-exists",
    is_flag=True,
    help="Succeed if the stream already exists with these settings.",
)
@done_by("geolog.cli.verbs.stream")
def create(**_: object) -> None:
    """Create a stream. STREAM is NAMESPACE/NAME, e.g. shop/orders.

    By default the stream survives the loss of one region; a regional stream has three copies,
    on different racks of its home. Choose another promise with --survive, or set quorum sizes
    yourself. Sizes that you omit are chosen so that the stream survives the loss of one region;
    if that is impossible, a warning says so. Prints the settings, the reasons for them and
    their cost.
    """


@command.command(
    "ls",
    epilog=examples(
        "geolog stream ls",
        "geolog stream ls shop --long --sort size",
        "geolog stream ls shop -o jsonl",
    ),
)
@click.argument("namespace", required=False)
@click.option(
    "-l",
    "--long",
    is_flag=True,
    help="Show partitions, size, survival, owner and retention, too.",
)
@click.option(
    "--sort",
    type=click.Choice(SORT_KEYS),
    help="Sort by name, or by partitions, size or creation, the most or newest first; implies"
    " --long.",
)
@done_by("geolog.cli.verbs.stream")
def list_(**_: object) -> None:
    """List all streams, or those of NAMESPACE.

    The size is that of completed segments; it leaves out the open ones, and copies.
    """


@command.command(
    epilog=examples(
        "geolog stream describe shop/orders",
        "geolog stream describe shop/orders -o json",
    )
)
@click.argument("name", metavar="STREAM", type=stream_name)
@done_by("geolog.cli.verbs.stream")
def describe(**_: object) -> None:
    """Show a stream's settings and its partitions."""


def _seconds_or_all(text: str) -> float | Literal["forever"]:
    """Parse a time, or `forever`."""
    return "forever" if text == "forever" else parse_seconds(text)


def _bytes_or_all(text: str) -> int | Literal["all"]:
    """Parse a size, or `all`."""
    return "all" if text == "all" else parse_bytes(text)


@command.command(
    epilog=examples(
        "geolog stream update shop/orders --retention 7d --retention-bytes 10GiB",
        "geolog stream update shop/orders --retention forever",
        "geolog stream update shop/carts --relay-to eu-west,ap-northeast",
        "geolog stream update shop/carts --relay-to eu-west --relay-from latest",
    )
)
@click.argument("name", metavar="STREAM", type=stream_name)
@click.option(
    "--partitions", type=int, metavar="N", help="Number of partitions; it can only grow."
)
@click.option(
    "--segment-size",
    "segment_bytes",
    type=parse_bytes,
    metavar="SIZE",
    help="Roll to a new segment at this size, e.g. 64MiB.",
)
@click.option(
    "--segment-age",
    "segment_age_s",
    type=parse_seconds,
    metavar="TIME",
    help="Roll to a new segment at this age, even if it is not full, e.g. 1h.",
)
@click.option(
    "--retention",
    "retention_s",
    type=_seconds_or_all,
    metavar="TIME|forever",
    help="Keep records for at least this long, e.g. 7d.",
)
@click.option(
    "--retention-bytes",
    type=_bytes_or_all,
    metavar="SIZE|all",
    help="Keep at least this much of each partition, e.g. 10GiB.",
)
@click.option(
    "--writer-retention",
    "writer_retention_s",
    type=parse_seconds,
    metavar="TIME",
    help="Forget a named writer (append --writer) after it has been idle for this long, e.g."
    " 7d.",
)
@click.option(
    "--relay-to",
    type=parse_regions,
    metavar="R,R|none",
    help="Regions that mirror a regional stream from now on. The mirrors in other regions are"
    " deleted.",
)
@click.option(
    "--relay-from",
    metavar="POSITION",
    help="Where new mirrors begin, rounded down to a segment: earliest, latest, last:N, a DLSN,"
    " sequence:N, time:RFC3339, time:-1h or txid:N. [default: earliest]",
)
@_retention_options
@_rpo_options
@_isolation_option
@done_by("geolog.cli.verbs.stream")
def update(**_: object) -> None:
    """Change settings of a stream; options not given leave theirs unchanged.

    Writers opened after the change use the new settings.
    """


@command.command(
    epilog=examples(
        "geolog stream defaults shop",
        "geolog stream defaults shop --mode regional --home us-east --relay-to eu-west",
        "geolog stream defaults shop --mode global",
    )
)
@click.argument("namespace")
@click.option(
    "--mode",
    type=click.Choice(["global", "regional"]),
    help="Replication mode of streams whose creator gives none.",
)
@click.option("--home", metavar="REGION", help="Home of regional streams.")
@click.option(
    "--relay-to",
    type=parse_regions,
    metavar="R,R|none",
    help="Regions that mirror regional streams; a stream's own home is left out.",
)
@done_by("geolog.cli.verbs.stream")
def defaults(**_: object) -> None:
    """Show or set the defaults of streams that are made in NAMESPACE later.

    With --mode all three are set; the others need it. Streams that exist stay as they are.
    """


@command.command(
    epilog=examples(
        "geolog stream seal shop/orders",
        "geolog stream seal shop/orders --yes",
    )
)
@click.argument("name", metavar="STREAM", type=stream_name)
@done_by("geolog.cli.verbs.stream")
def seal(**_: object) -> None:
    """Seal a stream: fence its writers and refuse all further appends.

    Its records stay readable. This cannot be undone.
    """


@command.command(
    epilog=examples(
        "geolog stream truncate shop/orders --before sequence:1000",
        "geolog stream truncate shop/orders --before time:-7d --yes",
    )
)
@click.argument("name", metavar="STREAM[#P]", type=partition_or_stream)
@click.option(
    "--before",
    required=True,
    metavar="POSITION",
    help="First position to keep: latest, last:N, a DLSN (e.g. 3-120-0), sequence:N,"
    " time:RFC3339, time:-1h or txid:N.",
)
@done_by("geolog.cli.verbs.stream")
def truncate(**_: object) -> None:
    """Delete all records before a position. This cannot be undone.

    A DLSN, sequence or transaction id is a position in one partition: if the stream has
    several partitions, name one as STREAM#P. Prints the first sequence that each partition
    keeps.
    """


@command.command(
    epilog=examples(
        "geolog stream delete shop/orders",
        "geolog stream delete shop/orders --yes",
    )
)
@click.argument("name", metavar="STREAM", type=stream_name)
@done_by("geolog.cli.verbs.stream")
def delete(**_: object) -> None:
    """Delete a stream and all its records. This cannot be undone."""
