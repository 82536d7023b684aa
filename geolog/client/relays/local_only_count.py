"""Counts the local-only records of a segment that is still written, by reading it."""

from geolog.client.reading.read_range import Begin
from geolog.client.reading.scan import PartitionScan
from geolog.client.reading.walk import Chunk, open_walk
from geolog.protocol.stream_state import SegmentRecord


async def local_only_in(scan: PartitionScan, row: SegmentRecord) -> int:
    """How many the row has by now, at least. NoSuchStreamError, UnavailableError."""
    end = await scan.end(may_recover=False)  # For a plan, which changes nothing.
    await scan.refresh()
    begin = Begin(row.segment, row.first_entry, row.first_sequence, row=row.row)
    count = 0
    async with open_walk(scan, begin, end) as walk:
        while (found := await walk.next_chunk()) is not None:
            if isinstance(found, Chunk):
                headers = (one.decoded.header for one in found.entries)
                count += sum(one.record_count for one in headers if one.is_local_only)
    return count
