"""Decides where a bounded read of a partition ends.

Theory of operation. An end is always found by asking, never assumed. Everything acknowledged
before the search began must lie before it, and everything before it must be final. The search
takes one step at a time, and each answer leads to the next step:

1. List the last segment. If it is completed, or there is none, that is the end.
2. Otherwise read the segment's ledger. If it is CLOSED, it ends at its last entry.
3. Otherwise probe its members. The ledger ends before the first entry that a blocking set of
   its write set calls ABSENT. If more entries are in flight than one probe asks for, the end
   lies further on: probe behind them.
4. Read the ledger's record for certain, after the answers. The end counts if the members are
   still those that were asked, and the ledger is not closed: a member that was replaced calls
   its successor's entries ABSENT, and a closed ledger may have a successor.
5. Wait until the LAC covers the entries before that end. They may have been acknowledged, and
   may still vanish: they can be neither skipped nor shown.

The answer about the last segment may be stale, even after a sync: the metadata leader may be
deposed. So an end counts only if metadata then says for certain that no segment follows. Steps
1 and 2 ask for the highest segment number. In step 4 the ledger's own record says it, because
the step that lists the next segment closes this one. So each end costs one write in metadata.
If the end does not count, the search begins again after a pause, and the pauses grow.

Nobody may be left to move the LAC. So while the search probes, it looks at the ledger's record
every `LOOK_S`, and for certain as soon as a member knows of a fence that the record does not
mention. If the ledger is OPEN, it looks for the owner, and waits for one that is there or may
come back (`OwnerAbsences`). Before an owner counts as gone, a quorum of metadata must say so,
since a recovery fences for good. If the ledger is IN_RECOVERY, that recovery is left alone for
a while (`RecoveryPatience`). Otherwise the ledger is recovered, and the search begins again. A
search that only looks ends behind the LAC instead, and says that the log may end later.

A member that is fenced although metadata says for certain that the ledger is OPEN contradicts
it: one of the two was set back. There is no end then; the search reports the contradiction, and
asks again. The caller bounds the search: a read fails rather than end short.

Invariants:
1. An end is found only after a certain answer that followed all others about its segment,
   unless it says that the log may end later.
2. An end in a ledger that is not CLOSED is covered by the LAC.
3. An OPEN ledger is recovered only after a certain look for its owner.

Rules: PROTOCOL R2 to R5.
"""

import math

import attrs

from geolog.protocol.entry_numbering import SEGMENT_BEGIN
from geolog.protocol.ids import NO_ENTRY, EntryId, LedgerId, SegmentEntry
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from geolog.protocol.owner_absence import OwnerAbsences, OwnerLook
from geolog.protocol.recovery_patience import RecoveryPatience
from geolog.protocol.stream_state import PartitionName, SegmentRecord
from geolog.protocol.tail_view import TailView
from topology.errors import GeologError

PROBE_PAUSE_S = 0.005
"""Pause between two probes that wait for the LAC; also the first pause before a new search."""

LOOK_S = 0.1
"""How often the ledger's record, and its owner, are looked at while probing."""

AGAIN_S_MAX = 0.5
"""Longest pause before the end is searched for again, which may cost a write."""


@attrs.frozen
class PartitionEnd:
    """The place after the last record that was acknowledged when the end was asked for."""

    segment: int
    entry: SegmentEntry
    sequence: int
    append_time_us: int
    row: int | None = None
    """Number of the segment's row in a mirror's list; None at home."""
    is_least: bool = False
    """Whether the partition may end later: the search was not to recover its last ledger."""

    @property
    def is_emptied(self) -> bool:
        """Whether it is that of a mirror that had rows, and has none now."""
        return self.segment == 0 and self.row is not None

    @property
    def row_number(self) -> int:
        """Number of the place's row in the list of segments."""
        return self.segment if self.row is None else self.row


_NOTHING_YET = PartitionEnd(0, SEGMENT_BEGIN, sequence=0, append_time_us=0)
"""The end of a partition without segments."""


@attrs.frozen
class ListLast:
    """Read the last listed segment, after a sync; `on_last_segment`."""


@attrs.frozen
class AskHighest:
    """Ask for the highest segment number ever listed, for certain; `on_highest`."""


@attrs.frozen
class ReadLedger:
    """Read the record of the last segment's ledger; `on_ledger`."""

    ledger: LedgerId


@attrs.frozen
class ProbeTail:
    """Ask the ledger's members which entries above `above` they have; `on_view`."""

    ledger: LedgerRecord
    above: EntryId


@attrs.frozen
class ReadBeginning:
    """Read the first sequence of a mirror that lists nothing any more; `on_beginning`."""


@attrs.frozen
class LookAtLedger:
    """Read the ledger's record again, to see whether anyone moves its LAC; `on_look`."""

    ledger: LedgerId
    is_certain: bool


@attrs.frozen
class LookForOwner:
    """Look for the partition's owner; `on_owner`."""

    is_certain: bool


@attrs.frozen
class ConfirmLedger:
    """Read the record for certain, after the members told an end; `on_confirmed`."""

    ledger: LedgerId


@attrs.frozen
class Recover:
    """Recover the ledger, and so close it; `on_recovered`."""

    ledger: LedgerId


@attrs.frozen
class ReadLast:
    """Read the last entry before the end; `on_last_entry`."""

    ledger: LedgerRecord
    entry: EntryId


@attrs.frozen
class PauseBefore:
    """Wait, then take the next step."""

    pause_s: float
    then: ListLast | ProbeTail


@attrs.frozen
class ReportContradiction:
    """Remember why there is no end yet, for error messages; then take the next step."""

    why: str
    then: PauseBefore


@attrs.frozen
class EndFound:
    """The search is over."""

    end: PartitionEnd


@attrs.frozen
class Fail:
    """The search is over: metadata is damaged, so there is no end."""

    error: GeologError


Act = (
    ListLast
    | AskHighest
    | ReadBeginning
    | ReadLedger
    | ProbeTail
    | LookAtLedger
    | LookForOwner
    | ConfirmLedger
    | Recover
    | ReadLast
    | PauseBefore
    | ReportContradiction
)
"""A step that something follows."""

Step = Act | EndFound | Fail


@attrs.define
class _OpenTail:
    """All that the search knows of the tail of a ledger that is not CLOSED."""

    ledger: LedgerRecord
    """The record whose members are probed."""
    view: TailView | None = None
    """The last probe's result."""
    end: EntryId | None = None
    """Confirmed, but perhaps not covered by the LAC yet."""
    lac: EntryId = NO_ENTRY
    held_to: EntryId = NO_ENTRY
    look_s: float = math.inf
    """When the record is looked at again. Counted from the first answer: over distance, that
    takes longer than the pause."""
    is_doubted: bool = False
    """A member knows more of the ledger than its record says."""


class EndSearch:
    """One search for the end of a partition; each `on_…` gives the next step."""

    def __init__(
        self,
        name: PartitionName,
        *,
        absences: OwnerAbsences[PartitionName],
        recoveries: RecoveryPatience,
        may_be_emptied: bool = False,
        may_recover: bool = True,
    ) -> None:
        """may_be_emptied: whether the list may lose all its rows, as that of a mirror may.

        may_recover: whether a ledger is recovered if nobody is left to move its LAC.
        """
        self._name = name
        self._may_recover = may_recover
        self._is_least = False
        self._may_be_emptied = may_be_emptied
        self._ledgerless: int | None = None  # The last row, if its ledger was not there.
        self._absences = absences
        self._recoveries = recoveries
        self._segment: SegmentRecord | None = None
        self._if_last: EndFound | ReadLast | Fail = EndFound(_NOTHING_YET)
        """The next step if no segment follows `_segment`."""
        self._tail: _OpenTail | None = None
        self._again_s = PROBE_PAUSE_S
        self._emptied_to: int | None = None
        """The highest number ever listed, if the last look at the list found none."""

    def __repr__(self) -> str:
        return f"EndSearch({self._name}, segment {self._number}, {self._tail})"

    @property
    def _number(self) -> int:
        return 0 if self._segment is None else self._segment.row_number

    def begin(self) -> Step:
        """The first step."""
        return ListLast()

    def on_last_segment(self, segment: SegmentRecord | None) -> Step:
        """The last listed segment, or None; the list may have grown, or be stale."""
        self._segment = segment
        if segment is None:
            return self._ask_whether_last(EndFound(_NOTHING_YET))
        if segment.is_completed:
            return self._ask_whether_last(EndFound(_end_of_completed(segment)))
        return ReadLedger(segment.ledger)

    def on_highest(self, segment_highest: int) -> Step:
        """The highest segment number ever listed."""
        if segment_highest == self._number:
            return self._if_last
        # A mirror that goes on behind what its home dropped loses all its rows. A list that was
        # read after the number, and is still empty, cannot be stale.
        if self._segment is None and self._may_be_emptied:
            if segment_highest == self._emptied_to:
                return ReadBeginning()
            self._emptied_to = segment_highest
        return self._search_again()

    def on_beginning(self, first_sequence: int) -> EndFound:
        """Where a mirror that was emptied begins: it ends there, too, behind its last row."""
        assert self._emptied_to is not None
        row = self._emptied_to
        return EndFound(PartitionEnd(0, SEGMENT_BEGIN, first_sequence, 0, row))

    def on_no_ledger(self, error: GeologError) -> Step:
        """The segment's ledger does not exist: trimmed since, unless it is still the last.

        A mirror that is begun again loses its last row, too: then the row has gone with it.
        """
        if self._may_be_emptied and self._ledgerless != self._number:
            self._ledgerless = self._number
            return self._search_again()
        return self._ask_whether_last(Fail(error))

    def on_ledger(self, ledger: LedgerRecord) -> Step:
        """The record of the last segment's ledger."""
        if ledger.state is LedgerState.CLOSED:
            assert ledger.last_entry is not None
            return self._ask_whether_last(self._end_at(ledger, EntryId(ledger.last_entry + 1)))
        self._tail = _OpenTail(ledger)
        return ProbeTail(ledger, NO_ENTRY)

    def on_view(self, view: TailView, *, now_s: float) -> Step:
        """The members' answers to a probe."""
        tail = self._open_tail
        tail.view = view
        tail.look_s = min(tail.look_s, now_s + LOOK_S)
        # A recovery fences the members: that is news only while the record says OPEN.
        is_news = tail.ledger.state is LedgerState.OPEN and not tail.is_doubted
        if view.is_taken and is_news:
            tail.is_doubted = True
            return LookAtLedger(tail.ledger.ledger, is_certain=True)
        if now_s >= tail.look_s:
            return LookAtLedger(tail.ledger.ledger, is_certain=False)
        return self._judge_end(tail, view)

    def on_look(self, found: LedgerRecord, *, now_s: float) -> Step:
        """The ledger's record, read while probing."""
        tail = self._open_tail
        if found.state is LedgerState.CLOSED:
            self._recoveries.on_closed(found.ledger)
            return self._search_again()
        if found.fragments != tail.ledger.fragments:
            # The members asked may never hear of the LAC, which only the new ones know.
            return self._search_again()
        if found.state is LedgerState.OPEN:
            return LookForOwner(is_certain=False)
        if self._recoveries.on_recovery(found.ledger, found.epoch, now_s=now_s):
            return self._recover_or_end(now_s)
        return self._go_on_probing(now_s)

    def on_owner(
        self, look: OwnerLook, *, is_certain: bool, now_s: float, session_timeout_s: float
    ) -> Step:
        """A look for the owner of an OPEN ledger."""
        is_gone = self._absences.on_look(
            self._name, look, now_s=now_s, session_timeout_s=session_timeout_s
        )
        if not is_gone:
            return self._go_on_probing(now_s)
        if not is_certain and self._may_recover:
            return LookForOwner(is_certain=True)  # A deposed leader may not have heard of it.
        return self._recover_or_end(now_s)

    def on_recovered(self, ledger: LedgerId) -> Step:
        """The ledger is CLOSED now."""
        self._recoveries.on_closed(ledger)
        return self._search_again()

    def on_confirmed(self, found: LedgerRecord) -> Step:
        """The ledger's record, read for certain after the members told an end."""
        tail = self._open_tail
        view = tail.view
        assert view is not None
        if found.state is LedgerState.CLOSED or found.fragments != tail.ledger.fragments:
            return self._search_again()
        if view.is_taken and found.state is LedgerState.OPEN:
            return ReportContradiction(_contradiction(found), self._search_again())
        tail.end = view.end
        return self._wait_for_lac(tail, view)

    def on_last_entry(
        self, entry: EntryId, *, next_sequence: int, append_time_us: int
    ) -> EndFound:
        """The last entry before the end of its ledger."""
        segment = self._segment
        assert segment is not None
        end = segment.numbering.in_segment(EntryId(entry + 1))
        return EndFound(
            PartitionEnd(
                segment.segment, end, next_sequence, append_time_us, segment.row, self._is_least
            )
        )

    @property
    def _open_tail(self) -> _OpenTail:
        assert self._tail is not None, f"{self._name}: no ledger is being probed"
        return self._tail

    def _recover_or_end(self, now_s: float) -> Step:
        """Nobody moves the LAC: recover the ledger, or end behind the LAC for a mere look."""
        tail = self._open_tail
        if self._may_recover:
            return Recover(tail.ledger.ledger)
        assert tail.view is not None
        if tail.view.end is None:  # Too few members have answered: none could recover it.
            return self._go_on_probing(now_s)
        self._is_least = True
        lac = max(tail.lac, tail.view.lac)
        return self._end_at(tail.ledger, EntryId(lac + 1))

    def _go_on_probing(self, now_s: float) -> Step:
        """Wait for the owner, or for another's recovery."""
        tail = self._open_tail
        assert tail.view is not None
        tail.look_s = now_s + LOOK_S
        return self._judge_end(tail, tail.view)

    def _judge_end(self, tail: _OpenTail, view: TailView) -> Step:
        if tail.end is None and view.end is not None:
            return ConfirmLedger(tail.ledger.ledger)
        return self._wait_for_lac(tail, view)

    def _wait_for_lac(self, tail: _OpenTail, view: TailView) -> Step:
        tail.lac = max(tail.lac, view.lac)
        if tail.end is not None and tail.lac >= tail.end - 1:
            return self._end_at(tail.ledger, tail.end)
        # More may be in flight than one probe asks for; then the end lies further on.
        is_further_on = tail.end is None and view.held_to > tail.held_to
        tail.held_to = max(tail.held_to, view.held_to)
        probe = ProbeTail(tail.ledger, max(tail.lac, tail.held_to))
        return probe if is_further_on else PauseBefore(PROBE_PAUSE_S, probe)

    def _search_again(self) -> PauseBefore:
        """Begin again after a pause: the list has grown, or it was stale."""
        again = PauseBefore(self._again_s, ListLast())
        self._again_s = min(2 * self._again_s, AGAIN_S_MAX)
        self._tail = None
        self._is_least = False  # The next row may have an end that is certain.
        return again

    def _ask_whether_last(self, if_last: EndFound | ReadLast | Fail) -> AskHighest:
        self._if_last = if_last
        return AskHighest()

    def _end_at(self, ledger: LedgerRecord, end: EntryId) -> EndFound | ReadLast:
        if end > 0:
            return ReadLast(ledger, EntryId(end - 1))
        segment = self._segment
        assert segment is not None
        before = segment.first_sequence, segment.append_time_us_before
        first = segment.numbering.first
        found = PartitionEnd(segment.segment, first, *before, segment.row, self._is_least)
        return EndFound(found)


def _end_of_completed(segment: SegmentRecord) -> PartitionEnd:
    assert segment.last_entry is not None
    assert segment.last_sequence is not None
    assert segment.last_append_time_us is not None
    return PartitionEnd(
        segment.segment,
        segment.numbering.in_segment(EntryId(segment.last_entry + 1)),
        segment.last_sequence + 1,
        segment.last_append_time_us,
        segment.row,
    )


def _contradiction(found: LedgerRecord) -> str:
    return (
        f"a member of ledger {found.ledger} is fenced, or has a later epoch, but metadata says"
        f" that the ledger is open in epoch {found.epoch}. Was metadata restored from an older"
        f" copy? See `geolog ledger describe {found.ledger}`"
    )
