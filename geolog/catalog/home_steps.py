"""The steps in metadata by which the home of a stream moves, as lists of operations.

The step that makes a new home has several operations for each partition, and must fit into one
request. `largest` builds it from the largest values that it may have, by the same functions,
so whether it fits is known before the move begins.

Rules: PROTOCOL H17.
"""

from collections.abc import Mapping, Sequence

import attrs

from geolog.catalog.partition_owners import VersionedOwner
from geolog.metadata.documents import seal_document
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import Check, Create, Operation, Put
from geolog.protocol.failover_record import FailoverRecord, RangeAtRisk
from geolog.protocol.home_record import Fork, ForksRecord, HomeRecord
from geolog.protocol.ids import Epoch, SegmentEntry
from geolog.protocol.ids import Sequence as LogSequence
from geolog.protocol.stream_state import (
    OwnerRecord,
    PartitionName,
    StreamRecord,
)

_LARGE = LogSequence(10**12)
_LARGE_US = 10**16
_LARGE_S = 123456.123456789
LARGE_FORK = Fork(
    home_epoch=10**5,
    segment=10**6,
    entry=SegmentEntry(10**6),
    sequence=_LARGE,
    segment_offset=10**6,
    segment_next=10**6,
)
_LARGE_OWNER = OwnerRecord(
    epoch=Epoch(10**6),
    claim_id="0" * 40,
    segment_highest=10**6,
    lease_s=_LARGE_S,
    lease_before_s=_LARGE_S,
    lease_left_s=_LARGE_S,
)
_LARGE_RANGE = RangeAtRisk(
    partition=10**4,
    from_sequence=_LARGE,
    to_sequence=_LARGE,
    heard_us=_LARGE_US,
    heard_ago_s=_LARGE_S,
    bytes_max=_LARGE,
    seconds=_LARGE_S,
    older_records=_LARGE,
)
_LARGE_VERSION = 10**6


@attrs.frozen
class HomeSteps:
    """Builds the steps of moves from the paths of one cluster."""

    paths: ClusterPaths

    def store(
        self,
        home_after: HomeRecord,
        home_version: int,
        stream_after: StreamRecord,
        stream_version: int,
        others: Sequence[Operation] = (),
    ) -> list[Operation]:
        """Store the home record and the stream's record by their versions, and others."""
        name, life = stream_after.name, stream_after.life
        return [
            Check(self.paths.stream_life(name, life), 0),
            *others,
            Put(self.paths.home(name, life), seal_document(home_after), home_version),
            Put(self.paths.stream(name), seal_document(stream_after), stream_version),
        ]

    def forks_apart(
        self, stream: StreamRecord, home_epoch: int, forks: ForksRecord
    ) -> Operation:
        """Store the forks up to this home epoch apart from the home record."""
        path = self.paths.forks_apart(stream.name, stream.life, home_epoch)
        return Create(path, seal_document(forks))

    def releases(self, owners: Mapping[PartitionName, VersionedOwner]) -> list[Operation]:
        """Release these claims, if nobody has claimed the logs since."""
        return [
            Put(
                self.paths.owner(name),
                seal_document(attrs.evolve(owner.record, presence="")),
                owner.version,
            )
            for name, owner in owners.items()
        ]

    def same_trims(
        self, home: PartitionName, home_version: int, log: PartitionName, version: int
    ) -> list[Operation]:
        """Check that neither the log at home nor that of the new home was trimmed since."""
        return [
            Check(self.paths.trim(home), home_version),
            Check(self.paths.trim(log), version),
        ]

    def record(
        self, stream: StreamRecord, record: FailoverRecord, *, has_parent: bool
    ) -> list[Operation]:
        """Store the record of a failover."""
        parent = self.paths.failovers(stream.name, stream.life)
        path = self.paths.failover(stream.name, stream.life, record.home_epoch)
        makes: list[Operation] = [] if has_parent else [Create(parent)]
        return [*makes, Create(path, seal_document(record))]

    def largest(self, stream: StreamRecord, home: HomeRecord, who: str) -> list[Operation]:
        """The step that makes the new home, with as much in it as there may be.

        stream, home: as they are once the move is marked. who: the mover's name.
        """
        after = stream.moved(is_whole=False)
        owner = VersionedOwner(attrs.evolve(_LARGE_OWNER, owner=who), _LARGE_VERSION)
        number = stream.partitions - 1  # No other has a longer name.
        before, log = stream.partition(number), after.partition(number)
        of_each = [
            *self.releases({log: owner}),
            *self.same_trims(before, _LARGE_VERSION, log, _LARGE_VERSION),
        ]
        others = of_each * stream.partitions
        if home.is_failover:
            record = FailoverRecord(
                home_epoch=after.home_epoch,
                home_before=home.region,
                home=home.moving_to,
                decided_us=_LARGE_US,
                who=who,
                ranges=(_LARGE_RANGE,) * stream.partitions,
            )
            others += self.record(after, record, has_parent=False)
        moved = home.moved((LARGE_FORK,) * stream.partitions)
        return self.store(moved, _LARGE_VERSION, after, _LARGE_VERSION, others)
