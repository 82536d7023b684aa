"""Throwing a mirror's entries away, to have its home send all that it has left again.

That is for a mirror that cannot go on: its nodes lost it, it differs from its home, or its home
dropped what comes next. It begins again with the first segment of the home.

Rules: PROTOCOL H15.
"""

from contextlib import suppress

import attrs
import trio

from geolog.catalog.partition_metadata import PartitionMetadata
from geolog.catalog.segment_list import SegmentList
from geolog.ledger.ledger_metadata import NoSuchLedgerError
from geolog.partition.takeover import Takeover
from geolog.protocol.ids import FIRST_SEQUENCE, Sequence
from geolog.protocol.stream_state import PartitionName, StreamRecord
from topology.errors import DataLostError, FencedError

_FENCE_S = 10.0
"""How long to wait for the nodes of the mirror's open ledger; they may be gone."""

_INSIST_S = 60.0
"""How long to take the mirror again from relays that take it over meanwhile."""


@attrs.frozen
class MirrorResync:
    """Where a mirror ended, as metadata has it, and where it begins again."""

    partition: int
    region: str
    ended: int
    """The sequence after the last record that it is known to have had."""
    begins: int
    """Records before this one are gone at home."""

    @property
    def gap_count(self) -> int:
        """Records that the region never got, and that the home does not have any more."""
        return max(0, self.begins - self.ended)


async def planned_resync(
    stream: StreamRecord, region: str, number: int, partitions: PartitionMetadata
) -> MirrorResync:
    """What beginning the mirror of a partition again would do."""
    mirror, home = stream.log_in(region, number), stream.partition(number)
    trim = await partitions.trims.read_latest(home)
    segments = SegmentList(home, partitions)
    await segments.refresh()
    first = await segments.last_where(lambda one: one.first_sequence <= trim.first_sequence)
    begins = FIRST_SEQUENCE if first is None else first.first_sequence
    own = await partitions.trims.read_latest(mirror)
    ended = own.first_sequence
    for listed in await partitions.segments.all(mirror):
        last = listed.record.last_sequence
        if last is not None:
            ended = max(ended, Sequence(last + 1))
    return MirrorResync(number, region, ended, begins)


async def insist_on_resync(
    stream: StreamRecord,
    planned: MirrorResync,
    takeover: Takeover,
    *,
    who: str,
    accept_gap: bool,
) -> MirrorResync:
    """Begin a mirror again, though relays of its region may take it over meanwhile.

    A relay that is fenced opens the mirror again, as after any takeover, and may come first
    while the nodes of the old ledger are waited for. The next try begins with a new plan.
    Errors as of `resync_mirror`; FencedError if it is taken over for long, or if there would
    be a gap by then that is not accepted.
    """
    mirror = stream.log_in(planned.region, planned.partition)
    end_s = trio.current_time() + _INSIST_S
    while True:
        try:
            await resync_mirror(mirror, planned, takeover, who=who)
        except FencedError:
            planned = await planned_resync(
                stream, planned.region, planned.partition, takeover.partitions
            )
            if trio.current_time() > end_s or (planned.gap_count and not accept_gap):
                raise
        else:
            return planned


async def resync_mirror(
    mirror: PartitionName, planned: MirrorResync, takeover: Takeover, *, who: str
) -> None:
    """Begin the mirror again as planned: fence its owner, note the gap, drop its rows.

    SealedError if it is sealed: it has everything. FencedError if another process takes it
    over meanwhile.
    """
    partitions = takeover.partitions
    owner = await takeover.owners.take(mirror, who)
    try:
        with trio.move_on_after(_FENCE_S), suppress(NoSuchLedgerError, DataLostError):
            await takeover.close_open_ledger(mirror)
        await partitions.trims.begin_again(
            mirror,
            owner,
            Sequence(planned.begins),
            ended=Sequence(planned.ended),
            now_us=takeover.now_us(),
        )
        await partitions.trims.drop_all(mirror)
    finally:
        with trio.move_on_after(_FENCE_S, shield=True):
            await takeover.owners.release(owner)
        takeover.owners.release_nowait(owner)
