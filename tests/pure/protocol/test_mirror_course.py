"""A mirror takes a prefix of its home's log, whatever its senders do."""

from collections import Counter

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol import mirror_course
from geolog.protocol.home_record import Fork
from geolog.protocol.ids import SegmentEntry, Sequence
from geolog.protocol.mirror_course import (
    DropRepeat,
    MirrorCourse,
    NotBehindError,
    OldHomeError,
    RefuseEntry,
    SentEntry,
    StopMirror,
    TakeEntry,
    Verdict,
)
from geolog.protocol.watermark import Watermark


def home_log(sizes: list[tuple[int, int]], *, first_segment: int = 1) -> list[SentEntry]:
    """A home's log; for each segment its home epoch's rise, and its number of entries.

    Each segment but the first begins with a control entry. Empty segments have a number too.
    """
    log: list[SentEntry] = []
    home_epoch, sequence = 1, 0
    previous: Watermark | None = None
    for number, (rise, size) in enumerate(sizes):
        home_epoch += rise
        for entry in range(size):
            is_control = entry == 0 and number + first_segment > 1
            first = Sequence(sequence)
            sequence += 0 if is_control else 1 + entry % 3
            mark = Watermark(
                home_epoch,
                first_segment + number,
                SegmentEntry(entry),
                1000 * number + entry,
                Sequence(sequence),
            )
            log.append(
                SentEntry(
                    previous=previous, mark=mark, first_sequence=first, is_control=is_control
                )
            )
            previous = mark
    return log


def begun(log: list[SentEntry], at: int = 0) -> SentEntry:
    return attrs.evolve(log[at], previous=None)


def error_of(verdict: Verdict) -> type[Exception]:
    assert isinstance(verdict, RefuseEntry | StopMirror)
    return type(verdict.error)


LOG = home_log([(0, 3), (0, 0), (1, 3)])


def holding(count: int) -> MirrorCourse:
    """A mirror that took the first entries of LOG, and has not been taken over since."""
    course = MirrorCourse("shop/carts#0@eu-west", None)
    for place in range(count):
        sent = begun(LOG) if place == 0 else LOG[place]
        assert course.on_entry(sent) == TakeEntry()
    return course


def test_an_empty_mirror_begins_with_a_snapshot_or_with_sequence_0() -> None:
    later = home_log([(0, 2), (0, 2)])

    assert MirrorCourse("m", None).on_entry(begun(later)) == TakeEntry()
    assert MirrorCourse("m", None).on_entry(begun(later, at=2)) == TakeEntry()
    for place in (1, 3):
        verdict = MirrorCourse("m", None).on_entry(begun(later, at=place))
        assert error_of(verdict) is NotBehindError
    no_snapshot = attrs.evolve(begun(later, at=2), is_control=False)
    assert error_of(MirrorCourse("m", None).on_entry(no_snapshot)) is NotBehindError


def test_an_empty_mirror_is_not_behind_anything() -> None:
    assert error_of(MirrorCourse("m", None).on_entry(LOG[3])) is NotBehindError


def test_entries_are_taken_over_empty_segments_and_into_a_new_home_epoch() -> None:
    assert holding(len(LOG)).last == LOG[-1].mark


@pytest.mark.parametrize("place", range(len(LOG)))
def test_a_repeat_is_dropped_if_it_is_equal(place: int) -> None:
    course = holding(len(LOG))

    assert course.on_entry(LOG[place]) == DropRepeat()
    assert course.on_entry(begun(LOG, at=place)) == DropRepeat()
    assert course.last == LOG[-1].mark


def test_a_repeat_with_another_checksum_stops_the_mirror_for_good() -> None:
    course = holding(3)
    other = attrs.evolve(LOG[1], mark=attrs.evolve(LOG[1].mark, header_crc=77))

    assert isinstance(course.on_entry(other), StopMirror)
    assert isinstance(course.on_entry(LOG[3]), StopMirror)
    assert course.last == LOG[2].mark


def test_an_entry_behind_another_version_of_the_last_one_stops_the_mirror() -> None:
    course = holding(3)
    before = LOG[3].previous
    assert before is not None
    elsewhere = attrs.evolve(LOG[3], previous=attrs.evolve(before, header_crc=77))

    assert isinstance(course.on_entry(elsewhere), StopMirror)


def test_a_hole_is_refused_and_the_mirror_goes_on() -> None:
    course = holding(2)

    assert error_of(course.on_entry(LOG[3])) is NotBehindError
    assert course.on_entry(LOG[2]) == TakeEntry()


def test_sequences_must_meet() -> None:
    course = holding(2)
    skipping = attrs.evolve(LOG[2], first_sequence=Sequence(LOG[2].first_sequence + 1))

    assert error_of(course.on_entry(skipping)) is NotBehindError


def test_an_entry_of_an_older_home_is_refused() -> None:
    course = holding(len(LOG))
    stale = SentEntry(
        previous=LOG[2].mark,
        mark=Watermark(1, 1, SegmentEntry(3), 5, Sequence(50)),
        first_sequence=LOG[2].mark.sequence_next,
        is_control=False,
    )

    assert error_of(course.on_entry(stale)) is OldHomeError
    assert course.on_entry(LOG[2]) == DropRepeat()


def test_after_a_takeover_repeats_before_the_watermark_are_refused_unseen() -> None:
    course = MirrorCourse("m", LOG[2].mark)

    assert error_of(course.on_entry(LOG[1])) is NotBehindError
    assert course.on_entry(LOG[2]) == DropRepeat()
    assert course.on_entry(LOG[3]) == TakeEntry()


def test_only_so_many_checksums_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_course, "REMEMBERED_MAX", 2)
    course = holding(4)

    assert error_of(course.on_entry(LOG[0])) is OldHomeError
    assert course.on_entry(LOG[3]) == DropRepeat()


# Against a naive model: a mirror is a list of entries.


class NaiveMirror:
    """Compares every entry with the whole list."""

    def __init__(self) -> None:
        self.entries: list[SentEntry] = []
        self.is_stopped = False
        self.remembered_from = 0

    def judge(self, sent: SentEntry) -> str:
        """What to do with the entry; it is added if it is taken."""
        if self.is_stopped:
            return "StopMirror"
        same = [
            one
            for one in self.entries[self.remembered_from :]
            if self.place(one.mark) == self.place(sent.mark)
        ]
        if same:
            if same[0].mark.header_crc == sent.mark.header_crc:
                return "DropRepeat"
            self.is_stopped = True
            return "StopMirror"
        if not self.entries:
            is_begin = sent.mark.entry == 0 and (sent.is_control or sent.first_sequence == 0)
            if sent.previous is not None or not is_begin:
                return "RefuseEntry"
        else:
            last = self.entries[-1].mark
            if sent.mark.home_epoch < last.home_epoch or sent.previous is None:
                return "RefuseEntry"
            if self.place(sent.previous) != self.place(last):
                return "RefuseEntry"
            if sent.previous != last:
                self.is_stopped = True
                return "StopMirror"
            within = sent.mark.segment == last.segment and sent.mark.entry == last.entry + 1
            within = within and sent.mark.home_epoch == last.home_epoch
            beyond = sent.mark.segment > last.segment and sent.mark.entry == 0
            if not (within or beyond) or sent.first_sequence != last.sequence_next:
                return "RefuseEntry"
        self.entries.append(sent)
        return "TakeEntry"

    def take_over(self, durable_count: int) -> Watermark | None:
        """Lose what was not durable; the new owner knows the last entry only."""
        self.entries = self.entries[:durable_count]
        self.remembered_from = max(0, durable_count - 1)
        self.is_stopped = False
        return self.entries[-1].mark if self.entries else None

    @staticmethod
    def place(mark: Watermark) -> tuple[int, int, int]:
        return mark.home_epoch, mark.segment, mark.entry


segments = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 4)), min_size=1, max_size=6
).map(home_log)


@given(log=segments, data=st.data())
def test_whatever_is_sent_the_mirror_is_what_a_list_of_entries_would_be(
    log: list[SentEntry], data: st.DataObject
) -> None:
    course, naive = MirrorCourse("m", None), NaiveMirror()
    is_honest = True
    for _ in range(data.draw(st.integers(1, 30))):
        if not log:
            break
        if data.draw(st.integers(0, 9)) == 0:
            durable_count = data.draw(st.integers(0, len(naive.entries)))
            course = MirrorCourse("m", naive.take_over(durable_count))
        sent = drawn_entry(log, len(naive.entries), data)
        is_honest = is_honest and sent in (*log, begun(log))
        verdict = course.on_entry(sent)

        assert type(verdict).__name__ == naive.judge(sent)
        assert course.last == (naive.entries[-1].mark if naive.entries else None)
    if is_honest:
        taken = [one.mark for one in naive.entries]
        assert taken == [one.mark for one in log][: len(taken)]


class TakesTheHighest(MirrorCourse):
    """Takes every entry above the last one: holes are not noticed."""

    def on_entry(self, sent: SentEntry) -> Verdict:
        if self._last is not None and sent.mark > self._last:
            return self._take(sent.mark)
        return super().on_entry(sent)


class ComparesNothing(MirrorCourse):
    """Drops whatever it has a place for, equal or not."""

    def on_entry(self, sent: SentEntry) -> Verdict:
        verdict = super().on_entry(sent)
        return DropRepeat() if isinstance(verdict, StopMirror) else verdict


class TakesOldHomes(MirrorCourse):
    """Takes entries of a home that was taken over."""

    def on_entry(self, sent: SentEntry) -> Verdict:
        if self._last is not None and sent.mark.home_epoch < self._last.home_epoch:
            return self._take(sent.mark)
        return super().on_entry(sent)


class BeginsAnywhere(MirrorCourse):
    """Begins with whatever comes first."""

    def _begin(self, sent: SentEntry) -> Verdict:
        return self._take(sent.mark)


@pytest.mark.parametrize(
    "kind", [TakesTheHighest, ComparesNothing, TakesOldHomes, BeginsAnywhere]
)
def test_the_model_notices_a_mirror_that_takes_too_much(kind: type[MirrorCourse]) -> None:
    other = attrs.evolve(LOG[0].mark, header_crc=77)
    stale = attrs.evolve(LOG[2], mark=Watermark(1, 1, SegmentEntry(3), 5, Sequence(50)))
    offers = [
        LOG[3],
        *(begun(LOG), LOG[2], *LOG[1:], stale),
        attrs.evolve(begun(LOG), mark=other),
    ]
    wrong, naive = kind("m", None), NaiveMirror()

    verdicts = [(type(wrong.on_entry(one)).__name__, naive.judge(one)) for one in offers]

    assert any(found != due for found, due in verdicts)


def drawn_entry(log: list[SentEntry], taken_count: int, data: st.DataObject) -> SentEntry:
    """The next entry mostly; else another one, or one that is wrong in some way."""
    place = min(taken_count, len(log) - 1)
    if data.draw(st.integers(0, 3)) == 0:
        place = data.draw(st.integers(0, len(log) - 1))
    sent = begun(log) if place == 0 else log[place]
    match data.draw(st.integers(0, 15)):
        case 0:
            return attrs.evolve(sent, mark=attrs.evolve(sent.mark, header_crc=99_999))
        case 1 if sent.previous is not None:
            return attrs.evolve(sent, previous=attrs.evolve(sent.previous, header_crc=9_999))
        case 2:
            return attrs.evolve(sent, previous=None)
        case 3:
            lower = max(0, sent.mark.home_epoch - 1)
            return attrs.evolve(sent, mark=attrs.evolve(sent.mark, home_epoch=lower))
        case 4:
            return attrs.evolve(sent, first_sequence=Sequence(sent.first_sequence + 1))
        case _:
            return sent


def test_a_whole_log_is_taken_over_takeovers_at_any_place() -> None:
    outcomes: Counter[str] = Counter()
    for cut in range(len(LOG)):
        course = holding(cut)
        course = MirrorCourse("m", course.last)
        for place in range(max(0, cut - 1), len(LOG)):
            verdict = course.on_entry(begun(LOG) if place == 0 else LOG[place])
            outcomes[type(verdict).__name__] += 1
        assert course.last == LOG[-1].mark

    assert set(outcomes) == {"TakeEntry", "DropRepeat"}


@given(st.lists(st.tuples(st.just(0), st.integers(1, 5)), min_size=2, max_size=4), st.data())
def test_a_mirror_takes_nothing_of_a_home_beyond_the_fork_of_a_later_one(
    sizes: list[tuple[int, int]], data: st.DataObject
) -> None:
    """The old home was failed over, does not know it, and goes on sending."""
    log = home_log(sizes)
    place = data.draw(st.integers(1, len(log) - 1))
    first_lost = log[place].mark
    fork = Fork(
        home_epoch=2,
        segment=log[place - 1].mark.segment,
        entry=SegmentEntry(log[place - 1].mark.entry + 1),
        sequence=log[place - 1].mark.sequence_next,
        segment_next=9,
    )
    course = MirrorCourse("m", log[place - 1].mark, (fork,))
    refused = [course.on_entry(one) for one in log[place:]]
    new = home_log([(1, 3)], first_segment=9)[0]
    taken = course.on_entry(
        attrs.evolve(
            new,
            previous=log[place - 1].mark,
            first_sequence=log[place - 1].mark.sequence_next,
        )
    )

    assert first_lost >= log[place - 1].mark
    assert all(error_of(one) is OldHomeError for one in refused)
    assert isinstance(taken, TakeEntry)
