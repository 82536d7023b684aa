"""Homes that are lost and fail over under faults; and the laws that judge it."""

import attrs
import pytest

from geolog.client.reading.bounds import AtDlsn, AtSequence
from geolog.protocol.home_record import Fork
from geolog.protocol.ids import DLSN, SegmentEntry, Sequence
from sim.histories.run import run_seed
from sim.laws.history.forks import dead_places_are_left_loudly, regions_read_the_same
from sim.world.chance import Draws
from sim.world.draws.base_options import BASE
from sim.world.draws.drawing import options_of_seed
from sim.world.draws.failover_draws import (
    with_homes_cut_off,
    with_homes_that_stop,
    with_local_only_failovers,
)
from sim.world.draws.named_worlds import options_of_world
from sim.world.faults.all_faults import FAULTS
from sim.world.history import Ending, Found, History, Item, Missing, ReaderWalk
from sim.world.options import Options


def world_of(seed: int) -> Options:
    drawn = with_homes_cut_off(BASE, Draws(seed))
    return attrs.evolve(drawn, hazards=attrs.evolve(drawn.hazards, chaos_s=14.0))


def test_what_a_failover_leaves_behind_is_kept_told_of_and_in_no_stream() -> None:
    report = run_seed(2, options=world_of(2))

    assert report.violations == []
    assert {"failed-over", "left-behind"} <= set(report.sometimes)
    assert report.acknowledged > 0


def test_a_home_that_stops_when_it_is_cut_off_answers_nobody_once_another_one_begins() -> None:
    drawn = with_homes_that_stop(BASE, Draws(7))
    hazards = attrs.evolve(drawn.hazards, chaos_s=18.0)
    report = run_seed(7, options=attrs.evolve(drawn, hazards=hazards))

    assert report.violations == []
    assert {"answered-in-lease", "stopped-alone", "failed-over"} <= set(report.sometimes)


@pytest.mark.parametrize("seed", [1010, 1014])
def test_mirrors_are_begun_again_while_the_home_is_lost_and_moves(seed: int) -> None:
    report = run_seed(
        seed, options=options_of_world("mirrors-begun-again", seed, tuple(FAULTS))
    )

    assert report.violations == []
    assert "mirror-begun-again" in report.sometimes


@pytest.mark.parametrize("start", [AtDlsn(DLSN(1, 5, 0)), AtSequence(6, 1)])
def test_a_read_from_a_dead_place_begins_with_a_gap_or_in_the_dead_branch(
    start: AtDlsn | AtSequence,
) -> None:
    fork = Fork(
        home_epoch=2, segment=1, entry=SegmentEntry(4), sequence=Sequence(4), segment_next=2
    )

    def told(first: Item) -> list[str]:
        history = History()
        history.forks_of = lambda _partition: (fork,)
        read = ReaderWalk(reader="r", begun_at=0, is_of_all=False, start=start, items=[first])
        history.on_read(read)
        return list(dead_places_are_left_loudly(history, Ending([])))

    def record(segment: int, home_epoch: int) -> Found:
        return Found(
            partition=0,
            sequence=6,
            dlsn=DLSN(segment, 5, 0),
            timestamp_us=0,
            value=b"",
            home_epoch=home_epoch,
        )

    gap = Missing(partition=0, from_sequence=None, to_sequence=4, trim=0, has_diverged=True)
    assert told(gap) == told(record(1, 1)) == []
    assert len(told(record(2, 2))) == 1


def test_a_read_in_another_region_gives_what_the_home_gives() -> None:
    both, dead = (
        Found(
            partition=0,
            sequence=sequence,
            dlsn=DLSN(1, sequence, 0),
            timestamp_us=0,
            value=b"",
        )
        for sequence in (0, 1)
    )
    branch = Missing(partition=0, from_sequence=1, to_sequence=1, trim=0, has_diverged=True)

    def told(*items: Item) -> list[str]:
        ending = Ending([both], abroad={"eu-west": list(items)})
        return list(regions_read_the_same(History(), ending))

    assert told() == told(both) == []
    assert len(told(both, dead)) == 1
    assert len(told(both, branch)) == 1


def test_some_seeds_draw_failovers() -> None:
    drawn = [options_of_seed(seed, tuple(FAULTS)) for seed in range(300)]
    relayed = [one for one in drawn if one.shape.relays_per_region]
    lost = [one for one in relayed if one.knobs.failovers_rest_s_max is not None]

    assert 1 < len(lost) < len(relayed)


def test_local_only_records_stay_in_the_region_of_a_home_that_is_lost() -> None:
    drawn = with_local_only_failovers(BASE, Draws(4))
    hazards = attrs.evolve(drawn.hazards, chaos_s=12.0)
    report = run_seed(4, options=attrs.evolve(drawn, hazards=hazards))

    assert report.violations == []
    assert {"failed-over", "home-moved", "left-local-only"} <= set(report.sometimes)
