"""The power-loss drill in memory: fast, and a seed that fails once fails again."""

import pytest

from regions.storage.replay import Replay
from sim.processes.drills.power_loss import PowerLossOptions, power_loss
from sim.processes.drills.verdict import Verdict
from sim.scheduling import run_seeded

LOOPS = 30
FINDS_UNSYNCED_TABLE = 5
"""A seed at which the planted bug is found, so that the hunt takes one history."""
SEEDS_MAX = 60


def silent(_line: str) -> None:
    pass


def verdict_of(options: PowerLossOptions) -> Verdict:
    return run_seeded(power_loss, options, None, silent, seed=options.seed)


@pytest.mark.parametrize("seed", range(3))
def test_a_nodes_answers_outlive_every_power_loss(seed: int) -> None:
    verdict = verdict_of(PowerLossOptions(loops=LOOPS, seed=seed))

    assert verdict.problems == []
    assert verdict.counts["power_losses"] == LOOPS
    assert verdict.counts["kills"] > LOOPS / 5
    assert verdict.counts["starts_cut"] > LOOPS / 10
    assert verdict.counts["entries_promised"] > LOOPS


def test_a_seed_repeats_its_histories() -> None:
    options = PowerLossOptions(loops=10, seed=7)

    assert verdict_of(options) == verdict_of(options)


def test_a_node_that_believes_an_unsynced_table_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Facts known only from that table, a fence or a retired file, are lost with it."""
    monkeypatch.setattr(Replay, "_is_synced", lambda _replay, _found: True)
    hunted = (
        verdict_of(PowerLossOptions(loops=10, seed=seed, at_seal_share=1.0))
        for seed in range(FINDS_UNSYNCED_TABLE, FINDS_UNSYNCED_TABLE + SEEDS_MAX)
    )

    assert not all(verdict.passed for verdict in hunted)
