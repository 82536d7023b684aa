"""Placement is repaired again and again while nodes end and come back: every law is kept."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from random import Random

import attrs
import pytest
import trio

import geolog
from geolog.client.placement.placement_moves import FragmentMove
from geolog.client.placement.placement_repair import PlacementRepairer
from geolog.ledger.fragment_copy import CopyConfig
from geolog.protocol.placement_plan import RepairAims
from sim.planted.hunt import options_of_hunt
from sim.world.faults import FAULTS
from sim.world.operator import OPERATOR
from sim.world.options import Options, Shape
from sim.world.process import Process
from sim.world.run import run_seed
from sim.world.world import World
from topology.quorum import QuorumConfig

KIND = "repaired-placement"
REPAIR_S_MAX = 20.0


def options_with_spare_nodes(seed: int) -> Options:
    """Two nodes in each of three regions for three copies, and nodes that end now and then."""
    drawn = options_of_hunt(seed)
    shape = Shape(
        nodes_by_region=(("us-east", 2), ("eu-west", 2), ("ap-northeast", 2)),
        quorum=QuorumConfig(ensemble_size=3, write_quorum=3, ack_quorum=2, min_regions=2),
        writers_count=2,
        readers_count=1,
    )
    strikes = {**dict(drawn.hazards.strikes_per_s), "kill-node": 0.4, KIND: 0.6}
    return attrs.evolve(
        drawn,
        shape=shape,
        knobs=attrs.evolve(drawn.knobs, value_bytes_max=20_000, appends_per_tenure=40),
        hazards=attrs.evolve(
            drawn.hazards,
            chaos_s=12.0,
            duration_s_max=8.0,
            strikes_per_s=tuple(sorted(strikes.items())),
        ),
    )


@attrs.define
class Menders:
    """Operators who bring back to its policy what they find, each with a process of its own."""

    moves: list[FragmentMove] = attrs.field(factory=list)
    _numbers: Iterator[int] = attrs.field(factory=count)

    @contextmanager
    def strike(self, world: World, rng: Random) -> Iterator[str | None]:
        """One begins to repair; it ends when it is done, or when it is killed."""
        host = f"{OPERATOR}mender-{next(self._numbers)}"
        aims = RepairAims(replaces_down=rng.random() < 0.7)

        async def main(process: Process, log: geolog.Log) -> None:
            repairer = PlacementRepairer(
                log.access, CopyConfig(reads_at_once=2), aims=aims, on_move=self.moves.append
            )
            with trio.move_on_after(REPAIR_S_MAX):
                try:
                    await repairer.run(None)
                except geolog.GeologError as error:
                    world.trace.add(process.host, "failed", f"repair-placement {error!r}")

        region = rng.choice(world.options.shape.regions)
        world.start_client(host, region, main, is_restarted=False)
        yield host


def test_repairs_of_placement_beside_all_else_that_happens_break_no_law(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    menders = Menders()
    monkeypatch.setitem(FAULTS, KIND, menders.strike)

    reports = [run_seed(seed, options=options_with_spare_nodes(seed)) for seed in (19, 28)]

    assert [one.violations for one in reports] == [[], []]
    assert menders.moves
