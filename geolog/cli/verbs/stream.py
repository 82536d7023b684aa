"""The work behind `geolog stream`."""

import textwrap
import time
from functools import partial

import attrs
import click

from geolog.background import all_of
from geolog.catalog.descriptions import (
    MirrorDescription,
    PartitionDescription,
    StreamDescription,
)
from geolog.catalog.stream_settings import check_policy
from geolog.cli.arguments import confirm
from geolog.cli.choices import SortKey
from geolog.cli.invocation import tell, this_invocation
from geolog.cli.session import ask
from geolog.cli.terminal.output import show
from geolog.cli.terminal.stream_rows import (
    sorted_streams,
    stream_document,
    stream_row,
    stream_settings,
)
from geolog.client.log import Log
from geolog.client.placement_policies import own_policies
from geolog.client.reading.bounds import parse_bound
from geolog.protocol.stream_state import StreamName
from topology.errors import NoSuchStreamError
from topology.stream_policy import terms_named
from topology.survive import Loss

_EVICT_BYTES = 1 << 30

_DESCRIBED_AT_ONCE = 16
"""Streams whose metadata is read at once: each takes a few reads for each partition."""

_SIZES = ("ensemble_size", "write_quorum", "ack_quorum", "min_regions")


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


def _with_rpo(settings: dict[str, object]) -> dict[str, object]:
    """The settings with those that --rpo-max stands for; options not given are left out."""
    given = {key: value for key, value in settings.items() if not key.startswith("rpo_")}
    if settings["rpo_targets"] is not None:
        given["rpo_targets"] = settings["rpo_targets"]
    bound = settings["rpo_max"]
    return given | (bound if isinstance(bound, dict) else {})


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
    """Create a stream."""
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
    show(stream_settings(description), output)
    for line in description.explanation:
        print(textwrap.fill(line, 96, initial_indent="  - ", subsequent_indent="    "))
    print()
    show([_partition_row(one) for one in description.partition_list], output)
    if description.mirror_list:
        print()
        show([_mirror_row(one) for one in description.mirror_list], output)


def _with_life(owner: str | None, *, is_alive: bool) -> str | None:
    """The owner, and whether it is gone."""
    return owner if owner is None or is_alive else f"{owner} (gone)"


def _partition_row(partition: PartitionDescription) -> dict[str, object]:
    """Row of one partition, to fit 80 columns."""
    return {
        "partition": partition.partition,
        "owner": _with_life(partition.owner, is_alive=partition.owner_is_alive),
        "segments": partition.segments_count,
        "first": partition.first_sequence,
        "completed_to": partition.completed_sequence,
    }


def _mirror_row(mirror: MirrorDescription) -> dict[str, object]:
    """Row of one mirror, to fit 80 columns."""
    return {
        "partition": mirror.partition,
        "mirror": mirror.region,
        "owner": _with_life(mirror.owner, is_alive=mirror.owner_is_alive),
        "rows": mirror.rows_count,
        "first": mirror.first_sequence,
        "completed_to": mirror.completed_sequence,
        "evicted": mirror.evicted,
    }


def list_(namespace: str | None, *, long: bool, sort: SortKey | None) -> None:
    """List all streams, or those of NAMESPACE."""
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


def describe(name: str) -> None:
    """Show a stream's settings and its partitions."""
    _show(ask(lambda log: log.describe_stream(name)))


def update(*, name: str, relay_from: str | None, **settings: object) -> None:
    """Change settings of a stream; options not given leave theirs unchanged."""
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


def defaults(
    *, namespace: str, mode: str | None, home: str | None, relay_to: tuple[str, ...] | None
) -> None:
    """Show or set the defaults of streams that are made in NAMESPACE later."""
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


def seal(name: str) -> None:
    """Seal a stream: fence its writers and refuse all further appends."""
    confirm(f"Seal {name} permanently?")
    _show(ask(lambda log: log.seal_stream(name)))


def truncate(*, name: str, before: str) -> None:
    """Delete all records before a position."""
    bound = parse_bound(before, now_us=_now_us)
    confirm(f"Delete all records of {name} before {before} permanently?")
    firsts = ask(lambda log: log.truncate_stream(name, before=bound))
    found = [{"partition": number, "first_sequence": first} for number, first in firsts.items()]
    show(found, this_invocation().config.output)


def _now_us() -> int:
    return time.time_ns() // 1000  # noqa: TID251 - `time:-1h` means an hour before now.


def delete(name: str) -> None:
    """Delete a stream and all its records."""
    confirm(f"Delete {name} and all its records permanently?")
    ask(lambda log: log.delete_stream(name))
