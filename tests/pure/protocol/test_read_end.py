"""Ends that searches find in random histories, and proof that the checks can fail."""

from collections import Counter

import pytest
from hypothesis import settings

from geolog.protocol.ids import EntryId, Epoch, InstanceId, LedgerId, Sequence
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState, Member
from geolog.protocol.owner_absence import OwnerAbsences, OwnerLook, OwnerSeen
from geolog.protocol.read_end import (
    AGAIN_S_MAX,
    PROBE_PAUSE_S,
    AskHighest,
    ConfirmLedger,
    EndFound,
    EndSearch,
    Fail,
    ListLast,
    LookAtLedger,
    LookForOwner,
    PauseBefore,
    ReadBeginning,
    ReadLast,
    ReportContradiction,
    Step,
    _OpenTail,
)
from geolog.protocol.recovery_patience import PATIENCE_S, RecoveryPatience
from geolog.protocol.stream_state import SegmentRecord
from geolog.protocol.tail_view import TailView
from tests.pure.protocol.read_end_history import NAME, EndHistory
from tests.pure.topology.notation import quorum_of
from topology.errors import NoSuchStreamError
from topology.location import Location


def played(seed: int, search: type[EndSearch] = EndSearch) -> EndHistory:
    history = EndHistory(seed, search)
    try:
        history.run()
    except AssertionError as broken:
        broken.add_note(f"seed {seed}")
        raise
    return history


def test_every_end_found_is_behind_what_was_acknowledged_and_before_what_may_vanish() -> None:
    happened: Counter[str] = Counter()

    for seed in range(20 * settings().max_examples):
        happened.update(played(seed).happened)

    assert sorted(happened) == [
        "found an end in a completed segment",
        "found an end in a partition without segments",
        "found an end in a segment without an end",
        "recovered after another's recovery",
        "recovered from a dead owner",
        "searched until all was calm",
        "the end lay further on",
    ]


class TrustsTheList(EndSearch):
    """Takes the last segment that a sync brought for the last there is."""

    def _ask_whether_last(self, if_last: EndFound | ReadLast | Fail) -> Step:  # type: ignore[override]
        return if_last


class TrustsTheMembers(EndSearch):
    """Takes the end that the members told, without reading the record again."""

    def _judge_end(self, tail: _OpenTail, view: TailView) -> Step:
        tail.end = tail.end or view.end
        return self._wait_for_lac(tail, view)


class TrustsReplacedMembers(EndSearch):
    """Reads the record again, and minds only whether the ledger is CLOSED."""

    def on_confirmed(self, found: LedgerRecord) -> Step:
        self._open_tail.ledger = found
        return super().on_confirmed(found)


class TrustsTheLastLedger(EndSearch):
    """Reads the record again, and minds only whether the members are the same."""

    def on_confirmed(self, found: LedgerRecord) -> Step:
        tail = self._open_tail
        assert tail.view is not None
        if found.fragments != tail.ledger.fragments:
            return self._search_again()
        tail.end = tail.view.end
        return self._wait_for_lac(tail, tail.view)


class WaitsForNoLac(EndSearch):
    """Shows entries that may still vanish."""

    def _wait_for_lac(self, tail: _OpenTail, view: TailView) -> Step:
        if tail.end is not None:
            return self._end_at(tail.ledger, tail.end)
        return super()._wait_for_lac(tail, view)


class LooksOnce(EndSearch):
    """Fences by the word of a metadata leader that may be deposed."""

    def on_owner(
        self, look: OwnerLook, *, is_certain: bool, now_s: float, session_timeout_s: float
    ) -> Step:
        return super().on_owner(
            look, is_certain=True, now_s=now_s, session_timeout_s=session_timeout_s
        )


class GivesNoGrace(EndSearch):
    """Takes a lost session for a dead owner."""

    def on_owner(
        self, look: OwnerLook, *, is_certain: bool, now_s: float, session_timeout_s: float
    ) -> Step:
        is_missing = look.seen is OwnerSeen.MISSING
        return super().on_owner(
            OwnerLook(look.epoch, OwnerSeen.LEFT) if is_missing else look,
            is_certain=is_certain,
            now_s=now_s,
            session_timeout_s=session_timeout_s,
        )


class HasNoPatience(EndSearch):
    """Takes a ledger from another's recovery at once."""

    def on_look(self, found: LedgerRecord, *, now_s: float) -> Step:
        if found.state is LedgerState.IN_RECOVERY:
            self._recoveries.on_recovery(found.ledger, found.epoch, now_s=now_s - PATIENCE_S)
        return super().on_look(found, now_s=now_s)


class WaitsForTheDead(EndSearch):
    """Never looks whether anyone moves the LAC."""

    def on_view(self, view: TailView, *, now_s: float) -> Step:
        self._open_tail.view = view
        return self._judge_end(self._open_tail, view)


PLANTED: dict[type[EndSearch], str] = {
    TrustsTheList: "was reached before the call",
    TrustsTheMembers: "was reached before the call",
    TrustsReplacedMembers: "was reached before the call",
    TrustsTheLastLedger: "was reached before the call",
    WaitsForNoLac: "entries are final",
    LooksOnce: "fenced an owner that was there",
    GivesNoGrace: "fenced an owner that was there",
    HasNoPatience: "another's recovery got only",
    WaitsForTheDead: "no end is found",
}


def seed_that_shows(search: type[EndSearch], broken_law: str) -> int | None:
    for seed in range(10_000):
        try:
            played(seed, search)
        except AssertionError as broken:
            if broken_law not in str(broken):
                raise
            return seed
    return None


@pytest.mark.parametrize("search", PLANTED, ids=lambda search: search.__name__)
def test_a_planted_bug_is_found(search: type[EndSearch]) -> None:
    assert seed_that_shows(search, PLANTED[search]) is not None


# Rules that intact metadata and living nodes never need.


MEMBERS = tuple(Member(InstanceId(region), region, Location(region, "r")) for region in "abc")
SEGMENT = SegmentRecord(
    segment=4,
    ledger=LedgerId(9),
    home_epoch=1,
    first_sequence=Sequence(100),
    owner_epoch=Epoch(1),
    activated_us=0,
)
OPEN = LedgerRecord(
    ledger=LedgerId(9),
    state=LedgerState.OPEN,
    epoch=Epoch(1),
    quorum=quorum_of("3/3/2 m1"),
    fragments=(Fragment(EntryId(0), MEMBERS),),
    segment=4,
)
FENCED_AT_5 = TailView(EntryId(4), EntryId(5), EntryId(-1), is_taken=True, silent_count=0)
ALIVE = OwnerLook(Epoch(1), OwnerSeen.ALIVE)


def a_search(*, may_be_emptied: bool = False) -> EndSearch:
    return EndSearch(
        NAME,
        absences=OwnerAbsences(),
        recoveries=RecoveryPatience(),
        may_be_emptied=may_be_emptied,
    )


def probed(search: EndSearch) -> Step:
    """The step after a probe of a ledger that is fenced at a member, and has a living owner."""
    search.on_last_segment(SEGMENT)
    search.on_ledger(OPEN)
    assert search.on_view(FENCED_AT_5, now_s=0.0) == LookAtLedger(LedgerId(9), is_certain=True)
    assert search.on_look(OPEN, now_s=0.0) == LookForOwner(is_certain=False)
    return search.on_owner(ALIVE, is_certain=False, now_s=0.0, session_timeout_s=6.0)


def test_a_fence_unknown_to_metadata_is_reported_and_no_end_is_found() -> None:
    search = a_search()
    assert probed(search) == ConfirmLedger(LedgerId(9))
    step = search.on_confirmed(OPEN)

    assert isinstance(step, ReportContradiction)
    assert "ledger 9 is fenced" in step.why
    assert step.then == PauseBefore(PROBE_PAUSE_S, ListLast())


def test_a_fence_of_a_recovery_contradicts_nothing() -> None:
    search = a_search()
    probed(search)

    assert search.on_confirmed(OPEN.taken_over()) == ReadLast(OPEN, EntryId(4))


def test_a_search_that_begins_again_and_again_pauses_ever_longer() -> None:
    search = a_search()
    pauses_s = []
    for _ in range(10):
        search.on_last_segment(None)
        step = search.on_highest(4)  # The list is stale.
        assert isinstance(step, PauseBefore)
        pauses_s.append(step.pause_s)

    assert pauses_s[:3] == [PROBE_PAUSE_S, 2 * PROBE_PAUSE_S, 4 * PROBE_PAUSE_S]
    assert pauses_s[-1] == AGAIN_S_MAX


def test_a_missing_ledger_is_damage_only_while_its_segment_is_the_last() -> None:
    gone = NoSuchStreamError("ledger 9 does not exist")
    for segment_highest, expected in [(4, Fail(gone)), (5, PauseBefore(0.005, ListLast()))]:
        search = a_search()
        search.on_last_segment(SEGMENT)

        assert search.on_no_ledger(gone) == AskHighest()
        assert search.on_highest(segment_highest) == expected


def looked(search: EndSearch, *numbers_highest: int) -> Step:
    """The step after looks at a list that is empty, while these are the highest numbers."""
    step = search.begin()
    for number in numbers_highest:
        assert isinstance(step, ListLast)
        assert search.on_last_segment(None) == AskHighest()
        step = search.on_highest(number)
        if isinstance(step, PauseBefore):
            assert isinstance(step.then, ListLast)
            step = step.then
    return step


def test_a_mirror_that_lost_all_its_rows_ends_where_it_begins() -> None:
    search = a_search(may_be_emptied=True)

    assert looked(search, 3, 3) == ReadBeginning()
    end = search.on_beginning(70).end
    assert (end.sequence, end.row_number, end.is_emptied) == (70, 3, True)


def test_an_empty_list_may_be_stale_while_segments_are_listed_and_at_home() -> None:
    assert isinstance(looked(a_search(may_be_emptied=True), 3, 4), ListLast)
    assert isinstance(looked(a_search(), 3, 3, 3), ListLast)


def test_a_mirror_that_loses_its_last_row_while_it_is_looked_at_is_looked_at_again() -> None:
    gone = NoSuchStreamError("ledger 9 does not exist")
    search = a_search(may_be_emptied=True)
    search.on_last_segment(SEGMENT)

    again = search.on_no_ledger(gone)
    search.on_last_segment(SEGMENT)  # The row is still there, so it is damage.

    assert again == PauseBefore(PROBE_PAUSE_S, ListLast())
    assert search.on_no_ledger(gone) == AskHighest()
    assert search.on_highest(4) == Fail(gone)
