"""Streams in metadata: their settings and their partitions.

Rules: PROTOCOL H1, H4 and S17.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import attrs
import trio

from geolog.metadata.documents import open_document, seal_document
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import (
    BadVersionError,
    Check,
    Create,
    Delete,
    Freshness,
    Metadata,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Put,
)
from geolog.protocol.home_record import HomeRecord
from geolog.protocol.ids import FIRST_SEQUENCE
from geolog.protocol.ids import Sequence as LogSequence
from geolog.protocol.stream_state import (
    OwnerRecord,
    PartitionName,
    StreamName,
    StreamRecord,
    TrimRecord,
)
from topology.errors import (
    ConflictError,
    NoSuchStreamError,
    SealedError,
    UnavailableError,
    public,
)

_MADE_AT_ONCE = 64
"""Partitions and mirrors made in one step: with the longest names they still fit a request."""


@public
class StreamExistsError(ConflictError):
    """A stream of this name exists already: choose another name, or use `--if-not-exists`."""


class StreamCatalog:
    """The streams of one cluster in metadata."""

    def __init__(self, metadata: Metadata, paths: ClusterPaths) -> None:
        self._metadata = metadata
        self._paths = paths
        self._lives_count = 0

    def new_life(self, *, now_us: int) -> str:
        """An identity that no other stream has: from time, session and a count."""
        self._lives_count += 1
        session = self._metadata.session_id & (1 << 64) - 1
        return f"{now_us:x}.{session:x}.{self._lives_count:x}"

    async def create(self, record: StreamRecord, *, namespace_version: int | None) -> None:
        """Make a stream with its partitions and mirrors, all or nothing. StreamExistsError.

        namespace_version: of the namespace whose defaults the record has; None if there was
        no such namespace. BadVersionError if its defaults have changed since.

        A stream with many partitions takes several steps, and is usable after the last.
        """
        namespace = self._paths.namespace(record.name.namespace)
        if namespace_version is None:
            await self._metadata.ensure_path(namespace)
        unchanged = Check(namespace, namespace_version or 0)
        if len(record.log_names()) <= _MADE_AT_ONCE:
            await self._begin_create(record, record.log_names(), unchanged)
            return
        await self._begin_create(attrs.evolve(record, is_incomplete=True), [], unchanged)
        try:
            at_home = [] if record.home is None else [Check(self._home_path(record), 0)]
            await self._make_partitions(record, record.log_names(), at_home, {})
            await self._put(record, 0, at_home)
        except (BadVersionError, NoNodeError):
            raise NoSuchStreamError(
                f"stream {str(record.name)!r} was deleted while it was being created"
            ) from None

    async def _begin_create(
        self, record: StreamRecord, names: list[PartitionName], unchanged: Check
    ) -> None:
        name = record.name
        operations: list[Operation] = [unchanged]
        operations.append(Create(self._paths.stream(name), seal_document(record)))
        operations.append(Create(self._paths.stream_life(name, record.life)))
        if record.home is not None:
            home = HomeRecord(region=record.home, home_epoch=record.home_epoch)
            operations.append(Create(self._home_path(record), seal_document(home)))
        for partition in names:
            operations += self._makes(partition, {})
        try:
            await self._metadata.multi(operations)
        except NodeExistsError:
            await self.read_latest(name)  # If it is incomplete, that is the error to raise.
            raise StreamExistsError(
                f"stream {str(name)!r} already exists; choose another name, or accept it with"
                " --if-not-exists"
            ) from None

    async def _make_partitions(
        self,
        record: StreamRecord,
        names: list[PartitionName],
        at_home: list[Check],
        firsts: Mapping[PartitionName, LogSequence],
    ) -> None:
        """Make the partitions that do not exist; an interrupted attempt may have made some.

        `at_home`: the check that a `regional` stream still has the home that was read. Nobody
        uses a partition before the stream's record counts it. NoNodeError for a lost stream.
        """
        checks = [self._is_same(record), *at_home]
        for start in range(0, len(names), _MADE_AT_ONCE):
            some = names[start : start + _MADE_AT_ONCE]
            try:
                await self._metadata.multi(
                    [*checks, *(one for name in some for one in self._makes(name, firsts))]
                )
            except NodeExistsError:
                for name in some:
                    with suppress(NodeExistsError):
                        await self._metadata.multi([*checks, *self._makes(name, firsts)])

    async def _put(
        self, record: StreamRecord, version: int, at_home: Sequence[Check] = ()
    ) -> None:
        """Store settings by compare-and-set. BadVersionError, NoNodeError."""
        path = self._paths.stream(record.name)
        await self._metadata.multi(
            [self._is_same(record), *at_home, Put(path, seal_document(record), version)]
        )

    def _home_path(self, record: StreamRecord) -> str:
        return self._paths.home(record.name, record.life)

    async def _is_at_home(self, record: StreamRecord) -> list[Check]:
        """The check that a `regional` stream has the home that it has now."""
        if record.home is None:
            return []
        path = self._home_path(record)
        stored = await self._metadata.find(path, freshness=Freshness.LATEST)
        # Streams made before there were home records have none, and cannot move.
        return [] if stored is None else [Check(path, stored.version)]

    def _is_same(self, record: StreamRecord) -> Check:
        """Fail the multi if another stream has the name now: versions restart at 0."""
        return Check(self._paths.stream_life(record.name, record.life), 0)

    def _makes(
        self, partition: PartitionName, firsts: Mapping[PartitionName, LogSequence]
    ) -> list[Operation]:
        trim = TrimRecord(first_sequence=firsts.get(partition, FIRST_SEQUENCE))
        return [
            Create(self._paths.partition(partition)),
            Create(self._paths.owner(partition), seal_document(OwnerRecord())),
            Create(self._paths.trim(partition), seal_document(trim)),
            Create(self._paths.segments(partition)),
        ]

    async def read(self, name: StreamName) -> StreamRecord:
        """The stream's settings. NoSuchStreamError, also if the stream is incomplete."""
        try:
            return _complete((await self._find(name, Freshness.NEARBY))[0])
        except NoSuchStreamError:
            # The stream may be new, and this server may lag.
            return await self.read_latest(name)

    async def find_nearby(self, name: StreamName) -> StreamRecord | None:
        """The stream's settings by a nearby server; None if that knows no usable stream."""
        try:
            return _complete((await self._find(name, Freshness.NEARBY))[0])
        except NoSuchStreamError:
            return None

    async def read_latest(self, name: StreamName) -> StreamRecord:
        """The stream's settings, including all that was written before this call."""
        return (await self.read_versioned(name))[0]

    async def read_writable(self, name: StreamName) -> StreamRecord:
        """As `read_latest`, of a stream that takes records. SealedError."""
        record = await self.read_latest(name)
        if record.is_sealed:
            raise SealedError(f"{name} is sealed: it takes no more records")
        return record

    async def read_versioned(self, name: StreamName) -> tuple[StreamRecord, int]:
        """As `read_latest`, with the version of the record."""
        found, version = await self._find(name)
        return _complete(found), version

    async def check_same(self, known: StreamRecord) -> None:
        """NoSuchStreamError unless this stream still exists, not another of the same name."""
        try:
            found, _ = await self._find(known.name)
        except NoSuchStreamError:
            raise NoSuchStreamError(f"stream {str(known.name)!r} was deleted") from None
        check_life(known, found)
        if found.is_incomplete:
            raise NoSuchStreamError(
                f"stream {str(known.name)!r} is being deleted; it can no longer be read"
            )

    async def read_same(self, known: StreamRecord) -> StreamRecord:
        """The settings of this stream. NoSuchStreamError, also if another has its name."""
        try:
            found = await self.read(known.name)
        except NoSuchStreamError:
            await self.check_same(known)  # Its error says why.
            raise
        check_life(known, found)
        return found

    async def read_same_latest(self, known: StreamRecord) -> StreamRecord:
        """The settings of this stream, including all that was written before this call."""
        found = await self.read_latest(known.name)
        check_life(known, found)
        return found

    async def look(self, known: StreamRecord, changed: trio.Event) -> StreamRecord:
        """The settings of this stream nearby; `changed` is set once there may be others.

        NoSuchStreamError, also if another stream has its name.
        """
        path = self._paths.stream(known.name)
        stored = await self._metadata.find(path, changed=changed)
        if stored is None:
            raise NoSuchStreamError(f"stream {str(known.name)!r} does not exist")
        found = open_document(stored.data, StreamRecord, path=path)
        check_life(known, found)
        return found

    async def _find(
        self, name: StreamName, freshness: Freshness = Freshness.LATEST
    ) -> tuple[StreamRecord, int]:
        path = self._paths.stream(name)
        stored = await self._metadata.find(path, freshness=freshness)
        if stored is None:
            raise NoSuchStreamError(f"stream {str(name)!r} does not exist")
        return open_document(stored.data, StreamRecord, path=path), stored.version

    async def change(
        self,
        name: StreamName,
        changed: Callable[[StreamRecord], StreamRecord],
        *,
        firsts: Mapping[PartitionName, LogSequence] | None = None,
    ) -> StreamRecord:
        """Apply `changed` to the settings by compare-and-set. NoSuchStreamError.

        New partitions and mirrors are made first. firsts: where new mirrors begin that do not
        begin with their home.
        """
        while True:
            found, version = await self._find(name)
            if found.moving_to:
                raise UnavailableError(
                    f"the home of {name} is moving from {found.home} to {found.moving_to}: its"
                    " settings can be changed once it is there"
                )
            record = changed(_complete(found))
            try:
                at_home = await self._is_at_home(record)
                known = set(found.log_names())
                new = [one for one in record.log_names() if one not in known]
                await self._make_partitions(record, new, at_home, firsts or {})
                await self._put(record, version, at_home)
            except (BadVersionError, NoNodeError):
                continue  # It was changed meanwhile, or deleted.
            return record

    async def mirrors_left(self, record: StreamRecord) -> list[PartitionName]:
        """Mirrors of the stream in regions that are not its targets, or no more.

        Another process may just be adding a partition, and have made its logs already.
        """
        wanted, found = {one.region for one in record.log_names()}, []
        for child in await self._children(self._paths.stream(record.name), Freshness.LATEST):
            kind, _, rest = child.partition("-")
            place, _, life = rest.rpartition("-")
            region, _, number = place.rpartition("-")
            is_log = kind == "mirror" or (kind == "partition" and record.origin)
            if is_log and life == record.life:
                name = PartitionName(record.name, int(number), life, region)
                if name.region not in wanted:
                    found.append(name)
        return found

    async def kept_rests(self, record: StreamRecord) -> list[PartitionName]:
        """What logs of the stream held beyond forks, by region, epoch and partition."""
        found = []
        for child in await self._children(self._paths.stream(record.name), Freshness.LATEST):
            kind, _, rest = child.partition("-")
            if kind != "rest" or child.rpartition("-")[2] != record.life:
                continue
            epoch, _, log = rest.partition("-")
            place = log.rpartition("-")[0]
            region, _, number = place.partition("-")[2].rpartition("-")
            found.append(
                PartitionName(record.name, int(number), record.life, region, int(epoch))
            )
        return sorted(found, key=lambda one: (one.rest, one.region, one.number))

    async def begin_delete(self, name: StreamName) -> StreamRecord:
        """Make the stream unusable from now on. NoSuchStreamError if it is gone.

        It gets no more partitions: those that its record counts are all.
        """
        while True:
            found, version = await self._find(name)
            # Write even if the record says so already: a concurrent creation must notice.
            record = attrs.evolve(found, is_incomplete=True)
            try:
                await self._put(record, version)
            except (BadVersionError, NoNodeError):
                continue
            return record

    async def names(self) -> list[StreamName]:
        """The names of all streams, sorted."""
        found = []
        for namespace in await self._children(self._paths.streams, Freshness.LATEST):
            names = await self._children(self._paths.namespace(namespace))
            found += [StreamName(namespace, name) for name in names]
        return sorted(found)

    async def names_in(self, namespace: str) -> list[str]:
        """The names of the streams in one namespace, sorted."""
        return sorted(await self._children(self._paths.namespace(namespace)))

    async def _children(self, path: str, freshness: Freshness = Freshness.NEARBY) -> list[str]:
        try:
            return await self._metadata.children(path, freshness=freshness)
        except NoNodeError:
            return []

    async def delete_partition(self, name: PartitionName) -> None:
        """Delete a partition that was deposed and has no segments left."""
        await self._delete_tree(self._paths.partition(name))

    async def delete(self, record: StreamRecord) -> None:
        """Delete a stream without partitions, and nothing of a stream made since."""
        path = self._paths.stream(record.name)
        life = self._paths.stream_life(record.name, record.life)
        while True:
            for child in await self._children(path):
                # There may be partitions that the record does not count.
                is_log = child.startswith(("partition-", "mirror-", "rest-"))
                if is_log and child.rpartition("-")[2] == record.life:
                    await self._delete_tree(f"{path}/{child}")
            await self._delete_tree(self._paths.cursors(record.name, record.life))
            await self._delete_tree(self._paths.failovers(record.name, record.life))
            await self._delete_at_once(self._home_path(record))
            try:
                await self._metadata.multi([Delete(life), Delete(path)])
            except NoNodeError:
                return  # Another process deleted it as well.
            except NotEmptyError:
                continue
            return

    async def _delete_at_once(self, path: str) -> None:
        """Delete a node with its children: a reader finds all of them, or nothing."""
        while True:
            nodes = [f"{path}/{child}" for child in await self._children(path)]
            try:
                await self._metadata.multi([Delete(one) for one in [*nodes, path]])
            except NoNodeError:
                if await self._metadata.find(path) is None:
                    return
            except NotEmptyError:
                pass
            else:
                return

    async def _delete_tree(self, path: str) -> None:
        for child in await self._children(path):
            await self._delete_tree(f"{path}/{child}")
        try:
            await self._metadata.multi([Delete(path)])
        except NoNodeError:
            return
        except NotEmptyError:
            await self._delete_tree(path)


def check_life(known: StreamRecord, found: StreamRecord) -> None:
    """NoSuchStreamError unless the stream found under the name is the one that was known."""
    if found.life != known.life:
        raise NoSuchStreamError(
            f"stream {str(known.name)!r} was deleted and created again; open it again"
        )


def _complete(found: StreamRecord) -> StreamRecord:
    """The record, if the stream is usable. NoSuchStreamError."""
    if found.is_incomplete:
        raise NoSuchStreamError(
            f"stream {str(found.name)!r} is being created or deleted, so it cannot be used. If"
            f" that was interrupted, run `geolog stream delete {found.name}` to remove it"
        )
    return found
