"""Cursors in metadata: who reads them, and their positions.

    life-L/cursors/NAME                 the cursor; changed by every reader that joins
    life-L/cursors/NAME/readers/ID      one per reader, ephemeral: its lease
    life-L/cursors/NAME/partitions/P    position, and the reader that reads this partition

A commit checks the reader's node and names the version of the partition's record, in one multi.

Rules: PROTOCOL K1, K2, K3 and K7.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import ClassVar

import attrs
import trio

from geolog.metadata.documents import open_document, seal_document
from geolog.metadata.find_all import find_all
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
from geolog.protocol.cursor_lease import CursorView, PartitionCommit
from geolog.protocol.cursor_state import (
    NO_READER,
    CursorName,
    CursorPartition,
    CursorReaderRecord,
    CursorRecord,
    PartitionStanding,
    is_of_reader,
)
from geolog.protocol.ids import Position
from geolog.protocol.stream_state import StreamName, StreamRecord
from topology.errors import (
    ConflictError,
    FencedError,
    NoSuchStreamError,
    NotFoundError,
    OutcomeUnknownError,
    public,
)

_NAMED_MAX = 10
"""Cursors named where none is similar to the one that was asked for."""

_AT_ONCE = 64
"""Partitions changed in one request."""

_REFUSALS = (BadVersionError, NoNodeError, NodeExistsError)


@public
class NoSuchCursorError(NotFoundError):
    """No cursor of the stream has this name (`geolog cursor ls STREAM` lists them)."""


@public
class CursorHeldError(ConflictError):
    """Another reader has the cursor. Wait until it ends, or take the cursor from it."""

    retriable: ClassVar[bool] = True


@public
class CursorLostError(FencedError):
    """Another reader has taken the cursor or the partition; commits of this one are refused."""


@attrs.frozen(kw_only=True)
class CursorReaderFound:
    """A reader that is there."""

    reader: str
    who: str
    since_us: int
    """When its lease began, by the metadata store's clock."""


@attrs.frozen(kw_only=True)
class CursorFound:
    """A cursor as metadata has it."""

    name: CursorName
    record: CursorRecord
    version: int
    readers: Sequence[CursorReaderFound]
    standings: Sequence[PartitionStanding]
    committed_us: Sequence[int | None]
    """When each partition's record was written last, by the metadata store's clock."""


class CursorCatalog:
    """The cursors of one cluster's streams."""

    def __init__(self, metadata: Metadata, paths: ClusterPaths) -> None:
        self._metadata = metadata
        self._paths = paths

    # Reading.

    async def names(self, stream: StreamRecord) -> list[str]:
        """The names of a stream's cursors, sorted."""
        try:
            return await self._metadata.children(
                self._paths.cursors(stream.name, stream.life), freshness=Freshness.LATEST
            )
        except NoNodeError:
            return []

    async def read(self, stream: StreamRecord, name: str) -> CursorFound:
        """A cursor with its readers and positions. NoSuchCursorError names the nearest."""
        cursor = CursorName.of(stream, name)
        path = self._paths.cursor(cursor)
        stored = await self._metadata.find(path, freshness=Freshness.LATEST)
        if stored is None:
            raise await self._no_cursor(stream, name)
        standings, written_us = await self._standings(cursor, stream.partitions)
        return CursorFound(
            name=cursor,
            record=open_document(stored.data, CursorRecord, path=path),
            version=stored.version,
            readers=await self._readers(cursor),
            standings=standings,
            committed_us=written_us,
        )

    async def _no_cursor(self, stream: StreamRecord, name: str) -> NoSuchCursorError:
        names = await self.names(stream)
        near = get_close_matches(name, names, n=1)
        if near:
            hint = f"; did you mean {near[0]!r}?"
        else:
            first = ", ".join(names[:_NAMED_MAX])
            more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
            hint = f"; its cursors are {first}{more}" if names else "; it has no cursors"
        return NoSuchCursorError(f"{stream.name} has no cursor {name!r}{hint}")

    async def _readers(self, cursor: CursorName) -> list[CursorReaderFound]:
        try:
            ids = await self._metadata.children(self._paths.cursor_readers(cursor))
        except NoNodeError:
            return []
        paths = [self._paths.cursor_reader(cursor, one) for one in ids]
        found = await find_all(self._metadata, paths)
        return [
            CursorReaderFound(
                reader=reader,
                who=open_document(stored.data, CursorReaderRecord, path=path).who,
                since_us=stored.created_us,
            )
            for reader, path, stored in zip(ids, paths, found, strict=True)
            if stored is not None
        ]

    async def _standings(
        self, cursor: CursorName, partitions_count: int
    ) -> tuple[list[PartitionStanding], list[int | None]]:
        paths = [
            self._paths.cursor_partition(cursor, number) for number in range(partitions_count)
        ]
        standings: list[PartitionStanding] = []
        written_us: list[int | None] = []
        for path, stored in zip(paths, await find_all(self._metadata, paths), strict=True):
            written_us.append(None if stored is None else stored.modified_us)
            standings.append(
                PartitionStanding()
                if stored is None
                else PartitionStanding(
                    open_document(stored.data, CursorPartition, path=path), stored.version
                )
            )
        return standings, written_us

    async def look(
        self, cursor: CursorName, partitions_count: int, *, changed: trio.Event | None
    ) -> CursorView:
        """Look at readers and positions. `changed` is set when another look may differ.

        NoSuchCursorError if it was deleted.
        """
        try:
            # The first read catches up; the others are at least as new.
            await self._metadata.get(
                self._paths.cursor(cursor), changed=changed, freshness=Freshness.LATEST
            )
            readers = await self._metadata.children(
                self._paths.cursor_readers(cursor), changed=changed
            )
        except NoNodeError:
            raise _deleted(cursor) from None
        standings, _ = await self._standings(cursor, partitions_count)
        return CursorView(frozenset(readers), standings)

    # For a reader.

    async def ensure(
        self, stream: StreamRecord, name: str, *, cursor_id: str, now_us: int
    ) -> CursorName:
        """Make the cursor unless it exists; then it has this id. NoSuchStreamError."""
        cursor = CursorName.of(stream, name)
        record = CursorRecord(
            created_us=now_us, partitions=stream.partitions, cursor_id=cursor_id
        )
        make: list[Operation] = [
            Create(self._paths.cursor(cursor), seal_document(record)),
            Create(self._paths.cursor_readers(cursor)),
            Create(self._paths.cursor_partitions(cursor)),
        ]
        parent = Create(self._paths.cursors(stream.name, stream.life))
        if await self._metadata.find(self._paths.cursor(cursor)) is not None:
            return cursor
        while True:
            try:
                await self._metadata.multi(make)
            except NodeExistsError:
                return cursor
            except NoNodeError:
                await self._make_parent(stream.name, parent)
                continue
            return cursor

    async def _make_parent(self, stream: StreamName, parent: Create) -> None:
        """Make the parent of all cursors; never the stream, which may be gone."""
        with suppress(NodeExistsError):
            try:
                await self._metadata.multi([parent])
            except NoNodeError:
                raise NoSuchStreamError(f"stream {str(stream)!r} was deleted") from None

    async def join(
        self,
        cursor: CursorName,
        reader: str,
        *,
        cursor_id: str,
        who: str,
        is_shared: bool,
        is_again: bool = False,
        is_taking: bool = False,
    ) -> None:
        """Put this reader among the readers of the cursor, instead of its earlier ids.

        cursor_id: that of the cursor which it opened. is_again: it was there before. is_taking:
        remove all other readers. CursorHeldError; CursorLostError if it was there before, and
        another was since; NoSuchCursorError, also if the cursor was made again since.
        """
        path = self._paths.cursor(cursor)
        make = Create(
            self._paths.cursor_reader(cursor, reader),
            seal_document(CursorReaderRecord(who=who)),
            is_ephemeral=True,
        )
        while True:
            stored = await self._metadata.find(path, freshness=Freshness.LATEST)
            if stored is None:
                raise _deleted(cursor)
            record = open_document(stored.data, CursorRecord, path=path)
            if record.cursor_id != cursor_id:
                raise _made_again(cursor, record)
            found = await self._readers(cursor)
            if any(one.reader == reader for one in found):
                return  # The answer to an earlier try was lost.
            others = [one for one in found if not is_of_reader(one.reader, reader)]
            is_refused = others and not is_taking and not (is_shared and record.is_shared)
            if is_refused and await self._has_changed(path, stored.version):
                continue  # The readers are newer than the record.
            if is_again and not is_shared and not is_of_reader(record.reader, reader):
                raise _taken(cursor, others)
            if is_refused:
                raise _held(cursor, others, is_shared=record.is_shared)
            gone = [one for one in found if is_taking or one not in others]
            joined = attrs.evolve(record, is_shared=is_shared, reader=reader)
            try:
                await self._metadata.multi(
                    [
                        Put(path, seal_document(joined), stored.version),
                        *(
                            Delete(self._paths.cursor_reader(cursor, one.reader))
                            for one in gone
                        ),
                        make,
                    ]
                )
            except (*_REFUSALS, OutcomeUnknownError):
                continue  # Another joined or left meanwhile.
            return

    async def _has_changed(self, path: str, version: int) -> bool:
        stored = await self._metadata.find(path)
        return stored is None or stored.version != version

    async def claim(
        self, cursor: CursorName, reader: str, standings: Mapping[int, PartitionStanding]
    ) -> dict[int, PartitionStanding | None]:
        """Have this reader read these partitions. None for a partition that was refused."""
        return await self._change(
            cursor,
            reader,
            {
                number: (standing.version, attrs.evolve(standing.record, reader=reader))
                for number, standing in standings.items()
            },
        )

    async def commit(
        self, cursor: CursorName, reader: str, commits: Iterable[PartitionCommit]
    ) -> dict[int, PartitionStanding | None]:
        """Store these positions. None for a partition that was refused: it is another's now."""
        return await self._change(
            cursor,
            reader,
            {
                one.partition: (
                    one.standing.version,
                    attrs.evolve(
                        one.standing.record.moved(one.position),
                        reader=NO_READER if one.is_last else reader,
                    ),
                )
                for one in commits
            },
        )

    async def _change(
        self,
        cursor: CursorName,
        reader: str,
        changes: Mapping[int, tuple[int | None, CursorPartition]],
    ) -> dict[int, PartitionStanding | None]:
        """Write records of partitions while the reader is there, many at once if they fit."""
        found: dict[int, PartitionStanding | None] = {}
        numbers = list(changes)
        for start in range(0, len(numbers), _AT_ONCE):
            some = numbers[start : start + _AT_ONCE]
            written = await self._write(cursor, reader, {one: changes[one] for one in some})
            if written is None and len(some) > 1:
                for one in some:
                    alone = await self._write(cursor, reader, {one: changes[one]})
                    found[one] = None if alone is None else alone[one]
            else:
                found |= dict.fromkeys(some) if written is None else written
        return found

    async def _write(
        self,
        cursor: CursorName,
        reader: str,
        changes: Mapping[int, tuple[int | None, CursorPartition]],
    ) -> dict[int, PartitionStanding] | None:
        """Write these records in one step; None if one of them, or the reader, is not there."""
        operations: list[Operation] = [Check(self._paths.cursor_reader(cursor, reader))]
        for number, (version, record) in changes.items():
            path, data = self._paths.cursor_partition(cursor, number), seal_document(record)
            operations.append(
                Create(path, data) if version is None else Put(path, data, version)
            )
        try:
            answers = await self._metadata.multi(operations)
        except _REFUSALS:
            return None
        return {
            number: PartitionStanding(record, answer if isinstance(answer, int) else 0)
            for (number, (_, record)), answer in zip(changes.items(), answers[1:], strict=True)
        }

    async def leave(self, cursor: CursorName, reader: str) -> None:
        """Remove this reader from the readers of the cursor."""
        with suppress(NoNodeError):
            await self._metadata.delete(self._paths.cursor_reader(cursor, reader))

    # For an operator.

    async def seek(
        self, found: CursorFound, positions: Mapping[int, Position], *, is_forced: bool
    ) -> None:
        """Set positions. CursorHeldError if readers are there, unless the seek is forced.

        Readers that are there lose these partitions, and gain them again at the new positions.
        ConflictError if the cursor was changed meanwhile.
        """
        if found.readers and not is_forced:
            raise _in_use(found)
        record = attrs.evolve(found.record, seeks=found.record.seeks + 1)
        operations: list[Operation] = [
            Put(self._paths.cursor(found.name), seal_document(record), found.version)
        ]
        for number, position in positions.items():
            standing = found.standings[number]
            sought = CursorPartition(
                home_epoch=position.home_epoch,
                sequence=position.sequence,
                seeks=standing.record.seeks + 1,
            )
            path, data = self._paths.cursor_partition(found.name, number), seal_document(sought)
            operations.append(
                Create(path, data)
                if standing.version is None
                else Put(path, data, standing.version)
            )
        try:
            await self._metadata.multi(operations)
        except _REFUSALS:
            raise ConflictError(
                f"{found.name} was changed at the same time: run the seek again"
            ) from None

    async def delete(self, stream: StreamRecord, name: str, *, is_forced: bool) -> None:
        """Delete a cursor, in one step: a failure leaves all of its positions or none.

        NoSuchCursorError; CursorHeldError if readers are there, unless it is forced. Their next
        commits are refused, and they cannot join again.
        """
        found = await self.read(stream, name)
        while True:
            if found.readers and not is_forced:
                raise _in_use(found)
            try:
                await self._metadata.multi(await self._deletion_of(found))
                return
            except (*_REFUSALS, NotEmptyError, OutcomeUnknownError):
                pass  # A reader joined, left or committed; or it may be gone already.
            try:
                again = await self.read(stream, name)
            except NoSuchCursorError:
                return
            if again.record.cursor_id != found.record.cursor_id:
                return  # It was deleted, and somebody has made another.
            found = again

    async def _deletion_of(self, found: CursorFound) -> list[Operation]:
        """The cursor as it was read, with everything below it.

        A thousand partitions, the most that a stream has, fit in one request.
        """
        partitions = self._paths.cursor_partitions(found.name)
        numbers = await self._metadata.children(partitions, freshness=Freshness.LATEST)
        return [
            *(
                Delete(self._paths.cursor_reader(found.name, one.reader))
                for one in found.readers
            ),
            *(Delete(f"{partitions}/{number}") for number in numbers),
            Delete(self._paths.cursor_readers(found.name)),
            Delete(partitions),
            Delete(self._paths.cursor(found.name), found.version),
        ]


def _deleted(cursor: CursorName) -> NoSuchCursorError:
    return NoSuchCursorError(f"{cursor} was deleted")


def _made_again(cursor: CursorName, record: CursorRecord) -> NoSuchCursorError:
    return NoSuchCursorError(
        f"{cursor} was deleted, and made again at {_moment(record.created_us)}: this reader"
        " commits nothing more; open another one to read from where the cursor is now"
    )


def _held(
    cursor: CursorName, readers: Sequence[CursorReaderFound], *, is_shared: bool
) -> CursorHeldError:
    """The error for a reader that joins."""
    way = (
        "join them with shared=True (--shared)"
        if is_shared
        else "wait until it ends; to share a cursor, all readers need shared=True (--shared)"
    )
    return CursorHeldError(
        f"{cursor} is held by {_named(readers)}: {way}, or take it away with take=True (--take)"
    )


def _in_use(found: CursorFound) -> CursorHeldError:
    """The error for an operator who would change the cursor."""
    return CursorHeldError(
        f"{found.name} is held by {_named(found.readers)}: wait until it ends, or do it all the"
        " same with force=True (--force)"
    )


def _named(readers: Sequence[CursorReaderFound]) -> str:
    """The reader that came first, how many there are besides, and since when."""
    first = min(readers, key=lambda one: one.since_us)
    more = f" and {len(readers) - 1} more" if len(readers) > 1 else ""
    return f"{first.who}{more} since {_moment(first.since_us)}"


def _taken(cursor: CursorName, others: Sequence[CursorReaderFound]) -> CursorLostError:
    if others:
        return CursorLostError(
            f"{cursor} was taken by {_named(others)}: this reader has lost it, and commits"
            " nothing more; take it back with take=True (--take)"
        )
    return CursorLostError(
        f"{cursor} was taken by a reader that has left again: this reader has lost it, and"
        " commits nothing more; open another one to read on"
    )


def _moment(time_us: int) -> str:
    return datetime.fromtimestamp(time_us // 10**6, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
