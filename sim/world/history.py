"""The record of what a world's applications did and were told; the laws judge it."""

from collections.abc import Callable
from typing import Literal

import attrs

from geolog.client.reading.bounds import Bound
from geolog.client.writing.writer import Writer
from geolog.protocol.failover_record import FailoverRecord
from geolog.protocol.home_record import Fork
from geolog.protocol.ids import DLSN
from sim.world.cursor_history import CursorHistory
from sim.world.lives import Lives

Outcome = Literal["pending", "acknowledged", "flushed", "refused", "unknown", "duplicate"]

Headers = tuple[tuple[str, bytes], ...]
"""Names and values, sorted by name."""

Place = tuple[int, int]
"""Partition and sequence: they name a record for good."""


def words_of(place: Place) -> str:
    """The place in words; the first partition goes without saying."""
    partition, sequence = place
    return f"sequence {sequence}" + (f" of partition {partition}" if partition else "")


@attrs.define(eq=False, kw_only=True)
class Append:
    """One record that an application appended. Moments are counts of trace events."""

    value: bytes
    """Different for each append, so it identifies it."""
    writer: str
    sent_at: int
    sent_s: float = 0.0
    """In simulated time."""
    key: bytes | None = None
    headers: Headers = ()
    transaction_id: int | None = None
    expected: int | None = None
    """The sequence that the append must get, or be refused."""
    is_local_only: bool = False
    """Whether it must not leave the region of the stream's home."""
    partitions_known: tuple[int, int] = (1, 1)
    """How many partitions the stream certainly had when its writer was opened, and how many it
    may have been about to have."""
    partition_named: int | None = None
    """The one partition that its writer was opened for."""
    answered_at: int | None = None
    outcome: Outcome = "pending"
    """Stays pending if the process was killed: then any result is right. Posted records are
    never answered; a flush may show that they are in the log."""
    partition: int = 0
    sequence: int | None = None
    dlsn: DLSN | None = None
    provisional: Place | None = None
    """The position reported while it was in memory only."""
    answered_by: str = ""
    """The owner that said OK."""
    session: int = 0
    """The session of the writer that sent it last."""
    seq: int | None = None
    """The writer's own number for it, if it numbers records: then it is resent until
    answered."""
    is_sent_again: bool = False
    is_repeated: bool = False
    """Whether it was sent again under its number, even if after an OK."""
    trims_repeated: dict[int, int] | None = None
    """Where partitions began when the last of its repeats was answered: its writer may have
    been forgotten before. None if there was no repeat."""
    is_duplicate: bool = False
    """Whether the answer said that it was in the log before."""
    home_epoch_then: int = 0
    """The home epoch of the stream when the answer was heard, and still counted."""

    @property
    def place(self) -> Place:
        """The position in its answer."""
        assert self.sequence is not None
        return self.partition, self.sequence

    @property
    def segment_key(self) -> tuple[int, int]:
        """The partition and segment in its answer."""
        assert self.dlsn is not None
        return self.partition, self.dlsn.segment


@attrs.frozen(kw_only=True)
class Found:
    """A record, as a reader got it."""

    partition: int
    sequence: int
    dlsn: DLSN
    timestamp_us: int
    value: bytes
    key: bytes | None = None
    headers: Headers = ()
    transaction_id: int | None = None
    home_epoch: int = 0
    """Of the home where it was appended."""

    @property
    def place(self) -> Place:
        """Its position."""
        return self.partition, self.sequence


@attrs.frozen(kw_only=True)
class Missing:
    """A run of sequences that a reader was told are trimmed, elsewhere, or left behind."""

    partition: int
    from_sequence: int | None
    """The first; None if the walk did not begin at a sequence."""
    to_sequence: int
    trim: int
    """The true start of the partition, or of its mirror behind a gap, as it was then."""
    has_diverged: bool = False
    """Whether a fork left them behind: the reader goes on at the first, in a later home."""
    is_local_only: bool = False
    """Whether they are in another region, which they must not leave."""
    home_epoch: int = 0
    """If they are: that in which they were appended."""

    @property
    def places(self) -> list[Place]:
        """The places that it passes over."""
        run = range(self.from_sequence or 0, self.to_sequence)
        return [(self.partition, sequence) for sequence in run]

    @property
    def sequence_next(self) -> int:
        """The sequence of the record that comes next."""
        if self.has_diverged and self.from_sequence is not None:
            return self.from_sequence
        return self.to_sequence


Item = Found | Missing


@attrs.define(eq=False, kw_only=True)
class ReaderWalk:
    """One walk of a reader over the stream, or over one partition of it."""

    reader: str
    begun_at: int
    is_of_all: bool
    """Whether it reads all partitions, from the earliest record to the end as of its
    beginning."""
    home_epoch: int = 0
    """Of the stream when it began."""
    is_of_mirror: bool = False
    """Whether it may have read a mirror, which may be behind the home and begin before it."""
    region: str = ""
    """Of the reader."""
    is_abroad: bool = False
    """Whether the reader is in another region than the stream's home."""
    partitions: tuple[int, ...] = (0,)
    """The partitions that certainly existed when it began, or the one that it names."""
    start: Bound | None = None
    """Where it was to begin, if at a position."""
    trims: dict[int, int] = attrs.field(factory=dict)
    """The true starts of the partitions when it began."""
    trims_first: dict[int, int] = attrs.field(factory=dict)
    """The true start of a partition when its first record, or gap, was given."""
    trims_ended: dict[int, int] = attrs.field(factory=dict)
    """The true starts when it ended."""
    items: list[Item] = attrs.field(factory=list)
    has_reached_end: bool = False

    @property
    def count(self) -> int:
        """How many records it was given."""
        return sum(isinstance(item, Found) for item in self.items)

    def by_partition(self) -> dict[int, list[Item]]:
        """The records it was given, in order, by partition."""
        found: dict[int, list[Item]] = {}
        for item in self.items:
            found.setdefault(item.partition, []).append(item)
        return found


@attrs.define(eq=False, kw_only=True)
class Truncation:
    """One request to cut off the front of a partition."""

    partition: int
    limit: int | None
    """The sequence that it may not pass; None: all but the last `records_left` may go."""
    records_left: int = 0
    reaches: int = 0
    """Where the partition must begin afterwards, at least."""
    answered: int | None = None
    """Where the partition begins now, according to the answer."""


@attrs.define(eq=False)
class OpenedSession:
    """A session of a named writer. Other processes may have sessions of the same writer."""

    epoch: int
    partitions: int
    opened_at: int
    appended: list[tuple[int, Append]] = attrs.field(factory=list)
    """Records that it appended and that were new, with the moment at which it sent each."""
    refused: list[tuple[int, int, Append]] = attrs.field(factory=list)
    """Records that were refused, with the moments at which it sent each, and heard of it."""


def _never(_partition: int, _dlsn: DLSN) -> bool:
    return False


def _no_forks(_partition: int) -> tuple[Fork, ...]:
    return ()


@attrs.define(eq=False)
class History:
    """All appends, reads and truncations of a world, in the order in which they began."""

    appends: dict[bytes, Append] = attrs.field(factory=dict, init=False)
    acknowledged_in_order: list[Append] = attrs.field(factory=list, init=False)
    """The acknowledged appends, in the order of their answers."""
    reads: list[ReaderWalk] = attrs.field(factory=list, init=False)
    shown: dict[Place, Found] = attrs.field(factory=dict, init=False)
    """The records that readers were given, as given the first time."""
    shown_otherwise: list[Place] = attrs.field(factory=list, init=False)
    """Positions at which different records were given."""
    repeats: list[tuple[Append, int, DLSN]] = attrs.field(factory=list, init=False)
    """Acknowledged appends that were sent again, with the partition and DLSN of the second
    answer."""
    forgotten: list[str] = attrs.field(factory=list, init=False)
    """Last acknowledged records that are in the log, yet were not recognized as repeats."""
    refused_repeats: list[str] = attrs.field(factory=list, init=False)
    """Acknowledged records whose repeats were answered as refused."""
    taken_for_others: list[str] = attrs.field(factory=list, init=False)
    """Other bytes that were acknowledged under the number of a record in the log."""
    truncations: list[Truncation] = attrs.field(factory=list, init=False)
    is_seal_asked: bool = attrs.field(default=False, init=False)
    sealed_at: int | None = attrs.field(default=None, init=False)
    """When an operator was told that the stream is sealed."""
    partitions: tuple[int, int] = attrs.field(default=(1, 1), init=False)
    """How many partitions there certainly are, and how many there may be."""
    stops_when_isolated: bool = attrs.field(default=False, init=False)
    """Whether the stream takes no appends while its home is cut off."""
    may_go_on: bool = attrs.field(default=False, init=False)
    """Whether an operator may have set that it goes on after all."""
    unstopped_epochs: set[int] = attrs.field(factory=set, init=False)
    """Home epochs in which that was so for a while."""
    targets_removed: set[str] = attrs.field(factory=set, init=False)
    """Regions that were no target for a while: their mirrors were made again."""
    may_evict: bool = attrs.field(default=False, init=False)
    """Whether the stream may let mirrors go on without what they lack."""
    may_forget_writers: bool = attrs.field(default=False, init=False)
    """Whether idle named writers may be forgotten once their records are trimmed."""
    sessions: list[OpenedSession] = attrs.field(factory=list, init=False)
    """The sessions of the one named writer that several processes share."""
    lost_in_hand_overs: list[tuple[int, int, str]] = attrs.field(factory=list, init=False)
    """Partitions that an owner lost while it gave them away: its epoch, the epoch afterwards,
    words."""
    lives: Lives = attrs.field(factory=Lives, init=False)
    """The lives of the second stream, which is deleted and created again."""
    cursor: CursorHistory = attrs.field(factory=CursorHistory, init=False)
    """The records that readers of the cursor are done with."""
    is_cursor_read: bool = attrs.field(default=False, init=False)
    """Whether the cursor was read to the end once all was calm."""
    writers: dict[str, Writer] = attrs.field(factory=dict, init=False)
    """By process: the writer that it opened last."""
    happened: set[str] = attrs.field(factory=set, init=False)
    """Names from `SOMETIMES` that happened."""
    is_left_behind: Callable[[int, DLSN], bool] = attrs.field(default=_never, init=False)
    """Whether a failover left the record at this place of a partition behind now."""
    forks_of: Callable[[int], tuple[Fork, ...]] = attrs.field(default=_no_forks, init=False)
    """The forks of a partition now."""
    home_regions: dict[int, str] = attrs.field(factory=dict, init=False)
    """The region of each home epoch that was seen."""
    shown_aside: list[Found] = attrs.field(factory=list, init=False)
    """Records that readers were given, and that failovers left behind."""
    rests: dict[str, list[Found]] = attrs.field(factory=dict, init=False)
    """By name of a divergence: the records that a region keeps aside in the end."""
    rests_elsewhere: dict[str, set[int]] = attrs.field(factory=dict, init=False)
    """Likewise: sequences of local-only records that are kept in another region."""
    failovers: list[FailoverRecord] = attrs.field(factory=list, init=False)
    """The failovers of the stream, as they are recorded in the end."""
    harsh_errors: list[str] = attrs.field(factory=list, init=False)
    """Errors that readers got and that no retry would fix."""

    def on_sent(self, append: Append) -> Append:
        """An append is about to be sent."""
        assert append.value not in self.appends, "an application sends one value once"
        self.appends[append.value] = append
        return append

    def on_sent_again(self, append: Append) -> None:
        """An unacknowledged append is sent again under its number."""
        append.is_sent_again = True
        self.on_repeated(append)
        append.outcome = "pending"

    def on_repeated(self, append: Append) -> None:
        """An append is sent again under its number."""
        append.is_repeated, append.trims_repeated = True, None

    def on_answered(self, append: Append, outcome: Outcome, at: int) -> None:
        """The application learned the outcome of an append."""
        append.outcome = outcome
        append.answered_at = at
        if outcome == "acknowledged":
            self.acknowledged_in_order.append(append)

    def on_read(self, read: ReaderWalk) -> ReaderWalk:
        """A reader begins a walk."""
        self.reads.append(read)
        return read

    def on_shown(self, read: ReaderWalk, found: Found) -> None:
        """A reader is given a record. Equal records are kept once."""
        first = self.shown.get(found.place)
        if first is None:
            first = self.shown[found.place] = self._with_value_as_sent(found)
        if first != found and self.is_left_behind(found.partition, found.dlsn):
            self.shown_aside.append(found)
            first = found
        elif first != found and self.is_left_behind(first.partition, first.dlsn):
            self.shown_aside.append(first)
            first = self.shown[found.place] = self._with_value_as_sent(found)
        if first != found:
            self.shown_otherwise.append(found.place)
            first = found
        read.items.append(first)

    def _with_value_as_sent(self, found: Found) -> Found:
        sent = self.appends.get(found.value)
        return found if sent is None else attrs.evolve(found, value=sent.value)

    def put_aside(self) -> None:
        """Take what failovers left behind out of the records that readers were given."""
        for place, found in list(self.shown.items()):
            if self.is_left_behind(found.partition, found.dlsn):
                self.shown_aside.append(self.shown.pop(place))

    def acknowledged(self) -> list[Append]:
        """The acknowledged appends, in the order in which they were sent.

        Without those that a failover left behind.
        """
        return [one for one in self._all_acknowledged() if not self._is_aside(one)]

    def left_behind(self) -> list[Append]:
        """The acknowledged appends that a failover left behind, in the same order."""
        return [one for one in self._all_acknowledged() if self._is_aside(one)]

    def _all_acknowledged(self) -> list[Append]:
        return [each for each in self.appends.values() if each.outcome == "acknowledged"]

    def is_local_only(self, value: bytes) -> bool:
        """Whether the record with this value must not leave its region."""
        append = self.appends.get(value)
        return append is not None and append.is_local_only

    def _is_aside(self, append: Append) -> bool:
        return append.dlsn is not None and self.is_left_behind(append.partition, append.dlsn)


@attrs.frozen(eq=False)
class Ending:
    """The final state: the last read of everything, and where partitions begin."""

    found: list[Found]
    trims: dict[int, int] = attrs.field(factory=dict)
    """Where partitions began when the last read ended."""
    trims_first: dict[int, int] = attrs.field(factory=dict)
    """Where they began when it began, if retention may have moved them since."""
    abroad: dict[str, list[Item]] = attrs.field(factory=dict)
    """What everything was in other regions than the home, by region, where homes are lost, or
    move and leave local-only records behind."""
    elsewhere: list[Missing] = attrs.field(factory=list)
    """The runs of local-only records that the last read could not have: they are in the region
    of an earlier home."""
    region: str = ""
    """Where the last read was."""

    def trim(self, partition: int) -> int:
        """Where a partition begins."""
        return self.trims.get(partition, 0)

    def trim_first(self, partition: int) -> int:
        """Where a partition began when the last read began."""
        return self.trims_first.get(partition, self.trim(partition))

    def end(self, partition: int) -> int:
        """The position after its last record, which may be trimmed."""
        ends = [one.sequence + 1 for one in self.found if one.partition == partition]
        ends += [one.to_sequence for one in self.elsewhere if one.partition == partition]
        return max(ends, default=self.trim(partition))

    def is_trimmed(self, place: Place) -> bool:
        """Whether a record may be gone because it is trimmed."""
        return place[1] < self.trim(place[0])

    def places_elsewhere(self) -> set[Place]:
        """The places of local-only records that the last read could not have."""
        return {place for one in self.elsewhere for place in one.places}

    def by_place(self) -> dict[Place, Found]:
        """The records in the log, by position."""
        return {record.place: record for record in self.found}

    def by_partition(self) -> dict[int, list[Found]]:
        """The records in the log, by partition, in the order in which they were read."""
        lists: dict[int, list[Found]] = {}
        for record in self.found:
            lists.setdefault(record.partition, []).append(record)
        return lists

    def items_by_partition(self) -> dict[int, list[Item]]:
        """The same, with the runs of records that are elsewhere."""
        lists: dict[int, list[Item]] = {}
        items: list[Item] = [*self.found, *self.elsewhere]
        for one in sorted(items, key=_first_of):
            lists.setdefault(one.partition, []).append(one)
        return lists


def _first_of(item: Item) -> int:
    return item.sequence if isinstance(item, Found) else item.from_sequence or 0
