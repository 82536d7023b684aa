"""Making a prepared ledger the open one, in the step that closes its predecessor.

The step is repeated until metadata answers; nothing is written to the ledger before that.

Rules: PROTOCOL O4.
"""

import logging

import trio

from geolog.catalog.partition_config import PartitionConfig
from geolog.catalog.partition_owners import VersionedOwner
from geolog.catalog.segment_changes import ClosingSegment, SegmentChanges
from geolog.catalog.segment_records import VersionedSegment
from geolog.ledger.ledger_metadata import NoSuchLedgerError, VersionedLedger
from geolog.partition.ledger_allocator import LedgerAllocator
from geolog.partition.open_segment import OpenSegment
from geolog.partition.prepared_ledger import PreparedLedger
from geolog.partition.segment_user import SegmentUser
from geolog.protocol import isolation_lease
from geolog.protocol.stream_state import PartitionName, SegmentRecord
from topology.errors import FencedError, GeologError

_log = logging.getLogger(__name__)


class SegmentActivation:
    """Activates the ledgers of one partition under one owner epoch.

    Invariant: `owner` is the owner record as this owner last stored it.
    """

    def __init__(
        self,
        name: PartitionName,
        owner: VersionedOwner,
        user: SegmentUser,
        *,
        changes: SegmentChanges,
        source: LedgerAllocator,
        config: PartitionConfig,
    ) -> None:
        self._name = name
        self._user = user
        self._changes = changes
        self._source = source
        self._config = config
        self.owner = owner
        self._owner_since_s = trio.current_time()

    async def activate(
        self, prepared: PreparedLedger, closing: ClosingSegment | None
    ) -> OpenSegment | None:
        """Open the ledger and list it, close the one before; None if the user has failed.

        A ledger that has expired is replaced by a new one. FencedError. NotEnoughNodesError or
        UnavailableError if the owner's first ledger has expired, and cannot be replaced now.
        """
        prepared, ledger, segment = await self._activated(prepared, closing)
        if self._user.is_failed:
            prepared.writer.close()
            return None
        if prepared.writer.is_over:  # It was fenced before metadata's answer arrived.
            raise FencedError(f"another writer owns {self._name} now")
        keeper = self._source.keeper(ledger, prepared.writer)
        return OpenSegment(segment, prepared.writer, keeper)

    async def _activated(
        self, prepared: PreparedLedger, closing: ClosingSegment | None
    ) -> tuple[PreparedLedger, VersionedLedger, VersionedSegment]:
        segment = self._segment_of(prepared)
        has_expired = False
        # Of the first try: a repeated one must write, and find, the same record.
        outlived_s = isolation_lease.outlived_s(trio.current_time() - self._owner_since_s)
        while True:
            try:
                if has_expired:
                    prepared = await self._source.prepare(self._user)
                    segment = self._segment_of(prepared)
                    has_expired = False
                self.owner, ledger, opened = await self._changes.activate(
                    self._name,
                    self.owner,
                    closing=closing,
                    opening=prepared.ledger,
                    segment=segment,
                    mirror_in=self._user.mirror_in,
                    outlived_s=outlived_s,
                )
            except NoSuchLedgerError:
                expired = prepared.ledger.record.ledger
                _log.info("ledger %s: expired unused; making another", expired)
                prepared.writer.close()
                has_expired = True
            except GeologError as error:
                is_first = closing is None  # Its opener hears why there is no ledger.
                if not error.retriable or (has_expired and is_first):
                    raise
                self._user.check_deadline()
                await trio.sleep(self._config.retry_delay_s)
            else:
                return prepared, ledger, opened

    def _segment_of(self, prepared: PreparedLedger) -> SegmentRecord:
        place = self._user.next_place(self.owner.record.segment_highest + 1)
        acknowledged = self._user.acknowledged
        return SegmentRecord(
            segment=place.segment,
            row=place.row,
            first_entry=place.first_entry,
            ledger=prepared.ledger.record.ledger,
            home_epoch=place.home_epoch,
            first_sequence=acknowledged.sequence_next,
            owner_epoch=self.owner.record.epoch,
            activated_us=self._user.now_us(),
            append_time_us_before=acknowledged.append_time_us,
            transaction_id_before=acknowledged.transaction_id,
            size_bytes_before=acknowledged.size_bytes,
            local_only_before=acknowledged.local_only_count,
        )
