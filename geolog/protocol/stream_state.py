"""A stream as metadata knows it: its settings, its owner, and its list of log segments.

Each partition has one owner record. Whoever takes the partition over raises its epoch by
compare-and-set; every later change of the list is made together with a check of the version
that this gave, so that a deposed owner can change nothing (PROTOCOL O3).

Rules: PROTOCOL O10 and S17.
"""

import enum
import re

import attrs

from geolog.protocol.ids import NO_EPOCH, EntryId, Epoch, LedgerId, Sequence
from topology.errors import InvalidArgumentError
from topology.quorum import QuorumConfig
from topology.stream_policy import REGION_AWARE_TERMS, PlacementTerms

SEGMENT_AGE_S = 3600.0
"""After how long a segment that is not full is closed."""

WRITER_RETENTION_S = 7 * 86400.0

FIRST_SEQUENCE = Sequence(0)

HOME_EPOCH = 1
"""The one home epoch of every `global` stream: it has no home to move."""

PARTITIONS_MAX = 1024
"""Partitions of one stream: each costs its writer a ledger, and every node of it a fence."""

_NAME_PART = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
_PARTITION_NUMBER = re.compile(r"0|[1-9][0-9]{0,5}")


@attrs.frozen(order=True)
class StreamName:
    """`NAMESPACE/NAME`."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> "StreamName":
        """Read NAMESPACE/NAME; InvalidArgumentError says which part is wrong, and why."""
        parts = text.split("/")
        if len(parts) != 2:
            raise InvalidArgumentError(
                f"stream {text!r} is not named NAMESPACE/NAME, as shop/orders"
            )
        for part in parts:
            if _NAME_PART.fullmatch(part) is None:
                raise InvalidArgumentError(
                    f"stream {text!r}: {part!r} is not a name: 1 to 128 of a-z, 0-9, '.', '_'"
                    f" and '-', the first a letter or digit{_nearest_name(part)}"
                )
        return cls(*parts)


def _nearest_name(part: str) -> str:
    nearest = re.sub(r"[^a-z0-9._-]+", "-", part.lower()).lstrip("._-")[:128]
    return f"; the nearest is {nearest!r}" if nearest else ""


@attrs.frozen(order=True)
class PartitionName:
    """`NAMESPACE/NAME#P`: one partition, which is a log of its own."""

    stream: StreamName
    number: int = 0
    life: str = ""
    """That of its stream: one that is made again under the name is another."""

    def __str__(self) -> str:
        return f"{self.stream}#{self.number}"


def parse_target(text: str) -> tuple[StreamName, int | None]:
    """Read NAMESPACE/NAME, or NAMESPACE/NAME#P: a stream, or one partition of it."""
    name, mark, number = text.partition("#")
    if not mark:
        return StreamName.parse(text), None
    if _PARTITION_NUMBER.fullmatch(number) is None:
        raise InvalidArgumentError(
            f"{text!r}: {number!r} is no partition's number; partitions are 0, 1, 2 and so on,"
            f" as in {name}#0"
        )
    return StreamName.parse(name), int(number)


class StreamMode(enum.Enum):
    """How records reach other regions: as replicas of each append, or relayed after it."""

    GLOBAL = "global"
    REGIONAL = "regional"


@attrs.frozen(kw_only=True)
class StreamRecord:
    """A stream's settings."""

    name: StreamName
    mode: StreamMode
    quorum: QuorumConfig
    segment_bytes: int
    created_us: int
    life: str
    """What no other stream has, not even one that is made again under its name; without '-'."""
    partitions: int = 1
    segment_age_s: float = SEGMENT_AGE_S
    retention_s: float | None = None
    """How long records are kept at least; None: for ever."""
    retention_bytes: int | None = None
    """How many bytes each partition keeps at least; None: all."""
    writer_retention_s: float = WRITER_RETENTION_S
    """How long a named writer that is idle is remembered."""
    is_sealed: bool = False
    """Whether nothing may be appended any more."""
    is_incomplete: bool = False
    """Whether it is being made, or deleted: until that is done nobody can use it."""
    placement: PlacementTerms = REGION_AWARE_TERMS
    survive: str = ""
    """What it was asked to outlive; empty if its quorums were given."""

    def partition_names(self) -> list[PartitionName]:
        """All its partitions."""
        return [
            PartitionName(self.name, number, self.life) for number in range(self.partitions)
        ]

    def partition(self, number: int) -> PartitionName:
        """One of them. InvalidArgumentError names those that there are."""
        if not 0 <= number < self.partitions:
            raise InvalidArgumentError(
                f"{self.name} has no partition {number}: its partitions are"
                f" {'0' if self.partitions == 1 else f'0 to {self.partitions - 1}'}"
            )
        return PartitionName(self.name, number, self.life)


@attrs.frozen(kw_only=True)
class OwnerRecord:
    """Who owns a partition now.

    `session` names the ephemeral node that lives as long as the owner's session does. It is
    empty once the owner has left, because it closed or failed: nobody waits for it then.
    `segment_highest` is the highest segment number ever activated: no DLSN is used twice. A
    partition that is sealed has no owner any more.
    """

    epoch: Epoch = NO_EPOCH
    owner: str = ""
    session: str = ""
    segment_highest: int = 0
    is_sealed: bool = False
    is_deleted: bool = False
    """Whether its stream is being deleted: nobody owns it any more, not for a moment."""


@attrs.frozen(kw_only=True)
class TrimRecord:
    """Where a partition begins now: what lies before was truncated, or is past retention."""

    first_sequence: Sequence = FIRST_SEQUENCE
    trimmed_us: int = 0
    """When that was decided."""


@attrs.frozen(kw_only=True)
class SegmentRecord:
    """One ledger in a partition's list.

    While it is the last and not completed, `last_…` are None. A completed segment is CLOSED at
    `last_entry`; an empty one has `last_sequence` = `first_sequence` - 1.
    """

    segment: int
    ledger: LedgerId
    home_epoch: int
    first_sequence: Sequence
    owner_epoch: Epoch
    activated_us: int
    append_time_us_before: int = 0
    transaction_id_before: int | None = None
    """The highest transaction id before it, if any record had one."""
    size_bytes_before: int = 0
    """Of all batches before it, also of those that were trimmed."""
    last_entry: EntryId | None = None
    last_sequence: Sequence | None = None
    last_append_time_us: int | None = None
    completed_us: int | None = None
    """When it ended, by the clock of the host that completed it, held to no other."""
    last_transaction_id: int | None = None
    """The highest transaction id in it or before it, if any record had one."""
    size_bytes: int | None = None
    """Of its batches."""

    @property
    def is_completed(self) -> bool:
        """Whether its end is known and final."""
        return self.last_entry is not None

    @property
    def size_bytes_through(self) -> int:
        """Of all batches before its end; before its beginning as long as that is not known."""
        return self.size_bytes_before + (self.size_bytes or 0)

    def completed(
        self,
        *,
        last_entry: EntryId,
        last_sequence: Sequence,
        last_append_time_us: int,
        completed_us: int,
        last_transaction_id: int | None,
        size_bytes_through: int,
    ) -> "SegmentRecord":
        """The successor whose end is known."""
        assert not self.is_completed, f"segment {self.segment} is completed already"
        assert last_sequence >= self.first_sequence - 1
        assert size_bytes_through >= self.size_bytes_before
        return attrs.evolve(
            self,
            last_entry=last_entry,
            last_sequence=last_sequence,
            last_append_time_us=last_append_time_us,
            completed_us=completed_us,
            last_transaction_id=last_transaction_id,
            size_bytes=size_bytes_through - self.size_bytes_before,
        )
