"""A ledger's record in metadata: states, epoch, quorums and fragments, as values.

A ledger is ALLOCATED (made ahead, unlisted, and none of its entries is answered), OPEN,
IN_RECOVERY or CLOSED. Every change is one compare-and-set from a state that was read to its
successor. The methods here give the successor; `ledger_change` says what to do when another
change came first. Quorums, the members' regions and the placement policy are frozen with the
ledger: no runtime switch changes the meaning of an acknowledgement.

Rules: PROTOCOL H3, L2 to L4, L7, Q2 and Q5.
"""

import enum
from collections.abc import Collection, Iterable

import attrs

from geolog.protocol.entry_numbering import SEGMENT_BEGIN, EntryNumbering
from geolog.protocol.ids import (
    NO_ENTRY,
    EntryId,
    Epoch,
    InstanceId,
    LedgerId,
    SegmentEntry,
)
from topology.errors import ConflictError
from topology.location import Location
from topology.quorum import AckRule, QuorumConfig
from topology.stream_policy import REGION_AWARE_TERMS, PlacementTerms


class LedgerStateError(ConflictError):
    """The ledger is not in the state that this change starts from: another changed it first."""


class LedgerState(enum.Enum):
    """Stage of a ledger's life."""

    ALLOCATED = "allocated"
    OPEN = "open"
    IN_RECOVERY = "in_recovery"
    CLOSED = "closed"


@attrs.frozen
class Member:
    """A node of an ensemble, by its durable identity, with its location when it was chosen."""

    instance: InstanceId
    node_id: str
    location: Location


@attrs.frozen(cache_hash=True)  # Readers look their orders up by it.
class Fragment:
    """A run of entries, starting at `first_entry`, with one ensemble in ring order."""

    first_entry: EntryId
    ensemble: tuple[Member, ...]

    def rule(self, quorum: QuorumConfig) -> AckRule:
        """The ack rule of this ensemble."""
        return AckRule(quorum, [member.location.region for member in self.ensemble])

    def slots_changed(self, other: "Fragment") -> list[int]:
        """The slots in which the two fragments have different members."""
        pairs = zip(self.ensemble, other.ensemble, strict=True)
        return [slot for slot, (one, another) in enumerate(pairs) if one != another]


@attrs.frozen(kw_only=True)
class LedgerRecord:
    """The metadata record of one ledger.

    Invariants: fragments rise by `first_entry`, and the first starts at 0; `last_entry` is set
    exactly when the ledger is CLOSED (-1 if it is empty); the epoch never decreases.
    """

    ledger: LedgerId
    state: LedgerState
    epoch: Epoch
    quorum: QuorumConfig
    fragments: tuple[Fragment, ...]
    last_entry: EntryId | None = None
    stream: str = ""
    segment: int = 0
    placement: PlacementTerms = REGION_AWARE_TERMS
    arriving: tuple[InstanceId, ...] = ()
    """Instances that copies are brought to before they are members: those are not garbage."""
    first_in_segment: SegmentEntry = SEGMENT_BEGIN
    """The entry of the segment that it begins with; a mirror's may begin in the middle."""
    expires_after_s: float | None = None
    """Of a staging ledger, which no stream lists: nodes drop it once it is so old."""

    @property
    def numbering(self) -> EntryNumbering:
        """How its entries are numbered in their segment."""
        return EntryNumbering(self.segment, self.first_in_segment)

    def opened_for_staging(self, stream: str, *, expires_after_s: float) -> "LedgerRecord":
        """Turn ALLOCATED into OPEN without listing it: its entries are copied elsewhere."""
        return attrs.evolve(
            self.opened(),
            stream=f"staging for {stream}",
            segment=1,
            expires_after_s=expires_after_s,
        )

    def opened(self) -> "LedgerRecord":
        """Turn ALLOCATED into OPEN: the ledger is listed, and its entries count."""
        self._expect(LedgerState.ALLOCATED)
        return attrs.evolve(self, state=LedgerState.OPEN)

    def taken_over(self) -> "LedgerRecord":
        """Take the next epoch for a recovery, also from another recovery."""
        self._expect(LedgerState.ALLOCATED, LedgerState.OPEN, LedgerState.IN_RECOVERY)
        return attrs.evolve(self, state=LedgerState.IN_RECOVERY, epoch=Epoch(self.epoch + 1))

    def closed(self, last_entry: EntryId) -> "LedgerRecord":
        """End the ledger at `last_entry`, for good."""
        self._expect(LedgerState.OPEN, LedgerState.IN_RECOVERY)
        assert last_entry >= NO_ENTRY
        return attrs.evolve(self, state=LedgerState.CLOSED, last_entry=last_entry)

    def with_fragment(self, fragment: Fragment) -> "LedgerRecord":
        """Start a new ensemble at `fragment.first_entry`.

        If the last fragment would be left without entries, the new one replaces it.
        """
        self._expect(LedgerState.OPEN, LedgerState.IN_RECOVERY)
        last = self.fragments[-1]
        assert fragment.first_entry >= last.first_entry, f"{fragment} is not behind {last}"
        kept = (
            self.fragments if fragment.first_entry > last.first_entry else self.fragments[:-1]
        )
        return attrs.evolve(self, fragments=(*kept, fragment))

    def with_arriving(self, instances: Iterable[InstanceId]) -> "LedgerRecord":
        """Note that copies are brought to these instances as well."""
        return attrs.evolve(self, arriving=tuple(sorted({*self.arriving, *instances})))

    def without_arriving(self, instances: Collection[InstanceId]) -> "LedgerRecord":
        """Drop the note for these instances: they are members now, or will not be."""
        left = tuple(one for one in self.arriving if one not in instances)
        return attrs.evolve(self, arriving=left)

    def fragment_of(self, entry: EntryId) -> Fragment:
        """The fragment that holds, or would hold, the entry."""
        assert entry >= 0, f"{entry} is not an entry number"
        return next(
            fragment for fragment in reversed(self.fragments) if fragment.first_entry <= entry
        )

    def end_of_run(self, entry: EntryId, last: EntryId) -> EntryId:
        """The last entry, up to `last`, that has the same ensemble as `entry`."""
        behind = [one.first_entry for one in self.fragments if one.first_entry > entry]
        return EntryId(min([last, *(first - 1 for first in behind)]))

    def _expect(self, *states: LedgerState) -> None:
        if self.state not in states:
            raise LedgerStateError(
                f"ledger {self.ledger} is {self.state.value}, at epoch {self.epoch};"
                f" this change starts from {' or '.join(state.value for state in states)}"
            )
