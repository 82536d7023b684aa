"""A mirror takes over from its home, besides entries, where it begins and that it is sealed.

Metadata tells both: the owner of a mirror watches its home there. A mirror is sealed as soon as
it has all entries of a sealed home. Readers that follow the mirror end there.

Rules: PROTOCOL H11, H13, H14 and H20.
"""

import math

import trio

from geolog.background import open_background
from geolog.catalog.segment_list import SegmentList
from geolog.partition.mirror_writer import (
    EvictedError,
    MirrorWriter,
    evicted,
    last_watermark,
)
from geolog.partition.takeover import Takeover
from geolog.protocol.ids import FIRST_SEQUENCE, Sequence
from geolog.protocol.stream_state import PartitionName, TrimRecord
from geolog.protocol.watermark import Watermark
from topology.errors import GeologError, SealedError, UnavailableError

_RETRY_S = 1.0


async def follow_home(
    mirror: MirrorWriter, home: PartitionName, home_epoch: int, takeover: Takeover
) -> None:
    """Trim the mirror with its home, and seal it; end it once it is sealed, or all is gone.

    It ends, too, once a later home has begun than that of `home_epoch`: what it has may lie
    behind the fork, which is found when it is opened again.
    """
    while mirror.failure is None:
        changed = trio.Event()
        pause_s = math.inf
        try:
            later = await takeover.partitions.homes.watch(home, changed=changed)
            if later is not None and later.home_epoch > home_epoch:
                mirror.end(
                    UnavailableError(
                        f"the home of {home.stream} is {later.region} now: mirror"
                        f" {mirror.name} is opened again"
                    )
                )
                return
            if await _is_sealed(mirror, home, takeover, changed):
                return
        except GeologError as error:
            if not error.retriable or isinstance(error, EvictedError):
                mirror.end(error)
                return
            pause_s = _RETRY_S
        with trio.move_on_after(pause_s):
            await changed.wait()


async def _is_sealed(
    mirror: MirrorWriter, home: PartitionName, takeover: Takeover, changed: trio.Event
) -> bool:
    """Do as the home does now; whether the mirror is sealed. Else `changed` tells of more.

    UnavailableError if a sealed home is not closed yet. EvictedError.
    """
    partitions = takeover.partitions
    trim = await partitions.trims.read(home, changed=changed)
    owner = await partitions.owners.read(home, changed=changed)
    own = await partitions.trims.read(mirror.name, changed=changed)
    if mirror.taken_end(own.first_sequence) < own.evicted_before:
        raise evicted(mirror.name, own)
    why = await partitions.owners.why_deposed(mirror.name, mirror.owner)
    if why is not None:  # An owner that writes nothing would not notice.
        raise why
    begin = trim.followed
    if trim.lacks_from is not None and own.first_sequence < trim.first_sequence:
        await partitions.owners.read(mirror.name, changed=changed)  # Its first row may come.
        begin = await _beginning(trim, SegmentList(mirror.name, partitions))
    await mirror.follow_trim(begin)
    if not owner.record.is_sealed:
        return False
    last = await partitions.segments.last(home)
    if last is not None and not last.record.is_completed:
        raise UnavailableError(f"segment {last.record.row_number} of {home} is not closed yet")
    mark = await last_watermark(home, takeover)
    if not await _begins_behind(
        mirror, own.first_sequence, mark, SegmentList(home, partitions)
    ) and not await _has_reached(mirror, mark, changed):
        return False  # The home may have evicted what the mirror waits for.
    sealed = await partitions.owners.seal(mirror.name)
    await takeover.end_open_segment(mirror.name, sealed, is_mirror=True)
    mirror.end(SealedError(f"mirror {mirror.name} is sealed, as its home is"))
    return True


async def _beginning(home: TrimRecord, listed: SegmentList) -> Sequence:
    """Where a mirror begins whose home lacks older records: that of its first row, if later.

    A mirror that was empty when it began to follow such a home never had the older ones.
    """
    await listed.refresh()
    number = await listed.next_from(1)
    while number is not None:
        row = await listed.at(number)
        if row is not None and not (row.is_completed and row.last_sequence is None):
            begin = min(home.first_sequence, row.first_sequence)
            return Sequence(max(home.followed, begin))
        number = await listed.next_from(number + 1)
    return home.followed


async def _has_reached(
    mirror: MirrorWriter, mark: Watermark | None, changed: trio.Event
) -> bool:
    """Wait until the mirror has this entry of its home; False if `changed` is set first."""
    has_reached = False
    async with open_background() as nursery:

        async def wait() -> None:
            nonlocal has_reached
            await mirror.wait_reached(mark)
            has_reached = True
            nursery.cancel_scope.cancel(reason="the mirror has everything")

        nursery.start_soon(wait)
        await changed.wait()
    return has_reached


async def _begins_behind(
    mirror: MirrorWriter, begin: Sequence, last: Watermark | None, home: SegmentList
) -> bool:
    """Whether an empty mirror begins behind the home's last entry: there is none for it."""
    if mirror.watermark is not None or begin == FIRST_SEQUENCE or last is None:
        return False
    await home.refresh()
    first = await home.last_where(lambda one: one.first_sequence <= begin)
    return first is not None and first.segment > last.segment
