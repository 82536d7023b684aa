"""Walking over the segments of streams and the ledgers under them, a few at a time.

A stream may have a hundred thousand segments. All their numbers are in memory, but the records
of only a few.
"""

from collections.abc import Iterator, Sequence

import attrs

from geolog.admin.cluster_access import ClusterAccess
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.protocol.ledger_state import LedgerRecord
from geolog.protocol.stream_state import PartitionName, SegmentRecord, parse_target
from topology.errors import NoSuchStreamError

AT_A_TIME = 64
"""Segments whose records are read together."""


@attrs.frozen
class PlacedSegment:
    """One segment of a stream, and the ledger under it."""

    partition: PartitionName
    segment: SegmentRecord
    ledger: LedgerRecord
    survive: str = ""
    """The loss that its stream was promised to survive; empty if its quorums were given."""


@attrs.frozen
class _Listed:
    partition: PartitionName
    survive: str
    numbers: Sequence[int]


@attrs.define
class PlacementWalk:
    """All segments listed when the walk began, except those that are gone since."""

    _access: ClusterAccess
    _listed: Sequence[_Listed]
    _chunks: Iterator[_Listed] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._chunks = (
            attrs.evolve(one, numbers=one.numbers[start : start + AT_A_TIME])
            for one in self._listed
            for start in range(0, len(one.numbers), AT_A_TIME)
        )

    @classmethod
    async def begin(cls, access: ClusterAccess, target: str | None) -> "PlacementWalk":
        """Walk over a stream, one partition (`NAME#P`), or all streams. NoSuchStreamError."""
        listed = [
            _Listed(partition, survive, await access.partitions.segments.numbers(partition))
            for partition, survive in await _partitions(access, target)
        ]
        return cls(access, listed)

    @property
    def segments_count(self) -> int:
        """The number of segments listed."""
        return sum(len(one.numbers) for one in self._listed)

    async def next_batch(self) -> list[PlacedSegment] | None:
        """The next segments in order, at most `AT_A_TIME`; None after the last."""
        chunk = next(self._chunks, None)
        if chunk is None:
            return None
        access, partition = self._access, chunk.partition
        segments = [
            one.record for one in await access.partitions.segments.at(partition, chunk.numbers)
        ]
        ledgers = await access.catalog.records_of([one.ledger for one in segments])
        return [
            PlacedSegment(partition, segment, ledger, chunk.survive)
            for segment, ledger in zip(segments, ledgers, strict=True)
            if ledger is not None
        ]


async def _partitions(
    access: ClusterAccess, target: str | None
) -> list[tuple[PartitionName, str]]:
    """The partitions, each with the loss that its stream was promised to survive."""
    catalog = StreamCatalog(access.metadata, access.paths)
    if target is not None:
        name, number = parse_target(target)
        record = await catalog.read_latest(name)
        if number is not None:
            record.partition(number)
        names = [one for one in record.log_names() if number in (None, one.number)]
        return [(one, record.survive) for one in names]
    found = []
    for name in await catalog.names():
        try:
            record = await catalog.read(name)
        except NoSuchStreamError:
            continue  # It was deleted after it was listed.
        found += [(one, record.survive) for one in record.log_names()]
    return found
