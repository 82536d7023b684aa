"""A target of a relayed stream loses all its disks; its home sends everything again.

Metadata still says how far the mirror was. Operators do what the documentation says: they give
the disks up, start the nodes, and have the home send the mirror everything that is left there.
"""

from random import Random

import attrs
import trio

import geolog
from sim.world.apps.operator import OPERATOR, replacing
from sim.world.apps.short_lived import BRIEF
from sim.world.calls import STREAM
from sim.world.process import Process
from sim.world.waiting import run_client
from sim.world.world import World

_RETRY_S = 0.5
_WITHIN_S = 120.0
"""No law says how soon operators notice."""


@attrs.define(eq=False)
class WipedTarget:
    """The story of one region that is wiped."""

    world: World
    rng: Random

    async def breach(self) -> str | None:
        """Wipe a region, and begin its mirrors again; the breach of law 24, if there is one."""
        region = self.rng.choice(self.world.options.relay_to)
        with trio.move_on_after(_WITHIN_S):
            await self._wipe(region)
            await run_client(self.world, f"{OPERATOR}resync", self._resync)
            return None
        return f"the mirrors of {region} did not begin again within {_WITHIN_S:g} s"

    async def _wipe(self, region: str) -> None:
        world = self.world
        world.wiped.add(region)
        world.trace.add("-", "fault-on", f"target-wiped {region}")
        hosts = [host for host in sorted(world.nodes) if world.nodes[host].region == region]
        for host in hosts:
            if host in world.processes:
                world.kill(host, power_loss=True)
            world.nodes[host].empty_disks()
            world.nodes[host].is_being_replaced = True
        for host in hosts:
            world.start_client(OPERATOR + host, region, replacing(world, host))
            world.restart(host)
        while any(world.nodes[host].is_being_replaced for host in hosts):  # noqa: ASYNC110
            await trio.sleep(_RETRY_S)
        world.trace.add("-", "fault-off", f"target-wiped {region}")

    async def _resync(self, process: Process, log: geolog.Log) -> None:
        """Have the home send everything again, as `geolog relay resync` does."""
        has_brief = self.world.options.stream.deletion_rest_s_max is not None
        for stream in (STREAM, BRIEF) if has_brief else (STREAM,):
            for region in sorted(self.world.wiped):
                await self._resync_one(process, log, stream, region)

    async def _resync_one(
        self, process: Process, log: geolog.Log, stream: str, region: str
    ) -> None:
        while True:
            self.world.trace.add(process.host, "call", f"resync {stream} {region}")
            try:
                begun = await log.resync_relay(stream, target=region, accept_gap=True)
            except geolog.GeologError as error:
                if not error.retriable:
                    raise
                self.world.trace.add(process.host, "failed", f"resync {error!r}")
                await trio.sleep(_RETRY_S)
            else:
                self.world.trace.add(process.host, "done", f"resync {begun}")
                return
