"""What the applications of a world did and were told: the record that the laws are held to."""

from typing import Literal

import attrs

from geolog.client.reading.bounds import Bound
from geolog.client.writing.writer import Writer
from geolog.protocol.ids import DLSN
from sim.world.lives import Lives

Outcome = Literal["pending", "acknowledged", "flushed", "refused", "unknown", "duplicate"]

Headers = tuple[tuple[str, bytes], ...]
"""Names and contents, in the order of the names."""

Place = tuple[int, int]
"""Partition and sequence: they name a record for good."""


@attrs.define(eq=False, kw_only=True)
class Append:
    """One record that an application appended. Moments are counts of events of the trace."""

    value: bytes
    """Different for each append, so that it names it."""
    writer: str
    sent_at: int
    sent_s: float = 0.0
    """In simulated time."""
    key: bytes | None = None
    headers: Headers = ()
    transaction_id: int | None = None
    expected: int | None = None
    """The sequence that it must get, or be refused."""
    partitions_known: tuple[int, int] = (1, 1)
    """How many partitions the stream had for certain when its writer was opened, and how many
    it may have been about to have."""
    partition_named: int | None = None
    """The one partition that its writer was opened for."""
    answered_at: int | None = None
    outcome: Outcome = "pending"
    """Of a process that was killed it stays pending: whatever became of it is right. What is
    posted is never answered; a flush may tell that it is in the log."""
    partition: int = 0
    sequence: int | None = None
    dlsn: DLSN | None = None
    provisional: Place | None = None
    """Where it was said to be while it was in memory only."""
    answered_by: str = ""
    """The process that was answered OK."""
    seq: int | None = None
    """The writer's own number for it, if it gives one: then it is sent until it is answered."""
    is_sent_again: bool = False
    is_repeated: bool = False
    """Whether it was sent once more under its number, also when it had been answered OK."""
    trims_repeated: dict[int, int] | None = None
    """Where partitions began when the last of these repeats was answered: before that its
    writer may have been forgotten. None as long as it is not."""
    is_duplicate: bool = False
    """Whether it was answered as one that was in the log before."""

    @property
    def place(self) -> Place:
        """Where it was answered to be."""
        assert self.sequence is not None
        return self.partition, self.sequence

    @property
    def segment_key(self) -> tuple[int, int]:
        """The partition and segment that it was answered to be in."""
        assert self.dlsn is not None
        return self.partition, self.dlsn.segment


@attrs.frozen(kw_only=True)
class Found:
    """A record as it was read."""

    partition: int
    sequence: int
    dlsn: DLSN
    timestamp_us: int
    value: bytes
    key: bytes | None = None
    headers: Headers = ()
    transaction_id: int | None = None

    @property
    def place(self) -> Place:
        """What names it."""
        return self.partition, self.sequence


@attrs.frozen(kw_only=True)
class Missing:
    """A run of sequences of which a reader was told that they are trimmed."""

    partition: int
    from_sequence: int | None
    """The first; None where it was asked for by another name."""
    to_sequence: int
    trim: int
    """Where the partition truly began when the reader was told."""


Item = Found | Missing


@attrs.define(eq=False, kw_only=True)
class ReaderWalk:
    """One walk of a reader over the stream, or over one partition of it."""

    reader: str
    begun_at: int
    is_of_all: bool
    """From the earliest record to the end as it was when it began, of all partitions."""
    partitions: tuple[int, ...] = (0,)
    """Those that there were for certain when it began, or the one that it names."""
    start: Bound | None = None
    """Where it was to begin, if at a place."""
    trims: dict[int, int] = attrs.field(factory=dict)
    """Where the partitions truly began when it did."""
    trims_first: dict[int, int] = attrs.field(factory=dict)
    """Where a partition truly began when its first record, or gap, was given."""
    trims_ended: dict[int, int] = attrs.field(factory=dict)
    """And when it ended."""
    items: list[Item] = attrs.field(factory=list)
    has_reached_end: bool = False

    @property
    def count(self) -> int:
        """Records that it was given."""
        return sum(isinstance(item, Found) for item in self.items)

    def by_partition(self) -> dict[int, list[Item]]:
        """What it was given of each partition, in order."""
        found: dict[int, list[Item]] = {}
        for item in self.items:
            found.setdefault(item.partition, []).append(item)
        return found


@attrs.define(eq=False, kw_only=True)
class Truncation:
    """One demand to cut off the front of a partition."""

    partition: int
    limit: int | None
    """The sequence that it may not pass; None: all but the last `records_left` may go."""
    records_left: int = 0
    reaches: int = 0
    """Where the partition must begin after it, at least."""
    answered: int | None = None
    """Where the partition was said to begin after it."""


@attrs.define(eq=False)
class History:
    """All appends, reads and truncations of a world, in the order in which they began."""

    appends: dict[bytes, Append] = attrs.field(factory=dict, init=False)
    acknowledged_in_order: list[Append] = attrs.field(factory=list, init=False)
    """The appends that were answered OK, in the order of their answers."""
    reads: list[ReaderWalk] = attrs.field(factory=list, init=False)
    shown: dict[Place, Found] = attrs.field(factory=dict, init=False)
    """What readers were given, the first time."""
    shown_otherwise: list[Place] = attrs.field(factory=list, init=False)
    """Places that were given with another record another time."""
    repeats: list[tuple[Append, int, DLSN]] = attrs.field(factory=list, init=False)
    """What was answered OK and then sent once more; partition and DLSN that it was said to have
    then."""
    forgotten: list[str] = attrs.field(factory=list, init=False)
    """What was answered OK last, is there, and was not remembered when it was sent again."""
    refused_repeats: list[str] = attrs.field(factory=list, init=False)
    """What was answered OK, and was said to be refused when it was sent again."""
    taken_for_others: list[str] = attrs.field(factory=list, init=False)
    """What was answered OK under the number of another record, which is in the log."""
    truncations: list[Truncation] = attrs.field(factory=list, init=False)
    is_seal_asked: bool = attrs.field(default=False, init=False)
    sealed_at: int | None = attrs.field(default=None, init=False)
    """When an operator was told that the stream is sealed."""
    partitions: tuple[int, int] = attrs.field(default=(1, 1), init=False)
    """How many there are for certain, and how many there may be."""
    may_forget_writers: bool = attrs.field(default=False, init=False)
    """Whether named writers may be forgotten that are idle, and whose records are trimmed."""
    lives: Lives = attrs.field(factory=Lives, init=False)
    """Of the stream beside it, which is deleted and made again."""
    writers: dict[str, Writer] = attrs.field(factory=dict, init=False)
    """By process: the writer that it opened last."""
    happened: set[str] = attrs.field(factory=set, init=False)
    """What must happen sometimes, and did."""
    harsh_errors: list[str] = attrs.field(factory=list, init=False)
    """What readers were told that no trying again would mend."""

    def on_sent(self, append: Append) -> Append:
        """An append is about to be sent."""
        assert append.value not in self.appends, "an application sends one value once"
        self.appends[append.value] = append
        return append

    def on_sent_again(self, append: Append) -> None:
        """One that was not answered OK is sent once more, under the same number."""
        append.is_sent_again = True
        self.on_repeated(append)
        append.outcome = "pending"

    def on_repeated(self, append: Append) -> None:
        """One is sent once more under its number."""
        append.is_repeated, append.trims_repeated = True, None

    def on_answered(self, append: Append, outcome: Outcome, at: int) -> None:
        """The application was told what became of an append."""
        append.outcome = outcome
        append.answered_at = at
        if outcome == "acknowledged":
            self.acknowledged_in_order.append(append)

    def on_read(self, read: ReaderWalk) -> ReaderWalk:
        """A reader begins a walk."""
        self.reads.append(read)
        return read

    def on_shown(self, read: ReaderWalk, found: Found) -> None:
        """A reader is given a record. What all of them are given is kept once."""
        first = self.shown.get(found.place)
        if first is None:
            first = self.shown[found.place] = self._with_value_as_sent(found)
        if first != found:
            self.shown_otherwise.append(found.place)
            first = found
        read.items.append(first)

    def _with_value_as_sent(self, found: Found) -> Found:
        sent = self.appends.get(found.value)
        return found if sent is None else attrs.evolve(found, value=sent.value)

    def acknowledged(self) -> list[Append]:
        """The appends that were answered OK, in the order in which they were sent."""
        return [each for each in self.appends.values() if each.outcome == "acknowledged"]


@attrs.frozen(eq=False)
class Ending:
    """What is there when all is over: the last read of all, and where partitions begin."""

    found: list[Found]
    trims: dict[int, int] = attrs.field(factory=dict)

    def trim(self, partition: int) -> int:
        """Where a partition begins."""
        return self.trims.get(partition, 0)

    def end(self, partition: int) -> int:
        """Behind its last record, which may be trimmed."""
        sequences = [one.sequence for one in self.found if one.partition == partition]
        return max(sequences, default=self.trim(partition) - 1) + 1

    def is_trimmed(self, place: Place) -> bool:
        """Whether a record is gone, as it may be."""
        return place[1] < self.trim(place[0])

    def by_place(self) -> dict[Place, Found]:
        """The records that are there."""
        return {record.place: record for record in self.found}

    def by_partition(self) -> dict[int, list[Found]]:
        """The same, in the order in which they were read, by partition."""
        lists: dict[int, list[Found]] = {}
        for record in self.found:
            lists.setdefault(record.partition, []).append(record)
        return lists
