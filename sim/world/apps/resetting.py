"""An operator who changes settings of the relayed stream while it is used."""

from collections.abc import Awaitable
from random import Random

import attrs
import trio

import geolog
from sim.world.calls import STREAM, Calls
from sim.world.process import Process

_RETRY_S = 0.25
_PAUSES = ("pause", "resume")
_EVICT_BYTES = (1, 3000)
_BOUNDS_S = (0.5, 1.0, 3.0)


@attrs.define(eq=False)
class Resetting:
    """The main function of such an operator. In the end no region is left out or paused."""

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
            "remove": self._remove,
            "add": self._add,
        }
        while not self.calls.quiet.is_set():
            await self.calls.rest(rest_s_max)
            is_narrow = self.calls.knobs.settings_only_paused
            name = self.rng.choice(_PAUSES if is_narrow else sorted(ways))
            await self._try(process, name, ways[name](log))
        for name in ("add", "resume"):
            is_over = False
            while not is_over:
                is_over = await self._try(process, name, ways[name](log))
                await trio.sleep(_RETRY_S)

    async def _try(self, process: Process, name: str, change: Awaitable[object]) -> bool:
        calls = self.calls
        calls.begin(process, name)
        try:
            await change
        except geolog.GeologError as error:
            calls.failed(process, f"{name} {error!r}")
            is_sealed = isinstance(error, geolog.SealedError) and calls.history.is_seal_asked
            # A stream without targets has nothing to pause, and nothing to bound.
            may_lack_targets = isinstance(error, geolog.InvalidArgumentError) and bool(
                calls.history.targets_removed
            )
            is_foreseen = error.retriable or is_sealed or may_lack_targets
            if not is_foreseen and calls.is_heard(process):
                calls.history.harsh_errors.append(f"{name} failed: {error!r}")
            return is_sealed
        calls.done(process, name)
        if calls.is_heard(process):
            calls.history.happened.add(f"set-{name}")
        return True

    async def _pause(self, log: geolog.Log) -> None:
        await log.pause_relay(STREAM, targets=[self.rng.choice(self._targets())])

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

    async def _remove(self, log: geolog.Log) -> None:
        removed, *left = self.rng.sample(self._targets(), len(self._targets()))
        self.calls.history.targets_removed.add(removed)
        await log.update_stream(STREAM, relay_to=sorted(left))

    async def _add(self, log: geolog.Log) -> None:
        await log.update_stream(STREAM, relay_to=self._targets())

    def _targets(self) -> list[str]:
        """All targets that the stream has now, or had."""
        home, _ = self.calls.home_of()
        return [one for one in self.calls.relay_regions if one != home]
