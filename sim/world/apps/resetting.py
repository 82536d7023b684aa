"""An operator who changes settings of the relayed stream while it is used."""

from collections.abc import Awaitable
from random import Random

import attrs
import trio

import geolog
from sim.world.calls import STREAM, Calls
from sim.world.process import Process

_RETRY_S = 0.25
_EVICT_BYTES = (1, 3000)
_BOUNDS_S = (0.5, 1.0, 3.0)


@attrs.define(eq=False)
class Resetting:
    """The main function of such an operator. In the end no target is paused."""

    calls: Calls
    rng: Random

    async def reset_for_ever(self, process: Process, log: geolog.Log) -> None:
        """Change a setting, rest; repeat."""
        rest_s_max = self.calls.knobs.settings_rest_s_max
        assert rest_s_max is not None
        ways = {
            "pause": self._pause,
            "resume": self._resume,
            "hold": self._hold,
            "evict": self._evict,
            "bound": self._bound,
            "unbound": self._unbound,
        }
        while not self.calls.quiet.is_set():
            await self.calls.rest(rest_s_max)
            name = self.rng.choice(sorted(ways))
            await self._try(process, name, ways[name](log))
        is_over = False
        while not is_over:
            is_over = await self._try(process, "resume", self._resume(log))
            await trio.sleep(_RETRY_S)

    async def _try(self, process: Process, name: str, change: Awaitable[object]) -> bool:
        calls = self.calls
        calls.begin(process, name)
        try:
            await change
        except geolog.GeologError as error:
            calls.failed(process, f"{name} {error!r}")
            is_sealed = isinstance(error, geolog.SealedError) and calls.history.is_seal_asked
            if not (error.retriable or is_sealed) and calls.is_heard(process):
                calls.history.harsh_errors.append(f"{name} failed: {error!r}")
            return False
        calls.done(process, name)
        if calls.is_heard(process):
            calls.history.happened.add(f"set-{name}")
        return True

    async def _pause(self, log: geolog.Log) -> None:
        home, _ = self.calls.home_of()
        targets = [one for one in self.calls.relay_regions if one != home]
        await log.pause_relay(STREAM, targets=[self.rng.choice(targets)])

    async def _resume(self, log: geolog.Log) -> None:
        await log.resume_relay(STREAM)

    async def _hold(self, log: geolog.Log) -> None:
        await log.update_stream(STREAM, relay_evict_bytes=None)

    async def _evict(self, log: geolog.Log) -> None:
        await log.update_stream(STREAM, relay_evict_bytes=self.rng.choice(_EVICT_BYTES))

    async def _bound(self, log: geolog.Log) -> None:
        targets = self.rng.choice(("all", "any"))
        await log.update_stream(
            STREAM, rpo_max_s=self.rng.choice(_BOUNDS_S), rpo_targets=targets
        )

    async def _unbound(self, log: geolog.Log) -> None:
        await log.update_stream(STREAM, rpo_max_s=None)
