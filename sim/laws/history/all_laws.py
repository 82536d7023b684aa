"""The laws that a history shows by itself: what was told, and what is there when all is over.

Every acknowledgement carries a position, so no search is needed: each law is one walk over the
appends and reads, in sorted order where an order is what it speaks of.
"""

from collections.abc import Callable, Iterator

import attrs

from sim.laws.history import appends as laws_of_appends
from sim.laws.history import deletion as laws_of_deletion
from sim.laws.history import reads as laws_of_reads
from sim.world.history import Ending, History

Law = Callable[[History, Ending], Iterator[str]]
"""Says, in words, each way in which a history breaks it."""

_TOLD_MAX = 5
"""Breaches of one law that are told; the first are the ones to look at."""


@attrs.frozen
class Violation:
    """A law was broken."""

    law: str
    """Its number; `deletion` for what has none, `crash` and `stuck` for what no law forbids."""
    message: str
    replay: str
    """The command that shows it again."""


HISTORY_LAWS: dict[str, tuple[Law, ...]] = {
    "1": (
        laws_of_appends.acknowledged_stays,
        laws_of_appends.flushed_stays,
        laws_of_reads.reads_hold_all_before_them,
    ),
    "4": (laws_of_appends.sealed_takes_nothing, laws_of_reads.sealed_stays),
    "9": (laws_of_reads.list_order_is_append_order,),
    "11": (laws_of_reads.shown_stays,),
    "13": (
        laws_of_appends.real_time_orders,
        laws_of_appends.transaction_ids_rise,
        laws_of_appends.keys_stay_together,
        laws_of_appends.expected_is_got,
    ),
    "14": (
        laws_of_reads.reads_begin_where_they_should,
        laws_of_reads.reads_have_no_holes,
        laws_of_reads.gaps_are_true,
        laws_of_reads.truncations_do_as_asked,
    ),
    "15": (laws_of_reads.nothing_is_damaged,),
    "16": (laws_of_appends.appends_happen_once, laws_of_appends.repeats_are_found_out),
    "17": (laws_of_appends.refused_is_absent, laws_of_appends.provisional_is_no_lie),
    "deletion": (
        laws_of_deletion.deleted_stays_gone,
        laws_of_deletion.deleted_takes_nothing,
        laws_of_deletion.walks_keep_to_one_life,
        laws_of_deletion.lives_begin_empty,
        laws_of_deletion.answered_stays_for_its_life,
    ),
}
"""By number of the law that each belongs to."""


def breaches(history: History, ending: Ending) -> Iterator[tuple[str, str]]:
    """Every law that the history breaks, by number, with words; few of each."""
    for number, laws in HISTORY_LAWS.items():
        for law in laws:
            for count, message in enumerate(law(history, ending)):
                if count == _TOLD_MAX:
                    break
                yield number, message
