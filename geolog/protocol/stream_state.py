"""A stream's records in metadata: its settings, owners, and lists of log segments.

Each partition has one owner record. A takeover raises its epoch by compare-and-set. Every later
change of the segment list also checks the record version that the takeover produced, so a
deposed owner can change nothing (PROTOCOL O3).

Rules: PROTOCOL H3, H25, O10 and S17.
"""

import enum
import re
from collections.abc import Iterable

import attrs

from geolog.protocol.entry_numbering import SEGMENT_BEGIN, EntryNumbering
from geolog.protocol.ids import (
    NO_EPOCH,
    EntryId,
    Epoch,
    LedgerId,
    SegmentEntry,
    Sequence,
)
from geolog.protocol.loss_bound import ALL_TARGETS, ANY_TARGET, LossTerms
from topology.errors import InvalidArgumentError
from topology.quorum import QuorumConfig
from topology.stream_policy import REGION_AWARE_TERMS, PlacementTerms

SEGMENT_AGE_S = 3600.0
"""Default age at which a segment that is not full is closed."""

WRITER_RETENTION_S = 7 * 86400.0

FIRST_SEQUENCE = Sequence(0)

FIRST_HOME_EPOCH = 1
"""Home epoch of every new stream. A `global` stream keeps it: it has no home to move."""

PARTITIONS_MAX = 1024
"""Maximum partitions of one stream: each costs its writer a ledger, and each node a fence."""

_SHOWN_MAX = 200
_NAME_PART = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
_PARTITION_NUMBER = re.compile(r"0|[1-9][0-9]{0,5}")


@attrs.frozen(order=True)
class StreamName:
    """A stream's full name, `NAMESPACE/NAME`."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> "StreamName":
        """Parse NAMESPACE/NAME; InvalidArgumentError says which part is wrong, and why."""
        parts = text.split("/")
        if len(parts) != 2:
            raise InvalidArgumentError(
                f"stream {_shown(text)} is not named NAMESPACE/NAME, e.g. shop/orders"
            )
        for part in parts:
            if _NAME_PART.fullmatch(part) is None:
                raise InvalidArgumentError(
                    f"stream {_shown(text)}: {_shown(part)} is not a name: use 1 to 128 of a-z,"
                    " 0-9, '.', '_' and '-', starting with a letter or"
                    f" digit{_nearest_name(part)}"
                )
        return cls(*parts)


def _shown(text: str) -> str:
    """The text as an error shows it: its first characters if it is long."""
    if len(text) <= _SHOWN_MAX:
        return repr(text)
    return f"{text[:_SHOWN_MAX]!r}… ({len(text)} characters)"


def _nearest_name(part: str) -> str:
    if len(part) > _SHOWN_MAX:
        return ""
    nearest = re.sub(r"[^a-z0-9._-]+", "-", part.lower()).lstrip("._-")[:128]
    return f"; did you mean {nearest!r}?" if nearest else ""


@attrs.frozen(order=True)
class PartitionName:
    """`NAMESPACE/NAME#P`: one partition of a stream, a log of its own.

    A `regional` stream has a log in each region of its own. The one in the region of its first
    home is named so; those in other regions are `NAMESPACE/NAME#P@REGION`. Which of them is the
    home and which are mirrors may change: the stream's record tells.

    Entries that a log held beyond a fork are kept as a log of their own,
    `NAMESPACE/NAME#P@REGION~E`, where E is the home epoch that began at the fork. Nothing is
    ever added to such a kept rest.
    """

    stream: StreamName
    number: int = 0
    life: str = ""
    """The life of its stream; a stream made again under the same name has another life."""
    region: str = ""
    """The region of the log; empty in that of the stream's first home."""
    rest: int = 0
    """Of a kept rest: the home epoch that began at the fork; 0 for a log that goes on."""

    def __str__(self) -> str:
        place = f"@{self.region}" if self.region else ""
        rest = f"~{self.rest}" if self.rest else ""
        return f"{self.stream}#{self.number}{place}{rest}"


def parse_target(text: str) -> tuple[StreamName, int | None]:
    """Parse NAMESPACE/NAME (a stream) or NAMESPACE/NAME#P (one partition of it)."""
    name, mark, number = text.partition("#")
    if not mark:
        return StreamName.parse(text), None
    if _PARTITION_NUMBER.fullmatch(number) is None:
        raise InvalidArgumentError(
            f"{text!r}: {number!r} is not a partition number; partitions are numbered"
            f" 0, 1, 2 and so on, e.g. {name}#0"
        )
    return StreamName.parse(name), int(number)


class StreamMode(enum.Enum):
    """How records reach other regions: as replicas of each append, or relayed afterwards."""

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
    """Unique to this stream, even against one made again under its name; without '-'."""
    partitions: int = 1
    segment_age_s: float = SEGMENT_AGE_S
    retention_s: float | None = None
    """Minimum seconds that records are kept; None keeps them for ever."""
    retention_bytes: int | None = None
    """Minimum bytes that each partition keeps; None keeps all."""
    writer_retention_s: float = WRITER_RETENTION_S
    """Seconds for which an idle named writer is remembered."""
    is_sealed: bool = False
    """Whether the stream takes no more appends."""
    is_incomplete: bool = False
    """Whether the stream is being made or deleted; until that is done it cannot be used."""
    home_epoch: int = FIRST_HOME_EPOCH
    """Number of its current home. Records written before this field existed lack it."""
    session_epoch: int = FIRST_HOME_EPOCH
    """The home epoch in which sessions of writers begin: that of the last home that may lack
    records of the one before. Sessions go on through a planned move, which loses none."""
    origin: str = ""
    """The region of its first home; empty if it has never moved."""
    moving_to: str = ""
    """The region that is becoming its home; empty while none is. Its home record decides."""
    placement: PlacementTerms = REGION_AWARE_TERMS
    survive: str = ""
    """The losses that it was asked to survive; empty if its quorums were given instead."""
    relay_to: tuple[str, ...] = ()
    """The regions that mirror a `regional` stream, sorted."""
    relay_paused: tuple[str, ...] = ()
    """Those of them that are sent nothing for now, sorted."""
    relay_additions: tuple[tuple[str, int], ...] = ()
    """How often regions were added to them since the stream was made, sorted; also of regions
    that were removed since."""
    relay_evict_bytes: int | None = None
    """Trimmed bytes of each partition that its home keeps for a mirror that lacks them, at
    most; the mirror then goes on behind them. None: it keeps all."""
    rpo_max_s: float | None = None
    """Maximum age of what the loss of its home could cost; None: not bounded in time."""
    rpo_max_bytes: int | None = None
    """Maximum bytes of it, in each partition; None: not bounded in size."""
    isolation_lease_s: float | None = None
    """Length of the leases inside which its home answers appends; None: it answers also while
    it is cut off from metadata."""
    rpo_targets: tuple[str, ...] = (ALL_TARGETS,)
    """The mirrors at which that is judged: all, any one, or those of these regions."""

    @property
    def home(self) -> str | None:
        """The region of a `regional` stream's copies and owners; None for a `global` one."""
        return self.placement.region

    @property
    def loss_terms(self) -> LossTerms | None:
        """The bound on what the loss of its home could cost; None if there is none."""
        if not self.relay_to or (self.rpo_max_s is None and self.rpo_max_bytes is None):
            return None
        is_any = self.rpo_targets == (ANY_TARGET,)
        is_named = not is_any and self.rpo_targets != (ALL_TARGETS,)
        return LossTerms(
            targets=self.rpo_targets if is_named else self.relay_to,
            is_any=is_any,
            max_bytes=self.rpo_max_bytes,
            max_s=self.rpo_max_s,
        )

    def moved(self, *, is_whole: bool = True) -> "StreamRecord":
        """The record once the region to which it moves is the home, and the old one a target.

        is_whole: whether the new home has all that was answered. The new home sends to the old
        one what the old one sent to it.
        """
        home, region = self.home, self.moving_to
        assert home is not None
        assert region in self.relay_to, f"{self.name} moves nowhere"

        def swapped(regions: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(sorted(home if one == region else one for one in regions))

        return attrs.evolve(
            self,
            placement=attrs.evolve(self.placement, region=region),
            relay_to=swapped(self.relay_to),
            relay_paused=tuple(one for one in self.relay_paused if one != region),
            rpo_targets=swapped(self.rpo_targets),
            home_epoch=self.home_epoch + 1,
            session_epoch=self.session_epoch if is_whole else self.home_epoch + 1,
            origin=self.origin or home,
            moving_to="",
        )

    def additions_of(self, target: str) -> int:
        """How often this region was added to the targets: added again, it has a new mirror."""
        return dict(self.relay_additions).get(target, 0)

    # Its logs: for each partition one at home, and a mirror in each target.

    def log_in(self, region: str | None, number: int) -> PartitionName:
        """The name of a partition's log in that region; None for that of a `global` stream."""
        is_first = region is None or region == (self.origin or self.home)
        return PartitionName(self.name, number, self.life, "" if is_first else region or "")

    def region_of(self, name: PartitionName) -> str | None:
        """The region of one of its logs; None for a `global` stream."""
        return name.region or self.origin or self.home

    def is_mirror(self, name: PartitionName) -> bool:
        """Whether this log of it is not the one at home."""
        return self.region_of(name) != self.home or name.rest > 0

    def partition_names(self) -> list[PartitionName]:
        """The names of all its partitions: of the logs at home."""
        return [self.log_in(self.home, number) for number in range(self.partitions)]

    def mirrors_of(self, numbers: Iterable[int]) -> list[PartitionName]:
        """The names of the mirrors of these partitions in all targets."""
        return [self.log_in(region, number) for number in numbers for region in self.relay_to]

    def log_names(self) -> list[PartitionName]:
        """The names of all its logs: those at home, then each with its mirrors."""
        return self.partition_names() + self.mirrors_of(range(self.partitions))

    def placement_of(self, name: PartitionName) -> PlacementTerms:
        """The terms that place the ledgers of one of its logs."""
        return attrs.evolve(self.placement, region=self.region_of(name))

    def partition(self, number: int) -> PartitionName:
        """The name of one partition; InvalidArgumentError names those that exist."""
        if not 0 <= number < self.partitions:
            raise InvalidArgumentError(
                f"{self.name} has no partition {number}; its partitions are"
                f" {'0' if self.partitions == 1 else f'0 to {self.partitions - 1}'}"
            )
        return self.log_in(self.home, number)


UNTOLD_LEASE_S = -1.0
"""In a record that was written before leases were noted: its owner may have any, or none."""


@attrs.frozen(kw_only=True)
class OwnerRecord:
    """The current owner of a partition.

    `presence` is the path of the ephemeral node that shows that the owner's process is alive;
    all owners of a process name the same one. It is empty once the owner has left, because it
    closed or failed: nobody waits for it then. `claim_id` is unique to the claim that made the
    record. `segment_highest` is the highest segment number ever activated, so that no DLSN is
    used twice. A sealed partition never has an owner again.
    """

    epoch: Epoch = NO_EPOCH
    owner: str = ""
    presence: str = ""
    claim_id: str = ""
    segment_highest: int = 0
    is_sealed: bool = False
    is_deleted: bool = False
    """Whether its stream is being deleted; it never has an owner again, not even briefly."""
    lease_s: float | None = UNTOLD_LEASE_S
    """Length of the lease inside which the owner answers appends; None: it answers always. 0 of
    an owner that takes no appends, and of any in a `global` stream."""
    lease_before_s: float = 0.0
    """The longest lease of earlier owners that did not say that they left. It never gets
    shorter: a renewal checks the home record and the owner's own session, not this record, so
    an owner that was taken over may renew its lease, and give answers that it still owes, for
    as long as its process lives. Nobody knows for certain when that has ended."""
    lease_left_s: float = 0.0
    """The longest lease of earlier owners that left, until the owner has outlived it."""
    has_leaseless_before: bool = False
    """Whether one of them answers always, and may not be fenced yet."""

    def claimed(
        self, *, owner: str, presence: str, claim_id: str, lease_s: float | None
    ) -> "OwnerRecord":
        """The record of the next owner, who answers appends inside such a lease."""
        has_left = not self.presence
        return attrs.evolve(
            self,
            epoch=Epoch(self.epoch + 1),
            owner=owner,
            presence=presence,
            claim_id=claim_id,
            lease_s=lease_s,
            lease_before_s=max(self.lease_before_s, 0.0 if has_left else self.lease_s or 0.0),
            lease_left_s=max(self.lease_left_s, self.lease_s or 0.0 if has_left else 0.0),
            has_leaseless_before=self.has_leaseless_before
            or (not has_left and self._is_leaseless),
        )

    def activated(self, segment_highest: int, *, outlived_s: float) -> "OwnerRecord":
        """The record once the owner has opened a segment: those before it are fenced.

        outlived_s: a lease of this length is over if its owner left before this one came.
        """
        return attrs.evolve(
            self,
            segment_highest=segment_highest,
            has_leaseless_before=False,
            lease_left_s=0.0 if self.lease_left_s <= outlived_s else self.lease_left_s,
        )

    @property
    def lease_longest_s(self) -> float:
        """The longest lease in which an answer of this owner, or one before it, may count.

        An answer that was given before the owner left counts as long.
        """
        return max(self.lease_before_s, self.lease_left_s, self.lease_s or 0.0)

    @property
    def may_answer_always(self) -> bool:
        """Whether this owner, or one before it, may answer without any lease."""
        return self.has_leaseless_before or (bool(self.presence) and self._is_leaseless)

    @property
    def _is_leaseless(self) -> bool:
        """Whether nothing bounds for how long the owner answers."""
        return self.lease_s is None or self.lease_s == UNTOLD_LEASE_S


@attrs.frozen
class SequenceGap:
    """Sequences that a mirror lacks, although its home had them."""

    first: Sequence
    end: Sequence
    """The sequence after the last one."""


@attrs.frozen(kw_only=True)
class TrimRecord:
    """Where a partition begins now; earlier records were truncated, or are past retention."""

    first_sequence: Sequence = FIRST_SEQUENCE
    trimmed_us: int = 0
    """When the trim was decided."""
    evicted_before: Sequence = FIRST_SEQUENCE
    """Of a mirror: the beginning of a segment of its home. If the mirror ends before it, the
    mirror goes on there, behind a gap: its home keeps nothing earlier for it."""
    gap: SequenceGap | None = None
    """The last gap that the mirror went on behind."""
    dropping_through: int = 0
    """Of a mirror that was begun again: its rows up to this number are not part of it any more.
    Its next owner drops those that are left; 0 if none is."""

    lacks_from: Sequence | None = None
    """Of a home that was made by a failover although its log begins later than that of the home
    before: where that began, or the stream was truncated since. Mirrors that have those older
    records keep them from there on, until this home is trimmed itself."""

    @property
    def followed(self) -> Sequence:
        """Where mirrors are to begin: they drop nothing that only the home lacks."""
        return self.first_sequence if self.lacks_from is None else self.lacks_from

    def raised(
        self, first_sequence: Sequence, *, older_before: Sequence | None = None
    ) -> "TrimRecord":
        """The record once the log begins there, unless it begins later.

        older_before: mirrors drop older records before this one, too, if the log lacks them.
        """
        if self.first_sequence < first_sequence:
            return attrs.evolve(self, first_sequence=first_sequence, lacks_from=None)
        if self.lacks_from is None or older_before is None or older_before <= self.lacks_from:
            return self
        is_of_some = older_before < self.first_sequence
        return attrs.evolve(self, lacks_from=older_before if is_of_some else None)

    def parts_of(self, first: int, end: int) -> list[tuple[int, int, bool]]:
        """A run of sequences in parts, and for each whether the mirror never had it."""
        if self.gap is None:
            return [(first, end, False)]
        low, high = (min(max(one, first), end) for one in (self.gap.first, self.gap.end))
        parts = [(first, low, False), (low, high, True), (high, end, False)]
        return [one for one in parts if one[0] < one[1]]


@attrs.frozen(kw_only=True)
class SegmentRecord:
    """One ledger in a partition's list: a row of it.

    At the first home each row is a segment. A mirror may have several rows of one segment, one
    after the other, because its owner was taken over in the middle; a home that was a mirror
    has rows of both kinds. While a row is the last and not completed, its `last_…` fields are
    None. The ledger of a completed one is CLOSED at `last_entry`; an empty one has
    `last_sequence` = `first_sequence` - 1.
    """

    segment: int
    ledger: LedgerId
    home_epoch: int
    first_sequence: Sequence
    owner_epoch: Epoch
    activated_us: int
    append_time_us_before: int = 0
    transaction_id_before: int | None = None
    """Highest transaction id before the segment, if any record had one."""
    size_bytes_before: int = 0
    """Bytes of all batches before it, including trimmed ones."""
    last_entry: EntryId | None = None
    last_sequence: Sequence | None = None
    last_append_time_us: int | None = None
    completed_us: int | None = None
    """When it ended, by the completing host's clock, which is held to no other clock."""
    last_transaction_id: int | None = None
    """Highest transaction id up to its end, if any record had one."""
    size_bytes: int | None = None
    """Bytes of its batches."""
    row: int | None = None
    """Its number in the list; None at the first home, where that is the segment's."""
    first_entry: SegmentEntry = SEGMENT_BEGIN
    """The entry of the segment that its ledger begins with."""
    shared_with: tuple[int, ...] = ()
    """If a fork went through its ledger, the other lists that name it, each under the same row
    number: kept rests by their epochs, 0 for the log that goes on. The last of them to drop its
    row deletes the ledger."""
    local_only_before: int = 0
    """Local-only records before it, including trimmed ones."""
    local_only: int = 0
    """Local-only records in it, once it is completed."""

    @property
    def row_number(self) -> int:
        """Its number in the list, by which it is stored."""
        return self.segment if self.row is None else self.row

    @property
    def is_completed(self) -> bool:
        """Whether its end is known, and so final."""
        return self.last_entry is not None

    @property
    def numbering(self) -> EntryNumbering:
        """How the entries of its ledger are numbered in the segment."""
        return EntryNumbering(self.segment, self.first_entry)

    @property
    def size_bytes_through(self) -> int:
        """Bytes of all batches up to its end, or to its beginning while the end is unknown."""
        return self.size_bytes_before + (self.size_bytes or 0)

    @property
    def local_only_through(self) -> int:
        """Local-only records up to its end, or to its beginning while the end is unknown."""
        return self.local_only_before + self.local_only

    def completed(
        self,
        *,
        last_entry: EntryId,
        last_sequence: Sequence,
        last_append_time_us: int,
        completed_us: int,
        last_transaction_id: int | None,
        size_bytes_through: int,
        local_only_through: int = 0,
    ) -> "SegmentRecord":
        """The record with its end filled in."""
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
            local_only=max(0, local_only_through - self.local_only_before),
        )
