"""Readers of a cursor, exclusive and shared, under faults; and the law of their commits."""

from typing import cast

import attrs
import pytest

from geolog.client.reading.record import Gap, GapReason
from geolog.protocol.cursor_state import CursorPartition, PartitionStanding
from geolog.protocol.ids import DLSN
from sim.histories.run import run_seed
from sim.laws.history.cursors import everything_is_delivered
from sim.laws.state.law_27_commits_in_order import CommitsInOrder
from sim.laws.state.seen import CursorLook, Look
from sim.world.draws.base_options import BASE
from sim.world.draws.cursor_draws import with_cursors, with_proxied_cursors
from sim.world.draws.drawing import options_of_seed
from sim.world.faults.all_faults import FAULTS
from sim.world.history import Ending, Found, History


def test_readers_of_a_shared_cursor_miss_nothing_while_they_die_and_are_cut_off() -> None:
    drawn = with_cursors(BASE)

    report = run_seed(
        1, options=attrs.evolve(drawn, hazards=attrs.evolve(drawn.hazards, chaos_s=8.0))
    )

    assert report.violations == []
    assert report.acknowledged > 0
    assert "cursor-moved" in report.sometimes


def test_readers_that_know_write_proxies_alone_share_a_cursor_with_others() -> None:
    """In some of these worlds metadata ends the session of a proxy that is asked."""
    drawn = with_proxied_cursors(with_cursors(BASE, is_shared=False))
    mild = attrs.evolve(drawn, hazards=attrs.evolve(drawn.hazards, chaos_s=8.0))

    reports = [run_seed(seed, options=mild) for seed in range(2)]

    assert [one.violations for one in reports] == [[], []]
    assert "cursor-moved" in reports[0].sometimes


def test_some_seeds_draw_such_a_world() -> None:
    drawn = [options_of_seed(seed, tuple(FAULTS)) for seed in range(400)]
    cursors = [one.stream for one in drawn if one.stream.cursor_readers]

    assert 1 < len(cursors) < 40
    assert {one.is_cursor_proxied for one in cursors} == {True, False}


@attrs.frozen
class Seen:
    """The part of a look that law 27 looks at."""

    cursor: CursorLook
    history: History
    trims: dict[int, object] = attrs.field(factory=dict)


def broken_by(*steps: tuple[str, int, int, int], readers: str = "ab") -> list[str]:
    """Judge records of one partition: reader, sequence, version, seeks."""
    law, history = CommitsInOrder(), History()
    history.cursor.delivered[0].update((1, sequence) for sequence in range(8))
    return [
        words
        for reader, sequence, version, seeks in steps
        for words in law.breaches(
            cast(
                "Look",
                Seen(
                    CursorLook(
                        frozenset(readers),
                        {
                            0: PartitionStanding(
                                CursorPartition(
                                    reader=reader, home_epoch=1, sequence=sequence, seeks=seeks
                                ),
                                version,
                            )
                        },
                    ),
                    history,
                ),
            )
        )
    ]


def test_commits_claims_and_seeks_in_order_break_no_law() -> None:
    assert (
        broken_by(
            ("a", 1, 0, 0),
            ("a", 4, 1, 0),
            ("", 5, 2, 0),
            ("b", 5, 3, 0),
            ("", 2, 4, 1),
            ("a", 8, 9, 1),
        )
        == []
    )


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([("a", 5, 3, 0), ("a", 4, 4, 0)], "went back"),
        ([("a", 5, 3, 0), ("b", 4, 9, 0)], "went back"),
        ([("b", 5, 3, 0), ("a", 6, 4, 0)], "a committed 6@1, but b had"),
        ([("c", 5, 3, 0), ("c", 6, 4, 0)], "without a lease"),
        ([("a", 9, 3, 0)], "no reader was done with 8"),
    ],
)
def test_a_commit_out_of_order_breaks_the_law(
    steps: list[tuple[str, int, int, int]], words: str
) -> None:
    [told] = broken_by(*steps)

    assert words in told


def test_a_record_that_no_reader_was_given_breaks_the_law() -> None:
    record = Found(
        partition=0, sequence=3, dlsn=DLSN(1, 0, 3), timestamp_us=0, value=b"a record"
    )
    history = History()
    history.is_cursor_read = True

    [told] = everything_is_delivered(history, Ending([record]))
    history.cursor.delivered[0].add((1, 3))

    assert told == "no reader of the cursor was given sequence 3"
    assert list(everything_is_delivered(history, Ending([record]))) == []


def test_a_record_behind_a_fork_is_not_done_because_another_one_was_in_its_place() -> None:
    record = Found(
        partition=0,
        sequence=3,
        dlsn=DLSN(9, 0, 0),
        timestamp_us=0,
        value=b"of the new home",
        home_epoch=2,
    )
    history = History()
    history.is_cursor_read = True
    history.cursor.delivered[0].add((1, 3))
    history.cursor.on_done(Gap("shop/orders", 0, GapReason.DIVERGED, 3, 5, 2))

    [told] = everything_is_delivered(history, Ending([record]))

    assert told == "no reader of the cursor was given sequence 3"
