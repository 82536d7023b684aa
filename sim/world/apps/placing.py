"""Operators of placement: they forbid and allow regions, and repair placement."""

import attrs
import trio

import geolog
from geolog.admin.placement.placement_moves import FragmentMove
from geolog.admin.placement.placement_repair import PlacementRepairer
from geolog.admin.placement.region_switches import RegionDescription, RegionSwitches
from geolog.ledger.copying.fragment_copy import CopyConfig
from geolog.protocol.placement_plan import RepairAims
from sim.world.calls import Calls
from sim.world.placement_knobs import PlacementKnobs
from sim.world.process import Process

_RETRY_S = 0.25
_COPYING = CopyConfig(reads_at_once=2)
"""Some worlds' nodes have room for no more requests of one client."""


@attrs.define(eq=False)
class Placing:
    """The main functions of placement operators; they use the code of the command."""

    calls: Calls
    knobs: PlacementKnobs

    # Regions.

    async def switch_for_ever(self, process: Process, log: geolog.Log) -> None:
        """Forbid or allow a region, rest, repeat; at the end allow all of them."""
        assert self.knobs.switch_rest_s_max is not None
        switches = RegionSwitches(log.access)
        while not self.calls.quiet.is_set():
            await self.calls.rest(self.knobs.switch_rest_s_max)
            await self._switch_one(process, switches)
        while not await self._allow_all(process, switches):  # noqa: ASYNC110 - no event for it.
            await trio.sleep(_RETRY_S)

    async def _switch_one(self, process: Process, switches: RegionSwitches) -> None:
        try:
            known = await switches.regions()
            if known:
                await self._switch(process, switches, self.calls.rng.choice(known))
        except geolog.GeologError as error:
            self._on_failed(process, "switch-region", error)

    async def _switch(
        self, process: Process, switches: RegionSwitches, found: RegionDescription
    ) -> None:
        is_allowed = found.placement == "allowed"
        what = f"{'forbid' if is_allowed else 'allow'}-region {found.region}"
        self.calls.begin(process, what)
        change = switches.forbid if is_allowed else switches.allow
        told = await change(found.region)
        self.calls.done(process, f"{what}, without place {told.streams_without_place}")
        if self.calls.is_heard(process):
            self.calls.history.happened.add(f"region-{told.placement}")

    async def _allow_all(self, process: Process, switches: RegionSwitches) -> bool:
        """Whether no region is forbidden any more."""
        try:
            for found in await switches.regions():
                if found.placement != "allowed":
                    await self._switch(process, switches, found)
            return all(one.placement == "allowed" for one in await switches.regions())
        except geolog.GeologError as error:
            self._on_failed(process, "switch-region", error)
            return False

    # Repair.

    async def repair_for_ever(self, process: Process, log: geolog.Log) -> None:
        """Repair placement, rest, repeat."""
        assert self.knobs.repair_rest_s_max is not None
        while not self.calls.quiet.is_set():
            await self.calls.rest(self.knobs.repair_rest_s_max)
            await self._repair(process, log)

    async def _repair(self, process: Process, log: geolog.Log) -> None:
        """Make one repair; its time limit or the end of all calls may interrupt it."""
        rng = self.calls.rng
        aims = RepairAims(replaces_down=rng.random() < 0.7, leaves_forbidden=rng.random() < 0.5)
        self.calls.begin(process, "repair-placement")
        moves: list[FragmentMove] = []
        repairer = PlacementRepairer(log.access, _COPYING, aims=aims, on_move=moves.append)
        with trio.move_on_after(rng.random() * self.knobs.repair_s_max) as scope:
            try:
                await repairer.run(None)
            except geolog.GeologError as error:
                self._on_failed(process, "repair-placement", error)
                return
        self.calls.done(process, f"repair-placement {len(moves)}")
        if self.calls.is_heard(process):
            happened = self.calls.history.happened
            happened.update({"placement-repaired"} if moves else ())
            happened.update({"repair-interrupted"} if scope.cancelled_caught else ())

    def _on_failed(self, process: Process, what: str, error: geolog.GeologError) -> None:
        self.calls.failed(process, f"{what} {error!r}")
        if not error.retriable and self.calls.is_heard(process):
            self.calls.history.harsh_errors.append(f"{what} failed: {error!r}")
