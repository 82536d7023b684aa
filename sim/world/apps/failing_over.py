"""Operators who fail the stream over when its home is lost, or when they think so."""

import math
from contextlib import suppress
from functools import partial
from random import Random

import attrs
import trio

import geolog
from geolog.background import open_background
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.protocol.stream_state import StreamName, StreamRecord
from sim.world.apps.moving import FORKS_AT_HAND_MAX, MOVE_STEP
from sim.world.calls import STREAM, Calls
from sim.world.process import Process

RESCUER = "rescuer-"
"""Hosts of these operators begin with this."""

HOME_LOST = "home-lost"
HOME_CUT_OFF = "home-cut-off"
HOME_HEARS_LATE = "home-hears-late"
HOME_LOST_AGAIN = "home-lost-again"
LEASE_CLOCK = "lease-clock"
"""The faults that these operators wait for, and one of the clocks of leases."""

FAILED_OVER = "failed over to"
"""Begins what they say in the trace once a failover is done."""

_LOST_SHARE = 0.8
_LOST_S_MAX = 8.0
_LATE_S_MAX = 3.0
_DROPPED_S_MAX = 6.0
_LEASES_S = (1.0, 2.0, 4.0, 12.0, None)

_FORESEEN = (
    geolog.ConflictError,  # Another operator moves it.
    geolog.InvalidArgumentError,  # It is at home there already.
    geolog.SealedError,
)


@attrs.define(eq=False)
class FailingOver:
    """The main function of these operators."""

    calls: Calls
    rng: Random

    async def fail_over_for_ever(self, process: Process, log: geolog.Log) -> None:
        """Wait until the home is lost, or for some time; fail the stream over; repeat.

        Some failovers are stopped in the middle, and all are when applications become quiet.
        Some are followed by another one at once.
        """
        knobs, rng = self.calls.knobs, self.rng
        assert knobs.failovers_rest_s_max is not None
        log.access.partitions.home_moves.forks_at_hand_max = FORKS_AT_HAND_MAX
        while not self.calls.quiet.is_set():
            await self.calls.rest(rng.random() * knobs.failovers_rest_s_max)
            if rng.random() < _LOST_SHARE:
                with trio.move_on_after(_LOST_S_MAX):
                    await self._wait_lost()
            count = 2 if rng.random() < knobs.failovers_at_once_share else 1
            for _ in range(count):
                if self.calls.quiet.is_set():
                    return
                is_dropped = rng.random() < knobs.failovers_dropped_share
                dropped_s = rng.random() * _DROPPED_S_MAX if is_dropped else math.inf
                with trio.move_on_after(dropped_s) as patience:
                    async with open_background() as nursery:
                        nursery.start_soon(self._stop_when_quiet, patience)
                        await self._fail_over(process, log)

    async def _wait_lost(self) -> None:
        """Until a home is lost, and a little longer."""
        while True:
            _, details = await self.calls.trace.wait("fault-on")
            if details.startswith((HOME_LOST, HOME_CUT_OFF, HOME_HEARS_LATE)):
                break
        await self.calls.rest(self.rng.random() * _LATE_S_MAX)

    async def _fail_over(self, process: Process, log: geolog.Log) -> None:
        def tell(step: str) -> None:
            self.calls.trace.add(process.host, "call", f"{MOVE_STEP} {step}")

        home, _ = self.calls.home_of()
        others = [one for one in self.calls.relay_regions if one != home]
        to = self.rng.choice([None, *others])
        if self.rng.random() < self.calls.knobs.leases_changed_share:
            await self._change_lease(process, log)
        if self.calls.history.may_go_on:
            _, home_epoch = self.calls.home_of()
            self.calls.history.unstopped_epochs |= {home_epoch, home_epoch + 1}
        looked_at = await self._looked_at(log)
        self.calls.begin(process, f"fail over to {to}")
        try:
            report = await log.failover(
                STREAM, to=to, timeout_s=self.calls.knobs.failover_s_max, progress=tell
            )
        except geolog.GeologError as error:
            self.calls.failed(process, f"fail over {error!r}")
            is_foreseen = error.retriable or isinstance(error, _FORESEEN)
            if not is_foreseen and self.calls.is_heard(process):
                self.calls.history.harsh_errors.append(f"a failover to {to} failed: {error!r}")
        else:
            self.calls.done(
                process, f"{FAILED_OVER} {report.home}, home epoch {report.home_epoch}"
            )
            happened = self.calls.history.happened
            happened.add("failed-over")
            if report.is_nothing_lost:
                happened.add("failed-over-whole")
            if report.fetched:
                happened.add("failed-over-fetched")
            if looked_at is not None:
                await self._resync(process, log, looked_at, report.home)

    async def _looked_at(self, log: geolog.Log) -> StreamRecord | None:
        """The stream's settings, for an operator who will begin a mirror again by them."""
        share = self.calls.knobs.resyncs_share
        if not share or self.rng.random() >= share:
            return None
        catalog = StreamCatalog(log.access.metadata, log.access.paths)
        with suppress(geolog.GeologError):
            return await catalog.read_latest(StreamName.parse(STREAM))
        return None

    async def _resync(
        self, process: Process, log: geolog.Log, looked_at: StreamRecord, home: str
    ) -> None:
        """Begin the mirror in a region again that has become the home: that is refused."""
        self.calls.begin(process, f"resync {home}")
        numbers = range(looked_at.partitions)
        try:
            begun = await log.partition_opener.resync_mirrors(
                looked_at, home, numbers, accept_gap=False
            )
        except geolog.GeologError as error:
            self.calls.failed(process, f"resync {error!r}")
            is_foreseen = error.retriable or isinstance(error, (*_FORESEEN, geolog.FencedError))
            if not is_foreseen and self.calls.is_heard(process):
                self.calls.history.harsh_errors.append(f"a resync of {home} failed: {error!r}")
        else:
            self.calls.done(process, f"resync {begun}")

    async def _change_lease(self, process: Process, log: geolog.Log) -> None:
        """Have the home answer inside shorter or longer leases, or for a while without any."""
        length_s = self.rng.choice(_LEASES_S)
        if length_s is None:
            self.calls.history.may_go_on = True
        self.calls.begin(process, f"have a lease of {length_s} s")
        catalog = StreamCatalog(log.access.metadata, log.access.paths)
        changed = partial(attrs.evolve, isolation_lease_s=length_s)
        try:
            await catalog.change(StreamName.parse(STREAM), changed)
        except geolog.GeologError as error:  # Its home moves, or was about to.
            self.calls.failed(process, f"lease {error!r}")
        else:
            self.calls.done(process, "changed the lease")
            if length_s is not None:
                self.calls.history.may_go_on = False
            self.calls.history.happened.add("lease-changed")

    async def _stop_when_quiet(self, patience: trio.CancelScope) -> None:
        await self.calls.quiet.wait()
        patience.cancel(reason="applications become quiet")
