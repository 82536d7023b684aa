"""An operator who begins mirrors of the stream again, whatever its home does meanwhile."""

from random import Random

import attrs
import trio

import geolog
from geolog.background import open_background
from sim.world.calls import STREAM, Calls
from sim.world.process import Process

_FORESEEN = (
    geolog.ConflictError,  # There is a gap, or something only the mirror has, or it is home.
    geolog.FencedError,  # Relays took it over again and again.
    geolog.InvalidArgumentError,  # The region is the home by now.
    geolog.SealedError,
)


@attrs.define(eq=False)
class Resyncing:
    """The main function of such an operator. Nothing is dropped that no other region has."""

    calls: Calls
    rng: Random

    async def resync_for_ever(self, process: Process, log: geolog.Log) -> None:
        """Rest, begin the mirrors in a random region again; repeat.

        Operations under way end when applications become quiet.
        """
        rest_s_max = self.calls.knobs.resyncs_rest_s_max
        assert rest_s_max is not None
        while not self.calls.quiet.is_set():
            await self.calls.rest(self.rng.random() * rest_s_max)
            if self.calls.quiet.is_set():
                return
            region = self.rng.choice(self.calls.relay_regions)
            async with open_background() as nursery:
                nursery.start_soon(self._stop_when_quiet, nursery.cancel_scope)
                await self._resync(process, log, region)

    async def _stop_when_quiet(self, patience: trio.CancelScope) -> None:
        await self.calls.quiet.wait()
        patience.cancel(reason="applications become quiet")

    async def _resync(self, process: Process, log: geolog.Log, region: str) -> None:
        calls = self.calls
        calls.begin(process, f"resync {region}")
        try:
            begun = await log.resync_relay(STREAM, target=region)
        except geolog.GeologError as error:
            calls.failed(process, f"resync {error!r}")
            is_foreseen = error.retriable or isinstance(error, _FORESEEN)
            if not is_foreseen and calls.is_heard(process):
                calls.history.harsh_errors.append(f"a resync of {region} failed: {error!r}")
        else:
            calls.done(process, f"resync {begun}")
            calls.history.happened.add("mirror-begun-again")
