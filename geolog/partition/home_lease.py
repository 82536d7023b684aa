"""Keeps the lease of an owner whose stream stops when its home is cut off.

`IsolationLease` decides; this shell renews it by a write that checks the home record and
touches this process's own node, both in one step.

Rules: PROTOCOL H25.
"""

from collections.abc import Callable
from typing import Protocol

import attrs
import trio

from geolog.catalog.stream_homes import StreamHomes
from geolog.metadata.seam import (
    BadVersionError,
    Metadata,
    NoNodeError,
    Put,
    SessionState,
)
from geolog.partition.shown_owners import ShownOwners
from geolog.protocol.isolation_lease import RENEWED_AFTER, IsolationLease, LeaseClocks
from geolog.protocol.stream_state import PartitionName
from topology.errors import FencedError, GeologError, UnavailableError

_AGAIN_S = 0.2


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
    homes: StreamHomes
    owners: ShownOwners
    boottime_s: Callable[[], float] = trio.current_time
    """A clock that goes on while the machine sleeps."""

    def clocks(self) -> LeaseClocks:
        """Now, by both clocks."""
        return LeaseClocks(trio.current_time(), self.boottime_s())


class HomeLease:
    """The lease of the owners of one stream in this process."""

    def __init__(
        self, name: PartitionName, home_epoch: int, length_s: float, terms: LeaseTerms
    ) -> None:
        """name: any partition of the stream."""
        self._name = name
        self._home_epoch = home_epoch
        self._terms = terms
        self._core = IsolationLease(length_s)
        self.listeners: list[LeaseListener] = []

    def __repr__(self) -> str:
        return f"HomeLease({self._name.stream}, {self._core!r})"

    def left_s(self) -> float:
        """How long an OK may still be given; 0 outside of the lease."""
        metadata = self._terms.metadata
        if metadata.session_state is SessionState.LOST:
            return 0.0
        return self._core.left_s(self._terms.clocks())

    def refusal(self) -> UnavailableError:
        """The error for an append outside of the lease."""
        return UnavailableError(
            f"{self._name.stream} takes no appends: its home is cut off from metadata"
            " (on_isolation=stop). Retry later"
        )

    async def begin(self) -> None:
        """Wait for the first lease. FencedError if the home has moved; the caller bounds it."""
        while not self._core.is_over:
            try:
                await self._renew()
            except GeologError as error:
                if not error.retriable:
                    raise
                await trio.sleep(_AGAIN_S)
            else:
                return

    async def run(self) -> None:
        """Renew the lease, once it has begun, until it is over for good."""
        pause_s = self._core.length_s * RENEWED_AFTER
        while not self._core.is_over:
            await trio.sleep(pause_s)
            pause_s = self._core.length_s * RENEWED_AFTER
            try:
                await self._renew()
            except FencedError as error:
                self._end(error)
                return
            except GeologError as error:
                if not error.retriable:
                    self._end(error)
                    return
                pause_s = _AGAIN_S
        self._end(
            UnavailableError(
                f"{self._name.stream}: the session of its owner with metadata was lost, so it"
                " stops until it has taken the stream over again (on_isolation=stop)"
            )
        )

    async def _renew(self) -> None:
        """Ask metadata once. FencedError if the home has moved, or is failed over."""
        terms = self._terms
        metadata, presence = terms.metadata, terms.owners.presence
        checks = await terms.homes.checks_to_renew(self._name, self._home_epoch)
        stored = await metadata.find(presence)
        session = metadata.session_id
        if stored is None or stored.session_id != session:
            self._core.on_lost()
            return
        touch = Put(presence, stored.data, stored.version)
        self._core.on_asked(session, terms.clocks())
        try:
            await metadata.multi([*checks, touch])
        except (BadVersionError, NoNodeError):
            await terms.homes.has_changed(self._name)
            raise UnavailableError(f"{self._name}: its home or its owner has changed") from None
        self._core.on_answered(metadata.session_id)
        for listener in self.listeners:
            listener.on_lease()

    def _end(self, why: GeologError) -> None:
        self._core.on_lost()
        for listener in self.listeners:
            listener.on_lease_lost(why)
