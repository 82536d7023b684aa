"""Relays, bridges and mirrors under faults; and the laws that judge them."""

import attrs
import pytest

from sim.histories.run import run_seed
from sim.world.chance import Draws
from sim.world.draws.base_options import BASE
from sim.world.draws.drawing import options_of_seed
from sim.world.draws.named_worlds import options_of_world
from sim.world.draws.relay_draws import (
    OTHER_VERSION,
    STRANGER,
    STRUCK_WITH_RELAYS,
    with_bounded_loss,
    with_matrix,
    with_relays,
    with_settings_changed,
)
from sim.world.faults.all_faults import FAULTS
from sim.world.options import Options


def world_of(seed: int) -> Options:
    drawn = with_relays(BASE, Draws(seed))
    return attrs.evolve(drawn, hazards=attrs.evolve(drawn.hazards, chaos_s=8.0))


def test_mirrors_equal_their_home_while_relays_die_leave_and_wake_up_late() -> None:
    report = run_seed(91, options=world_of(91))

    assert report.violations == []
    assert report.acknowledged > 0


@pytest.mark.parametrize("seed", [0, 3])
def test_a_bounded_stream_is_held_by_late_mirrors_and_goes_on(seed: int) -> None:
    drawn = with_bounded_loss(BASE, Draws(seed))
    hazards = attrs.evolve(drawn.hazards, chaos_s=5.0)
    report = run_seed(seed, options=attrs.evolve(drawn, hazards=hazards))

    assert report.violations == []
    assert "loss-held" in report.sometimes
    assert report.acknowledged > 0


def test_relays_outlive_a_stream_that_is_deleted_while_it_is_relayed() -> None:
    drawn = world_of(16)
    stream = attrs.evolve(drawn.stream, deletion_rest_s_max=1.0)
    report = run_seed(16, options=attrs.evolve(drawn, stream=stream))

    assert report.violations == []
    assert "deleted" in report.sometimes


def test_mirrors_equal_their_home_after_all_faults_of_relays_at_once() -> None:
    drawn = with_relays(BASE, Draws(2))
    hazards = attrs.evolve(
        drawn.hazards,
        chaos_s=8.0,
        duration_s_max=1.0,
        strikes_per_s=tuple((kind, 0.5) for kind in sorted(STRUCK_WITH_RELAYS)),
    )
    report = run_seed(2, options=attrs.evolve(drawn, hazards=hazards))

    assert report.violations == []
    assert set(report.faults) == STRUCK_WITH_RELAYS


def test_relays_of_other_versions_are_refused_and_leave_nothing_behind() -> None:
    drawn = world_of(4)
    hazards = attrs.evolve(
        drawn.hazards, duration_s_max=3.0, strikes_per_s=((OTHER_VERSION, 0.6), (STRANGER, 0.6))
    )
    report = run_seed(4, options=attrs.evolve(drawn, hazards=hazards))

    assert report.violations == []
    assert set(report.faults) == {OTHER_VERSION, STRANGER}
    assert "version-refused" in report.sometimes


def test_some_seeds_draw_each_fault_of_relays_and_a_stream_that_is_made_again() -> None:
    drawn = [with_matrix(with_relays(BASE, Draws(seed)), Draws(seed)) for seed in range(40)]
    struck = {kind for one in drawn for kind, _ in one.hazards.strikes_per_s}

    assert struck >= STRUCK_WITH_RELAYS
    assert any(one.stream.deletion_rest_s_max for one in drawn)
    assert any(one.knobs.is_target_wiped for one in drawn)


def test_a_target_that_lost_all_its_disks_is_sent_everything_again() -> None:
    drawn = with_relays(BASE, Draws(9))
    report = run_seed(
        9,
        options=attrs.evolve(
            drawn,
            hazards=attrs.evolve(drawn.hazards, chaos_s=3.0),
            knobs=attrs.evolve(drawn.knobs, is_target_wiped=True),
            stream=attrs.evolve(drawn.stream, seal_after_s_max=None),
        ),
    )

    assert report.violations == []
    assert "target-wiped" in report.sometimes


def test_settings_change_while_the_stream_is_relayed() -> None:
    drawn = with_settings_changed(BASE, Draws(8))
    report = run_seed(
        8,
        options=attrs.evolve(
            drawn,
            stream=attrs.evolve(drawn.stream, seal_after_s_max=None),
            hazards=attrs.evolve(drawn.hazards, chaos_s=10.0),
            knobs=attrs.evolve(drawn.knobs, settings_rest_s_max=0.4),
        ),
    )

    assert report.violations == []
    wanted = ("pause", "resume", "hold", "evict", "bound", "unbound", "remove", "add")
    assert {f"set-{one}" for one in wanted} <= set(report.sometimes)


def test_a_succeeded_relay_goes_on_in_the_middle_of_a_segment() -> None:
    wanted = {"relay-succeeded", "relay-replayed", "mirror-continued", "mirror-read"}
    for seed in range(34, 54):
        wanted -= set(run_seed(seed, options=world_of(seed)).sometimes)
        if not wanted:
            break

    assert not wanted


def test_some_seeds_draw_such_a_world() -> None:
    drawn = [options_of_seed(seed, tuple(FAULTS)) for seed in range(200)]
    relayed = [one for one in drawn if one.shape.relays_per_region]

    assert 4 < len(relayed) < 30


def test_small_worlds_draw_all_faults_of_relays_and_few_processes() -> None:
    drawn = [options_of_world("small-relays", seed, tuple(FAULTS)) for seed in range(120)]
    struck = {kind for one in drawn for kind, _ in one.hazards.strikes_per_s}

    assert struck >= STRUCK_WITH_RELAYS
    assert all(sum(count for _, count in one.shape.nodes_by_region) <= 9 for one in drawn)
    assert all(one.shape.writers_count == one.shape.readers_count == 1 for one in drawn)
    sometimes = [
        (
            one.knobs.is_target_wiped,
            one.knobs.rpo_max_bytes is not None,
            one.knobs.rpo_max_s is not None,
            one.knobs.local_only_share > 0,
            one.knobs.settings_rest_s_max is not None,
            one.knobs.may_evict and one.stream.truncation_rest_s_max is not None,
            one.stream.deletion_rest_s_max is not None,
            one.stream.seal_after_s_max is not None,
            one.stream.partitions_added > 0,
        )
        for one in drawn
    ]
    assert all(0 < sum(one) < len(drawn) for one in zip(*sometimes, strict=True))


def test_a_history_of_a_small_world_keeps_all_laws() -> None:
    report = run_seed(8, world="small-relays")

    assert report.violations == []
    assert report.faults
    assert report.acknowledged > 0
