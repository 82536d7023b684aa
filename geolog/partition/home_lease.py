"""Keeps the lease of an owner whose stream stops when its home is cut off.

`IsolationLease` decides; `LeaseRenewals` renews it, with those of all other owners of this
process.

Rules: PROTOCOL H25.
"""

import math
from collections.abc import Callable
from typing import Protocol

import attrs
import trio

from geolog.metadata.seam import Metadata, SessionState
from geolog.partition.lease_renewals import LeaseRenewals
from geolog.protocol.isolation_lease import RENEWED_AFTER, IsolationLease, LeaseClocks
from geolog.protocol.stream_state import PartitionName
from topology.errors import GeologError, UnavailableError

_AGAIN_S = 0.2


def sleepless_clocks() -> LeaseClocks:
    """Both clocks of a machine that never sleeps."""
    now_s = trio.current_time()
    return LeaseClocks(now_s, now_s)


class LeaseListener(Protocol):
    """An owner that answers only inside the lease."""

    def on_lease(self) -> None:
        """The lease was renewed."""
        ...

    def on_lease_lost(self, why: GeologError) -> None:
        """The lease is over for good."""
        ...


@attrs.frozen(kw_only=True)
class LeaseTerms:
    """Everything that a lease is kept by."""

    metadata: Metadata
    renewals: LeaseRenewals
    clocks: Callable[[], LeaseClocks]
    """Now, by both clocks of this machine."""


class HomeLease:
    """The lease of the owners of one stream in this process."""

    def __init__(
        self, name: PartitionName, home_epoch: int, length_s: float, terms: LeaseTerms
    ) -> None:
        """name: any partition of the stream."""
        self.name = name
        self.home_epoch = home_epoch
        self._terms = terms
        self._core = IsolationLease(length_s)
        self._renewed_s = -math.inf
        self.listeners: list[LeaseListener] = []

    def __repr__(self) -> str:
        return f"HomeLease({self.name.stream}, {self._core!r})"

    def left_s(self) -> float:
        """How long an OK may still be given; 0 outside of the lease."""
        metadata = self._terms.metadata
        if metadata.session_state is SessionState.LOST:
            return 0.0
        return self._core.left_s(self._terms.clocks())

    def refusal(self) -> UnavailableError:
        """The error for an append outside of the lease."""
        return UnavailableError(
            f"{self.name.stream} takes no appends: its home is cut off from metadata"
            " (on_isolation=stop). Retry later"
        )

    async def begin(self) -> None:
        """Wait for the first lease. FencedError if the home has moved; the caller bounds it."""
        while not self._core.is_over:
            try:
                await self._terms.renewals.renew(self)
            except GeologError as error:
                if not error.retriable:
                    raise
                await trio.sleep(_AGAIN_S)
            else:
                return

    async def run(self) -> None:
        """Renew the lease, once it has begun, until it is over for good."""
        self._terms.renewals.keep(self)
        try:
            why = await self._run()
        finally:
            self._terms.renewals.drop(self)
        self._end(why)

    async def _run(self) -> GeologError:
        """Renew until the lease is over; return why it is."""
        while not self._core.is_over:
            await trio.sleep_until(self._renewed_s + self._renewed_after_s)
            if trio.current_time() < self._renewed_s + self._renewed_after_s:
                continue  # Another owner's write has renewed it meanwhile.
            try:
                await self._terms.renewals.renew(self)
            except GeologError as error:
                if not error.retriable:
                    return error
                await trio.sleep(_AGAIN_S)
        return UnavailableError(
            f"{self.name.stream}: the session of its owner with metadata was lost, so it"
            " stops until it has taken the stream over again (on_isolation=stop)"
        )

    @property
    def _renewed_after_s(self) -> float:
        return self._core.length_s * RENEWED_AFTER

    # Events of the writes that renew it. See `RenewedLease`.

    @property
    def is_due_soon(self) -> bool:
        """Whether more than half of the time until its next renewal has passed."""
        return trio.current_time() > self._renewed_s + self._renewed_after_s / 2

    def on_asked(self, session: int) -> None:
        """The lease counts from now, if the write is answered in this session."""
        self._core.on_asked(session, self._terms.clocks())

    def on_answered(self, session: int) -> None:
        """The lease is renewed, unless this is another session."""
        self._core.on_answered(session)
        self._renewed_s = trio.current_time()
        for listener in self.listeners:
            listener.on_lease()

    def on_lost(self) -> None:
        """The lease is over for good."""
        self._core.on_lost()

    def _end(self, why: GeologError) -> None:
        self._core.on_lost()
        for listener in self.listeners:
            listener.on_lease_lost(why)
