"""Streams in metadata: their settings, and the partitions that they are made of.

Rules: PROTOCOL S17.
"""

from collections.abc import Callable
from contextlib import suppress

import attrs

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
from geolog.protocol.stream_state import (
    OwnerRecord,
    PartitionName,
    StreamName,
    StreamRecord,
    TrimRecord,
)
from topology.errors import ConflictError, NoSuchStreamError

_MADE_AT_ONCE = 64
"""Partitions that are made in one step: with the longest of names they fit a request."""


class StreamExistsError(ConflictError):
    """A stream of this name exists already: choose another name, or use `--if-not-exists`."""


class StreamCatalog:
    """The streams of one cluster, as metadata holds them."""

    def __init__(self, metadata: Metadata, paths: ClusterPaths) -> None:
        self._metadata = metadata
        self._paths = paths
        self._lives_count = 0

    def new_life(self, *, now_us: int) -> str:
        """What no stream has had: sessions tell clients apart, and a count what one makes."""
        self._lives_count += 1
        session = self._metadata.session_id & (1 << 64) - 1
        return f"{now_us:x}.{session:x}.{self._lives_count:x}"

    async def create(self, record: StreamRecord) -> None:
        """Make a stream with its partitions, all or nothing. StreamExistsError.

        One with very many takes several steps; nobody can use it before the last of them.
        """
        namespace = self._paths.namespace(record.name.namespace)
        if await self._metadata.find(namespace) is None:
            await self._metadata.ensure_path(namespace)
        if record.partitions <= _MADE_AT_ONCE:
            await self._begin_create(record, record.partition_names())
            return
        await self._begin_create(attrs.evolve(record, is_incomplete=True), [])
        try:
            await self._make_partitions(record, record.partition_names())
            await self._put(record, 0)
        except (BadVersionError, NoNodeError):
            raise NoSuchStreamError(
                f"stream {str(record.name)!r} was deleted while it was made"
            ) from None

    async def _begin_create(self, record: StreamRecord, names: list[PartitionName]) -> None:
        name = record.name
        operations: list[Operation] = [Create(self._paths.stream(name), seal_document(record))]
        operations.append(Create(self._paths.stream_life(name, record.life)))
        for partition in names:
            operations += self._makes(partition)
        try:
            await self._metadata.multi(operations)
        except NodeExistsError:
            await self.read_latest(name)  # It may be incomplete: that is said first.
            raise StreamExistsError(
                f"stream {str(name)!r} exists already: choose another name, or say that this is"
                " no error (--if-not-exists)"
            ) from None

    async def _make_partitions(self, record: StreamRecord, names: list[PartitionName]) -> None:
        """Make those that are not there: whoever was interrupted may have made some.

        As long as the stream's record does not count them nobody uses them. NoNodeError if
        the stream is gone.
        """
        is_same = self._is_same(record)
        for start in range(0, len(names), _MADE_AT_ONCE):
            some = names[start : start + _MADE_AT_ONCE]
            try:
                await self._metadata.multi(
                    [is_same, *(one for name in some for one in self._makes(name))]
                )
            except NodeExistsError:
                for name in some:
                    with suppress(NodeExistsError):
                        await self._metadata.multi([is_same, *self._makes(name)])

    async def _put(self, record: StreamRecord, version: int) -> None:
        """Store settings by compare-and-set. BadVersionError, NoNodeError."""
        path = self._paths.stream(record.name)
        await self._metadata.multi(
            [self._is_same(record), Put(path, seal_document(record), version)]
        )

    def _is_same(self, record: StreamRecord) -> Check:
        """Fails what it is part of once the stream is another: versions begin anew with it."""
        return Check(self._paths.stream_life(record.name, record.life), 0)

    def _makes(self, partition: PartitionName) -> list[Operation]:
        return [
            Create(self._paths.partition(partition)),
            Create(self._paths.owner(partition), seal_document(OwnerRecord())),
            Create(self._paths.trim(partition), seal_document(TrimRecord())),
            Create(self._paths.sessions(partition)),
            Create(self._paths.segments(partition)),
        ]

    async def read(self, name: StreamName) -> StreamRecord:
        """The stream's settings. NoSuchStreamError, also for one that is incomplete."""
        try:
            return _complete((await self._find(name, Freshness.NEARBY))[0])
        except NoSuchStreamError:
            # It may be new, and this server may lag.
            return await self.read_latest(name)

    async def read_latest(self, name: StreamName) -> StreamRecord:
        """The same, with all that was written before this call."""
        return _complete((await self._find(name))[0])

    async def check_same(self, known: StreamRecord) -> None:
        """NoSuchStreamError unless this very stream is still there, not another of its name."""
        try:
            found, _ = await self._find(known.name)
        except NoSuchStreamError:
            raise NoSuchStreamError(f"stream {str(known.name)!r} was deleted") from None
        check_life(known, found)
        if found.is_incomplete:
            raise NoSuchStreamError(
                f"stream {str(known.name)!r} is being deleted: nothing more of it can be read"
            )

    async def read_same(self, known: StreamRecord) -> StreamRecord:
        """The settings of this very stream. NoSuchStreamError, also if another has its name."""
        try:
            found = await self.read(known.name)
        except NoSuchStreamError:
            await self.check_same(known)  # It says what became of it.
            raise
        check_life(known, found)
        return found

    async def _find(
        self, name: StreamName, freshness: Freshness = Freshness.LATEST
    ) -> tuple[StreamRecord, int]:
        path = self._paths.stream(name)
        stored = await self._metadata.find(path, freshness=freshness)
        if stored is None:
            raise NoSuchStreamError(f"there is no stream {str(name)!r}")
        return open_document(stored.data, StreamRecord, path=path), stored.version

    async def change(
        self, name: StreamName, changed: Callable[[StreamRecord], StreamRecord]
    ) -> StreamRecord:
        """Store what `changed` makes of the settings, by compare-and-set. NoSuchStreamError.

        Partitions that are new come into being before.
        """
        while True:
            found, version = await self._find(name)
            record = changed(_complete(found))
            try:
                new = record.partition_names()[found.partitions :]
                await self._make_partitions(record, new)
                await self._put(record, version)
            except (BadVersionError, NoNodeError):
                continue  # Somebody changed it meanwhile, or deleted it.
            return record

    async def begin_delete(self, name: StreamName) -> StreamRecord:
        """Let nobody use the stream from now on. NoSuchStreamError if it is gone.

        It gets no partitions any more: those that the record tells of are all.
        """
        while True:
            found, version = await self._find(name)
            # Written also where it says so: who is making the stream must notice.
            record = attrs.evolve(found, is_incomplete=True)
            try:
                await self._put(record, version)
            except (BadVersionError, NoNodeError):
                continue
            return record

    async def names(self) -> list[StreamName]:
        """All streams, sorted."""
        found = []
        for namespace in await self._children(self._paths.streams, Freshness.LATEST):
            names = await self._children(self._paths.namespace(namespace))
            found += [StreamName(namespace, name) for name in names]
        return sorted(found)

    async def _children(self, path: str, freshness: Freshness = Freshness.NEARBY) -> list[str]:
        try:
            return await self._metadata.children(path, freshness=freshness)
        except NoNodeError:
            return []

    async def delete_partition(self, name: PartitionName) -> None:
        """Delete a partition that was deposed, and whose segments are gone."""
        await self._delete_tree(self._paths.partition(name))

    async def delete(self, record: StreamRecord) -> None:
        """Delete a stream whose partitions are gone, and nothing of one made since."""
        path = self._paths.stream(record.name)
        life = self._paths.stream_life(record.name, record.life)
        while True:
            for child in await self._children(path):
                # Some may be left that the record does not count.
                if child.startswith("partition-") and child.rpartition("-")[2] == record.life:
                    await self._delete_tree(f"{path}/{child}")
            try:
                await self._metadata.multi([Delete(life), Delete(path)])
            except NoNodeError:
                return  # Another was at it as well.
            except NotEmptyError:
                continue
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
    """NoSuchStreamError unless what was found under the name is the stream that was known."""
    if found.life != known.life:
        raise NoSuchStreamError(
            f"stream {str(known.name)!r} was deleted, and made again: open it anew"
        )


def _complete(found: StreamRecord) -> StreamRecord:
    """The record of a stream that can be used. NoSuchStreamError."""
    if found.is_incomplete:
        raise NoSuchStreamError(
            f"stream {str(found.name)!r} is being made or deleted now: it cannot be used. If"
            f" that was interrupted, `geolog stream delete {found.name}` ends it"
        )
    return found
