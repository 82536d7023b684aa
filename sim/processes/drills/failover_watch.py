"""How a failover spends its time, as metadata shows it from outside.

Detection ends when metadata first shows the loss: the record of the lost proxy is gone, or its
partition has another owner. The writes of the takeover are counted in the records of the
partition and of its ledgers: each has a version, and records written by one multi have one time
of writing. The time of such a write is measured just before.
"""

import statistics
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs
import trio

from geolog.admin.cluster_access import ClusterAccess
from geolog.background import open_background
from geolog.catalog.segment_records import SegmentRecords
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.metadata.documents import open_document
from geolog.metadata.find_all import find_all
from geolog.metadata.seam import Freshness, Stored
from geolog.protocol.stream_state import OwnerRecord, PartitionName, StreamName
from topology.errors import GeologError

_PUTS_COUNT = 5
_LOOK_AGAIN_S = 0.01


@attrs.frozen
class Writes:
    """All records of a partition and its ledgers, as they stand at one moment."""

    records: dict[str, Stored]

    def since(self, before: "Writes") -> int:
        """The writes between an earlier moment and this one."""
        moments: set[int] = set()
        overwritten = 0
        for path, stored in self.records.items():
            known = before.records.get(path)
            changes = stored.version - (-1 if known is None else known.version)
            if changes:
                moments.add(stored.modified_us)
                overwritten += changes - 1
        return len(moments) + overwritten


@attrs.define(eq=False)
class Detection:
    """When metadata showed the loss of a proxy."""

    at_s: float = 0.0
    is_seen: trio.Event = attrs.field(factory=trio.Event)

    def note(self) -> None:
        """Metadata shows it now; later calls do nothing."""
        if not self.is_seen.is_set():
            self.at_s = trio.current_time()
            self.is_seen.set()


@attrs.frozen(kw_only=True)
class OutageParts:
    """The longest outage of any writer after the loss of an owner, and its parts."""

    outage_s: float
    detection_s: float
    writes_count: int
    """Metadata writes of the takeover."""
    write_s: float
    """Time of one."""

    def __str__(self) -> str:
        return (
            f"{self.outage_s:.2f} s: detection {self.detection_s:.2f} s, {self.writes_count}"
            f" metadata writes of {1e3 * self.write_s:.1f} ms, round trips"
            f" {self.round_trips_s:.2f} s"
        )

    @property
    def round_trips_s(self) -> float:
        """The rest: fence, recovery, reads, and back-off of the clients."""
        return self.outage_s - self.detection_s - self.writes_count * self.write_s

    def figures(self) -> dict[str, float]:
        """Row of a verdict."""
        return {
            "outage_s_max": self.outage_s,
            "detection_s": self.detection_s,
            "metadata_writes": self.writes_count,
            "metadata_write_s": self.write_s,
            "round_trips_s": self.round_trips_s,
        }


class FailoverWatch:
    """Watches one partition. Opened by `find_partition`."""

    def __init__(self, access: ClusterAccess, name: PartitionName) -> None:
        self._metadata = access.metadata
        self._paths = access.paths
        self._name = name

    async def owner(self) -> str:
        """The name in the owner record now."""
        path = self._paths.owner(self._name)
        return self._owner_in(await self._metadata.get(path, freshness=Freshness.LATEST))

    async def writes(self) -> Writes:
        """The records now."""
        segments = SegmentRecords(self._metadata, self._paths)
        numbers = await segments.numbers(self._name)
        listed = await segments.at(self._name, numbers)
        paths = [self._paths.owner(self._name)]
        paths += [self._paths.segment(self._name, number) for number in numbers]
        paths += [self._paths.ledger(one.record.ledger) for one in listed]
        found = await find_all(self._metadata, paths)
        return Writes(
            {path: one for path, one in zip(paths, found, strict=True) if one is not None}
        )

    async def write_s(self) -> float:
        """The median time of a write, to a node of this process's own."""
        path = await self._metadata.create(f"{self._paths.root}/drill-", is_ephemeral=True)
        times_s = []
        for version in range(_PUTS_COUNT):
            begun_s = trio.current_time()
            await self._metadata.put(path, b"", version)
            times_s.append(trio.current_time() - begun_s)
        await self._metadata.delete(path)
        return statistics.median(times_s)

    @asynccontextmanager
    async def watch_loss(self, proxy: str, owner: str) -> AsyncIterator[Detection]:
        """Watch for the loss of a proxy, `owner` in owner records, during the block."""
        detection = Detection()

        def is_other(found: Stored | None) -> bool:
            return found is not None and self._owner_in(found) != owner

        async def note(path: str, is_lost: Callable[[Stored | None], bool]) -> None:
            await self._wait_until(path, is_lost)
            detection.note()

        async with open_background() as nursery:
            nursery.start_soon(note, self._paths.proxy_live(proxy), lambda found: found is None)
            nursery.start_soon(note, self._paths.owner(self._name), is_other)
            yield detection

    async def _wait_until(self, path: str, is_so: Callable[[Stored | None], bool]) -> None:
        """Wait until a record is so; a server of the metadata store may fail meanwhile."""
        while True:
            changed = trio.Event()
            try:
                if is_so(await self._metadata.find(path, changed=changed)):
                    return
                await changed.wait()
            except GeologError:
                await trio.sleep(_LOOK_AGAIN_S)

    def _owner_in(self, stored: Stored) -> str:
        path = self._paths.owner(self._name)
        return open_document(stored.data, OwnerRecord, path=path).owner


async def find_partition(access: ClusterAccess, stream: str) -> FailoverWatch:
    """Watch the only partition of a stream."""
    name = StreamName.parse(stream)
    record = await StreamCatalog(access.metadata, access.paths).read(name)
    return FailoverWatch(access, record.partition(0))
