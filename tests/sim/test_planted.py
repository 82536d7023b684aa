"""Planted bugs: harsh histories find them, and no bug outlives its hunt."""

import pytest

from geolog.protocol.recovery import Recovery
from sim.laws.history.all_laws import Violation
from sim.planted.bugs import PLANTED_BUGS, planted
from sim.planted.hunt import CHAOS_S, Catch, Hunted, hunt, options_of_hunt, run_with, table

_SEEDS_MAX = 40
"""Bound of a hunt. It starts at a seed that finds the bug, so it usually takes one history."""


def long(name: str, first_seed: int) -> pytest.ParameterSet:
    """A bug that takes more than four seconds to find, while a second process hunts too."""
    return pytest.param(name, first_seed, marks=pytest.mark.long)


@pytest.mark.parametrize(
    ("name", "first_seed"),
    [
        ("no-directory-sync", 0),
        ("delete-drops-fence", 1),
        ("fence-forgets-lac", 1),
        long("writers-not-recovered", 4),
        ("ack-before-sync", 2),
        ("fence-before-sync", 2),
        ("fence-in-memory", 1),
        ("metadata-without-cas", 16),
        long("copies-believed", 12),
        ("tail-not-synced-again", 28),
        ("replacement-anywhere", 0),
        long("epoch-ignored", 0),
        ("append-time-unclamped", 3),
        ("retention-by-local-clock", 4),
        long("retention-by-held-times", 23),
        ("new-members-by-old-regions", 1),
        ("two-owners", 0),
        ("refusals-let-others-pass", 6),
        ("leaves-before-the-give", 0),
        ("failed-owner-stays", 2),
        ("live-owner-deposed", 6),
        ("settled-by-file", 2),
        ("unreadable-as-end", 20),
        ("redirect-loses-batch", 3),
        ("retry-without-seq", 9),
        ("unknown-at-goaway-as-refused", 17),
        ("answered-before-owner", 0),
        long("trial-held-for-ever", 12),
        ("lost-reader-commits", 0),
        long("commit-goes-back", 39),
        ("first-negative-ends", 1),
        ("cancelled-answer-for-another", 8),
        ("told-before-durable", 0),
        ("multicast-before-acknowledged", 0),
        ("watermark-of-sequences", 0),
        ("loss-of-the-fastest", 9),
        ("mirrored-as-sent", 2),
        long("resumes-one-too-far", 2),
        long("keeps-for-the-furthest", 0),
        ("window-freed-twice", 0),
        long("bridge-looks-once", 14),
        long("placed-over-a-hole", 13),
        long("dropped-and-covered", 0),
        long("mirror-trims-itself", 3),
        long("gap-hides-more", 10),
        long("refused-epoch-counts", 5),
        long("mirror-not-compared", 3),
        long("segment-numbers-reused", 25),
        long("writers-forgotten-at-the-move", 3),
        long("rows-dropped-apart", 2),
        long("two-forks-missed", 0),
        long("rows-dropped-unnoted", 0),
        long("row-end-ignored", 1),
        long("dead-place-in-the-stream", 1),
        long("lease-from-the-answer", 14),
        long("failover-goes-by-the-setting", 2),
        ("local-only-relayed", 0),
        long("local-only-read-abroad", 0),
        long("local-only-withheld", 0),
        long("paused-not-kept", 1),
        long("local-only-repeat-refused", 10),
        long("removed-target-remembered", 0),
        ("sealed-settings-refused", 0),
    ],
)
def test_a_planted_bug_is_found(name: str, first_seed: int) -> None:
    found = hunt(name, range(first_seed, first_seed + _SEEDS_MAX))
    assert found is not None
    replay = found.violations[0].replay
    assert replay == f"python -P -m sim.planted {name} --replay {found.seed}"


def test_a_hunted_history_is_the_whole_one_up_to_the_first_broken_law() -> None:
    found = hunt("ack-before-sync", range(2, 2 + _SEEDS_MAX))
    assert found is not None

    whole = run_with("ack-before-sync", found.seed)
    short = run_with("ack-before-sync", found.seed, ends_at_breach=True)

    assert whole.violations[0] == short.violations[0] == found.violations[0]
    assert short.simulated_s < whole.simulated_s


def test_a_hunt_in_a_kind_of_worlds_names_it_for_its_replay() -> None:
    found = hunt("told-before-durable", range(60_000, 60_000 + _SEEDS_MAX), "small-relays")
    assert found is not None

    assert found.processor_s > 0
    replay = "python -P -m sim.planted told-before-durable --world small-relays --replay"
    assert found.violations[0].replay == f"{replay} {found.seed}"


def test_a_hunt_without_seeds_finds_nothing() -> None:
    assert hunt("ack-before-sync", []) is None


def test_a_planted_bug_is_gone_when_its_block_ends() -> None:
    good = Recovery.on_silence
    with planted("timeout-as-absent"):
        assert Recovery.on_silence is not good
    assert Recovery.on_silence is good


def test_each_planted_bug_can_be_planted_and_removed() -> None:
    for name, bug in PLANTED_BUGS.items():
        before = [vars(owner)[attribute] for owner, attribute, _ in bug.patches]
        with planted(name):
            pass
        assert [vars(owner)[attribute] for owner, attribute, _ in bug.patches] == before


def test_histories_of_a_hunt_are_short_and_small() -> None:
    options = options_of_hunt(7)
    assert options.hazards.chaos_s == CHAOS_S
    assert 3 <= sum(count for _, count in options.shape.nodes_by_region) <= 5


def test_the_table_shows_the_median_the_worst_and_the_law() -> None:
    founds = [
        Catch(7, count, [Violation("2", "no ack set", "")], 2.0 * count) for count in (1, 4, 9)
    ]
    [_, _, row] = table([Hunted(name="ack-before-sync", founds=founds, tries_count=3)])
    assert row.startswith("| 13 `ack-before-sync` |")
    assert row.endswith("| 3 of 3 | 4 | 9 | 8 | 2 |")


def test_the_table_says_when_a_hunt_found_nothing() -> None:
    [_, _, row] = table([Hunted(name="ack-before-sync", founds=[], tries_count=1)])
    assert row.endswith("| 0 of 1 | - | - | - | - |")
