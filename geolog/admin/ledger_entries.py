"""Reading one ledger entry by entry, as stored, whichever stream it belongs to."""

from collections.abc import Callable

import attrs

from geolog.admin.cluster_access import ClusterAccess
from geolog.ledger.reading.ledger_reader import FetchedEntry
from geolog.ledger.reading.ledger_stream import LedgerStream
from geolog.protocol.ids import DLSN, EntryId
from geolog.protocol.ledger_state import LedgerRecord
from topology.errors import InvalidArgumentError, UnavailableError


@attrs.frozen(kw_only=True)
class EntryDetails:
    """One entry: its header, and the node that served it."""

    entry: int
    kind: str
    """`data`, or `control` for the log's own notes, which have no sequence."""
    segment: int
    home_epoch: int
    first_sequence: int
    last_sequence: int
    """Less than `first_sequence` for an entry without records."""
    records: int
    batches: int
    size_bytes: int
    append_time_us: int
    served_by: str


@attrs.frozen(kw_only=True)
class ValueDetails:
    """One record of an entry."""

    dlsn: DLSN
    sequence: int
    value: bytes


async def ledger_end(access: ClusterAccess, record: LedgerRecord) -> EntryId:
    """The last entry known to be acknowledged; -1 if there is none. UnavailableError."""
    if record.last_entry is not None:
        return record.last_entry
    lac = await access.reader.lac_anywhere(record)
    if lac is None:
        raise UnavailableError(
            f"no member of the last fragment of ledger {record.ledger} answers, so its last"
            " acknowledged entry is unknown: try again later"
        )
    return lac


async def read_entries(
    access: ClusterAccess,
    record: LedgerRecord,
    first: EntryId,
    last: EntryId,
    take: Callable[[FetchedEntry], None],
) -> None:
    """Give `take` the entries from `first` to `last`, in order; the caller bounds the wait.

    InvalidArgumentError beyond the ledger's end; DataLostError for an entry that is provably on
    no replica.
    """
    end = await ledger_end(access, record)
    if first < 0 or first > end + 1 or not -1 <= last <= end:
        asked = last if 0 <= first <= end + 1 else first
        has = f"it has entries 0 to {end}" if end >= 0 else "it is empty"
        raise InvalidArgumentError(f"ledger {record.ledger} has no entry {asked}: {has}")
    if first > last:
        return
    with LedgerStream(access.reader, record, first, last) as stream:
        while stream.entry_next <= last:
            for fetched in await stream.read():
                take(fetched)


def details_of(fetched: FetchedEntry) -> EntryDetails:
    """The fields of the entry's header."""
    header = fetched.decoded.header
    return EntryDetails(
        entry=fetched.entry,
        kind=header.kind.name.lower(),
        segment=header.segment,
        home_epoch=header.home_epoch,
        first_sequence=header.first_sequence,
        last_sequence=header.next_sequence - 1,
        records=header.record_count,
        batches=len(header.lines),
        size_bytes=header.length_bytes,
        append_time_us=header.append_time_us,
        served_by=fetched.served_by.node_id,
    )


def values_of(fetched: FetchedEntry) -> list[ValueDetails]:
    """The records in the entry."""
    header = fetched.decoded.header
    return [
        ValueDetails(
            dlsn=DLSN(header.segment, header.entry, slot),
            sequence=header.first_sequence + slot,
            value=batch.value(row),
        )
        for slot, batch, row in fetched.decoded.records()
    ]
