"""Counts the local-only records that one home of a stream has appended, by its list of rows.

They stay in its region when the home moves. Those of earlier homes stay where those were.
"""

import attrs

from geolog.catalog.segment_list import SegmentList
from geolog.protocol.stream_state import SegmentRecord


@attrs.frozen
class LocalOnlyRows:
    """The local-only records of a partition that one home has appended, and not trimmed."""

    count: int
    """Those in completed rows; in a row that is trimmed in part, all of them."""
    open_row: SegmentRecord | None
    """The row that is still written, whose records are not counted."""


async def local_only_of_home(rows: SegmentList, home_epoch: int) -> LocalOnlyRows:
    """Count them, by the list as it is now. NoSuchStreamError, UnavailableError."""
    await rows.refresh()
    last = await rows.last_where(lambda one: one.home_epoch <= home_epoch)
    if last is None or last.home_epoch != home_epoch:
        return LocalOnlyRows(0, None)
    earlier = await rows.last_where(lambda one: one.home_epoch < home_epoch)
    if earlier is not None:
        before = earlier.local_only_through
    else:
        number = await rows.next_from(1)
        first = None if number is None else await rows.at(number)
        before = last.local_only_before if first is None else first.local_only_before
    open_row = None if last.is_completed else last
    return LocalOnlyRows(last.local_only_through - before, open_row)
