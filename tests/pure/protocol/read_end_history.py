"""A random history of one partition, and a search for its end in the middle of it.

The seed draws everything: quorums, the order of adds and answers, members that are replaced,
rolls, owners that die, leave or lose their session, rivals that take over and may die at it,
and metadata servers that lag or follow a deposed leader. Each entry holds one record. The world
is written as plainly as possible, and what is true in it judges every step of the search.
"""

import random
from collections.abc import Callable, Iterator

import attrs

from geolog.protocol.ids import (
    NO_ENTRY,
    NO_EPOCH,
    EntryId,
    Epoch,
    InstanceId,
    LedgerId,
    Sequence,
)
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState, Member
from geolog.protocol.owner_absence import GRACE_SHARE, OwnerAbsences, OwnerLook, OwnerSeen
from geolog.protocol.read_end import (
    AskHighest,
    ConfirmLedger,
    EndFound,
    EndSearch,
    Fail,
    ListLast,
    LookAtLedger,
    LookForOwner,
    PartitionEnd,
    PauseBefore,
    ProbeTail,
    ReadLast,
    ReadLedger,
    Recover,
    Step,
)
from geolog.protocol.recovery_patience import PATIENCE_S, RecoveryPatience
from geolog.protocol.stream_state import PartitionName, SegmentRecord, StreamName
from geolog.protocol.tail_view import TailView
from tests.pure.topology.naive import naive_ack, naive_block, naive_write_set
from tests.pure.topology.notation import quorum_of
from topology.location import Location

NAME = PartitionName(StreamName("test", "stream"))
SESSION_TIMEOUT_S = 2.0
PROBED_COUNT = 3
"""Entries that one probe asks for: fewer than may be in flight."""

SENT_AHEAD_MAX = 5

WORLDS = [("3/3/2 m1", "abc"), ("3/3/2 m2", "aab"), ("3/2/2 m1", "abc"), ("4/3/2 m2", "abab")]


@attrs.define
class Replica:
    """One node's part of one ledger."""

    entries: set[int] = attrs.field(factory=set)
    lac: int = -1
    epoch: int = 1
    is_fenced: bool = False


@attrs.define
class Ledger:
    """One ledger as it is: its replicas, and what its writer knows."""

    replicas: dict[InstanceId, Replica] = attrs.field(factory=dict)
    adds: list[tuple[int, int, int]] = attrs.field(factory=list)
    """In flight: slot, entry, LAC."""
    confirmed: dict[int, set[int]] = attrs.field(factory=dict)
    sent: int = 0
    lac: int = -1


@attrs.frozen
class Stored:
    """Everything in metadata at one moment."""

    segments: tuple[SegmentRecord, ...] = ()
    ledgers: dict[LedgerId, LedgerRecord] = attrs.field(factory=dict)
    epoch: Epoch = NO_EPOCH
    seen: OwnerSeen = OwnerSeen.ALIVE
    changes_count: int = 1

    @property
    def last(self) -> LedgerRecord:
        """The record of the last listed ledger."""
        return self.ledgers[self.segments[-1].ledger]

    @property
    def look(self) -> OwnerLook:
        count = self.changes_count if self.seen is OwnerSeen.MISSING else 0
        return OwnerLook(self.epoch, self.seen, count)

    def with_ledger(self, record: LedgerRecord) -> "Stored":
        return attrs.evolve(self, ledgers={**self.ledgers, record.ledger: record})

    def with_owner(self, seen: OwnerSeen, *, epoch: int | None = None) -> "Stored":
        return attrs.evolve(
            self,
            seen=seen,
            epoch=Epoch(self.epoch if epoch is None else epoch),
            changes_count=self.changes_count + 1,
        )

    def completed(self) -> "Stored":
        """The last segment has its end, if its ledger is CLOSED."""
        if not self.segments or self.segments[-1].is_completed:
            return self
        *earlier, last = self.segments
        end = self.last.last_entry
        assert end is not None
        completed = last.completed(
            last_entry=end,
            last_sequence=Sequence(last.first_sequence + end),
            last_append_time_us=append_time_us(last.first_sequence + end + 1),
            completed_us=0,
            last_transaction_id=None,
            size_bytes_through=0,
        )
        return attrs.evolve(self, segments=(*earlier, completed))

    def listing(self, record: LedgerRecord) -> "Stored":
        """The ledger follows the last segment, which is completed."""
        first = 0
        if self.segments:
            assert self.segments[-1].last_sequence is not None
            first = self.segments[-1].last_sequence + 1
        segment = SegmentRecord(
            segment=record.segment,
            ledger=record.ledger,
            home_epoch=1,
            first_sequence=Sequence(first),
            owner_epoch=self.epoch,
            activated_us=0,
            append_time_us_before=append_time_us(first),
        )
        return attrs.evolve(self.with_ledger(record), segments=(*self.segments, segment))


def append_time_us(sequence_next: int) -> int:
    """The append time of the record before this one."""
    return 10 * sequence_next


class EndHistory:
    """One partition, and one reader that searches for its end."""

    def __init__(self, seed: int, search: type[EndSearch]) -> None:
        self.rng = random.Random(seed)
        quorums, self.layout = self.rng.choice(WORLDS)
        self.quorum = quorum_of(quorums)
        self.now_s = 0.0
        self.versions = [Stored()]
        self.version_read = 0  # Reads of one process never go back.
        self.is_deposed = self.chance(0.5)
        self.is_calm = False
        self.ledgers: dict[LedgerId, Ledger] = {}
        self.members_count = 0
        self.is_writing = False  # The owner's process lives, and its ledger is OPEN.
        self.rival: Iterator[None] | None = None  # Takes the partition over, step by step.
        self.missing_since_s = 0.0
        self.recoveries_s: dict[tuple[LedgerId, Epoch], float] = {}  # When each began.
        self.may_depose = False  # By the last certain look of this probe.
        self.recovery_seen: tuple[LedgerId, Epoch] | None = None  # By the last look.
        self.happened: set[str] = set()
        self.search = search(NAME, absences=OwnerAbsences(), recoveries=RecoveryPatience())

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    # ---- Metadata.

    @property
    def stored(self) -> Stored:
        return self.versions[-1]

    def store(self, stored: Stored) -> None:
        self.versions.append(stored)

    def read(self, *, is_certain: bool, is_nearby: bool = False) -> Stored:
        """An answer of the reader's metadata server."""
        newest = len(self.versions) - 1
        may_lag = (is_nearby or self.is_deposed) and not is_certain and not self.is_calm
        self.version_read = self.rng.randint(self.version_read, newest) if may_lag else newest
        return self.versions[self.version_read]

    # ---- The writer.

    def live(self) -> None:
        """Something happens, or nothing."""
        self.now_s += self.rng.choice([0.0, 0.001, 0.02, 0.3])
        deeds: list[Callable[[], None]] = [self.deliver] * 4
        if self.rival is not None:
            deeds += [self.rival_goes_on] * 3
        if self.is_writing:
            deeds += [self.push_lac] * 2
        if not self.is_calm:
            deeds += [self.change_owner]
            if self.is_writing:
                deeds += [self.send] * 3 + [self.replace_member, self.roll]
            elif not self.stored.segments:
                deeds += [self.begin]
        self.rng.choice(deeds)()

    def new_member(self, slot: int) -> Member:
        self.members_count += 1
        node = f"n{self.members_count}"
        return Member(InstanceId(node), node, Location(self.layout[slot], "r"))

    def begin(self) -> None:
        self.list_behind(self.stored)

    def roll(self) -> None:
        if self.chance(0.5):
            last = self.stored.last
            closed = last.closed(EntryId(self.ledgers[last.ledger].lac))
            self.list_behind(self.stored.with_ledger(closed))

    def list_behind(self, stored: Stored) -> None:
        """Complete the last segment, and list an OPEN ledger behind it, in one step."""
        ensemble = tuple(self.new_member(slot) for slot in range(len(self.layout)))
        number = len(stored.segments) + 1
        record = LedgerRecord(
            ledger=LedgerId(number),
            state=LedgerState.OPEN,
            epoch=Epoch(1),
            quorum=self.quorum,
            fragments=(Fragment(EntryId(0), ensemble),),
            segment=number,
        )
        self.ledgers[record.ledger] = Ledger({one.instance: Replica() for one in ensemble})
        self.store(stored.completed().listing(record))
        self.is_writing = True

    def send(self) -> None:
        ledger = self.ledgers[self.stored.last.ledger]
        if ledger.sent <= ledger.lac + SENT_AHEAD_MAX:
            ledger.confirmed[ledger.sent] = set()
            for slot in sorted(naive_write_set(self.quorum, ledger.sent)):
                ledger.adds.append((slot, ledger.sent, ledger.lac))
            ledger.sent += 1

    def deliver(self) -> None:
        """An add arrives at its member, perhaps of a writer that is over without knowing."""
        number = self.rng.choice([*self.ledgers, None])
        if number is None or not self.ledgers[number].adds:
            return
        ledger = self.ledgers[number]
        slot, entry, lac = ledger.adds.pop(self.rng.randrange(len(ledger.adds)))
        fragment = self.stored.ledgers[number].fragments[-1]
        replica = ledger.replicas[fragment.ensemble[slot].instance]
        if entry < fragment.first_entry or replica.is_fenced:
            return
        replica.entries.add(entry)
        replica.lac = max(replica.lac, lac)
        ledger.confirmed[entry].add(slot)
        while self.is_acked(ledger, ledger.lac + 1):
            ledger.lac += 1

    def is_acked(self, ledger: Ledger, entry: int) -> bool:
        return naive_ack(self.quorum, self.layout, entry, ledger.confirmed.get(entry, set()))

    def push_lac(self) -> None:
        last = self.stored.last
        ledger = self.ledgers[last.ledger]
        replica = ledger.replicas[self.rng.choice(last.fragments[-1].ensemble).instance]
        if not replica.is_fenced:
            replica.lac = max(replica.lac, ledger.lac)

    def replace_member(self) -> None:
        """Begin a fragment above the LAC, and send its new member what it lacks."""
        last = self.stored.last
        ledger = self.ledgers[last.ledger]
        slot = self.rng.randrange(len(self.layout))
        ensemble = list(last.fragments[-1].ensemble)
        ensemble[slot] = self.new_member(slot)
        ledger.replicas[ensemble[slot].instance] = Replica()
        first = EntryId(ledger.lac + 1)
        self.store(
            self.stored.with_ledger(last.with_fragment(Fragment(first, tuple(ensemble))))
        )
        ledger.adds = [add for add in ledger.adds if add[0] != slot]
        for entry in range(first, ledger.sent):
            ledger.confirmed[entry].discard(slot)
            if slot in naive_write_set(self.quorum, entry):
                ledger.adds.append((slot, entry, ledger.lac))

    # ---- Owners.

    def change_owner(self) -> None:
        stored = self.stored
        match self.rng.choice(["lose session", "come back", "die", "leave", "rival"]):
            case "lose session" if stored.seen is OwnerSeen.ALIVE and self.chance(0.5):
                self.lose_session()
            case "come back" if stored.seen is OwnerSeen.MISSING and self.is_writing:
                self.store(stored.with_owner(OwnerSeen.ALIVE))
            case "die" if self.chance(0.3):
                self.is_writing, self.rival = False, None
            case "leave" if stored.seen is not OwnerSeen.LEFT and self.chance(0.2):
                self.is_writing, self.rival = False, None
                self.store(stored.with_owner(OwnerSeen.LEFT))
            case "rival" if stored.segments and self.chance(0.2):
                self.is_writing = False
                self.store(stored.with_owner(OwnerSeen.ALIVE, epoch=stored.epoch + 1))
                self.rival = self.take_over(stored.last.ledger)
            case _:
                pass

    def lose_session(self) -> None:
        self.missing_since_s = self.now_s
        self.store(self.stored.with_owner(OwnerSeen.MISSING))

    def rival_goes_on(self) -> None:
        assert self.rival is not None
        if next(self.rival, self) is self:
            self.rival = None

    def take_over(self, ledger: LedgerId) -> Iterator[None]:
        yield from self.recover(ledger)
        self.store(self.stored.completed())
        yield
        self.list_behind(self.stored)

    def recover(self, ledger: LedgerId) -> Iterator[None]:
        """Close the ledger, however often another recovery takes it."""
        while self.stored.ledgers[ledger].state is not LedgerState.CLOSED:
            yield from self.recover_once(ledger)

    def recover_once(self, ledger: LedgerId) -> Iterator[None]:
        """Fence all members, find the end, and close the ledger there."""
        record = self.stored.ledgers[ledger].taken_over()
        self.store(self.stored.with_ledger(record))
        self.recoveries_s[ledger, record.epoch] = self.now_s
        self.is_writing = False
        replicas = self.ledgers[ledger].replicas
        fragment = record.fragments[-1]
        for member in self.rng.sample(fragment.ensemble, len(fragment.ensemble)):
            yield
            replicas[member.instance].is_fenced = True
            replicas[member.instance].epoch = record.epoch
        yield
        if self.stored.ledgers[ledger] == record:  # Otherwise another recovery took it.
            members = [replicas[one.instance] for one in fragment.ensemble]
            end = max(fragment.first_entry, *(one.lac + 1 for one in members))
            while any(
                end in members[slot].entries for slot in naive_write_set(self.quorum, end)
            ):
                for slot in naive_write_set(self.quorum, end):
                    members[slot].entries.add(end)
                end += 1
            self.store(self.stored.with_ledger(record.closed(EntryId(end - 1))))

    # ---- The search.

    def run(self) -> PartitionEnd:
        """Search for the end; after a while nothing happens any more except what must."""
        for _ in range(self.rng.randint(0, 200)):
            self.live()
        least = self.end_now()
        step = self.search.begin()
        for turn in range(400):
            match step:
                case EndFound(end):
                    self.check_end(end, least)
                    return end
                case Fail(error):
                    raise AssertionError(f"{error}, in metadata that is intact")
                case _:
                    step = self.perform(step)
            if turn == 60:
                self.calm_down()
            for _ in range(self.rng.choice([0, 1, 3, 6])):
                self.live()
        raise AssertionError(f"no end is found: {self.search}, {step}")

    def calm_down(self) -> None:
        """Living owners are seen, dead ones are not, and metadata no longer lags."""
        self.is_calm = True
        self.happened.add("searched until all was calm")
        is_there = self.is_writing or self.rival is not None
        if is_there and self.stored.seen is OwnerSeen.MISSING:
            self.store(self.stored.with_owner(OwnerSeen.ALIVE))
        elif not is_there and self.stored.seen is OwnerSeen.ALIVE:
            self.lose_session()

    def perform(self, step: Step) -> Step:
        search = self.search
        match step:
            case ListLast():
                segments = self.read(is_certain=False).segments
                return search.on_last_segment(segments[-1] if segments else None)
            case AskHighest():
                return search.on_highest(len(self.read(is_certain=True).segments))
            case ReadLedger(ledger):
                stored = self.read(is_certain=False, is_nearby=True)
                return search.on_ledger(stored.ledgers[ledger])
            case ProbeTail(record, above):
                self.may_depose, self.recovery_seen = False, None
                return search.on_view(self.probe(record, above), now_s=self.now_s)
            case LookAtLedger(ledger, is_certain):
                found = self.read(is_certain=is_certain).ledgers[ledger]
                if found.state is LedgerState.IN_RECOVERY:
                    self.recovery_seen = ledger, found.epoch
                return search.on_look(found, now_s=self.now_s)
            case LookForOwner(is_certain):
                return self.look_for_owner(is_certain=is_certain)
            case ConfirmLedger(ledger):
                return search.on_confirmed(self.read(is_certain=True).ledgers[ledger])
            case Recover(ledger):
                self.check_recovery(ledger)
                for _ in self.recover(ledger):
                    self.live()
                return search.on_recovered(ledger)
            case ReadLast(record, entry):
                return self.read_last(record, entry)
            case PauseBefore(pause_s, then):
                self.now_s += pause_s
                return then
            case _:
                raise AssertionError(f"{step}, although nothing contradicts metadata")

    def probe(self, record: LedgerRecord, above: int) -> TailView:
        """Ask the members one after the other; some are silent."""
        fragment = record.fragments[-1]
        first = max(above + 1, fragment.first_entry)
        asked = range(first, first + PROBED_COUNT)
        lac, is_taken, is_last_held = NO_ENTRY, False, False
        absent: dict[int, set[int]] = {entry: set() for entry in asked}
        for slot in self.rng.sample(range(len(self.layout)), len(self.layout)):
            if self.chance(0.5):
                self.live()
            if self.chance(0.1):
                continue
            replica = self.ledgers[record.ledger].replicas[fragment.ensemble[slot].instance]
            lac = EntryId(max(lac, replica.lac))
            is_taken |= replica.is_fenced or replica.epoch > record.epoch
            is_last_held |= asked[-1] in replica.entries
            for entry in asked:
                if entry not in replica.entries:
                    absent[entry].add(slot)
        ends = [
            EntryId(entry)
            for entry in asked
            if entry > lac and naive_block(self.quorum, self.layout, entry, absent[entry])
        ]
        end = ends[0] if ends else None
        if end is None and is_last_held:
            self.happened.add("the end lay further on")
            return TailView(lac, None, EntryId(asked[-1]), is_taken, 0)
        return TailView(lac, end, EntryId(above), is_taken, 0)

    def look_for_owner(self, *, is_certain: bool) -> Step:
        stored = self.read(is_certain=is_certain)
        missing_s = self.now_s - self.missing_since_s
        self.may_depose = is_certain and (
            stored.seen is OwnerSeen.LEFT
            or (
                stored.seen is OwnerSeen.MISSING
                and missing_s >= GRACE_SHARE * SESSION_TIMEOUT_S
            )
        )
        return self.search.on_owner(
            stored.look,
            is_certain=is_certain,
            now_s=self.now_s,
            session_timeout_s=SESSION_TIMEOUT_S,
        )

    def read_last(self, record: LedgerRecord, entry: EntryId) -> Step:
        sequence_next = self.stored.segments[record.segment - 1].first_sequence + entry + 1
        return self.search.on_last_entry(
            entry,
            next_sequence=sequence_next,
            append_time_us=append_time_us(sequence_next),
        )

    # ---- The laws.

    def end_now(self) -> tuple[int, int]:
        """Behind all that was acknowledged, or is final: a segment, and an entry."""
        if not self.stored.segments:
            return 0, 0
        last = self.stored.last
        return last.segment, self.final_end(last.segment)

    def final_end(self, segment: int) -> int:
        """The first entry of the segment that a reader must not be shown yet, or ever."""
        record = self.stored.ledgers[self.stored.segments[segment - 1].ledger]
        if record.last_entry is not None:
            return record.last_entry + 1
        return self.ledgers[record.ledger].lac + 1

    def check_end(self, end: PartitionEnd, least: tuple[int, int]) -> None:
        found = end.segment, end.entry
        assert found >= least, f"ends at {found}, but {least} was reached before the call"
        first = 0
        if end.segment:
            final = self.final_end(end.segment)
            assert end.entry <= final, f"ends at {found}, but only {final} entries are final"
            first = self.stored.segments[end.segment - 1].first_sequence
        assert end.sequence == first + end.entry
        assert end.append_time_us == append_time_us(end.sequence)
        self.happened.add(f"found an end in a {self.kind_of(end)}")

    def kind_of(self, end: PartitionEnd) -> str:
        if end.segment == 0:
            return "partition without segments"
        segment = self.stored.segments[end.segment - 1]
        return "completed segment" if segment.is_completed else "segment without an end"

    def check_recovery(self, ledger: LedgerId) -> None:
        if self.recovery_seen is not None:
            waited_s = self.now_s - self.recoveries_s[self.recovery_seen]
            assert waited_s >= PATIENCE_S, f"another's recovery got only {waited_s} s"
            self.happened.add("recovered after another's recovery")
        elif self.stored.ledgers[ledger].state is LedgerState.OPEN:
            assert self.may_depose, "fenced an owner that was there, or may have come back"
            self.happened.add("recovered from a dead owner")
