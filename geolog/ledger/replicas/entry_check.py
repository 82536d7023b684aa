"""Checks of the bytes that a replica gave: intact, and the requested entry.

A node may mix up its blocks, and an entry from elsewhere has valid checksums, too.

Rules: PROTOCOL R16.
"""

from crc32c import crc32c

from geolog.protocol.entry_numbering import EntryNumbering
from geolog.protocol.ids import EntryId
from geolog.wire.entry import EncodedEntry, Entry, EntryHeader, decode_entry
from topology.errors import DamagedBytesError


def checked_entry(body: bytes | memoryview, numbering: EntryNumbering, entry: EntryId) -> Entry:
    """Decode this entry of the ledger, and check every byte of it. DamagedBytesError."""
    decoded = decode_entry(body)
    decoded.verify()
    check_place(decoded.header, numbering, entry)
    return decoded


def encoded_as_read(
    body: bytes | memoryview, numbering: EntryNumbering, entry: EntryId
) -> EncodedEntry:
    """Check this entry of the ledger, to be sent as it is. DamagedBytesError."""
    header = checked_entry(body, numbering, entry).header
    return EncodedEntry(header, (body,), crc32c(body))


def check_place(header: EntryHeader, numbering: EntryNumbering, entry: EntryId) -> None:
    """Check that an intact entry is this one of the ledger. DamagedBytesError."""
    if not numbering.is_place_of(entry, header.segment, header.entry):
        raise DamagedBytesError(
            f"expected entry {numbering.in_segment(entry)} of segment {numbering.segment}, got"
            f" entry {header.entry} of segment {header.segment}"
        )
