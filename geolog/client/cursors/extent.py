"""Finds how far a partition reaches for someone who read it up to a position."""

from geolog.client.cursors.lag import lag_of
from geolog.client.reading.bounds import AtSequence
from geolog.client.reading.place_search import PlaceSearch
from geolog.client.reading.scan import PartitionScan
from geolog.protocol.ids import Position
from geolog.protocol.trigger_plan import PartitionExtent


async def found_extent(
    scan: PartitionScan, known: Position | None, *, created_us: int, now_us: int | None
) -> PartitionExtent:
    """The extent now. known: the position. now_us: the time, to also find the bytes.

    The end is never before the position: a mirror may be behind the reader. If the position
    was in a dead branch, the extent has what of it is not in the log.
    """
    end = await scan.end()
    first = await scan.trim()
    diverged_to = None
    position = Position(scan.home_epoch, first)
    if known is not None:
        at = AtSequence(known.sequence, known.home_epoch)
        _, gone = await PlaceSearch(scan).in_lineage(at)
        # The settings that this process read may be older than the position.
        epoch = max(scan.home_epoch, known.home_epoch)
        position = Position(epoch, known.sequence)
        if gone is not None:
            diverged_to = known.sequence
            position = Position(max(epoch, gone.epoch or 0), gone.from_sequence)
    waiting_bytes = 0
    if now_us is not None:
        waiting_bytes = (await lag_of(scan, position.sequence, end, now_us=now_us)).bytes
    return PartitionExtent(
        created_us=created_us,
        first=first,
        end=max(end.sequence, position.sequence),
        position=position,
        diverged_to=diverged_to,
        waiting_bytes=waiting_bytes,
    )
