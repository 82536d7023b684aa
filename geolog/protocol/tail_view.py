"""Judges what the members of a ledger say about its tail, while it may still be written.

Theory of operation. A probe asks all members of the last fragment for the same run of entries,
and for their LAC. Only ABSENT counts as absence; damage and silence count for nothing. The end
is before the first entry that a blocking set of its write set calls ABSENT, because such an
entry was never acknowledged; but never at or below a LAC. If there is no end among the entries
probed, and some member has the last of them, the end lies further on.

Members of earlier fragments are not asked: all entries of those were acknowledged before the
last fragment began.

Rules: PROTOCOL R2.
"""

from collections.abc import Mapping

import attrs

from geolog.protocol.ids import NO_ENTRY, EntryId
from geolog.protocol.ledger_state import LedgerRecord
from geolog.protocol.messages import Answer, ProbeAnswer


@attrs.frozen
class TailView:
    """Result of a probe at the tail of a ledger that may still be written.

    `lac`: the highest LAC that any member knows.
    `end`: no entry from here up was ever acknowledged, because a blocking set of its write set
    says ABSENT. None if too few members answered, or if the end lies beyond the entries probed.
    `held_to`: up to here there is surely no end, because all entries were probed and some
    member has the last one.
    `is_taken`: some member knows of a fence or a higher epoch that the record does not mention,
    so the ledger is, or was, being taken over.
    """

    lac: EntryId
    end: EntryId | None
    held_to: EntryId
    is_taken: bool
    silent_count: int


def first_probed(record: LedgerRecord, above: EntryId) -> EntryId:
    """The first entry to ask for, if the end lies above this one."""
    return max(EntryId(above + 1), record.fragments[-1].first_entry)


def tail_view(
    record: LedgerRecord, above: EntryId, count: int, answers: Mapping[int, ProbeAnswer]
) -> TailView:
    """The view that these answers give, by slot; each is for `count` entries."""
    first = first_probed(record, above)
    lac = max((answer.lac for answer in answers.values()), default=NO_ENTRY)
    end = _end_of(record, lac, range(first, first + count), answers)
    is_last_held = any(answer.answers[-1] is Answer.HAVE for answer in answers.values())
    return TailView(
        lac=lac,
        end=end,
        held_to=EntryId(first + count - 1) if end is None and is_last_held else above,
        is_taken=any(
            answer.is_fenced or answer.epoch_highest > record.epoch
            for answer in answers.values()
        ),
        silent_count=len(record.fragments[-1].ensemble) - len(answers),
    )


def _end_of(
    record: LedgerRecord, lac: EntryId, probed: range, answers: Mapping[int, ProbeAnswer]
) -> EntryId | None:
    rule = record.fragments[-1].rule(record.quorum)
    for place, entry in enumerate(probed):
        absent = sum(
            1 << slot
            for slot, answer in answers.items()
            if answer.answers[place] is Answer.ABSENT
        )
        if entry > lac and rule.is_block(entry, absent):
            return EntryId(entry)
    return None
