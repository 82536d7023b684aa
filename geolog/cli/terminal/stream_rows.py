"""Rows of `geolog stream ls --long` and `describe`: what each stream is, at a glance."""

from collections.abc import Callable, Sequence

import attrs

from geolog.catalog.descriptions import PartitionDescription, StreamDescription
from geolog.cli.choices import SortKey
from geolog.cli.terminal.output import Plain
from geolog.settings.quantities import format_bytes, format_seconds


def sorted_streams(
    streams: Sequence[StreamDescription], key: SortKey
) -> list[StreamDescription]:
    """Sort by this key, the most first; by name from A to Z, and among equals."""
    return sorted(streams, key=lambda one: (_ORDERS[key](one), one.name))


_ORDERS: dict[SortKey, Callable[[StreamDescription], int]] = {
    "name": lambda _: 0,
    "partitions": lambda stream: -stream.partitions,
    "size": lambda stream: -size_bytes_of(stream),
    "created": lambda stream: -stream.created_us,
}


def size_bytes_of(stream: StreamDescription) -> int:
    """Bytes of the batches in its completed segments; open ones do not tell theirs."""
    return sum(one.completed_bytes for one in stream.partition_list)


def stream_document(stream: StreamDescription) -> dict[str, Plain]:
    """Document of one stream, for programs."""
    return {
        "name": stream.name,
        "mode": stream.mode,
        "home": stream.home,
        "partitions": stream.partitions,
        "size_bytes": size_bytes_of(stream),
        "survive": stream.survive,
        "owners": [one.owner for one in stream.partition_list],
        "owners_alive": [one.owner_is_alive for one in stream.partition_list],
        "retention_s": stream.retention_s,
        "retention_bytes": stream.retention_bytes,
        "is_sealed": stream.is_sealed,
        "created_us": stream.created_us,
    }


def stream_row(stream: StreamDescription) -> dict[str, Plain]:
    """Row of one stream, for people."""
    return {
        "name": stream.name,
        "partitions": stream.partitions,
        # Nothing is completed yet, which does not mean that nothing is written.
        "size_bytes": size_bytes_of(stream) or None,
        "survives": stream.survive or f"W {stream.write_quorum}, A {stream.ack_quorum}",
        "owner": "sealed" if stream.is_sealed else _owner(stream.partition_list),
        "retention": _retention(stream),
    }


def _owner(partitions: Sequence[PartitionDescription]) -> str | None:
    """The owner of all partitions; else how many owners there are, and how many are gone.

    A proxy is named without its region, to fit 80 columns.
    """
    owned = {
        one.owner.partition(" in ")[0]: one.owner_is_alive
        for one in partitions
        if one.owner is not None
    }
    gone_count = sum(not is_alive for is_alive in owned.values())
    if len(owned) <= 1:
        return next((f"{name} (gone)" if gone_count else name for name in owned), None)
    return f"{len(owned)} owners" + (f", {gone_count} gone" if gone_count else "")


def _retention(stream: StreamDescription) -> str:
    """Limits of what is kept at least; a segment goes when all of them allow it."""
    limits = []
    if stream.retention_s is not None:
        limits.append(format_seconds(stream.retention_s))
    if stream.retention_bytes is not None:
        limits.append(format_bytes(stream.retention_bytes))
    return ", ".join(limits) or "forever"


_OF_REGIONAL = ("home", "relay_to", "relay_evict_bytes", "on_isolation")
"""Settings that say nothing of a global stream."""


def stream_settings(stream: StreamDescription) -> dict[str, object]:
    """Settings of one stream, for people; without those that do not apply to it."""
    document = attrs.asdict(stream, recurse=False)
    for name in ("partition_list", "mirror_list", "explanation", "survives_region_why_not"):
        del document[name]
    if stream.survives_region is None:
        del document["survives_region"]
    if stream.retention_s is None:
        document["retention_s"] = "forever"
    if stream.retention_bytes is None:
        document["retention_bytes"] = "all"
    if stream.relay_evict_bytes is None:
        document["relay_evict_bytes"] = "holds all" if stream.relay_to else None
    document["relay_to"] = ", ".join(stream.relay_to) or None
    for name in ("rpo_max_s", "rpo_max_bytes"):
        if document[name] is None:
            del document[name]
    document["rpo_targets"] = ", ".join(stream.rpo_targets)
    if stream.rpo_max_s is None and stream.rpo_max_bytes is None:
        del document["rpo_targets"]
    document["survive"] = stream.survive or "set by its quorum sizes"
    if stream.mode == "global":
        for name in _OF_REGIONAL:
            del document[name]
    return document
