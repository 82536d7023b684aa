"""Reading one batch that was appended before, by its place."""

import attrs
import trio

from geolog.client.partition_metadata import PartitionMetadata
from geolog.ledger.ledger_metadata import LedgerMetadata, NoSuchLedgerError
from geolog.ledger.ledger_reader import LedgerReader
from geolog.protocol.ids import EntryId
from geolog.protocol.partition_state import WrittenBatch
from geolog.protocol.stream_state import PartitionName
from geolog.wire.batch import Batch
from topology.errors import DataLostError, TrimmedError, UnavailableError

_TIMEOUT_S = 30.0


@attrs.frozen
class BatchReadBack:
    """Reads batches of named writers, to compare them with what comes again."""

    partitions: PartitionMetadata
    ledgers: LedgerMetadata
    reader: LedgerReader

    async def read(self, name: PartitionName, batch: WrittenBatch) -> Batch:
        """The batch. TrimmedError, UnavailableError, DataLostError."""
        entry = EntryId(batch.entry)
        for listed in await self.partitions.segments_at(name, [batch.segment]):
            with trio.move_on_after(_TIMEOUT_S):
                try:
                    ledger = (await self.ledgers.read_latest(listed.record.ledger)).record
                except NoSuchLedgerError:
                    break  # It went with its segment, this moment.
                (fetched, *_) = await self.reader.read(ledger, entry, entry)
                slot = 0
                for index, line in enumerate(fetched.decoded.header.lines):
                    if slot == batch.slot:
                        return fetched.decoded.open(index)
                    slot += line.record_count
                raise DataLostError(f"{name}: entry {entry} of {ledger.ledger} is another one")
            raise UnavailableError(
                f"{name}: entry {batch.entry} of segment {batch.segment} could not be read"
                f" within {_TIMEOUT_S:g} s"
            )
        raise TrimmedError(f"{name}: segment {batch.segment} was trimmed")
