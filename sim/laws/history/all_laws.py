"""Laws that a history shows by itself: the answers, compared with the final state.

Every acknowledgement carries a position, so no search is needed: each law is one walk over the
appends and reads, sorted where the law is about order.
"""

from collections.abc import Callable, Iterator

import attrs

from sim.laws.history import appends as laws_of_appends
from sim.laws.history import cursors as laws_of_cursors
from sim.laws.history import deletion as laws_of_deletion
from sim.laws.history import forks as laws_of_forks
from sim.laws.history import hand_overs as laws_of_hand_overs
from sim.laws.history import reads as laws_of_reads
from sim.world.history import Ending, History

Law = Callable[[History, Ending], Iterator[str]]
"""Yields, in words, each way in which a history breaks the law."""

_TOLD_MAX = 5
"""How many breaches of one law are reported; the first ones are the ones to look at."""


@attrs.frozen
class Violation:
    """One breach of a law."""

    law: str
    """The law's number; `deletion` for the law without one, `crash` and `stuck` for other
    ends."""
    message: str
    replay: str
    """The command that replays it."""


HISTORY_LAWS: dict[str, tuple[Law, ...]] = {
    "1": (
        laws_of_appends.acknowledged_stays,
        laws_of_appends.flushed_stays,
        laws_of_reads.reads_hold_all_before_them,
        laws_of_forks.left_behind_is_kept,
        laws_of_forks.left_behind_is_told,
    ),
    "4": (laws_of_appends.sealed_takes_nothing, laws_of_reads.sealed_stays),
    "9": (laws_of_reads.list_order_is_append_order,),
    "10": (
        laws_of_hand_overs.lost_means_anothers,
        laws_of_forks.replaced_homes_answer_nobody,
    ),
    "11": (laws_of_reads.shown_stays, laws_of_forks.shown_is_kept),
    "13": (
        laws_of_appends.real_time_orders,
        laws_of_forks.epochs_are_in_order,
        laws_of_appends.transaction_ids_rise,
        laws_of_appends.keys_stay_together,
        laws_of_appends.expected_is_got,
        laws_of_appends.nothing_passes_a_refusal,
    ),
    "14": (
        laws_of_reads.reads_begin_where_they_should,
        laws_of_reads.reads_have_no_holes,
        laws_of_reads.gaps_are_true,
        laws_of_forks.branches_are_left_loudly,
        laws_of_forks.dead_places_are_left_loudly,
        laws_of_reads.truncations_do_as_asked,
    ),
    "15": (laws_of_reads.nothing_is_damaged,),
    "16": (
        laws_of_appends.appends_happen_once,
        laws_of_appends.repeats_are_found_out,
        laws_of_appends.sessions_take_turns,
        laws_of_forks.kept_is_in_no_stream,
        laws_of_forks.sessions_end_with_a_loss,
    ),
    "17": (laws_of_appends.refused_is_absent, laws_of_appends.provisional_is_no_lie),
    "18": (laws_of_reads.local_only_stays, laws_of_forks.regions_read_the_same),
    "27": (laws_of_cursors.everything_is_delivered,),
    "deletion": (
        laws_of_deletion.deleted_stays_gone,
        laws_of_deletion.deleted_takes_nothing,
        laws_of_deletion.walks_keep_to_one_life,
        laws_of_deletion.lives_begin_empty,
        laws_of_deletion.answered_stays_for_its_life,
    ),
}
"""The history laws, by number."""


def breaches(history: History, ending: Ending) -> Iterator[tuple[str, str]]:
    """Every breach, with the number of its law; few of each law."""
    for number, laws in HISTORY_LAWS.items():
        for law in laws:
            for count, message in enumerate(law(history, ending)):
                if count == _TOLD_MAX:
                    break
                yield number, message
