"""The ledgers that a copier should inspect: one document each, until done.

A process that finds missing or damaged copies enqueues the ledger. A repeated finding changes
only the document's version, and `done` removes a ledger only at the version that was listed: a
finding during a copier's work on the ledger is not lost. The queue is a hint; a ledger outside
it is no worse off than without a queue. So while metadata is away, processes that cannot
enqueue log that, and go on.
"""

import enum
from collections.abc import Callable, Sequence

import attrs

from geolog.metadata.documents import open_document, seal_document
from geolog.metadata.find_all import find_all
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import (
    BadVersionError,
    Freshness,
    Metadata,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from geolog.protocol.ids import LedgerId


class RepairReason(enum.Enum):
    """Why a ledger needs inspection."""

    COPIES_MISSING = "copies_missing"
    """It was closed with entries of which fewer than W copies were confirmed."""
    RECOVERED = "recovered"
    """Somebody other than its writer closed it: how many copies its entries have is unknown."""
    DAMAGED = "damaged"
    """A node found a copy that does not match its checksum."""


@attrs.frozen(kw_only=True)
class RepairRecord:
    """Metadata's record of one ledger in the queue."""

    ledger: LedgerId
    reasons: tuple[RepairReason, ...]
    """Each reason once, in the order of discovery."""
    since_us: int
    """When it was enqueued: microseconds since 1970, by the enqueuing process's clock."""


@attrs.frozen
class RepairItem:
    """A queued ledger as listed, with the version that `done` names."""

    record: RepairRecord
    version: int


class RepairQueue:
    """The repair queue of one cluster."""

    def __init__(
        self, metadata: Metadata, paths: ClusterPaths, *, now_us: Callable[[], int]
    ) -> None:
        self._metadata = metadata
        self._paths = paths
        self._now_us = now_us

    async def enqueue(self, ledger: LedgerId, why: RepairReason) -> None:
        """Enqueue a ledger; if it is queued already, add the reason and raise the version.

        Repeating it is safe, also after OutcomeUnknownError.
        """
        path = self._paths.repair(ledger)
        while True:
            stored = await self._metadata.find(path)
            try:
                if stored is None:
                    new = RepairRecord(ledger=ledger, reasons=(why,), since_us=self._now_us())
                    await self._metadata.create(path, seal_document(new))
                else:
                    record = open_document(stored.data, RepairRecord, path=path)
                    if why not in record.reasons:
                        record = attrs.evolve(record, reasons=(*record.reasons, why))
                    await self._metadata.put(path, seal_document(record), stored.version)
            except NoNodeError:
                # The bucket is missing (or gone), or the ledger was dequeued meanwhile.
                await self._metadata.ensure_path(self._paths.repair_bucket(ledger))
            except (BadVersionError, NodeExistsError):
                continue  # Somebody else enqueued or dequeued it.
            else:
                return

    async def ledgers(self) -> Sequence[LedgerId]:
        """The queued ledgers, ordered by id, without reading their documents."""
        paths = await self._all_paths()
        return [LedgerId(int(path.rpartition("/")[2])) for path in paths]

    async def list(self) -> Sequence[RepairItem]:
        """All queued ledgers, ordered by id, including everything enqueued before this call."""
        paths = await self._all_paths()
        found = await find_all(self._metadata, paths)
        return [
            RepairItem(open_document(one.data, RepairRecord, path=path), one.version)
            for path, one in zip(paths, found, strict=True)
            if one is not None
        ]

    async def done(self, item: RepairItem) -> bool:
        """Dequeue the ledger; False if there was a new finding since it was listed."""
        ledger = item.record.ledger
        try:
            await self._metadata.delete(self._paths.repair(ledger), item.version)
        except BadVersionError:
            return False
        except NoNodeError:
            return True  # Another copier was faster.
        try:
            await self._metadata.delete(self._paths.repair_bucket(ledger))
        except (NotEmptyError, NoNodeError):
            return True  # Others are in the bucket, or it went with another.
        return True

    async def _all_paths(self) -> Sequence[str]:
        buckets = await self._children(self._paths.repairs, Freshness.LATEST)
        return [
            f"{self._paths.repairs}/{bucket}/{name}"
            for bucket in buckets
            for name in await self._children(f"{self._paths.repairs}/{bucket}")
        ]

    async def _children(
        self, path: str, freshness: Freshness = Freshness.NEARBY
    ) -> Sequence[str]:
        try:
            return await self._metadata.children(path, freshness=freshness)
        except NoNodeError:
            return []
