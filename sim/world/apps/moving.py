"""Operators who move the home of the stream from region to region."""

import math
from random import Random

import attrs
import trio

import geolog
from geolog.background import open_background
from sim.world.calls import STREAM, Calls
from sim.world.process import Process

MOVER = "mover-"
"""Hosts of these operators begin with this."""

MOVE_STEP = "move step"
"""Begins the words of a call that tells which step of a move begins."""

FORKS_AT_HAND_MAX = 1
"""So that a home that moves three times has forks that are stored apart."""

_DROPPED_S_MAX = 1.5

_FORESEEN = (
    geolog.ConflictError,  # Another mover, or a mirror that lacks evicted records.
    geolog.InvalidArgumentError,  # It is at home there already.
    geolog.SealedError,
)


@attrs.define(eq=False)
class Moving:
    """The main function of these operators."""

    calls: Calls
    rng: Random

    async def move_for_ever(self, process: Process, log: geolog.Log) -> None:
        """Rest, move the home to a random region; repeat.

        Some moves are stopped in the middle, and all are when applications become quiet.
        """
        knobs = self.calls.knobs
        assert knobs.moves_rest_s_max is not None
        log.access.partitions.home_moves.forks_at_hand_max = FORKS_AT_HAND_MAX
        while not self.calls.quiet.is_set():
            with trio.move_on_after(self.rng.random() * knobs.moves_rest_s_max):
                await self.calls.quiet.wait()
            if self.calls.quiet.is_set():
                return
            to = self.rng.choice(self.calls.relay_regions)
            is_dropped = self.rng.random() < knobs.moves_dropped_share
            dropped_s = self.rng.random() * _DROPPED_S_MAX if is_dropped else math.inf
            with trio.move_on_after(dropped_s) as patience:
                async with open_background() as nursery:
                    nursery.start_soon(self._stop_when_quiet, patience)
                    await self._move(process, log, to)

    async def _move(self, process: Process, log: geolog.Log, to: str) -> None:
        def tell(step: str) -> None:
            self.calls.trace.add(process.host, "call", f"{MOVE_STEP} {step}")

        self.calls.begin(process, f"move to {to}")
        try:
            report = await log.switch_over(
                STREAM, to=to, timeout_s=self.calls.knobs.move_s_max, progress=tell
            )
        except geolog.GeologError as error:
            self.calls.failed(process, f"move {error!r}")
            is_foreseen = error.retriable or isinstance(error, _FORESEEN)
            if not is_foreseen and self.calls.is_heard(process):
                self.calls.history.harsh_errors.append(f"a move to {to} failed: {error!r}")
        else:
            self.calls.done(process, f"move to {report.home}, home epoch {report.home_epoch}")
            self.calls.history.happened.add("home-moved")

    async def _stop_when_quiet(self, patience: trio.CancelScope) -> None:
        await self.calls.quiet.wait()
        patience.cancel(reason="applications become quiet")
