"""Entries that a log held beyond a fork, kept as a log of their own.

A log that is cut loses nothing: the rows behind the fork go from its list into that of the kept
rest, in the same step. The ledger through which the fork goes is then named by both; the last
of them to drop it deletes it. A rest is sealed, and begins at the fork.

Rules: PROTOCOL H20.
"""

from collections.abc import Sequence

import attrs

from geolog.catalog.partition_owners import PartitionOwners, VersionedOwner, no_owner
from geolog.catalog.segment_records import SegmentRecords, VersionedSegment
from geolog.catalog.stream_homes import StreamHomes
from geolog.ledger.ledger_metadata import LedgerMetadata
from geolog.metadata.documents import open_document, seal_document
from geolog.metadata.paths import BUCKET_COUNT_MAX, ClusterPaths
from geolog.metadata.seam import (
    BadVersionError,
    Check,
    Create,
    Delete,
    Metadata,
    NodeExistsError,
    NoNodeError,
    Operation,
    Put,
)
from geolog.protocol.home_record import Fork
from geolog.protocol.stream_state import (
    OwnerRecord,
    PartitionName,
    SegmentRecord,
    TrimRecord,
)
from topology.errors import UnavailableError

_ROWS_AT_ONCE_MAX = 64
"""Rows moved in one step: each takes four operations, and up to 2 kB."""


@attrs.frozen
class DeadBranch:
    """The rows of a list that lie behind a fork, from the first on."""

    whole: tuple[VersionedSegment, ...]
    """Those that lie behind it as a whole."""
    through: VersionedSegment | None = None
    """The row through which the fork goes, which comes before them."""
    through_cut: SegmentRecord | None = None
    """That row as it ends at the fork."""
    records_count: int = 0
    """Records behind the fork. If there is none, nothing needs to be kept."""


class KeptRests:
    """The kept rests of one cluster's partitions."""

    def __init__(
        self,
        metadata: Metadata,
        paths: ClusterPaths,
        segments: SegmentRecords,
        ledgers: LedgerMetadata,
        owners: PartitionOwners,
        homes: StreamHomes,
    ) -> None:
        self._metadata = metadata
        self._paths = paths
        self._segments = segments
        self._ledgers = ledgers
        self._owners = owners
        self._homes = homes

    async def cut(
        self,
        name: PartitionName,
        owner: VersionedOwner,
        fork: Fork,
        branch: DeadBranch,
        *,
        region: str | None,
    ) -> PartitionName | None:
        """End the list at the fork; keep the rows behind it as a rest, and return its name.

        None if no record lies behind the fork: then the rows are dropped. All rows are
        completed, and `owner` owns the log, which is in that region and not at home.
        FencedError if it does not any more; UnavailableError if the home has changed meanwhile.
        If this is interrupted, the log still ends behind the fork, and the next owner goes on.
        """
        rest = attrs.evolve(name, rest=fork.home_epoch) if branch.records_count else None
        if rest is not None:
            await self._make(rest, fork, branch)
        rows = list(branch.whole)
        while rows:
            some = rows[-_ROWS_AT_ONCE_MAX:]
            del rows[-_ROWS_AT_ONCE_MAX:]
            moves = [one for each in some for one in await self._moves(name, rest, each)]
            if not rows:
                moves += [
                    *await self._ends(name, rest, branch),
                    *await self._begins(name, fork),
                ]
            await self._step(name, owner, moves, region)
        if not branch.whole:
            moves = [*await self._ends(name, rest, branch), *await self._begins(name, fork)]
            await self._step(name, owner, moves, region)
        if rest is None:
            await self._ledgers.drop_empty_buckets([one.record.ledger for one in branch.whole])
        return rest

    async def _step(
        self,
        name: PartitionName,
        owner: VersionedOwner,
        moves: Sequence[Operation],
        region: str | None,
    ) -> None:
        try:
            await self._metadata.multi(
                [
                    *await self._homes.checks_of_mirror(name, region),
                    Check(self._paths.owner(name), owner.version),
                    *moves,
                ]
            )
        except (BadVersionError, NoNodeError, NodeExistsError):
            found = await self._owners.read_latest(name)
            if found.version != owner.version:
                raise no_owner(name, found.record) from None
            await self._homes.has_changed(name)
            raise UnavailableError(
                f"{name}: its home has changed while it was cut; open it again"
            ) from None

    async def _make(self, rest: PartitionName, fork: Fork, branch: DeadBranch) -> None:
        """Make the rest's nodes; an interrupted attempt may have made some."""
        rows = [one.record.row_number for one in branch.whole]
        if branch.through is not None:
            rows.append(branch.through.record.row_number)
        sealed = OwnerRecord(is_sealed=True, segment_highest=max(rows))
        trim = TrimRecord(first_sequence=fork.sequence)
        nodes: list[Operation] = [
            Create(self._paths.partition(rest)),
            Create(self._paths.owner(rest), seal_document(sealed)),
            Create(self._paths.trim(rest), seal_document(trim)),
            Create(self._paths.segments(rest)),
        ]
        if await self._metadata.find(self._paths.partition(rest)) is None:
            await self._metadata.multi(nodes)
        for bucket in sorted({one // BUCKET_COUNT_MAX for one in rows}):
            path = self._paths.segment_bucket(rest, bucket * BUCKET_COUNT_MAX)
            if await self._metadata.find(path) is None:
                await self._metadata.multi([Create(path)])

    async def _moves(
        self, name: PartitionName, rest: PartitionName | None, row: VersionedSegment
    ) -> list[Operation]:
        """Move a whole row into the rest, or drop it."""
        record, number = row.record, row.record.row_number
        goes: list[Operation] = [Delete(self._paths.segment(name, number), row.version)]
        if rest is not None:
            goes.append(Create(self._paths.segment(rest, number), seal_document(record)))
            return [*goes, *await self._renamed(name, record, rest.rest)]
        if record.shared_with:
            return [*goes, *await self._renamed(name, record, None)]
        return [*goes, self._ledgers.delete(record.ledger)]

    async def _ends(
        self, name: PartitionName, rest: PartitionName | None, branch: DeadBranch
    ) -> list[Operation]:
        """End the row through which the fork goes; the rest has it, too."""
        if branch.through is None or branch.through_cut is None:
            return []
        before, cut = branch.through.record, branch.through_cut
        number, others = before.row_number, before.shared_with
        more: list[Operation] = []
        if rest is not None:
            cut = attrs.evolve(cut, shared_with=(*others, rest.rest))
            kept = attrs.evolve(before, shared_with=(*others, name.rest))
            more.append(Create(self._paths.segment(rest, number), seal_document(kept)))
            more += await self._renamed(name, before, rest.rest, stays=True)
        path = self._paths.segment(name, number)
        return [Put(path, seal_document(cut), branch.through.version), *more]

    async def _renamed(
        self,
        name: PartitionName,
        record: SegmentRecord,
        rest: int | None,
        *,
        stays: bool = False,
    ) -> list[Operation]:
        """Tell the other lists that share the row's ledger which list has it in place of this.

        stays: this list has it as well. rest: None if no other list has it.
        """
        told: list[Operation] = []
        for one in record.shared_with:
            other = attrs.evolve(name, rest=one)
            for found in await self._segments.at(other, [record.row_number]):
                kept = [each for each in found.record.shared_with if stays or each != name.rest]
                shared = tuple(kept if rest is None else [*kept, rest])
                told.append(
                    Put(
                        self._paths.segment(other, record.row_number),
                        seal_document(attrs.evolve(found.record, shared_with=shared)),
                        found.version,
                    )
                )
        return told

    async def _begins(self, name: PartitionName, fork: Fork) -> list[Operation]:
        """Have a log that began behind the fork begin there."""
        path = self._paths.trim(name)
        stored = await self._metadata.find(path)
        if stored is None:
            return []
        trim = open_document(stored.data, TrimRecord, path=path)
        if trim.first_sequence <= fork.sequence:
            return []
        begun = attrs.evolve(
            trim,
            first_sequence=fork.sequence,
            evicted_before=min(trim.evicted_before, fork.sequence),
            gap=None,
        )
        return [Put(path, seal_document(begun), stored.version)]
