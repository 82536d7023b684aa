"""The end that members tell lies above all that may be acknowledged."""

import random

from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.ids import EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState, Member
from geolog.protocol.messages import Answer, ProbeAnswer
from geolog.protocol.tail_view import TailView, first_probed, tail_view
from tests.pure.topology.naive import naive_ack, naive_write_set
from tests.pure.topology.notation import quorum_of
from topology.location import Location

LAYOUTS = [("3/3/2 m1", "abc"), ("3/3/2 m2", "aab"), ("4/3/2 m2", "abab"), ("3/2/2 m1", "abc")]
COUNT = 4
EPOCH = Epoch(3)


def ledger_of(quorums: str, layout: str, first: int) -> LedgerRecord:
    """An OPEN ledger whose last fragment begins at this entry."""
    members = tuple(
        Member(InstanceId(f"n{slot}"), f"n{slot}", Location(region, "r"))
        for slot, region in enumerate(layout)
    )
    fragments = [Fragment(EntryId(0), members)]
    if first:
        fragments.append(Fragment(EntryId(first), members))
    return LedgerRecord(
        ledger=LedgerId(1),
        state=LedgerState.OPEN,
        epoch=EPOCH,
        quorum=quorum_of(quorums),
        fragments=tuple(fragments),
    )


def answer_of(
    answers: list[Answer], *, lac: int = -1, epoch: int = EPOCH, is_fenced: bool = False
) -> ProbeAnswer:
    return ProbeAnswer(0, EntryId(lac), EntryId(-1), is_fenced, Epoch(epoch), tuple(answers))


def may_be_acked(
    quorums: str, layout: str, entry: int, place: int, answers: dict[int, ProbeAnswer]
) -> bool:
    """Whether all members that did not say ABSENT, if they had the entry, were an ack set."""
    config = quorum_of(quorums)
    slots = {
        slot
        for slot in naive_write_set(config, entry)
        if slot not in answers or answers[slot].answers[place] is not Answer.ABSENT
    }
    return naive_ack(config, layout, entry, slots)


@given(st.sampled_from(LAYOUTS), st.sampled_from([0, 0, 5]), st.integers(-1, 8), st.integers())
def test_an_end_is_where_no_ack_set_can_hold_the_entry(
    world: tuple[str, str], first: int, above: int, seed: int
) -> None:
    rng = random.Random(seed)
    record = ledger_of(*world, first)
    begin = first_probed(record, EntryId(above))
    kinds = [Answer.HAVE, Answer.ABSENT, Answer.ABSENT, Answer.CORRUPT, Answer.UNKNOWN]
    answers = {
        slot: answer_of(
            [rng.choice(kinds) for _ in range(COUNT)],
            lac=begin - 1 if rng.random() < 0.7 else begin + rng.randrange(COUNT),
        )
        for slot in range(len(world[1]))
        if rng.random() < 0.8
    }
    view = tail_view(record, EntryId(above), COUNT, answers)

    lac = max((one.lac for one in answers.values()), default=-1)
    ends = [
        begin + place
        for place in range(COUNT)
        if begin + place > lac and not may_be_acked(*world, begin + place, place, answers)
    ]
    assert view.lac == lac
    assert view.end == (ends[0] if ends else None)
    assert view.silent_count == len(world[1]) - len(answers)
    is_last_held = any(one.answers[-1] is Answer.HAVE for one in answers.values())
    is_further_on = not ends and is_last_held
    assert view.held_to == (begin + COUNT - 1 if is_further_on else above)


def test_the_first_entry_probed_is_in_the_last_fragment() -> None:
    record = ledger_of("3/3/2 m1", "abc", 5)

    assert first_probed(record, EntryId(-1)) == 5
    assert first_probed(record, EntryId(7)) == 8


def view_of(answer: ProbeAnswer) -> TailView:
    return tail_view(ledger_of("3/3/2 m1", "abc", 0), EntryId(-1), COUNT, {0: answer})


def test_a_fence_or_a_later_epoch_at_any_member_is_reported() -> None:
    absent = [Answer.ABSENT] * COUNT

    assert not view_of(answer_of(absent)).is_taken
    assert not view_of(answer_of(absent, epoch=EPOCH - 1)).is_taken
    assert view_of(answer_of(absent, epoch=EPOCH + 1)).is_taken
    assert view_of(answer_of(absent, is_fenced=True)).is_taken
