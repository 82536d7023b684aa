"""Shows in metadata that the owners of this process live, in each session, until they leave.

`OwnerPresence` decides; here requests are sent and answers told. It lives as long as the
process's log: an owner is shown from when it has taken its partition, also while that is being
recovered, and one that could not say that it leaves before its block was over says so later.

Rules: PROTOCOL O12.
"""

import math
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import assert_never

import attrs
import trio

from geolog.background import open_background
from geolog.catalog.partition_owners import PartitionOwners, VersionedOwner
from geolog.metadata.seam import Metadata, SessionState
from geolog.protocol.owner_presence import Ask, OwnerPresence, Release, Show
from geolog.protocol.stream_state import PartitionName
from topology.errors import GeologError

_LOOKS_PER_TIMEOUT = 8
"""A quick loss and return shows no change of the session's state, so it is looked at."""


@attrs.define(eq=False)
class _Shown:
    """An owner of this process."""

    name: PartitionName
    owner: VersionedOwner
    released: trio.Event = attrs.field(factory=trio.Event)


class ShownOwners:
    """The owners of one process; `open_shown_owners` makes it."""

    def __init__(
        self, metadata: Metadata, partitions: PartitionOwners, rng: random.Random
    ) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._core = OwnerPresence(rng)
        self._shown: dict[str, _Shown] = {}
        self._wake = trio.Event()

    def __repr__(self) -> str:
        return f"ShownOwners({self._core!r})"

    def on_taken(self, name: PartitionName, owner: VersionedOwner) -> None:
        """This owner has taken its partition: show that it lives, until it is released."""
        node = owner.record.session
        self._shown[node] = _Shown(name, owner)
        self._core.on_taken(node, owner.shown_in)
        self._wake.set()

    def release_nowait(self, owner: VersionedOwner) -> None:
        """This owner has left; nothing if it is released already."""
        shown = self._shown.get(owner.record.session)
        if shown is not None:
            shown.owner = owner
            self._core.on_left(owner.record.session)
            self._wake.set()

    async def release(self, owner: VersionedOwner) -> None:
        """The same, and wait until metadata has it; the caller bounds that."""
        shown = self._shown.get(owner.record.session)
        if shown is not None:
            self.release_nowait(owner)
            await shown.released.wait()

    async def run(self) -> None:
        """Ask metadata for whatever is due; never returns."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow_session)
            while True:
                self._wake = trio.Event()
                if self._metadata.session_state is SessionState.CONNECTED:
                    session = self._metadata.session_id
                    for ask in self._core.due(session, trio.current_time()):
                        nursery.start_soon(self._perform, ask, session)
                with trio.move_on_after(self._pause_s()):
                    await self._wake.wait()

    def _pause_s(self) -> float:
        if not self._shown:
            return math.inf
        return min(1.0, self._metadata.session_timeout_s / _LOOKS_PER_TIMEOUT)

    async def _follow_session(self) -> None:
        while True:
            await self._metadata.wait_state_change(self._metadata.session_state)
            self._wake.set()

    async def _perform(self, ask: Ask, session: int) -> None:
        match ask:
            case Show(nodes):
                await self._show(nodes, session)
            case Release(node):
                await self._release(node)
            case _:
                assert_never(ask)
        self._wake.set()

    async def _show(self, nodes: Sequence[str], session: int) -> None:
        found: set[str] = set()
        try:
            owners = [self._shown[node].owner.record for node in nodes]
            found = {owner.session for owner in await self._partitions.revive_sessions(owners)}
        except GeologError:
            pass  # It is tried again after a pause.
        if self._metadata.session_id != session:
            found = set()  # In which of the two they were made is found out in the next.
        self._core.on_shown([node for node in nodes if node in found], session)
        self._core.on_missed([node for node in nodes if node not in found], trio.current_time())

    async def _release(self, node: str) -> None:
        shown = self._shown[node]
        try:
            await self._partitions.release_ownership(shown.name, shown.owner)
        except GeologError as error:
            if error.retriable:
                self._core.on_missed([node], trio.current_time())
                return
        self._core.on_released(node)
        del self._shown[node]
        shown.released.set()


@asynccontextmanager
async def open_shown_owners(
    metadata: Metadata, partitions: PartitionOwners, rng: random.Random
) -> AsyncIterator[ShownOwners]:
    """The owners of a process, while the block lasts: the session ends soon after, and all."""
    async with open_background() as nursery:
        owners = ShownOwners(metadata, partitions, rng)
        nursery.start_soon(owners.run, name="owners shown")
        yield owners
