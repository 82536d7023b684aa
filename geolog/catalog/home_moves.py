"""The steps in metadata by which the home of a stream moves to another region.

Each step is one multi over the home record and the stream's record, which so agree at any
moment. The home record's version decides: two movers, or a mover and somebody who gives up for
it, cannot both succeed.

Rules: PROTOCOL H13, H16 and H17.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import attrs

from geolog.background import all_of, both
from geolog.catalog.home_steps import HomeSteps
from geolog.catalog.partition_owners import VersionedOwner
from geolog.catalog.stream_catalog import StreamCatalog, check_life
from geolog.catalog.stream_homes import StreamHomes, VersionedHome
from geolog.metadata import rules
from geolog.metadata.documents import open_document, seal_document
from geolog.metadata.find_all import find_all
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import (
    BadVersionError,
    Check,
    Freshness,
    Metadata,
    NodeExistsError,
    NoNodeError,
    Operation,
    Put,
)
from geolog.protocol.failover_record import FailoverRecord
from geolog.protocol.home_record import Fork, HomeRecord, HomeState
from geolog.protocol.stream_state import (
    FIRST_HOME_EPOCH,
    PartitionName,
    StreamRecord,
    TrimRecord,
)
from topology.errors import (
    ConflictError,
    InvalidArgumentError,
    OutcomeUnknownError,
    SealedError,
    TooLargeError,
    UnavailableError,
    public,
)

_AT_ONCE_MAX = 32
"""Partitions that are looked at at the same time."""

_FORKS_AT_HAND_MAX = 1000

_TRIMS_AT_ONCE = 256
"""Trims that are stored in one step."""


@public
class HomeMoveConflictError(ConflictError):
    """The home of the stream was moved, or is being moved, by another process."""


class MirrorsReclaimedError(ConflictError):
    """Other processes have claimed mirrors since this one looked at them."""

    def __init__(self, names: Sequence[PartitionName]) -> None:
        super().__init__(f"{', '.join(map(str, names))}: claimed meanwhile")
        self.names = names


@attrs.frozen
class MarkedMove:
    """A move that has begun: the two records as this process wrote them."""

    home: VersionedHome
    stream: StreamRecord
    stream_version: int


class HomeMoves:
    """Moves the homes of one cluster's streams."""

    def __init__(self, metadata: Metadata, paths: ClusterPaths, homes: StreamHomes) -> None:
        self._metadata = metadata
        self._paths = paths
        self._homes = homes
        self._streams = StreamCatalog(metadata, paths)
        self._steps = HomeSteps(paths)
        self.forks_at_hand_max = _FORKS_AT_HAND_MAX
        """Forks of all partitions that a home record may have as a move begins; more than these
        are stored apart, in the same step."""

    async def begin(
        self,
        known: StreamRecord,
        to: str,
        *,
        mover: str,
        move_id: str,
        who: str = "",
        is_failover: bool = False,
    ) -> MarkedMove:
        """Mark the stream as moving: from now on its home opens nothing more.

        is_failover: whether its home counts as lost; then no relay claims a mirror either.
        mover: path of the ephemeral node of this process. who: its name, with which it claims
        mirrors. If this fails or is cancelled, the mark may be there: `give_up` removes it.
        NoSuchStreamError, HomeMoveConflictError, InvalidArgumentError if it cannot move there,
        SealedError, TooLargeError.
        """
        while True:
            (stream, version), home = await both(
                partial(self._same_stream, known), partial(self._home, known)
            )
            if home.record.move_id == move_id:  # The answer was lost.
                return MarkedMove(home, stream, version)
            check_same_home(stream, known.home, known.home_epoch)
            check_can_move(stream, to, is_failover=is_failover)
            if home.record.state is HomeState.MOVING:
                if await self.is_mover_alive(home.record):
                    raise HomeMoveConflictError(
                        f"another process is moving the home of {known.name} from"
                        f" {home.record.region} to {home.record.moving_to}: wait for it"
                    )
                await self._store(home, home.record.stayed(), version, _stayed(stream))
                continue
            marked = home.record.moving(to, mover, move_id, is_failover=is_failover)
            marked, apart = self._set_apart(stream, marked)
            moving = attrs.evolve(stream, moving_to=to)
            self._check_fits(moving, marked, who)
            with suppress(OutcomeUnknownError):
                found = await self._store(home, marked, version, moving, apart)
                if found is not None:
                    return found

    async def check_fits(
        self, known: StreamRecord, to: str | None, *, who: str, is_failover: bool = False
    ) -> None:
        """TooLargeError if the step that moves the home may be too large for metadata.

        to: one of its targets; None for any of them.
        """
        (stream, _), home = await both(
            partial(self._same_stream, known), partial(self._home, known)
        )
        to = to or max(stream.relay_to, key=len, default=None)
        if home.record.state is HomeState.SETTLED and to in stream.relay_to:
            marked = home.record.moving(to, mover="", move_id="", is_failover=is_failover)
            marked, _ = self._set_apart(stream, marked)
            self._check_fits(attrs.evolve(stream, moving_to=to), marked, who)

    def _set_apart(
        self, stream: StreamRecord, home: HomeRecord
    ) -> tuple[HomeRecord, list[Operation]]:
        """The home record with few forks at hand, and what stores the others apart."""
        if sum(map(len, home.at_hand)) <= self.forks_at_hand_max:
            return home, []
        after, forks = home.set_apart()
        return after, [self._steps.forks_apart(stream, home.home_epoch, forks)]

    def _check_fits(self, stream: StreamRecord, home: HomeRecord, who: str) -> None:
        """TooLargeError if the step that makes the new home may be too large for metadata.

        Found out there, it would be after the stream has been closed, and again at each try.
        """
        size_bytes = rules.request_bytes(self._steps.largest(stream, home, who))
        limit_bytes, moves = rules.REQUEST_BYTES_MAX, home.home_epoch - FIRST_HOME_EPOCH
        if size_bytes > limit_bytes:
            raise TooLargeError(
                f"the home of {stream.name} cannot move: with {stream.partitions} partitions"
                f" and {moves} moves before, the step in metadata may take {size_bytes:,}"
                f" bytes, and {limit_bytes:,} is the limit. Nothing was changed. Copy it into a"
                " stream with fewer partitions, or into several"
            )

    async def give_up(self, known: StreamRecord, move_id: str) -> bool:
        """Have the stream stay at its home; False if this move is not under way any more."""
        while True:
            (stream, version), home = await both(
                partial(self._same_stream, known), partial(self._home, known)
            )
            if home.record.move_id != move_id:
                return False
            stayed = home.record.stayed()
            if await self._store(home, stayed, version, _stayed(stream)) is not None:
                return True

    async def checks_to_end(self, name: PartitionName, move_id: str) -> list[Check]:
        """The check for the step in which this move takes over the log at home, to end it.

        HomeMoveConflictError if the move was ended before: the owner of that log goes on.
        """
        home = await self._homes.read_latest(name.stream, name.life)
        if home is None or home.record.move_id != move_id:
            raise HomeMoveConflictError(
                f"the move of the home of {name.stream} was ended by another process before its"
                f" log at home was (geolog stream describe {name.stream} shows its home)"
            )
        return [Check(self._paths.home(name.stream, name.life), home.version)]

    async def give_up_abandoned(self, stream: StreamRecord) -> StreamRecord:
        """Have a stream stay whose mover is gone. UnavailableError while it is moving.

        Returns its settings now; NoSuchStreamError.
        """
        while True:
            found, version = await self._same_stream(stream)
            home = await self._home(found)
            if home.record.state is HomeState.SETTLED:
                if found.moving_to:
                    continue  # The move ended between the two reads.
                return found
            if await self.is_mover_alive(home.record):
                raise UnavailableError(
                    f"the home of {found.name} is moving from {home.record.region} to"
                    f" {home.record.moving_to}: try again in a moment"
                )
            await self._store(home, home.record.stayed(), version, _stayed(found))

    async def is_mover_alive(self, home: HomeRecord) -> bool:
        """Whether the process that moves the home is still there, for certain."""
        if not home.mover:
            return False
        stored = await self._metadata.find(home.mover, freshness=Freshness.LATEST)
        return stored is not None

    async def finish(
        self,
        move: MarkedMove,
        forks: Sequence[Fork],
        owners: Mapping[PartitionName, VersionedOwner],
        *,
        record_of: Callable[[StreamRecord], FailoverRecord] | None = None,
        is_whole: bool = True,
    ) -> StreamRecord:
        """Make the new region the home, with these forks of its partitions.

        owners: the claims under which the logs of the new home were looked at; if one of them
        was claimed since, MirrorsReclaimedError, and the home has not changed. They are
        released in the same step: an owner to be would take them for one that appends. The new
        home begins where the old one does.

        record_of: makes the record of a failover, from the settings after it; it is stored in
        the same step. is_whole: whether the new home has all that was answered.
        HomeMoveConflictError if the move was ended before. OutcomeUnknownError if metadata
        gives no answer.
        """
        moved = move.home.record.moved(tuple(forks))
        claimed = self._steps.releases(owners)
        stream, version = move.stream, move.stream_version
        while True:
            after = stream.moved(is_whole=is_whole)
            noted = [] if record_of is None else await self._records(after, record_of(after))
            alike = await self._trimmed_alike(move, stream, owners, forks)
            others = [*claimed, *alike, *noted]
            found = await self._store(move.home, moved, version, after, others)
            if found is not None:
                return found.stream
            home = await self._home(move.stream)
            if home.record == moved:
                return (await self._same_stream(move.stream))[0]  # The answer was lost.
            if home != move.home:
                raise HomeMoveConflictError(
                    f"the move of {move.stream.name} to {move.home.record.moving_to} was given"
                    f" up meanwhile: its home is {home.record.region}"
                )
            paths = [self._paths.owner(name) for name in owners]
            found_now = await find_all(self._metadata, paths)
            reclaimed = [
                name
                for (name, owner), stored in zip(owners.items(), found_now, strict=True)
                if stored is None or stored.version != owner.version
            ]
            if reclaimed:
                raise MirrorsReclaimedError(reclaimed)
            stream, version = await self._same_stream(move.stream)

    async def _trimmed_alike(
        self,
        move: MarkedMove,
        stream: StreamRecord,
        logs: Iterable[PartitionName],
        forks: Sequence[Fork],
    ) -> list[Operation]:
        """Have these logs begin where those at home do: mirrors follow a trim a little later.

        Without it, a truncation that was answered just before a move would not have happened.
        A log that begins later notes what it lacks, so that mirrors keep that. Returns checks
        that it is still so.
        """
        found = await all_of(
            [
                partial(
                    self._trimmed_like, stream.partition(log.number), log, forks[log.number]
                )
                for log in logs
            ],
            at_once_max=_AT_ONCE_MAX,
        )
        # A mirror may begin so in any case. In the step of the move they would be too much.
        home = Check(self._paths.home(stream.name, stream.life), move.home.version)
        puts = [put for _, put in found if put is not None]
        for start in range(0, len(puts), _TRIMS_AT_ONCE):
            with suppress(BadVersionError, NoNodeError):  # Then the checks fail as well.
                await self._metadata.multi([home, *puts[start : start + _TRIMS_AT_ONCE]])
        return [check for checks, _ in found for check in checks]

    async def _trimmed_like(
        self, home: PartitionName, log: PartitionName, fork: Fork
    ) -> tuple[list[Operation], Put | None]:
        """The checks that a log begins as it should, and what to do for it before."""
        paths = [self._paths.trim(home), self._paths.trim(log)]
        at_home, there = await both(
            *[partial(self._metadata.find, one, freshness=Freshness.LATEST) for one in paths]
        )
        if at_home is None or there is None:
            return [], None  # The stream is being deleted, which `_store` notices.
        trim = open_document(at_home.data, TrimRecord, path=paths[0])
        behind = open_document(there.data, TrimRecord, path=paths[1])
        # A home that was lost may have dropped what its mirrors never got.
        first = min(trim.followed, fork.sequence)
        begun = attrs.evolve(
            behind, lacks_from=first if behind.first_sequence > first else None
        )
        if behind.first_sequence < first:
            begun = attrs.evolve(begun, first_sequence=first, trimmed_us=trim.trimmed_us)
        checks = partial(self._steps.same_trims, home, at_home.version, log)
        if begun == behind:
            return checks(there.version), None
        put = Put(paths[1], seal_document(begun), there.version)
        return checks(there.version + 1), put

    async def _records(self, stream: StreamRecord, record: FailoverRecord) -> list[Operation]:
        """The operations that store the record of a failover."""
        parent = self._paths.failovers(stream.name, stream.life)
        has_parent = await self._metadata.find(parent) is not None
        return self._steps.record(stream, record, has_parent=has_parent)

    async def failovers(self, stream: StreamRecord) -> list[FailoverRecord]:
        """The failovers of a stream, the first one first."""
        parent = self._paths.failovers(stream.name, stream.life)
        try:
            epochs = await self._metadata.children(parent)
        except NoNodeError:
            return []
        paths = [f"{parent}/{one}" for one in sorted(epochs)]
        return [
            open_document(found.data, FailoverRecord, path=path)
            for path, found in zip(paths, await find_all(self._metadata, paths), strict=True)
            if found is not None
        ]

    async def _store(
        self,
        home: VersionedHome,
        home_after: HomeRecord,
        version: int,
        stream_after: StreamRecord,
        others: Sequence[Operation] = (),
    ) -> MarkedMove | None:
        """Store both records, and others; None if a version is not the known one.

        version: of the stream's record.
        """
        operations = self._steps.store(home_after, home.version, stream_after, version, others)
        try:
            await self._metadata.multi(operations)
        except (BadVersionError, NodeExistsError, NoNodeError):
            return None
        return MarkedMove(
            VersionedHome(home_after, home.version + 1), stream_after, version + 1
        )

    async def _home(self, stream: StreamRecord) -> VersionedHome:
        found = await self._homes.read_latest(stream.name, stream.life)
        if found is None:
            await self._same_stream(stream)  # If it was deleted, that is the error to raise.
            raise InvalidArgumentError(
                f"{stream.name} has no home record: it was made by a version of geolog that had"
                " none, and cannot move. Make it again to be able to"
            )
        return found

    async def settings_of(self, known: StreamRecord) -> StreamRecord:
        """The settings of this stream now. NoSuchStreamError."""
        return (await self._same_stream(known))[0]

    async def _same_stream(self, known: StreamRecord) -> tuple[StreamRecord, int]:
        found, version = await self._streams.read_versioned(known.name)
        check_life(known, found)
        return found, version


def check_can_move(stream: StreamRecord, to: str, *, is_failover: bool = False) -> None:
    """InvalidArgumentError, or SealedError, unless the stream can get its home there.

    A failover may also go to a target whose relay is paused: it has what it has.
    """
    if stream.home is None:
        raise InvalidArgumentError(
            f"{stream.name} is a global stream: it has no home, so there is nothing to move"
        )
    if to == stream.home:
        raise InvalidArgumentError(f"{stream.name} is at home in {to} already")
    if to not in stream.relay_to:
        raise InvalidArgumentError(
            f"{stream.name} is not relayed to {to!r}; its targets are"
            f" {', '.join(stream.relay_to) or 'none'}. Add one (geolog stream update"
            f" {stream.name} --relay-to …) and let it catch up"
        )
    if to in stream.relay_paused and not is_failover:
        raise InvalidArgumentError(
            f"the relay of {stream.name} to {to} is paused: resume it first (geolog relay"
            f" resume {stream.name} --target {to})"
        )
    if stream.is_sealed:
        raise SealedError(f"{stream.name} is sealed: nothing is appended, wherever its home is")


def check_same_home(stream: StreamRecord, home: str | None, home_epoch: int | None) -> None:
    """HomeMoveConflictError unless its home is the one that the mover saw; None is any.

    Another home works, so what was decided about the one before says nothing of it.
    """
    is_other = home is not None and stream.home != home
    if is_other or home_epoch not in (None, stream.home_epoch):
        raise HomeMoveConflictError(
            f"the home of {stream.name} has been moved meanwhile: it is {stream.home} now, home"
            f" epoch {stream.home_epoch}. This command changed nothing; look again"
        )


def _stayed(stream: StreamRecord) -> StreamRecord:
    return attrs.evolve(stream, moving_to="")
