"""Ledger records in metadata: made once, then changed by compare-and-set alone.

Rules: PROTOCOL L1, L2 and M2.
"""

from collections.abc import Iterable
from contextlib import suppress

import attrs
import trio

from geolog.ledger.repair_reporter import RepairReporter
from geolog.metadata.documents import open_document, seal_document
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.repair_queue import RepairReason
from geolog.metadata.seam import (
    BadVersionError,
    Create,
    Delete,
    Freshness,
    Metadata,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Put,
)
from geolog.protocol.ids import Epoch, LedgerId
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState
from topology.errors import (
    DamagedBytesError,
    NotFoundError,
    OutcomeUnknownError,
    UnavailableError,
)
from topology.quorum import QuorumConfig
from topology.stream_policy import REGION_AWARE_TERMS, PlacementTerms

_ANSWERS_LOST_MAX = 3


class NoSuchLedgerError(NotFoundError):
    """No ledger has this id, or it was deleted."""


@attrs.frozen
class VersionedLedger:
    """A ledger's record as it was read, and the version that a compare-and-set names."""

    record: LedgerRecord
    version: int


class LedgerMetadata:
    """The ledgers of one cluster, as metadata holds them."""

    def __init__(
        self, metadata: Metadata, paths: ClusterPaths, repairs: RepairReporter | None = None
    ) -> None:
        self._metadata = metadata
        self._paths = paths
        self._repairs = repairs

    def report_nowait(self, ledger: LedgerId, why: RepairReason) -> None:
        """Have a copier look at the ledger some time; nothing waits for it or fails of it."""
        if self._repairs is not None:
            self._repairs.report_nowait(ledger, why)

    async def read(
        self,
        ledger: LedgerId,
        *,
        changed: trio.Event | None = None,
        freshness: Freshness = Freshness.NEARBY,
    ) -> VersionedLedger:
        """The record as one server of the metadata store has it. NoSuchLedgerError.

        `changed` is set once, after the record changes or goes.
        """
        path = self._paths.ledger(ledger)
        stored = await self._metadata.find(path, changed=changed, freshness=freshness)
        if stored is None:
            raise NoSuchLedgerError(f"there is no ledger {ledger}")
        return VersionedLedger(
            open_document(stored.data, LedgerRecord, path=path), stored.version
        )

    async def read_latest(self, ledger: LedgerId) -> VersionedLedger:
        """The record with all that was written before this call."""
        return await self.read(ledger, freshness=Freshness.LATEST)

    async def read_certain(self, ledger: LedgerId) -> VersionedLedger:
        """The same, though the metadata store's leader may be deposed: for what is final."""
        return await self.read(ledger, freshness=Freshness.CERTAIN)

    async def record_certain(self, ledger: LedgerId) -> LedgerRecord:
        """The same, without the version."""
        return (await self.read_certain(ledger)).record

    async def allocate(
        self,
        quorum: QuorumConfig,
        fragment: Fragment,
        *,
        stream: str,
        placement: PlacementTerms = REGION_AWARE_TERMS,
    ) -> VersionedLedger:
        """Make a ledger ALLOCATED, under an id that was never used before.

        UnavailableError when metadata did not tell in a few tries whether it was made. Those
        that were are in no list, so they expire.
        """
        answers_lost_count = 0
        while True:
            ledger, version = await self._next_id()
            record = LedgerRecord(
                ledger=ledger,
                state=LedgerState.ALLOCATED,
                epoch=Epoch(1),
                quorum=quorum,
                fragments=(fragment,),
                stream=stream,
                placement=placement,
            )
            try:
                await self._metadata.multi(
                    [
                        Put(self._paths.ledger_next, str(ledger + 1).encode(), version),
                        Create(self._paths.ledger(ledger), seal_document(record)),
                    ]
                )
            except BadVersionError:
                continue  # Somebody else took that id: take the next.
            except NoNodeError:
                await self._metadata.ensure_path(self._paths.ledger_bucket(ledger))
                continue
            except OutcomeUnknownError as error:
                answers_lost_count += 1
                if answers_lost_count >= _ANSWERS_LOST_MAX:
                    raise UnavailableError(f"no ledger could be made: {error}") from error
                continue
            return VersionedLedger(record, 0)

    async def _next_id(self) -> tuple[LedgerId, int]:
        while True:
            stored = await self._metadata.find(self._paths.ledger_next)
            if stored is not None:
                if not stored.data.isdigit():
                    raise DamagedBytesError(
                        f"the ledger counter at {self._paths.ledger_next} is {stored.data!r},"
                        " not a number"
                    )
                return LedgerId(int(stored.data)), stored.version
            await self._metadata.ensure_path(self._paths.ledgers)
            try:
                await self._metadata.create(self._paths.ledger_next, b"1")
            except NodeExistsError:
                continue

    async def replace(self, read: VersionedLedger, record: LedgerRecord) -> VersionedLedger:
        """Store the successor of a record that was read, unless it changed: BadVersionError."""
        return VersionedLedger(
            record,
            await self._metadata.put(
                self._paths.ledger(record.ledger), seal_document(record), read.version
            ),
        )

    def put(self, read: VersionedLedger, record: LedgerRecord) -> Put:
        """The same as an operation of a multi."""
        return Put(self._paths.ledger(record.ledger), seal_document(record), read.version)

    async def forget(self, read: VersionedLedger) -> None:
        """Delete the record of a ledger that was never listed, unless it changed."""
        await self._metadata.delete(self._paths.ledger(read.record.ledger), read.version)

    async def drop_empty_buckets(self, ledgers: Iterable[LedgerId]) -> None:
        """Delete the buckets of ledgers that were deleted, as far as nothing is left there.

        Whoever allocates a ledger makes its bucket anew if it has gone.
        """
        for bucket in sorted({self._paths.ledger_bucket(one) for one in ledgers}):
            with suppress(NoNodeError, NotEmptyError):
                await self._metadata.delete(bucket)

    def delete(self, ledger: LedgerId) -> Delete:
        """Delete a ledger's record, as an operation of a multi."""
        return Delete(self._paths.ledger(ledger))
