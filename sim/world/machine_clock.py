"""The clocks of a host by which leases are kept: they drift, jump, and one sleeps.

The timers of a process follow simulated time, but it judges leases by the clocks of its host,
which has an oscillator of its own, and may sleep.
"""

import attrs
import trio

from geolog.protocol.isolation_lease import LeaseClocks


@attrs.define(eq=False)
class MachineClock:
    """`CLOCK_MONOTONIC` and `CLOCK_BOOTTIME` of one host."""

    rate: float
    """Seconds that pass by them in a simulated second."""
    _slept_s: float = attrs.field(default=0.0, init=False)
    _asleep_since_s: float | None = attrs.field(default=None, init=False)
    _monotonic_ahead_s: float = attrs.field(default=0.0, init=False)
    _boottime_ahead_s: float = attrs.field(default=0.0, init=False)

    def read(self) -> LeaseClocks:
        """Both clocks now."""
        now_s = trio.current_time()
        asleep_s = 0.0 if self._asleep_since_s is None else now_s - self._asleep_since_s
        awake_s = now_s - self._slept_s - asleep_s
        return LeaseClocks(
            monotonic_s=awake_s * self.rate + self._monotonic_ahead_s,
            boottime_s=now_s * self.rate + self._boottime_ahead_s,
        )

    def jump_ahead(self, *, monotonic_s: float = 0.0, boottime_s: float = 0.0) -> None:
        """Have the clocks, or one of them, tell a later time from now on."""
        self._monotonic_ahead_s += monotonic_s
        self._boottime_ahead_s += boottime_s

    def fall_asleep(self) -> None:
        """The machine sleeps from now on: the monotonic clock stands still."""
        self._asleep_since_s = trio.current_time()

    def wake(self) -> None:
        """The machine is awake again, if it was asleep."""
        if self._asleep_since_s is not None:
            self._slept_s += trio.current_time() - self._asleep_since_s
            self._asleep_since_s = None
