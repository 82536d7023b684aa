"""Throwing a mirror's entries away, to have its home send all that it has left again.

That is for a mirror that cannot go on: its nodes lost it, it differs from its home, or its home
dropped what comes next. It begins again with the first segment of the home.

Rules: PROTOCOL H15.
"""

from contextlib import aclosing, suppress
from functools import partial

import attrs
import trio

from geolog.catalog.partition_metadata import PartitionMetadata
from geolog.catalog.segment_list import SegmentList
from geolog.ledger.ledger_metadata import NoSuchLedgerError
from geolog.partition.takeover import Takeover
from geolog.protocol.home_record import branch_point
from geolog.protocol.ids import FIRST_SEQUENCE, NO_ENTRY, EntryId, Sequence
from geolog.protocol.stream_state import PartitionName, StreamRecord
from topology.errors import (
    ConflictError,
    DataLostError,
    FencedError,
    GeologError,
    InvalidArgumentError,
    UnavailableError,
)

_FENCE_S = 10.0
"""How long to wait for the nodes of the mirror's open ledger; they may be gone."""

_HOME_S = 10.0
"""How long to wait for the first entry of the home."""

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
    older_from: int | None = None
    """Its first record, if its home never got those before `begins`: they would be gone."""

    dead_from: int | None = None
    """The first sequence of records that a fork left behind, which are not kept aside yet."""

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
    await partitions.homes.has_changed(mirror)
    forks = await partitions.homes.forks_of(mirror)
    dead_from: int | None = None
    for listed in await partitions.segments.all(mirror):
        last = listed.record.last_sequence
        if last is not None:
            ended = max(ended, Sequence(last + 1))
        fork = branch_point(forks, listed.record.home_epoch)
        if fork is not None and (last is None or last >= fork.sequence):
            dead_from = fork.sequence
    older_from: int | None = None
    if trim.lacks_from is not None and own.first_sequence < min(ended, begins):
        older_from = own.first_sequence
    return MirrorResync(number, region, ended, begins, older_from, dead_from)


async def insist_on_resync(
    stream: StreamRecord,
    region: str,
    number: int,
    takeover: Takeover,
    *,
    who: str,
    accept_gap: bool,
) -> MirrorResync:
    """Begin a mirror again, though relays of its region may take it over meanwhile.

    A relay that is fenced opens the mirror again, as after any takeover, and may come first
    while the nodes of the old ledger are waited for. Each try goes by the stream's settings as
    they are then: its home may have moved, and nothing is done if the region is the home by
    now, or while it may become it.

    ConflictError then, or if there is a gap that is not accepted; InvalidArgumentError if the
    region is no target any more; UnavailableError while the home moves. FencedError if relays
    take the mirror over for long. SealedError if it is sealed: it has everything.
    """
    end_s = trio.current_time() + _INSIST_S
    while True:
        stream = await _settled(stream, region, takeover.partitions)
        planned = await planned_resync(stream, region, number, takeover.partitions)
        if not accept_gap:
            check_no_gap(stream, [planned])
        await _check_home_answers(stream, planned, takeover)
        try:
            await _resync_mirror(stream, planned, takeover, who=who)
        except FencedError:
            if trio.current_time() > end_s:
                raise
        else:
            return planned


def check_no_gap(stream: StreamRecord, planned: list[MirrorResync]) -> None:
    """ConflictError if a mirror would go on behind a gap."""
    told = [
        f"{stream.name}#{one.partition}: the home does not have records {one.ended} to"
        f" {one.begins - 1} any more, and {one.region} never got them"
        for one in planned
        if one.gap_count
    ]
    told += [
        f"{stream.name}#{one.partition}: the home never had records {one.older_from} to"
        f" {one.begins - 1}, and {one.region} would delete them"
        for one in planned
        if one.older_from is not None
    ]
    told += [
        f"{stream.name}#{one.partition}: {one.region} may have records from {one.dead_from} on"
        " that a failover left behind, and that are kept aside once its relay opens the mirror"
        for one in planned
        if one.dead_from is not None
    ]
    if told:
        raise ConflictError(
            f"{'; '.join(told)}. Nothing was changed. To go on without these records, accept"
            " the gap (--accept-gap)"
        )


async def _settled(
    stream: StreamRecord, region: str, partitions: PartitionMetadata
) -> StreamRecord:
    """The stream's settings now, with a mirror in that region; its home does not move."""
    found = await partitions.home_moves.settings_of(stream)
    if found.moving_to:
        found = await partitions.home_moves.give_up_abandoned(found)
    if found.home == region:
        raise ConflictError(
            f"{found.name} has its home in {region} by now, so the log there is no mirror:"
            f" nothing of it was dropped (geolog stream describe {found.name})"
        )
    if region not in found.relay_to:
        raise InvalidArgumentError(f"{found.name} is not relayed to {region!r} any more")
    return found


async def _check_home_answers(
    stream: StreamRecord, planned: MirrorResync, takeover: Takeover
) -> None:
    """UnavailableError unless the first entry that the home would send can be read there.

    A home that is lost sends nothing again, and the mirror may be the only copy.
    """
    home = stream.partition(planned.partition)
    segments = takeover.partitions.segments
    if await segments.last(stream.log_in(planned.region, planned.partition)) is None:
        return  # There is nothing to drop.
    failed: GeologError | None = None
    with trio.move_on_after(_HOME_S):
        try:
            await _read_first(home, takeover)
            return
        except GeologError as error:
            failed = error
    raise UnavailableError(
        f"the log of {home.stream}#{home.number} at home in {stream.home} cannot be read, so"
        " nothing could be sent again, and the mirror was kept"
        f" ({failed or f'no answer within {_HOME_S:g} s'}). Start the home's nodes and try"
        " again; if the home is lost, fail over"
    )


async def _read_first(home: PartitionName, takeover: Takeover) -> None:
    """Read the first entry of a log, if it has any."""
    async with aclosing(takeover.partitions.segments.from_first(home)) as listed:
        async for some in listed:
            for one in some:
                if one.record.last_entry != NO_ENTRY:
                    ledger = (await takeover.ledgers.read(one.record.ledger)).record
                    await takeover.reader().read_one(ledger, EntryId(0))
                    return


async def _resync_mirror(
    stream: StreamRecord, planned: MirrorResync, takeover: Takeover, *, who: str
) -> None:
    """Begin the mirror again as planned: fence its owner, note the gap, drop its rows.

    The claim and the note check the home record, so nothing is done to a log that is at home,
    or may be soon; a move that begins later claims the mirror, and finds it empty. FencedError
    if another process takes it over meanwhile, or the home is another.
    """
    partitions = takeover.partitions
    mirror = stream.log_in(planned.region, planned.partition)
    find_checks = partial(
        partitions.homes.checks_to_begin_again, mirror, planned.region, stream.home_epoch
    )
    owner = await takeover.owners.take(mirror, who, find_checks=find_checks)
    try:
        with trio.move_on_after(_FENCE_S), suppress(NoSuchLedgerError, DataLostError):
            await takeover.close_open_ledger(mirror)
        await partitions.trims.begin_again(
            mirror,
            owner,
            Sequence(planned.begins),
            ended=Sequence(planned.ended),
            now_us=takeover.now_us(),
            find_checks=find_checks,
        )
        await partitions.trims.drop_noted(mirror, owner)
    finally:
        with trio.move_on_after(_FENCE_S, shield=True):
            await takeover.owners.release(owner)
        takeover.owners.release_nowait(owner)
