"""An operator who changes settings of the relayed stream while it is used."""

from collections.abc import Awaitable, Callable
from random import Random

import attrs
import trio

import geolog
from geolog.protocol.stream_state import StreamRecord
from sim.world.calls import STREAM, Calls
from sim.world.process import Process

_RETRY_S = 0.25
_PAUSES = ("pause", "resume")
_EVICT_BYTES = (1, 3000)
_BOUNDS_S = (0.5, 1.0, 3.0)


@attrs.frozen
class _Change:
    """A change of settings, and what the stream must be like for it."""

    made: Awaitable[object]
    is_possible: Callable[[StreamRecord], bool]


def _always(_stream: StreamRecord) -> bool:
    return True


def _has_targets(stream: StreamRecord) -> bool:
    """A stream without targets has nothing to pause, and nothing to bound."""
    return bool(stream.relay_to)


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

    async def _try(self, process: Process, name: str, change: _Change) -> bool:
        """Whether the change is made; only what its stream or faults explain may refuse it."""
        calls = self.calls
        calls.begin(process, name)
        stream = calls.stream_now()
        assert stream is not None
        was_possible = change.is_possible(stream)
        try:
            await change.made
        except geolog.GeologError as error:
            calls.failed(process, f"{name} {error!r}")
            stream = calls.stream_now()  # An operator before this one may have changed it.
            assert stream is not None
            is_possible = was_possible and change.is_possible(stream)
            # No bound on what is in flight concerns a change of settings.
            is_late = error.retriable and not isinstance(error, geolog.OverCapacityError)
            is_foreseen = is_late or (
                isinstance(error, geolog.InvalidArgumentError) and not is_possible
            )
            if not is_foreseen and calls.is_heard(process):
                calls.history.harsh_errors.append(f"{name} failed: {error!r}")
            return False
        calls.done(process, name)
        if calls.is_heard(process):
            calls.history.happened.add(f"set-{name}")
        return True

    def _pause(self, log: geolog.Log) -> _Change:
        target = self.rng.choice(self._targets())
        return _Change(
            log.pause_relay(STREAM, targets=[target]), lambda stream: target in stream.relay_to
        )

    def _resume(self, log: geolog.Log) -> _Change:
        return _Change(log.resume_relay(STREAM), _has_targets)

    def _hold(self, log: geolog.Log) -> _Change:
        return _Change(log.update_stream(STREAM, relay_evict_bytes=None), _always)

    def _evict(self, log: geolog.Log) -> _Change:
        kept_bytes = self.rng.choice(_EVICT_BYTES)
        return _Change(log.update_stream(STREAM, relay_evict_bytes=kept_bytes), _always)

    def _bound(self, log: geolog.Log) -> _Change:
        targets = self.rng.choice(("all", "any"))
        made = log.update_stream(
            STREAM, rpo_max_s=self.rng.choice(_BOUNDS_S), rpo_targets=targets
        )
        return _Change(made, _has_targets)

    def _unbound(self, log: geolog.Log) -> _Change:
        return _Change(log.update_stream(STREAM, rpo_max_s=None), _always)

    def _remove(self, log: geolog.Log) -> _Change:
        removed, *left = self.rng.sample(self._targets(), len(self._targets()))
        self.calls.history.targets_removed.add(removed)
        return _Change(
            log.update_stream(STREAM, relay_to=sorted(left)),
            # A bound needs targets.
            lambda stream: (
                stream.home not in left
                and (bool(left) or stream.rpo_max_s is None is stream.rpo_max_bytes)
            ),
        )

    def _add(self, log: geolog.Log) -> _Change:
        added = self._targets()
        return _Change(
            log.update_stream(STREAM, relay_to=added), lambda stream: stream.home not in added
        )

    def _targets(self) -> list[str]:
        """All targets that the stream has now, or had."""
        home, _ = self.calls.home_of()
        return [one for one in self.calls.relay_regions if one != home]
