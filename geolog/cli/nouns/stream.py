"""`geolog stream`: create, list, describe, change, seal, truncate and delete streams."""

import textwrap
import time
from collections.abc import Callable
from functools import partial
from typing import Literal, ParamSpec

import attrs
import click

from geolog.background import all_of
from geolog.catalog.descriptions import (
    MirrorDescription,
    PartitionDescription,
    StreamDescription,
)
from geolog.catalog.stream_settings import check_policy
from geolog.cli.arguments import confirm, partition_or_stream, stream_name
from geolog.cli.invocation import Noun, examples, tell, this_invocation
from geolog.cli.session import ask
from geolog.cli.terminal.output import show
from geolog.cli.terminal.stream_rows import (
    SORT_KEYS,
    SortKey,
    sorted_streams,
    stream_document,
    stream_row,
)
from geolog.client.log import Log
from geolog.client.placement_policies import own_policies
from geolog.client.reading.bounds import parse_bound
from geolog.protocol.stream_state import StreamName
from geolog.settings.quantities import parse_bytes, parse_seconds
from topology.errors import InvalidArgumentError, NoSuchStreamError
from topology.stream_policy import terms_named
from topology.survive import Loss

P = ParamSpec("P")

_EVICT_BYTES = 1 << 30

_DESCRIBED_AT_ONCE = 16
"""Streams whose metadata is read at once: each takes a few reads for each partition."""

_SIZES = ("ensemble_size", "write_quorum", "ack_quorum", "min_regions")


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


def _take_relay_retention(settings: dict[str, object]) -> None:
    """Turn the two options for trimmed records into one setting. UsageError."""
    kind, size_bytes = settings.pop("relay_retention"), settings["relay_evict_bytes"]
    if kind == "hold" and size_bytes is not None:
        raise click.UsageError(
            "--relay-evict-bytes is for --relay-retention evict: hold keeps all"
        )
    if kind == "hold":
        settings["relay_evict_bytes"] = "all"
    elif kind == "evict" and size_bytes is None:
        settings["relay_evict_bytes"] = _EVICT_BYTES


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


def _with_rpo(settings: dict[str, object]) -> dict[str, object]:
    """The settings with those that --rpo-max stands for; options not given are left out."""
    given = {key: value for key, value in settings.items() if not key.startswith("rpo_")}
    if settings["rpo_targets"] is not None:
        given["rpo_targets"] = settings["rpo_targets"]
    bound = settings["rpo_max"]
    return given | (bound if isinstance(bound, dict) else {})


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
def create(
    *,
    name: str,
    survive: str | None,
    policy: str | None,
    if_not_exists: bool,
    mode: str | None,
    relay_from: str,
    **settings: object,
) -> None:
    """Create a stream. STREAM is NAMESPACE/NAME, e.g. shop/orders.

    By default the stream survives the loss of one region; a regional stream has three copies,
    on different racks of its home. Choose another promise with --survive, or set quorum sizes
    yourself. Sizes that you omit are chosen so that the stream survives the loss of one region;
    if that is impossible, a warning says so. Prints the settings, the reasons for them and
    their cost.
    """
    settings["on_isolation"] = settings["on_isolation"] or "continue"
    _take_relay_retention(settings)
    if settings["relay_evict_bytes"] == "all":
        settings["relay_evict_bytes"] = None
    settings = _with_rpo(settings)
    begin = parse_bound(relay_from, now_us=_now_us)
    has_sizes = any(settings[size] is not None for size in _SIZES)
    if survive is not None and has_sizes:
        raise click.UsageError("give either --survive or quorum sizes, not both")
    if survive is not None:
        Loss.parse(survive, is_regional=mode == "regional")
    if policy is not None:
        check_policy(terms_named(policy), own_policies())

    async def make(log: Log) -> StreamDescription:
        namespace = StreamName.parse(name).namespace
        wanted = mode or (await log.namespace_defaults(namespace)).mode.value
        promised = survive
        if not has_sizes and wanted == "global" and policy in (None, "region_aware"):
            promised = survive or "1 region"
        return await log.create_stream(
            name,
            mode=mode,
            survive=promised,
            policy=policy,
            relay_from=begin,
            if_not_exists=if_not_exists,
            **settings,  # type: ignore[arg-type] # Options are named and typed as its settings.
        )

    description = ask(make, minds_region=True)
    is_told = survive is not None or description.mode == "regional"
    if description.survives_region is False and not is_told:
        tell(
            f"warning: {name} does NOT survive losing a region:"
            f" {description.survives_region_why_not}"
        )
    _show(description)


def _show(description: StreamDescription) -> None:
    """Print a stream: one document, or for people its settings and a row per partition."""
    output = this_invocation().config.output
    if output != "table":
        show(description, output)
        return
    document = attrs.asdict(description, recurse=False)
    for name in ("partition_list", "mirror_list", "explanation", "survives_region_why_not"):
        del document[name]
    if description.survives_region is None:
        del document["survives_region"]
    if description.retention_s is None:
        document["retention_s"] = "forever"
    if description.retention_bytes is None:
        document["retention_bytes"] = "all"
    if description.relay_evict_bytes is None:
        document["relay_evict_bytes"] = "holds all" if description.relay_to else None
    document["relay_to"] = ", ".join(description.relay_to) or None
    for name in ("rpo_max_s", "rpo_max_bytes"):
        if document[name] is None:
            del document[name]
    document["rpo_targets"] = ", ".join(description.rpo_targets)
    if description.rpo_max_s is None and description.rpo_max_bytes is None:
        del document["rpo_targets"]
    document["survive"] = description.survive or "set by its quorum sizes"
    show(document, output)
    for line in description.explanation:
        print(textwrap.fill(line, 96, initial_indent="  - ", subsequent_indent="    "))
    print()
    show([_partition_row(one) for one in description.partition_list], output)
    if description.mirror_list:
        print()
        show([_mirror_row(one) for one in description.mirror_list], output)


def _partition_row(partition: PartitionDescription) -> dict[str, object]:
    """Row of one partition, to fit 80 columns."""
    return {
        "partition": partition.partition,
        "owner": partition.owner,
        "is_alive": partition.owner_is_alive,
        "segments": partition.segments_count,
        "first_sequence": partition.first_sequence,
        "completed_to": partition.completed_sequence,
    }


def _mirror_row(mirror: MirrorDescription) -> dict[str, object]:
    """Row of one mirror, to fit 80 columns."""
    return {
        "partition": mirror.partition,
        "mirror": mirror.region,
        "owner": mirror.owner,
        "is_alive": mirror.owner_is_alive,
        "rows": mirror.rows_count,
        "first_sequence": mirror.first_sequence,
        "completed_to": mirror.completed_sequence,
        "evicted": mirror.evicted,
    }


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
def list_(namespace: str | None, *, long: bool, sort: SortKey | None) -> None:
    """List all streams, or those of NAMESPACE.

    The size is that of completed segments; it leaves out the open ones, and copies.
    """
    where = "" if namespace is None else f" in {namespace!r}"
    empty = f"no streams{where}; create one with: geolog stream create NAMESPACE/NAME"
    output = this_invocation().config.output
    if long or sort is not None:
        streams = sorted_streams(ask(partial(_describe_all, namespace)), sort or "name")
        row = stream_row if output == "table" else stream_document
        show([row(stream) for stream in streams], output, empty=empty)
        return
    names = ask(lambda log: log.list_streams(namespace))
    show(
        names if output == "table" else [{"name": name} for name in names], output, empty=empty
    )


async def _describe_all(namespace: str | None, log: Log) -> list[StreamDescription]:
    """Describe all streams of a namespace, without those that are deleted meanwhile."""

    async def describe_if_there(name: str) -> StreamDescription | None:
        try:
            return await log.describe_stream(name)
        except NoSuchStreamError:
            return None

    names = await log.list_streams(namespace)
    asked = [partial(describe_if_there, name) for name in names]
    found = await all_of(asked, at_once_max=_DESCRIBED_AT_ONCE)
    return [one for one in found if one is not None]


@command.command(
    epilog=examples(
        "geolog stream describe shop/orders",
        "geolog stream describe shop/orders -o json",
    )
)
@click.argument("name", metavar="STREAM", type=stream_name)
def describe(name: str) -> None:
    """Show a stream's settings and its partitions."""
    _show(ask(lambda log: log.describe_stream(name)))


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
def update(*, name: str, relay_from: str | None, **settings: object) -> None:
    """Change settings of a stream; options not given leave theirs unchanged.

    Writers opened after the change use the new settings.
    """
    _take_relay_retention(settings)
    rpo = _with_rpo({key: settings.pop(key) for key in ("rpo_max", "rpo_targets")})
    given = {
        key: None if value in ("forever", "all") else value
        for key, value in settings.items()
        if value is not None
    } | rpo
    if relay_from is not None and not given.get("relay_to"):
        raise click.UsageError("--relay-from is for new targets: name them with --relay-to")
    if not given:
        raise click.UsageError(
            "nothing to change: give at least one setting, e.g. --retention 7d"
        )
    begin = parse_bound(relay_from or "earliest", now_us=_now_us)
    description = ask(
        lambda log: log.update_stream(
            name,
            relay_from=begin,
            **given,  # type: ignore[arg-type] # Options are named and typed as its settings.
        )
    )
    _show(description)


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
def defaults(
    *, namespace: str, mode: str | None, home: str | None, relay_to: tuple[str, ...] | None
) -> None:
    """Show or set the defaults of streams that are made in NAMESPACE later.

    With --mode all three are set; the others need it. Streams that exist stay as they are.
    """
    if mode is None and (home is not None or relay_to is not None):
        raise click.UsageError("give --mode, too: the defaults are set together")
    if mode is None:
        found = ask(lambda log: log.namespace_defaults(namespace))
    else:
        found = ask(
            lambda log: log.set_namespace_defaults(
                namespace, mode=mode, home=home, relay_to=relay_to or ()
            )
        )
    document = attrs.asdict(found, recurse=False) | {"relay_to": list(found.relay_to)}
    if this_invocation().config.output == "table":
        document["relay_to"] = ", ".join(found.relay_to) or None
    show(document, this_invocation().config.output)


@command.command(
    epilog=examples(
        "geolog stream seal shop/orders",
        "geolog stream seal shop/orders --yes",
    )
)
@click.argument("name", metavar="STREAM", type=stream_name)
def seal(name: str) -> None:
    """Seal a stream: fence its writers and refuse all further appends.

    Its records stay readable. This cannot be undone.
    """
    confirm(f"Seal {name} permanently?")
    _show(ask(lambda log: log.seal_stream(name)))


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
def truncate(*, name: str, before: str) -> None:
    """Delete all records before a position. This cannot be undone.

    A DLSN, sequence or transaction id is a position in one partition: if the stream has
    several partitions, name one as STREAM#P. Prints the first sequence that each partition
    keeps.
    """
    bound = parse_bound(before, now_us=_now_us)
    confirm(f"Delete all records of {name} before {before} permanently?")
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
@click.argument("name", metavar="STREAM", type=stream_name)
def delete(name: str) -> None:
    """Delete a stream and all its records. This cannot be undone."""
    confirm(f"Delete {name} and all its records permanently?")
    ask(lambda log: log.delete_stream(name))
