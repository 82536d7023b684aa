"""Ledger records in metadata: created once, then changed only by compare-and-set.

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
from geolog.protocol.ids import LEDGER_FIRST, Epoch, LedgerId
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
    """No ledger has this id, or the ledger was deleted."""


@attrs.frozen
class VersionedLedger:
    """A ledger's record as read, with the version that a compare-and-set names."""

    record: LedgerRecord
    version: int


class LedgerMetadata:
    """The ledger records of one cluster."""

    def __init__(
        self, metadata: Metadata, paths: ClusterPaths, repairs: RepairReporter | None = None
    ) -> None:
        self._metadata = metadata
        self._paths = paths
        self._repairs = repairs

    def report_nowait(self, ledger: LedgerId, why: RepairReason) -> None:
        """Ask a copier to look at the ledger. Never waits and never fails."""
        if self._repairs is not None:
            self._repairs.report_nowait(ledger, why)

    async def read(
        self,
        ledger: LedgerId,
        *,
        changed: trio.Event | None = None,
        freshness: Freshness = Freshness.NEARBY,
    ) -> VersionedLedger:
        """Read the record as one metadata server has it. NoSuchLedgerError.

        `changed` is set once, after the record changes or is deleted.
        """
        path = self._paths.ledger(ledger)
        stored = await self._metadata.find(path, changed=changed, freshness=freshness)
        if stored is None:
            raise NoSuchLedgerError(f"ledger {ledger} does not exist")
        return VersionedLedger(
            open_document(stored.data, LedgerRecord, path=path), stored.version
        )

    async def read_latest(self, ledger: LedgerId) -> VersionedLedger:
        """Read the record, including everything written before this call."""
        return await self.read(ledger, freshness=Freshness.LATEST)

    async def read_certain(self, ledger: LedgerId) -> VersionedLedger:
        """Read the record even if the metadata leader may be deposed; for final decisions."""
        return await self.read(ledger, freshness=Freshness.CERTAIN)

    async def record_certain(self, ledger: LedgerId) -> LedgerRecord:
        """Like `read_certain`, without the version."""
        return (await self.read_certain(ledger)).record

    async def allocate(
        self,
        quorum: QuorumConfig,
        fragment: Fragment,
        *,
        stream: str,
        placement: PlacementTerms = REGION_AWARE_TERMS,
    ) -> VersionedLedger:
        """Create an ALLOCATED ledger, under an id that was never used before.

        UnavailableError if metadata did not say, in a few tries, whether it was created.
        A ledger that was created all the same is in no list, so it expires.
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
                continue  # Another client took that id: take the next.
            except NoNodeError:
                await self._metadata.ensure_path(self._paths.ledger_bucket(ledger))
                continue
            except OutcomeUnknownError as error:
                answers_lost_count += 1
                if answers_lost_count >= _ANSWERS_LOST_MAX:
                    raise UnavailableError(f"no ledger could be created: {error}") from error
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
                await self._metadata.create(self._paths.ledger_next, b"%d" % LEDGER_FIRST)
            except NodeExistsError:
                continue

    async def replace(self, read: VersionedLedger, record: LedgerRecord) -> VersionedLedger:
        """Store the successor of a record that was read; BadVersionError if it has changed."""
        return VersionedLedger(
            record,
            await self._metadata.put(
                self._paths.ledger(record.ledger), seal_document(record), read.version
            ),
        )

    def put(self, read: VersionedLedger, record: LedgerRecord) -> Put:
        """Like `replace`, as an operation of a multi."""
        return Put(self._paths.ledger(record.ledger), seal_document(record), read.version)

    async def forget(self, read: VersionedLedger) -> None:
        """Delete the record of a ledger that was never listed, unless it has changed."""
        await self._metadata.delete(self._paths.ledger(read.record.ledger), read.version)

    async def drop_empty_buckets(self, ledgers: Iterable[LedgerId]) -> None:
        """Delete the buckets of deleted ledgers, if they are empty.

        `allocate` makes a bucket again if it is gone.
        """
        for bucket in sorted({self._paths.ledger_bucket(one) for one in ledgers}):
            with suppress(NoNodeError, NotEmptyError):
                await self._metadata.delete(bucket)

    def delete(self, ledger: LedgerId) -> Delete:
        """Delete a ledger's record, as an operation of a multi."""
        return Delete(self._paths.ledger(ledger))
