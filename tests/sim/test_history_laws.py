"""Each history law, with a history that breaks it and one that does not."""

from collections.abc import Callable

import attrs
import pytest

import geolog
from geolog.client.reading.bounds import Bound
from geolog.protocol.ids import DLSN
from sim.laws.history.all_laws import breaches
from sim.world.history import (
    Append,
    Ending,
    Found,
    History,
    Missing,
    OpenedSession,
    ReaderWalk,
    Truncation,
)


@attrs.define
class Story:
    """A small history and its final state."""

    history: History = attrs.field(factory=History)
    found: list[Found] = attrs.field(factory=list)
    trims: dict[int, int] = attrs.field(factory=dict)
    trims_first: dict[int, int] = attrs.field(factory=dict)
    elsewhere: list[Missing] = attrs.field(factory=list)
    region: str = ""

    @property
    def broken(self) -> set[str]:
        """The laws that are broken."""
        ending = Ending(
            self.found,
            self.trims,
            self.trims_first,
            elsewhere=self.elsewhere,
            region=self.region,
        )
        return {number for number, _ in breaches(self.history, ending)}

    def trim(self, sequence: int) -> None:
        """Cut off the front."""
        self.trims[0] = sequence
        self.found = [one for one in self.found if one.sequence >= sequence]


def sent(story: Story, value: bytes, at: int) -> Append:
    return story.history.on_sent(Append(value=value, writer="w", sent_at=at))


def appended(story: Story, value: bytes, at: int, answered_at: int, sequence: int) -> Append:
    append = sent(story, value, at)
    append.sequence, append.dlsn = sequence, DLSN(1, sequence, 0)
    story.history.on_answered(append, "acknowledged", answered_at)
    return append


def record(sequence: int, value: bytes) -> Found:
    return Found(
        partition=0,
        sequence=sequence,
        dlsn=DLSN(1, sequence, 0),
        timestamp_us=sequence,
        value=value,
    )


def there(story: Story, *values: bytes) -> None:
    first = len(story.found)
    story.found += [record(number, value) for number, value in enumerate(values, first)]


def read(
    story: Story, at: int, *values: bytes, first: int = 0, start: Bound | None = None
) -> ReaderWalk:
    walk = story.history.on_read(
        ReaderWalk(reader="r", begun_at=at, is_of_all=start is None, start=start)
    )
    for sequence, value in enumerate(values, first):
        story.history.on_shown(walk, record(sequence, value))
    walk.has_reached_end = True
    return walk


def a_good_story() -> Story:
    story = Story()
    appended(story, b"a", at=1, answered_at=2, sequence=0)
    appended(story, b"b", at=3, answered_at=9, sequence=1)
    read(story, 4, b"a")
    sent(story, b"lost its answer", 10)
    there(story, b"a", b"b", b"lost its answer")
    return story


def test_a_good_history_breaks_no_law() -> None:
    story = a_good_story()

    assert story.broken == set()


def _lose_the_first(story: Story) -> None:
    story.found[0] = attrs.evolve(story.found[0], value=b"x")
    sent(story, b"x", 11)
    story.history.shown.clear()


def _read_too_little(story: Story) -> None:
    read(story, 20, b"a")


def _show_what_goes(story: Story) -> None:
    sent(story, b"gone", 11)
    read(story, 5, b"a", b"b", b"lost its answer", b"gone")


def _show_two_values(story: Story) -> None:
    story.history.on_shown(story.history.reads[0], record(0, b"other"))
    story.history.reads[0].items.pop()


def _answer_out_of_order(story: Story) -> None:
    story.history.appends[b"a"].sequence, story.history.appends[b"b"].sequence = 1, 0
    story.history.reads.clear()
    story.history.shown.clear()
    story.found.clear()
    there(story, b"b", b"a", b"lost its answer")


def _skip_one(story: Story) -> None:
    read(story, 5, b"a").items.append(record(2, b"lost its answer"))


def _append_twice(story: Story) -> None:
    there(story, b"lost its answer")


def _put_a_repeat_elsewhere(story: Story) -> None:
    story.history.repeats.append((story.history.appends[b"a"], 0, DLSN(2, 0, 0)))


def _take_one_for_another(story: Story) -> None:
    story.history.taken_for_others.append("other bytes were put where a was")


def _opened(story: Story, epoch: int, partitions: int, at: int) -> OpenedSession:
    session = OpenedSession(epoch, partitions, at)
    story.history.sessions.append(session)
    return session


def _append_in_a_deposed_session(story: Story) -> None:
    older = _opened(story, 1, 1, at=1)
    _opened(story, 2, 1, at=12)
    older.appended.append((13, story.history.appends[b"b"]))


def _let_a_record_pass_a_refused_one(story: Story) -> None:
    refused = story.history.on_sent(Append(value=b"r", writer="w", sent_at=2, key=b"key"))
    session = _opened(story, 1, 1, at=1)
    session.refused.append((2, 8, refused))
    session.appended.append((3, story.history.appends[b"b"]))


def _lose_a_partition_to_nobody(story: Story) -> None:
    story.history.lost_in_hand_overs += [(3, 4, "lost to epoch 4"), (4, 4, "lost")]


def _open_two_sessions_at_one_epoch(story: Story) -> None:
    _opened(story, 1, 1, at=1)
    _opened(story, 1, 1, at=2)


def _open_with_fewer_partitions(story: Story) -> None:
    _opened(story, 1, 2, at=1)
    _opened(story, 2, 1, at=2)


def _lose_its_headers(story: Story) -> None:
    story.history.appends[b"a"].headers = (("host", b"till-7"),)


def _keep_what_was_refused(story: Story) -> None:
    story.history.appends[b"lost its answer"].outcome = "refused"


def _invent_one(story: Story) -> None:
    there(story, b"nobody")


def _lower_a_dlsn(story: Story) -> None:
    story.found[2] = attrs.evolve(story.found[2], dlsn=DLSN(1, 0, 0))


def _lower_a_time(story: Story) -> None:
    story.found[2] = attrs.evolve(story.found[2], timestamp_us=0)


def _forget_what_was_answered_last(story: Story) -> None:
    story.history.forgotten.append("b")


def _flush_what_is_nowhere(story: Story) -> None:
    story.history.on_answered(sent(story, b"nowhere", 12), "flushed", 13)


def _acknowledge_behind_a_seal(story: Story) -> None:
    story.history.is_seal_asked, story.history.sealed_at = True, 12
    appended(story, b"late", at=13, answered_at=14, sequence=3)
    there(story, b"late")


def _end_before_the_seal(story: Story) -> None:
    story.history.is_seal_asked = True
    read(story, 5, b"a").is_of_all = False


def _lower_a_transaction_id(story: Story) -> None:
    for place, transaction_id in ((1, 7), (2, 6)):
        found = attrs.evolve(story.found[place], transaction_id=transaction_id)
        story.found[place] = found
        story.history.appends[found.value].transaction_id = transaction_id


def _lose_a_key(story: Story) -> None:
    story.history.appends[b"b"].key = b"till-7"


def _mislay_a_key(story: Story) -> None:
    append = story.history.appends[b"lost its answer"]
    append.key, append.partitions_known = (
        b"e",
        (2, 2),
    )  # The second of the two.
    story.found[2] = attrs.evolve(story.found[2], key=b"e")


def _miss_what_was_expected(story: Story) -> None:
    story.history.appends[b"b"].expected = 0


def _begin_too_late(story: Story) -> None:
    read(story, 0, b"b", first=1)


def _begin_elsewhere_than_asked(story: Story) -> None:
    read(story, 0, b"a", b"b", b"lost its answer", start=geolog.AtSequence(1))


def _begin_behind_a_time(story: Story) -> None:
    read(story, 20, b"lost its answer", first=2, start=geolog.AtTime(1))


def _read_what_is_local_only_abroad(story: Story) -> None:
    story.history.appends[b"a"].is_local_only = True
    story.history.home_regions[0] = "home"
    story.history.reads[0].region = "abroad"


def _tell_a_local_only_gap_that_is_none(story: Story) -> None:
    walk = read(story, 0)
    walk.is_abroad = True
    walk.items.append(_local_only(0, 2))


def _tell_a_local_only_gap_at_home(story: Story) -> None:
    story.history.appends[b"a"].is_local_only = True
    story.history.home_regions[0] = "home"
    walk = read(story, 0)
    walk.region = "home"
    walk.items.append(_local_only(0, 1))


def _lack_in_the_end_what_stayed_here(story: Story) -> None:
    _leave_the_first_at_its_home(story)
    story.region = "home"


def _leave_the_first_at_its_home(story: Story) -> None:
    """The home has moved; the first record is local-only, and stays where it was appended."""
    story.history.appends[b"a"].is_local_only = True
    story.history.home_regions |= {0: "home", 1: "abroad"}
    story.history.reads[0].region = "home"
    del story.found[0]
    story.elsewhere.append(_local_only(0, 1))


def _local_only(first: int, end: int) -> Missing:
    return Missing(
        partition=0,
        from_sequence=first,
        to_sequence=end,
        trim=0,
        is_local_only=True,
    )


def _tell_a_gap_that_is_none(story: Story) -> None:
    walk = read(story, 0)
    walk.items.append(Missing(partition=0, from_sequence=0, to_sequence=2, trim=0))


def _cut_less_than_was_said(story: Story) -> None:
    truncation = Truncation(partition=0, limit=2, reaches=2, answered=2)
    story.history.truncations.append(truncation)


def _put_what_was_received_elsewhere(story: Story) -> None:
    story.history.appends[b"lost its answer"].provisional = 0, 1


def _fail_a_read(story: Story) -> None:
    story.history.harsh_errors.append("damaged")


@pytest.mark.parametrize(
    ("spoil", "law"),
    [
        (_lose_the_first, "1"),
        (_lose_a_key, "1"),
        (_read_too_little, "1"),
        (_begin_behind_a_time, "1"),
        (_flush_what_is_nowhere, "1"),
        (_acknowledge_behind_a_seal, "4"),
        (_end_before_the_seal, "4"),
        (_lower_a_dlsn, "9"),
        (_lower_a_time, "9"),
        (_lose_a_partition_to_nobody, "10"),
        (_show_what_goes, "11"),
        (_show_two_values, "11"),
        (_answer_out_of_order, "13"),
        (_lower_a_transaction_id, "13"),
        (_mislay_a_key, "13"),
        (_miss_what_was_expected, "13"),
        (_let_a_record_pass_a_refused_one, "13"),
        (_skip_one, "14"),
        (_begin_too_late, "14"),
        (_begin_elsewhere_than_asked, "14"),
        (_tell_a_gap_that_is_none, "14"),
        (_read_what_is_local_only_abroad, "18"),
        (_tell_a_local_only_gap_that_is_none, "18"),
        (_tell_a_local_only_gap_at_home, "18"),
        (_lack_in_the_end_what_stayed_here, "18"),
        (_cut_less_than_was_said, "14"),
        (_fail_a_read, "15"),
        (_append_twice, "16"),
        (_put_a_repeat_elsewhere, "16"),
        (_take_one_for_another, "16"),
        (_append_in_a_deposed_session, "16"),
        (_open_two_sessions_at_one_epoch, "16"),
        (_open_with_fewer_partitions, "16"),
        (_lose_its_headers, "1"),
        (_forget_what_was_answered_last, "16"),
        (_keep_what_was_refused, "17"),
        (_invent_one, "17"),
        (_put_what_was_received_elsewhere, "17"),
    ],
)
def test_each_law_reports_a_history_that_breaks_it(
    spoil: Callable[[Story], None], law: str
) -> None:
    story = a_good_story()
    spoil(story)

    assert story.broken == {law}


@pytest.mark.parametrize("heard_at", [2, 3])
def test_a_record_that_was_sent_after_a_refusal_was_heard_may_be_appended(
    heard_at: int,
) -> None:
    story = a_good_story()
    _let_a_record_pass_a_refused_one(story)
    [session] = story.history.sessions
    session.refused = [(2, heard_at, session.refused[0][2])]

    assert story.broken == set()


def test_the_repeat_of_a_logged_record_in_doubt_must_not_be_refused() -> None:
    story = a_good_story()
    append = story.history.appends[b"lost its answer"]

    story.history.on_sent_again(append)
    story.history.on_answered(append, "refused", 12)

    assert story.broken == {"17"}


def test_a_duplicate_must_be_in_the_log() -> None:
    story = a_good_story()
    append = story.history.appends[b"lost its answer"]

    story.history.on_sent_again(append)
    story.history.on_answered(append, "duplicate", 12)

    assert story.broken == set()
    append.value = b"nowhere"
    assert story.broken == {"1"}


def test_the_repeat_of_an_acknowledged_record_must_not_be_refused() -> None:
    story = a_good_story()
    story.history.refused_repeats.append("0 of writer-1: UnavailableError()")

    assert story.broken == {"17"}


def test_trimmed_records_need_not_be_in_the_log() -> None:
    story = a_good_story()
    story.trim(2)

    assert story.broken == set()


@pytest.mark.parametrize(("began_at", "is_broken"), [(0, False), (1, True)])
def test_the_last_read_may_begin_anywhere_that_was_the_beginning_during_it(
    began_at: int, *, is_broken: bool
) -> None:
    story = a_good_story()
    story.trims[0], story.trims_first[0] = 2, began_at

    assert story.broken == ({"14"} if is_broken else set())


def test_a_front_that_vanishes_without_a_trim_is_reported() -> None:
    story = a_good_story()
    story.trim(1)
    story.trims.clear()

    assert story.broken == {"1", "11", "14"}


def test_a_reader_abroad_gets_a_gap_for_local_only_records() -> None:
    story = a_good_story()
    story.history.appends[b"a"].is_local_only = True
    walk = read(story, 0)
    walk.is_abroad = True
    walk.items.append(_local_only(0, 1))
    story.history.on_shown(walk, record(1, b"b"))

    assert story.broken == set()


def test_local_only_records_may_stay_where_the_home_was() -> None:
    story = a_good_story()
    _leave_the_first_at_its_home(story)
    story.region = "abroad"

    assert story.broken == set()


def test_a_flushed_record_may_be_kept_aside_unseen_in_another_region() -> None:
    story = a_good_story()
    story.history.on_answered(sent(story, b"gone", 11), "duplicate", 12)
    assert story.broken == {"1"}

    story.history.rests_elsewhere["home~2#0"] = {3}

    assert story.broken == set()


def test_another_record_may_not_stay_where_the_home_was() -> None:
    story = a_good_story()
    _leave_the_first_at_its_home(story)
    story.region = "abroad"
    story.history.appends[b"a"].is_local_only = False

    assert story.broken == {"1", "11", "18"}


def test_the_last_records_are_those_of_the_branch_that_was_read() -> None:
    story = Story()
    there(story, b"a", b"b")
    appended(story, b"b", 1, 2, 1)
    read(story, 5, b"y", b"z", first=3, start=geolog.LastRecords(2))  # A fork left them behind.

    assert "1" not in story.broken


def test_a_reader_overtaken_by_a_trim_gets_a_gap() -> None:
    story = a_good_story()
    walk = read(story, 10, b"a")
    walk.items.append(Missing(partition=0, from_sequence=1, to_sequence=2, trim=2))
    story.history.on_shown(walk, record(2, b"lost its answer"))
    walk.trims_ended = {0: 2}
    story.trim(2)

    assert story.broken == set()


def test_flushed_records_may_have_been_trimmed_unseen() -> None:
    story = a_good_story()
    story.history.on_answered(sent(story, b"nowhere", 12), "flushed", 13)
    story.trim(3)
    story.history.shown.clear()

    assert story.broken == set()


@pytest.mark.parametrize(
    ("may_forget", "trim_then", "is_broken"),
    [(True, 1, False), (True, 0, True), (True, None, False), (False, 1, True)],
)
def test_a_record_is_in_the_log_twice_only_if_its_writer_may_be_forgotten(
    may_forget: bool,  # noqa: FBT001 - pytest passes it.
    trim_then: int | None,
    is_broken: bool,  # noqa: FBT001
) -> None:
    story = Story()
    story.history.may_forget_writers = may_forget
    append = appended(story, b"a", 1, 2, 0)
    there(story, b"a")
    story.history.shown[0, 0] = story.found[0]
    story.history.on_repeated(append)
    append.trims_repeated = None if trim_then is None else {0: trim_then}
    story.trim(1)
    story.found.append(record(1, b"a"))

    assert story.broken == ({"16"} if is_broken else set())


@pytest.mark.parametrize(("trim_then", "is_broken"), [(1, False), (0, True)])
def test_a_repeat_may_be_refused_once_its_writer_may_be_forgotten(
    trim_then: int,
    is_broken: bool,  # noqa: FBT001 - pytest passes it.
) -> None:
    story = Story()
    story.history.may_forget_writers = True
    append = sent(story, b"a", 1)
    there(story, b"a")
    story.history.shown[0, 0] = story.found[0]
    story.history.on_repeated(append)
    append.trims_repeated = {0: trim_then}
    story.history.on_answered(append, "refused", 2)
    story.trim(1)

    assert story.broken == ({"17"} if is_broken else set())


@pytest.mark.parametrize(("trim_then", "is_broken"), [(8, False), (1, True)])
def test_nobody_can_tell_which_of_two_partitions_had_a_forgotten_record_first(
    trim_then: int,
    is_broken: bool,  # noqa: FBT001 - pytest passes it.
) -> None:
    story = Story()
    story.history.may_forget_writers = True
    append = appended(story, b"a", 1, 2, 0)
    there(story, b"a")
    story.history.shown[0, 0] = story.found[0]
    story.history.shown[2, 1] = attrs.evolve(record(1, b"a"), partition=2)
    story.trims[2] = trim_then
    story.history.on_repeated(append)
    append.trims_repeated = {0: 0, 2: trim_then}

    assert ("16" in story.broken) is is_broken


def test_records_that_many_walks_get_are_kept_once() -> None:
    story = Story()
    append = sent(story, b"as it was sent", 1)
    walks = [read(story, at, bytes(bytearray(append.value))) for at in (2, 3)]

    [one], [other] = (walk.items for walk in walks)
    assert one is other
    assert isinstance(one, Found)
    assert one.value is append.value
