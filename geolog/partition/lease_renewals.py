"""Renews the leases of all owners of a process together: one write for all that are due.

A lease is renewed several times in its length, by a write that checks the home record of its
stream and touches the node by which the process shows that it is alive. A process may own a
thousand streams. So a write renews also the leases that wait for the answer of another write,
and those that would be due soon; after a few rounds all leases of a process are due together.

A write that fails because one home has changed is sent again in halves until that one is alone.

Rules: PROTOCOL H25.
"""

from collections.abc import Sequence
from typing import Protocol

import attrs
import trio

from geolog.catalog.stream_homes import StreamHomes
from geolog.metadata.seam import BadVersionError, Check, Metadata, NoNodeError, Put
from geolog.partition.shown_owners import ShownOwners
from geolog.protocol.stream_state import PartitionName
from topology.errors import GeologError, UnavailableError

_TOGETHER_MAX = 200
"""Leases in one write: some 20 KiB of paths, where a metadata store takes 1 MiB."""


class RenewedLease(Protocol):
    """A lease that a write may renew."""

    @property
    def name(self) -> PartitionName:
        """Any partition of its stream."""
        ...

    @property
    def home_epoch(self) -> int:
        """The home epoch of its owner."""
        ...

    @property
    def is_due_soon(self) -> bool:
        """Whether a write that is sent anyway should renew it."""
        ...

    def on_asked(self, session: int) -> None:
        """The write is about to be sent in this session."""
        ...

    def on_answered(self, session: int) -> None:
        """The write has succeeded; this is the session now."""
        ...

    def on_lost(self) -> None:
        """The process is not shown in its session: the lease is over."""
        ...


@attrs.define(eq=False)
class _Turn:
    """A lease whose owner waits for the next write."""

    lease: RenewedLease
    is_over: bool = False
    error: GeologError | None = None


@attrs.frozen
class _Asked:
    turn: _Turn
    checks: Sequence[Check]


class LeaseRenewals:
    """The writes by which one process renews its leases, one at a time."""

    def __init__(self, metadata: Metadata, homes: StreamHomes, owners: ShownOwners) -> None:
        self._metadata = metadata
        self._homes = homes
        self._owners = owners
        self._writing = trio.Lock()
        self._waiting: dict[_Turn, None] = {}
        self._kept: set[RenewedLease] = set()

    def keep(self, lease: RenewedLease) -> None:
        """Renew this lease with others, too, as long as it is kept."""
        self._kept.add(lease)

    def drop(self, lease: RenewedLease) -> None:
        """Renew it no longer."""
        self._kept.discard(lease)

    async def renew(self, lease: RenewedLease) -> None:
        """Renew one lease, and all others that are due.

        FencedError if the home has moved, or is failed over; UnavailableError if it may have.
        """
        turn = _Turn(lease)
        self._waiting[turn] = None
        try:
            async with self._writing:  # Those who waited for it may have been renewed by then.
                if not turn.is_over:
                    await self._renew_waiting()
        finally:
            self._waiting.pop(turn, None)
        if turn.error is not None:
            raise turn.error

    async def _renew_waiting(self) -> None:
        waiting = {turn.lease: turn for turn in self._waiting}
        others = [one for one in self._kept if one.is_due_soon and one not in waiting]
        turns = [*self._waiting, *(_Turn(one) for one in others)]
        try:
            await self._renew_all(turns)
        except GeologError as error:  # None of those whose write was not answered is renewed.
            self._end([turn for turn in turns if not turn.is_over], error)

    async def _renew_all(self, turns: Sequence[_Turn]) -> None:
        presence = self._owners.presence
        stored = await self._metadata.find(presence)
        session = self._metadata.session_id
        if stored is None or stored.session_id != session:
            for turn in turns:
                turn.lease.on_lost()
            self._end(turns)
            return
        touch = Put(presence, stored.data, stored.version)
        asked = [one for turn in turns if (one := await self._asked(turn)) is not None]
        for first in range(0, len(asked), _TOGETHER_MAX):
            touch = await self._write(asked[first : first + _TOGETHER_MAX], touch)

    async def _asked(self, turn: _Turn) -> _Asked | None:
        """What its write has to check; None if the lease cannot be renewed."""
        lease = turn.lease
        try:
            return _Asked(turn, await self._homes.checks_to_renew(lease.name, lease.home_epoch))
        except GeologError as error:
            self._end([turn], error)
            return None

    async def _write(self, asked: Sequence[_Asked], touch: Put) -> Put:
        """Renew these in one write, or in several if one of them fails; the next touch."""
        session = self._metadata.session_id
        for one in asked:
            one.turn.lease.on_asked(session)
        checks = dict.fromkeys(check for one in asked for check in one.checks)
        try:
            await self._metadata.multi([*checks, touch])
        except (BadVersionError, NoNodeError):
            if len(asked) == 1:
                return await self._look_again(asked[0], touch)
            half = len(asked) // 2
            touch = await self._write(asked[:half], touch)
            return await self._write(asked[half:], touch)
        for one in asked:
            one.turn.lease.on_answered(self._metadata.session_id)
        self._end([one.turn for one in asked])
        return attrs.evolve(touch, version=touch.version + 1)

    async def _look_again(self, one: _Asked, touch: Put) -> Put:
        """Its home has changed, or this process's own node has: ask again with what is now."""
        name = one.turn.lease.name
        await self._homes.has_changed(name)
        error = UnavailableError(f"{name}: its home or its owner has changed")
        self._end([one.turn], error)
        stored = await self._metadata.find(touch.path)
        return touch if stored is None else attrs.evolve(touch, version=stored.version)

    def _end(self, turns: Sequence[_Turn], error: GeologError | None = None) -> None:
        for turn in turns:
            turn.is_over, turn.error = True, error
            self._waiting.pop(turn, None)
