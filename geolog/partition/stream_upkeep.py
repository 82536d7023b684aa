"""Ending streams and cutting off their fronts: seal, truncate, retention, delete.

Rules: PROTOCOL H4, H11, H14, H16, H17, S15, S16 and T7.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial

import attrs
import trio

from geolog.background import all_of
from geolog.catalog.partition_metadata import PartitionMetadata
from geolog.catalog.segment_list import SegmentList
from geolog.catalog.stream_catalog import StreamCatalog, check_life
from geolog.catalog.stream_settings import StreamChanges, paused_in
from geolog.ledger.ledger_metadata import NoSuchLedgerError
from geolog.metadata.seam import BadVersionError, NoNodeError
from geolog.partition.partition_retention import PartitionRetention
from geolog.partition.takeover import Takeover
from geolog.protocol.home_record import Fork, branch_point
from geolog.protocol.ids import FIRST_SEQUENCE
from geolog.protocol.ids import Sequence as LogSequence
from geolog.protocol.retention import Clocks, RetentionPolicy
from geolog.protocol.stream_state import (
    FIRST_HOME_EPOCH,
    PartitionName,
    StreamName,
    StreamRecord,
)
from topology.errors import FencedError, GeologError, NoSuchStreamError, SealedError

_log = logging.getLogger(__name__)

_AT_ONCE_MAX = 32
"""Partitions that are sealed or deleted at the same time."""

_FENCE_S = 10.0
"""How long deleting a stream waits for its writers to be fenced."""


@attrs.frozen
class Kept:
    """The part of its log that a home keeps for a mirror."""

    begin: int
    """The highest sequence at which it may begin."""
    stored: int
    """The first record whose segment stays, even if it lies before that."""

    @classmethod
    def of(cls, let_go_at: int, held: int) -> "Kept":
        """For a mirror that needs this record, unless it was let go on at that sequence."""
        return cls(max(let_go_at, held), max(let_go_at - 1, held))


@attrs.frozen(kw_only=True)
class StreamUpkeep:
    """Seals, truncates and deletes the streams of one cluster."""

    catalog: StreamCatalog
    partitions: PartitionMetadata
    takeover: Takeover
    now_us: Callable[[], int]

    async def change(
        self,
        name: StreamName,
        changes: StreamChanges,
        *,
        firsts: Mapping[PartitionName, LogSequence] | None = None,
    ) -> StreamRecord:
        """Change the settings of a stream; mirrors that are no longer wanted are deleted.

        firsts: where new mirrors begin that do not begin with their home. NoSuchStreamError,
        InvalidArgumentError, SealedError.
        """
        await self._end_abandoned_move(name)
        if changes.relay_to is not None:  # One that was left would be taken for a new one.
            await self._delete_mirrors_left(await self.catalog.read_latest(name))
        record = await self.catalog.change(name, changes.applied_to, firsts=firsts)
        if changes.relay_to is not None:
            await self._delete_mirrors_left(record)
        return record

    async def pause_relay(
        self, name: StreamName, targets: Collection[str] | None, *, is_paused: bool
    ) -> StreamRecord:
        """Pause these targets of a stream, or let them go on; None for all of them.

        NoSuchStreamError, InvalidArgumentError.
        """
        await self._end_abandoned_move(name)
        return await self.catalog.change(
            name, partial(paused_in, targets=targets, is_paused=is_paused)
        )

    async def _end_abandoned_move(self, name: StreamName) -> StreamRecord:
        """The stream's settings if its home does not move; UnavailableError while it does."""
        record = await self.catalog.read_latest(name)
        if not record.moving_to:
            return record
        return await self.partitions.home_moves.give_up_abandoned(record)

    async def _delete_mirrors_left(self, record: StreamRecord) -> None:
        left = await self.catalog.mirrors_left(record)
        await all_of([partial(self._delete, one) for one in left], at_once_max=_AT_ONCE_MAX)

    async def seal(self, name: StreamName) -> StreamRecord:
        """Refuse further appends: fence the writers, close the last ledgers.

        SealedError if it is sealed already. Re-run an interrupted seal; it is idempotent.
        """
        # One compare-and-set seals the stream, over as many partitions as were sealed. If the
        # stream has got more meanwhile, they are sealed first.
        record = await self._end_abandoned_move(name)
        if record.is_sealed:
            raise SealedError(f"{name} is already sealed")
        sealed_count = 0
        while True:
            more = record.partition_names()[sealed_count:]
            try:
                await all_of(
                    [partial(self._seal, one, record.home_epoch) for one in more],
                    at_once_max=_AT_ONCE_MAX,
                )
                sealed_count, home_epoch = record.partitions, record.home_epoch
                record = await self.catalog.change(name, partial(_sealed_if_same, record))
            except FencedError:  # Its home has moved, or is moving.
                home_epoch, record = -1, await self._end_abandoned_move(name)
            if record.is_sealed:
                return record
            if record.home_epoch != home_epoch:
                sealed_count = 0

    async def _seal(self, name: PartitionName, home_epoch: int) -> None:
        """Seal a partition at its home; FencedError if that has moved, or is moving.

        Otherwise the mirror that the log becomes would be sealed before it has everything.
        """
        homes, owners = self.partitions.homes, self.partitions.owners
        while True:
            await homes.has_changed(name)
            checks = await homes.checks_to_open(name, home_epoch)
            try:
                sealed = await owners.seal(name, checks=checks)
            except (BadVersionError, NoNodeError):
                continue  # The home changed, or the owner, or the stream is gone.
            await self.takeover.end_open_segment(name, sealed)
            return

    async def truncate(
        self, name: PartitionName, first_sequence: int, *, older_before: int | None = None
    ) -> int:
        """Raise the partition's trim to this sequence; a trim that is higher already stays.

        Records that a mirror may lack stay, unless the stream evicts them. Segments that lie
        whole before the trim are deleted with their ledgers. If the home has moved, its log
        there is truncated. older_before: mirrors drop records before this one, too, that the
        home never got. Returns the sequence at which the partition begins.
        """
        stream = await self.catalog.read(name.stream)
        while True:
            try:
                return await self._truncate(name, stream, first_sequence, older_before)
            except FencedError:
                stream = await self.catalog.read_same_latest(stream)

    async def _truncate(
        self,
        name: PartitionName,
        stream: StreamRecord,
        first_sequence: int,
        older_before: int | None,
    ) -> int:
        """Truncate the log at the stream's home; FencedError if that has moved."""
        kept, home_epoch = Kept(first_sequence, first_sequence), None
        if stream.life == name.life and stream.home is not None:
            name, home_epoch = stream.partition(name.number), stream.home_epoch
        if stream.life == name.life and stream.relay_to:
            if stream.relay_evict_bytes is not None:
                # A nearby server may not know yet that the home is to hold all.
                stream = await self.catalog.read_same_latest(stream)
            kept = await self._kept_for_mirrors(name, stream, first_sequence)
        older = None if older_before is None else LogSequence(min(older_before, kept.begin))
        trim = await self.partitions.trims.move(
            name,
            LogSequence(kept.begin),
            now_us=self.now_us(),
            home_epoch=home_epoch,
            older_before=older,
        )
        await self.partitions.trims.drop_trimmed(name, kept=LogSequence(kept.stored))
        return trim.first_sequence

    async def _kept_for_mirrors(
        self, name: PartitionName, stream: StreamRecord, asked: int
    ) -> Kept:
        """Where the home may begin if it is to begin there, so that no mirror misses records.

        Mirrors that would keep too much are let go on further behind.
        """
        homes = self.partitions.homes
        if stream.home_epoch > FIRST_HOME_EPOCH:
            await homes.has_changed(name)
        forks = await homes.forks_of(name)
        held = {
            region: await self._mirrored_to(stream.log_in(region, name.number), forks)
            for region in stream.relay_to
        }
        least = min(one.begin for one in held.values())
        if stream.relay_evict_bytes is not None and least < asked:
            kept = await self._first_kept_of(name, asked, stream.relay_evict_bytes)
            for region, mirrored in held.items():
                if mirrored.begin + 1 >= kept:
                    continue
                mirror = stream.log_in(region, name.number)
                await self.partitions.trims.evict(
                    mirror, kept, home=name, home_epoch=stream.home_epoch
                )
                held[region] = Kept.of(kept, mirrored.stored)
                _log.warning(
                    "%s: the mirror in %s lacks trimmed records of more than %d bytes; if it"
                    " does not have them yet, it goes on at sequence %d",
                    name,
                    region,
                    stream.relay_evict_bytes,
                    kept,
                )
        return Kept(
            min([asked, *(one.begin for one in held.values())]),
            min([asked, *(one.stored for one in held.values())]),
        )

    async def _first_kept_of(
        self, name: PartitionName, asked: int, kept_bytes_max: int
    ) -> LogSequence:
        """The first segment with at most so many bytes from its beginning to `asked`."""
        segments = SegmentList(name, self.partitions)
        await segments.refresh()
        at_asked = await segments.last_where(lambda one: one.first_sequence <= asked)
        if at_asked is None:
            return FIRST_SEQUENCE
        end_bytes = at_asked.size_bytes_before
        before = await segments.last_where(
            lambda one: end_bytes - one.size_bytes_before > kept_bytes_max
        )
        if before is None:
            return FIRST_SEQUENCE
        number = await segments.next_from(before.row_number + 1)
        first = None if number is None else await segments.at(number)
        return (first or at_asked).first_sequence

    async def _mirrored_to(self, mirror: PartitionName, forks: Sequence[Fork]) -> Kept:
        """The last sequence of a mirror's completed rows; where it begins if it has none.

        The home keeps that record, too: a relay compares the entry at the mirror's end with the
        home's before it goes on behind it. So does it if the mirror was let go on further, as
        its open row may end right there.
        """
        trim = await self.partitions.trims.read_latest(mirror)
        async with aclosing(self.partitions.segments.numbers_back(mirror)) as numbers:
            async for number in numbers:
                for listed in await self.partitions.segments.at(mirror, [number]):
                    last = listed.record.last_sequence
                    if last is not None:
                        fork = branch_point(forks, listed.record.home_epoch)
                        if fork is not None:  # It may be cut there once it is opened again.
                            last = LogSequence(min(last, max(0, fork.sequence - 1)))
                        return Kept.of(trim.evicted_before, last)
        return Kept.of(trim.evicted_before, trim.first_sequence)

    async def retain(self, retention: PartitionRetention) -> None:
        """Truncate a partition to its retention."""
        heard = self.partitions.session.time_heard
        metadata_us = None if heard is None else heard.now_us(trio.current_time())
        now = Clocks(local_us=self.now_us(), metadata_us=metadata_us)
        first = await retention.first_kept(now)
        if first is not None:
            await self.truncate(retention.name, first)

    async def delete(self, name: StreamName) -> None:
        """Delete a stream and its records, and fence its writers. NoSuchStreamError.

        If too few nodes answer for a fence, it is deleted all the same. An interrupted delete
        leaves the stream unusable. Re-run it; it is idempotent.
        """
        record = await self.catalog.begin_delete(name)
        await all_of(
            [partial(self._delete, one) for one in record.log_names()],
            at_once_max=_AT_ONCE_MAX,
        )
        # No log is left to which a fork could add another.
        rests = await self.catalog.kept_rests(record)
        await all_of([partial(self._delete, one) for one in rests], at_once_max=_AT_ONCE_MAX)
        await self.catalog.delete(record)

    async def discard_rest(self, rest: PartitionName) -> None:
        """Delete a kept rest with its records. Re-run an interrupted one; it is idempotent."""
        await self._delete(rest)

    async def _delete(self, name: PartitionName) -> None:
        try:
            await self.partitions.owners.depose(name)
        except NoSuchStreamError:
            # An interrupted deletion, which may have left some documents: a mirror made again
            # would lack the others.
            await self.catalog.delete_partition(name)
            return
        with trio.move_on_after(_FENCE_S), suppress(NoSuchLedgerError):
            await self.takeover.close_open_ledger(name)
        await self.partitions.trims.drop_all(name)
        await self.catalog.delete_partition(name)


def _sealed_if_same(known: StreamRecord, found: StreamRecord) -> StreamRecord:
    """The stream sealed, unless it has more partitions than were known, or another home."""
    check_life(known, found)
    is_same = (found.partitions, found.home_epoch) == (known.partitions, known.home_epoch)
    return attrs.evolve(found, is_sealed=is_same)


async def run_retention(
    upkeep: StreamUpkeep,
    names: Callable[[], Sequence[PartitionName]],
    policy: RetentionPolicy,
    *,
    every_s: float,
) -> None:
    """Apply the retention policy at intervals, until the stream is gone.

    names: the partitions, in order; later calls may add some.
    """
    watched: list[PartitionRetention] = []
    while True:
        watched += [
            PartitionRetention(name, policy, upkeep.partitions)
            for name in names()[len(watched) :]
        ]
        for one in watched:
            try:
                await upkeep.retain(one)
            except NoSuchStreamError:
                return
            except GeologError as error:
                if not error.retriable:
                    raise
                _log.info("%s: retention failed (%s); will retry", one.name, error)
        await trio.sleep(every_s)
