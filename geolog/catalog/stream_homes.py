"""The home records of `regional` streams, and the check of them in every change at home.

The record of a stream is read once, and its version checked from then on. If a change fails
because the version is another, the record is read again: an owner that is still at home goes on
under the new version, any other hears FencedError.

Rules: PROTOCOL H1, H15 and H18.
"""

from collections import OrderedDict
from collections.abc import Callable

import attrs
import trio

from geolog.metadata.documents import open_document
from geolog.metadata.find_all import find_all
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import Check, Freshness, Metadata, Stored
from geolog.protocol.home_record import (
    Fork,
    ForksRecord,
    HomeRecord,
    HomeState,
    forks_joined,
)
from geolog.protocol.stream_state import PartitionName, StreamName
from topology.errors import FencedError, UnavailableError

Forks = tuple[tuple[Fork, ...], ...]
"""The forks of each partition."""

_KNOWN_MAX = 4096
"""Streams whose home to keep; another one costs a read of metadata."""


@attrs.frozen
class VersionedHome:
    """A home record as it was read."""

    record: HomeRecord
    version: int


class StreamHomes:
    """The homes of one cluster's streams. A `global` stream has none, and needs no check."""

    def __init__(self, metadata: Metadata, paths: ClusterPaths) -> None:
        self._metadata = metadata
        self._paths = paths
        self._known: OrderedDict[tuple[StreamName, str], VersionedHome | None] = OrderedDict()
        self._apart: OrderedDict[tuple[StreamName, str], dict[int, Forks]] = OrderedDict()
        """Forks that are stored apart, as they were read, by the epoch that names them."""

    async def read_latest(self, name: StreamName, life: str) -> VersionedHome | None:
        """The home, including all that was written before this call; None if it has none."""
        path = self._paths.home(name, life)
        stored = await self._metadata.find(path, freshness=Freshness.LATEST)
        return None if stored is None else await self._whole(name, life, stored)

    async def _whole(self, name: StreamName, life: str, stored: Stored) -> VersionedHome:
        """The home record, with the forks that are stored apart. They never change.

        UnavailableError if those are not there: the stream is being deleted.
        """
        home = open_document(stored.data, HomeRecord, path=self._paths.home(name, life))
        if not home.forks_apart:
            return VersionedHome(home, stored.version)
        apart = self._apart.setdefault((name, life), {})
        self._apart.move_to_end((name, life))
        if len(self._apart) > _KNOWN_MAX:
            self._apart.popitem(last=False)
        unread = [one for one in home.forks_apart if one not in apart]
        paths = [self._paths.forks_apart(name, life, one) for one in unread]
        stored_apart = await find_all(self._metadata, paths)
        for epoch, path, found in zip(unread, paths, stored_apart, strict=True):
            if found is None:
                raise UnavailableError(
                    f"{path} is not there, although the home record of {name} names it: the"
                    " stream is being deleted, or metadata has lost it"
                )
            apart[epoch] = open_document(found.data, ForksRecord, path=path).forks
        forks = forks_joined([*(apart[one] for one in home.forks_apart), home.forks])
        return VersionedHome(attrs.evolve(home, forks=forks), stored.version)

    def note_global(self, name: PartitionName) -> None:
        """Save reading what is known already: this stream has no home."""
        self._keep(name, None)

    async def look(self, name: PartitionName) -> None:
        """Read the home ahead of the first check, unless it is known."""
        await self._known_home(name)

    async def record_in(self, name: PartitionName, home_epoch: int) -> HomeRecord | None:
        """The home record in this home epoch; None for a stream that has none.

        FencedError if the stream is at home in another epoch by now.
        """
        home = await self._judged(name, lambda one: one.check_home_in(home_epoch, name))
        return None if home is None else home.record

    async def checks_to_open(self, name: PartitionName, home_epoch: int) -> list[Check]:
        """The check for the step that opens a segment at home.

        FencedError unless the stream takes appends in that home epoch. Empty for a `global`
        stream.
        """
        home = await self._judged(name, lambda one: one.check_settled_in(home_epoch, name))
        return [] if home is None else [self._check(name, home)]

    async def checks_to_close(
        self, name: PartitionName, home_epoch: int | None = None
    ) -> list[Check]:
        """The check for other steps that change a partition's log at home, moving or not.

        FencedError if `home_epoch` is given, and the stream is not at home in it.
        """
        if home_epoch is not None:
            await self.record_in(name, home_epoch)
        home = await self._known_home(name)
        return [] if home is None else [self._check(name, home)]

    async def checks_to_renew(self, name: PartitionName, home_epoch: int) -> list[Check]:
        """The check for renewing the lease of an owner at home.

        FencedError if the home has moved, or is being failed over: a planned move waits until
        the owner has answered what it took.
        """

        def check_not_lost(home: HomeRecord) -> None:
            home.check_home_in(home_epoch, name)
            if home.is_failover:
                home.check_settled_in(home_epoch, name)

        home = await self._judged(name, check_not_lost)
        return [] if home is None else [self._check(name, home)]

    async def checks_of_mirror(self, name: PartitionName, region: str | None) -> list[Check]:
        """The check for the step that opens a row of a mirror in that region.

        FencedError if the log is the one at home now.
        """

        def check_elsewhere(home: HomeRecord) -> None:
            if home.region == region:
                raise FencedError(
                    f"{name} is the log at home now, and takes nothing from a relay"
                )

        home = await self._judged(name, check_elsewhere)
        return [] if home is None else [self._check(name, home)]

    async def checks_to_claim_mirror(
        self, name: PartitionName, region: str, *, move_id: str = ""
    ) -> list[Check]:
        """As `checks_of_mirror`, by the home record as it is now, to claim the mirror.

        move_id: of the failover that claims it; any other claim waits until that is over.
        UnavailableError if it has to.
        """
        await self.has_changed(name)
        home = await self._known_home(name)
        if home is not None and home.record.is_failover and home.record.move_id != move_id:
            raise UnavailableError(
                f"{name}: the home {home.record.region} of its stream is being failed over"
            )
        return await self.checks_of_mirror(name, region)

    async def checks_to_begin_again(
        self, name: PartitionName, region: str, home_epoch: int
    ) -> list[Check]:
        """As `checks_of_mirror`, by the home record as it is now, to throw a mirror away.

        FencedError, too, if the stream is at home in another epoch; UnavailableError while its
        home moves: the mirror may be what the new home goes on with.
        """
        await self.has_changed(name)
        home = await self._known_home(name)
        if home is None:
            return []
        home.record.check_home_in(home_epoch, name)
        if home.record.state is HomeState.MOVING:
            raise UnavailableError(
                f"the home of {name.stream} is moving from {home.record.region} to"
                f" {home.record.moving_to}: no mirror is begun again meanwhile"
            )
        return await self.checks_of_mirror(name, region)

    async def _judged(
        self, name: PartitionName, check: Callable[[HomeRecord], None]
    ) -> VersionedHome | None:
        """The home if `check` passes its record, which is read again before it may fail.

        The known record may tell of a move that was given up since, or of an earlier home.
        """
        home = await self._known_home(name)
        if home is None:
            return None
        try:
            check(home.record)
        except FencedError:
            await self.has_changed(name)
            home = await self._known_home(name)
            if home is not None:
                check(home.record)
        return home

    async def is_failing_over(self, name: PartitionName) -> bool:
        """Whether the stream was being failed over when its home was read last."""
        home = await self._known_home(name)
        return home is not None and home.record.is_failover

    async def forks_of(self, name: PartitionName) -> tuple[Fork, ...]:
        """The forks of a partition, by the home record as it was read last."""
        home = await self._known_home(name)
        return () if home is None else home.record.forks_of(name.number)

    async def watch(self, name: PartitionName, *, changed: trio.Event) -> HomeRecord | None:
        """The home record as a nearby server has it; `changed` is set once it may differ."""
        path = self._paths.home(name.stream, name.life)
        stored = await self._metadata.find(path, changed=changed)
        if stored is None:
            return None
        return (await self._whole(name.stream, name.life, stored)).record

    def _check(self, name: PartitionName, home: VersionedHome) -> Check:
        return Check(self._paths.home(name.stream, name.life), home.version)

    async def has_changed(self, name: PartitionName) -> bool:
        """After a conflict: whether the home has changed since it was read last."""
        before = self._known.get((name.stream, name.life))
        found = await self.read_latest(name.stream, name.life)
        self._keep(name, found)
        return found != before

    async def _known_home(self, name: PartitionName) -> VersionedHome | None:
        key = (name.stream, name.life)
        if key not in self._known:
            self._keep(name, await self.read_latest(*key))
        return self._known[key]

    def _keep(self, name: PartitionName, home: VersionedHome | None) -> None:
        key = (name.stream, name.life)
        self._known[key] = home
        self._known.move_to_end(key)
        if len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)
