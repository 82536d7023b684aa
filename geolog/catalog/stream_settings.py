"""A stream's settings: what a caller may ask for, what is valid, and what may change later.

Rules: PROTOCOL S14, T7 and T8.
"""

from collections.abc import Collection, Iterable
from typing import Literal

import attrs

from geolog.protocol.loss_bound import ALL_TARGETS, ANY_TARGET
from geolog.protocol.stream_state import (
    PARTITIONS_MAX,
    SEGMENT_AGE_S,
    WRITER_RETENTION_S,
    StreamMode,
    StreamRecord,
)
from topology.errors import ConflictError, InvalidArgumentError, SealedError
from topology.nearest import suggestion
from topology.own_policy import GROUP, OwnPolicies
from topology.quorum import Durability
from topology.region_survival import SizesGiven
from topology.stream_policy import OURS, PlacementTerms, PolicyKind, terms_named

SEGMENT_BYTES = 64 * 1024 * 1024
SEGMENT_BYTES_MIN = 64 * 1024

RPO_BYTES_MIN = 1 << 20
"""The largest record, and a few batches of the default size, fit into the smallest bound."""

RPO_S_MIN = 0.1
"""The answer of a mirror takes a round trip between two regions."""

_MAY_DIFFER = {
    "created_us",
    "life",
    "is_sealed",
    "is_incomplete",
    "home_epoch",
    "session_epoch",
    "origin",
    "moving_to",
    "survive",
    "relay_additions",
}
_NAMES = {"placement": "policy"}


def parse_mode(text: str) -> StreamMode:
    """Parse a stream mode. InvalidArgumentError lists both."""
    try:
        return StreamMode(text)
    except ValueError:
        raise InvalidArgumentError(
            f"unknown mode {text!r}; use 'global', which is durable across regions, or"
            " 'regional', which is durable in its home region"
        ) from None


def parse_durability(text: str) -> Durability:
    """Parse a kind of durability. InvalidArgumentError lists all."""
    try:
        return Durability(text)
    except ValueError:
        raise InvalidArgumentError(
            f"unknown durability {text!r}; use 'regions' or 'count'"
        ) from None


def parse_targets(regions: Iterable[str]) -> tuple[str, ...]:
    """The regions that mirror a stream: each once, sorted."""
    return tuple(sorted(set(regions)))


def parse_rpo_targets(given: str | Iterable[str]) -> tuple[str, ...]:
    """The mirrors at which a loss is bounded: `all`, `any`, or names of regions, sorted.

    A text may name several, separated by commas. InvalidArgumentError.
    """
    parts = given.split(",") if isinstance(given, str) else given
    chosen = tuple(sorted({one for part in parts if (one := part.strip())}))
    if not chosen or (len(chosen) > 1 and not {ALL_TARGETS, ANY_TARGET}.isdisjoint(chosen)):
        raise InvalidArgumentError(
            f"rpo targets {', '.join(chosen) or 'are empty'}: give 'all', 'any', or names of"
            " regions, e.g. eu-west,ap-northeast"
        )
    return chosen


def check_policy(terms: PlacementTerms, own: OwnPolicies) -> None:
    """InvalidArgumentError, with the nearest name, unless it is our policy or one of `own`."""
    if terms.policy is not PolicyKind.OWN or terms.own in own.makers:
        return
    ours = [kind.value for kind in OURS]
    others = ", ".join(sorted(own.makers)) or "none"
    raise InvalidArgumentError(
        f"unknown policy {terms.own!r}{suggestion(terms.own, [*ours, *own.makers])} (policies:"
        f" {', '.join(ours)}; of other packages, from entry points {GROUP!r} or"
        f" connect(placement=[…]): {others})"
    )


@attrs.frozen(kw_only=True)
class StreamSettings:
    """Everything a caller may say about a new stream; texts are parsed as it is built.

    A caller gives either `survive` or sizes. None means that the planner chooses.
    """

    mode: StreamMode = attrs.field(converter=parse_mode)
    home: str | None = None
    """The home region of a `regional` stream."""
    survive: str | None = None
    ensemble_size: int | None = None
    write_quorum: int | None = None
    ack_quorum: int | None = None
    min_regions: int | None = None
    durability: Durability = attrs.field(converter=parse_durability)
    policy: PlacementTerms | None = attrs.field(
        default=None, converter=attrs.converters.optional(terms_named)
    )
    partitions: int = 1
    segment_bytes: int = SEGMENT_BYTES
    segment_age_s: float = SEGMENT_AGE_S
    retention_s: float | None = None
    """Keep records at least this long; None keeps them for ever."""
    retention_bytes: int | None = None
    """Keep at least this much of each partition; None keeps all."""
    writer_retention_s: float = WRITER_RETENTION_S
    """Remember an idle named writer this long."""
    relay_to: tuple[str, ...] = attrs.field(default=(), converter=parse_targets)
    """The regions that mirror a `regional` stream."""
    relay_evict_bytes: int | None = None
    """Trimmed bytes of each partition to keep for mirrors that lack them; None keeps all."""
    rpo_max_s: float | None = None
    """Refuse appends while mirrors lack records older than this; None does not."""
    rpo_max_bytes: int | None = None
    """Refuse appends while mirrors lack more than this of a partition; None does not."""
    rpo_targets: tuple[str, ...] = attrs.field(default=ALL_TARGETS, converter=parse_rpo_targets)
    """The mirrors that count: all of them, any one, or those in these regions."""
    isolation_lease_s: float | None = None
    """Answer only inside leases of this length; None answers also while it is cut off."""

    @property
    def sizes(self) -> SizesGiven:
        """The quorum sizes that the caller gave."""
        return SizesGiven(
            ensemble_size=self.ensemble_size,
            write_quorum=self.write_quorum,
            ack_quorum=self.ack_quorum,
            min_regions=self.min_regions,
            durability=self.durability,
        )

    @property
    def has_sizes(self) -> bool:
        """Whether the caller gave any quorum size."""
        return self.sizes != SizesGiven(durability=self.durability)


@attrs.frozen(kw_only=True)
class StreamChanges:
    """New settings for a stream; a field at its default leaves the setting as it is."""

    partitions: int | None = None
    segment_bytes: int | None = None
    segment_age_s: float | None = None
    retention_s: float | Literal["same"] | None = "same"
    """None: keep records for ever."""
    retention_bytes: int | Literal["same"] | None = "same"
    """None: keep all of each partition."""
    writer_retention_s: float | None = None
    relay_to: tuple[str, ...] | None = attrs.field(
        default=None, converter=attrs.converters.optional(parse_targets)
    )
    """The regions that mirror the stream from now on; empty: none."""
    relay_evict_bytes: int | Literal["same"] | None = "same"
    """None: keep all trimmed bytes that mirrors lack."""
    rpo_max_s: float | Literal["same"] | None = "same"
    """None: no bound in time. A bound in time replaces one in bytes."""
    rpo_max_bytes: int | Literal["same"] | None = "same"
    """None: no bound in bytes. A bound in bytes replaces one in time."""
    rpo_targets: tuple[str, ...] | None = attrs.field(
        default=None, converter=attrs.converters.optional(parse_rpo_targets)
    )
    """The mirrors that count; `all` once there is no bound any more."""
    isolation_lease_s: float | Literal["same"] | None = "same"
    """None: answer also while the home is cut off."""

    def applied_to(self, record: StreamRecord) -> StreamRecord:
        """The record with these changes. InvalidArgumentError, SealedError."""
        given = {
            field.name: value
            for field in attrs.fields(StreamChanges)
            if (value := getattr(self, field.name)) != field.default
        }
        if isinstance(self.rpo_max_s, float | int):
            given.setdefault("rpo_max_bytes", None)
        if isinstance(self.rpo_max_bytes, int):
            given.setdefault("rpo_max_s", None)
        changed = attrs.evolve(record, **given)
        if self.rpo_targets is None and changed.rpo_max_s is None is changed.rpo_max_bytes:
            changed = attrs.evolve(changed, rpo_targets=(ALL_TARGETS,))
        check_settings(changed)
        if changed.partitions < record.partitions:
            raise InvalidArgumentError(
                f"{record.name} has {record.partitions} partitions; their number can only grow"
            )
        if record.is_sealed and changed.partitions != record.partitions:
            raise SealedError(f"{record.name} is sealed; it cannot get more partitions")
        if self.relay_to is not None:
            check_relay(record.mode, record.home, changed.relay_to)
            paused = tuple(one for one in record.relay_paused if one in changed.relay_to)
            additions = dict(record.relay_additions)
            for one in set(changed.relay_to) - set(record.relay_to):
                additions[one] = additions.get(one, 0) + 1
            changed = attrs.evolve(
                changed, relay_paused=paused, relay_additions=tuple(sorted(additions.items()))
            )
        return changed


def paused_in(
    record: StreamRecord, targets: Collection[str] | None, *, is_paused: bool
) -> StreamRecord:
    """The record with these targets paused, or not; None for all. InvalidArgumentError."""
    if not record.relay_to:
        raise InvalidArgumentError(f"{record.name} is not relayed: it has no targets to pause")
    concerned = set(record.relay_to if targets is None else targets)
    if unknown := sorted(concerned - set(record.relay_to)):
        raise InvalidArgumentError(
            f"{record.name} is not relayed to {', '.join(unknown)}; its targets are"
            f" {', '.join(record.relay_to)}"
        )
    before = set(record.relay_paused)
    after = before | concerned if is_paused else before - concerned
    return attrs.evolve(record, relay_paused=tuple(sorted(after)))


def check_relay(mode: StreamMode, home: str | None, relay_to: Collection[str]) -> None:
    """InvalidArgumentError unless a stream of this mode and home may be relayed there."""
    if not relay_to:
        return
    if mode is StreamMode.GLOBAL:
        raise InvalidArgumentError(
            "a stream of mode 'global' is not relayed: its appends are durable in several"
            " regions already, and every region reads the same log. Leave the targets out, or"
            " use mode 'regional'"
        )
    if home in relay_to:
        raise InvalidArgumentError(
            f"{home} is the home of the stream: relay it to other regions only"
        )


def check_settings(record: StreamRecord) -> None:
    """InvalidArgumentError names the first invalid setting."""
    if not 1 <= record.partitions <= PARTITIONS_MAX:
        raise InvalidArgumentError(
            f"partitions must be 1 to {PARTITIONS_MAX}, got {record.partitions}"
        )
    record.placement.check(record.quorum)
    if record.segment_bytes < SEGMENT_BYTES_MIN:
        raise InvalidArgumentError(
            f"segment size must be >= {SEGMENT_BYTES_MIN // 1024}KiB, got"
            f" {record.segment_bytes} bytes"
        )
    for what, limit in (
        ("segment age", record.segment_age_s),
        ("retention", record.retention_s),
        ("writer retention", record.writer_retention_s),
    ):
        if limit is not None and not limit > 0:
            raise InvalidArgumentError(f"{what} must be positive, got {limit:g} s")
    if record.retention_bytes is not None and record.retention_bytes <= 0:
        raise InvalidArgumentError(
            f"retention bytes must be positive, got {record.retention_bytes}"
        )
    if record.relay_evict_bytes is not None:
        if record.mode is StreamMode.GLOBAL:
            raise InvalidArgumentError(
                "a stream of mode 'global' is not relayed, so it holds nothing for mirrors:"
                " leave out its relay retention"
            )
        if record.relay_evict_bytes <= 0:
            raise InvalidArgumentError(
                "bytes to keep for mirrors that are behind must be positive, got"
                f" {record.relay_evict_bytes}"
            )
    if record.isolation_lease_s is not None and record.home is None:
        raise InvalidArgumentError(
            "on isolation stop is for regional streams: a global stream has no home that could"
            " be cut off, and stops by itself without a quorum"
        )
    _check_rpo(record)


def _check_rpo(record: StreamRecord) -> None:
    """InvalidArgumentError unless the bound on a loss can be kept."""
    max_s, max_bytes, chosen = record.rpo_max_s, record.rpo_max_bytes, record.rpo_targets
    if max_s is None and max_bytes is None:
        if chosen != (ALL_TARGETS,):
            raise InvalidArgumentError(
                f"rpo targets {', '.join(chosen)}: give the bound, too, e.g. --rpo-max 64MiB"
            )
        return
    if max_s is not None and max_bytes is not None:
        raise InvalidArgumentError(
            f"rpo max is {max_s:g} s and {max_bytes} bytes: give one of the two"
        )
    if max_s is not None and not max_s >= RPO_S_MIN:
        raise InvalidArgumentError(f"rpo max must be >= {RPO_S_MIN:g}s, got {max_s:g} s")
    if max_bytes is not None and max_bytes < RPO_BYTES_MIN:
        raise InvalidArgumentError(
            f"rpo max must be >= {RPO_BYTES_MIN // 1024}KiB, got {max_bytes} bytes"
        )
    if not record.relay_to:
        raise InvalidArgumentError(
            "rpo max bounds how far mirrors may be behind, and the stream has none: name them"
            " (--relay-to), or turn the bound off (--rpo-max none)"
        )
    if chosen in ((ALL_TARGETS,), (ANY_TARGET,)):
        return
    if unknown := sorted(set(chosen) - set(record.relay_to)):
        raise InvalidArgumentError(
            f"rpo targets name {', '.join(unknown)}, to which the stream is not relayed; its"
            f" targets are {', '.join(record.relay_to)}"
        )


def check_same(there: StreamRecord, wanted: StreamRecord) -> None:
    """ConflictError if an existing stream has other settings than those wanted."""
    found, asked = attrs.asdict(there, recurse=False), attrs.asdict(wanted, recurse=False)
    # Its length follows from the session time-out and ZooKeeper's tick, which nobody asked for.
    if None not in (there.isolation_lease_s, wanted.isolation_lease_s):
        asked["isolation_lease_s"] = there.isolation_lease_s
    differing = [
        f"{_setting_name(key)} is {_setting_text(key, found[key])}, not"
        f" {_setting_text(key, asked[key])}"
        for key in asked
        if key not in _MAY_DIFFER and found[key] != asked[key]
    ]
    if differing:
        raise ConflictError(
            f"stream {str(there.name)!r} exists with other settings: {'; '.join(differing)}."
            " Ask for the existing settings, or change them (geolog stream update)"
        )


def _setting_name(key: str) -> str:
    """The name of a setting for people; its unit goes with the value."""
    return _NAMES.get(key, key).removesuffix("_s").replace("_", " ")


def _setting_text(key: str, value: object) -> str:
    """The value of a setting for people; None is a retention without limit."""
    if value is None:
        return "without limit"
    unit = " s" if key.endswith("_s") else ""
    return f"{value:g}{unit}" if isinstance(value, float) else f"{value}{unit}"
