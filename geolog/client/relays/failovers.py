"""Failing streams over, and what became of the records that a fork left behind.

Rules: PROTOCOL H19, H20 and H22.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import TypeVar

import attrs
import trio

from geolog.background import all_of, both
from geolog.catalog.home_moves import check_can_move
from geolog.catalog.partition_config import PartitionConfig
from geolog.client.relays.failover_plan import FailoverPlan, FoundEnd, failover_plan
from geolog.client.relays.relay_links import RelayLinks
from geolog.partition.home_failover import (
    FailoverConfig,
    FailoverReport,
    HomeFailover,
    last_known_sequence,
)
from geolog.partition.home_switch import EndOf
from geolog.partition.stream_upkeep import StreamUpkeep
from geolog.protocol.failover_record import FailoverRecord
from geolog.protocol.home_record import Fork, branch_point
from geolog.protocol.ids import NO_ENTRY, SegmentEntry
from geolog.protocol.read_end import PartitionEnd
from geolog.protocol.stream_state import (
    FIRST_HOME_EPOCH,
    OwnerRecord,
    PartitionName,
    StreamRecord,
)
from topology.errors import (
    GeologError,
    InvalidArgumentError,
    NotEnoughNodesError,
    NotFoundError,
    SealedError,
    TooLargeError,
    UnavailableError,
)

_HOME_END_S = 4.0
_MIRROR_END_S = 10.0
"""How long the end of a log is looked for before it counts as out of reach. Over slow links a
mirror that is written may take some seconds; the home is lost, most often."""

_SILENT_AFTER = 8
_SILENT_END_S = 1.5
_SILENT_FOR_S = 60.0
"""If so many logs of a home in a row gave no end, a look at the next ones takes less time, for
so long: plans for a thousand streams of a lost home would else take many minutes."""

_AT_ONCE_MAX = 32
_AGAIN_S = 0.2

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class Divergence:
    """Records of one partition that a region keeps aside: a fork left them behind."""

    stream: str
    region: str
    home_epoch: int
    """Of the home that began at the fork."""
    partition: int
    from_sequence: int
    to_sequence: int
    """The sequence behind the last record."""
    bytes: int
    """Bytes of its batches, those of the row through which the fork goes included."""
    last_append_time_us: int | None
    """When the last of them was appended, by the clock of the home that was."""

    @property
    def records(self) -> int:
        """Number of the records."""
        return self.to_sequence - self.from_sequence

    @property
    def name(self) -> str:
        """Names it within its stream: REGION~EPOCH#PARTITION."""
        return f"{self.region}~{self.home_epoch}#{self.partition}"


class SilentHomes:
    """How long to look for the end of a log at home, by what homes have answered of late."""

    def __init__(self) -> None:
        self._silent: dict[str, tuple[int, float]] = {}
        """For each home how many logs in a row gave no end, and when the last of them did."""

    def patience_s(self, home: str) -> float:
        """How long to look for the end of a log at this home."""
        count, last_s = self._silent.get(home, (0, 0.0))
        is_silent = count >= _SILENT_AFTER and trio.current_time() < last_s + _SILENT_FOR_S
        return _SILENT_END_S if is_silent else _HOME_END_S

    def on_silent(self, home: str) -> None:
        """A log of this home gave no end in time."""
        count, _ = self._silent.get(home, (0, 0.0))
        self._silent[home] = count + 1, trio.current_time()

    def on_answered(self, home: str) -> None:
        """A log of this home has given its end."""
        self._silent.pop(home, None)


@attrs.frozen(kw_only=True)
class Failovers:
    """Failovers of one cluster's streams."""

    who: str
    upkeep: StreamUpkeep
    links: RelayLinks
    look_at_end: EndOf
    """Finds where a log ends now, or ends at least, without recovering or fencing anything."""
    silent: SilentHomes
    partition: PartitionConfig
    check_room: Callable[[StreamRecord, str], Awaitable[None]]
    """Raises NotEnoughNodesError if a region cannot hold a ledger of the stream now."""

    async def plan(
        self, record: StreamRecord, to: str | None, without: Sequence[str] = ()
    ) -> FailoverPlan:
        """What failing the stream over would do, as far as that can be told.

        without: regions whose logs are left out.
        """
        why_never: str | None = None
        try:
            _check(record, to)
            check_left_out(record, to, without)
            await self.upkeep.partitions.home_moves.check_fits(
                record, to, who=self.who, is_failover=True
            )
        except (InvalidArgumentError, SealedError, TooLargeError) as error:
            why_never = str(error)
        if record.home is None:
            return failover_plan(record, to, (), (), {}, why_never=why_never)
        regions = [one for one in (record.home, *record.relay_to) if one not in without]
        ends, tails = await both(
            partial(
                all_of,
                [
                    partial(self._found_end, record, region, number)
                    for region in regions
                    for number in range(record.partitions)
                ],
                at_once_max=_AT_ONCE_MAX,
            ),
            partial(self.links.heard_tails, record),
        )
        roomy = {one for one in record.relay_to if await self._has_room(record, one)}
        found = [
            one
            for one in ends
            if one is not None and (one.region in roomy or one.region == record.home)
        ]
        known = dict(
            await all_of(
                [
                    partial(self._known_end, record, number)
                    for number in range(record.partitions)
                ],
                at_once_max=_AT_ONCE_MAX,
            )
        )
        owners = await self._owners_at_home(record)
        return failover_plan(
            record, to, found, tails, known, why_never=why_never, owners=owners
        )

    async def _owners_at_home(self, record: StreamRecord) -> dict[int, OwnerRecord]:
        names = record.partition_names()
        found = await all_of(
            [partial(self.upkeep.partitions.owners.read, one) for one in names],
            at_once_max=_AT_ONCE_MAX,
        )
        return {name.number: one.record for name, one in zip(names, found, strict=True)}

    async def _has_room(self, record: StreamRecord, region: str) -> bool:
        try:
            await self.check_room(record, region)
        except NotEnoughNodesError:
            return False
        return True

    async def _found_end(
        self, record: StreamRecord, region: str, number: int
    ) -> FoundEnd | None:
        """Where a log ends within its lineage; None if it cannot be read in time."""
        is_home = region == record.home
        patience_s = self.silent.patience_s(region) if is_home else _MIRROR_END_S
        with trio.move_on_after(patience_s) as patience, suppress(GeologError):
            found = await self._read_end(record, region, number)
            if is_home:
                self.silent.on_answered(region)
            return found
        if is_home and patience.cancelled_caught:
            self.silent.on_silent(region)
        return None

    async def _read_end(self, record: StreamRecord, region: str, number: int) -> FoundEnd:
        name = record.log_in(region, number)
        partitions = self.upkeep.partitions
        end = await self.look_at_end(name)
        last = await partitions.segments.last(name)
        trim = await partitions.trims.read(name)
        at_home = await partitions.trims.read_latest(record.partition(number))
        homes = partitions.homes
        await homes.has_changed(name)
        forks = await homes.forks_of(name)
        epoch = record.home_epoch if last is None else last.record.home_epoch
        sequence = end.sequence
        await self._read_last(name, end)
        fork = branch_point(forks, epoch)
        if fork is not None and fork.is_before(end.segment, SegmentEntry(end.entry - 1)):
            sequence = min(sequence, fork.sequence)
        return FoundEnd(
            region=region,
            partition=number,
            sequence_next=sequence,
            append_time_us=end.append_time_us,
            is_least=end.is_least,
            lacks=max(
                0 if trim.gap is None else trim.gap.end - trim.gap.first,
                trim.first_sequence - at_home.followed,
                trim.evicted_before - sequence,
            ),
            older=max(0, trim.first_sequence - at_home.followed),
        )

    async def _read_last(self, name: PartitionName, end: PartitionEnd) -> None:
        """Read the last entry: metadata may know the end of a log that cannot be read."""
        takeover = self.upkeep.takeover
        segments = self.upkeep.partitions.segments
        async with aclosing(segments.numbers_back(name, highest=end.row_number)) as numbers:
            async for number in numbers:
                for found in await segments.at(name, [number]):
                    row, last = found.record, found.record.last_entry
                    if last is None and row.row_number == end.row_number and end.entry > 0:
                        last = row.numbering.in_ledger(SegmentEntry(end.entry - 1))
                    if last is not None and last > NO_ENTRY:
                        ledger = (await takeover.ledgers.read(row.ledger)).record
                        await takeover.reader().read_one(ledger, last)
                        return

    async def _known_end(self, record: StreamRecord, number: int) -> tuple[int, int]:
        """The sequence behind the last record that metadata knows the home to have."""
        segments = self.upkeep.partitions.segments
        return number, await last_known_sequence(segments, record.partition(number))

    async def move(
        self,
        record: StreamRecord,
        to: str | None,
        config: FailoverConfig,
        tell: Callable[[str], None],
        *,
        confirmed: Mapping[int, int] | None = None,
        without: Sequence[str] = (),
    ) -> FailoverReport:
        """Fail the stream over: see `HomeFailover`. UnavailableError if no region can be it."""
        _check(record, to)
        check_left_out(record, to, without)
        if to is None:
            tell("comparing mirrors")
            plan = await self.plan(record, None, without)
            if plan.why_not is not None:
                raise UnavailableError(f"{plan.why_not}. Nothing was changed")
            to = plan.to
        await self.check_room(record, to)
        tails = await self.links.heard_tails(record)
        failover = HomeFailover(
            who=self.who,
            takeover=self.upkeep.takeover,
            partition=self.partition,
            config=config,
        )
        return await failover.move(
            record, to, tails, tell, confirmed=confirmed, without=without
        )

    async def failovers(self, record: StreamRecord) -> list[FailoverRecord]:
        """The failovers of the stream, the first one first."""
        return await self.upkeep.partitions.home_moves.failovers(record)

    # What forks left behind.

    async def divergences(self, record: StreamRecord) -> list[Divergence]:
        """All that the stream's regions keep aside, by epoch, region and partition."""
        rests = await self.upkeep.catalog.kept_rests(record)
        found = await all_of(
            [partial(self._described, record, one) for one in rests], at_once_max=_AT_ONCE_MAX
        )
        return [one for one in found if one is not None]

    async def counts(self, records: Sequence[StreamRecord]) -> dict[str, int]:
        """The number of divergences of each of these streams that has any."""
        moved = [one for one in records if one.home_epoch > FIRST_HOME_EPOCH]
        rests = await all_of(
            [partial(self.divergences, one) for one in moved], at_once_max=_AT_ONCE_MAX
        )
        return {
            str(one.name): len(found) for one, found in zip(moved, rests, strict=True) if found
        }

    async def _described(self, record: StreamRecord, rest: PartitionName) -> Divergence | None:
        partitions = self.upkeep.partitions
        trim = await partitions.trims.read_latest(rest)
        rows = [one.record for one in await partitions.segments.all(rest)]
        ends = [one.last_sequence for one in rows if one.last_sequence is not None]
        if not ends:
            return None  # It is being made, or discarded.
        region = record.region_of(rest)
        assert region is not None
        # A log may have begun behind the fork.
        first = max(trim.first_sequence, min(one.first_sequence for one in rows))
        return Divergence(
            stream=str(record.name),
            region=region,
            home_epoch=rest.rest,
            partition=rest.number,
            from_sequence=first,
            to_sequence=max(ends) + 1,
            bytes=sum(one.size_bytes or 0 for one in rows),
            last_append_time_us=max(
                (one.last_append_time_us for one in rows if one.last_append_time_us),
                default=None,
            ),
        )

    async def begin_of(self, record: StreamRecord, rest: PartitionName) -> int:
        """The sequence of the first record of a kept rest."""
        found = await self._described(record, rest)
        return 0 if found is None else found.from_sequence

    async def forks_of(self, rest: PartitionName) -> tuple[Fork, ...]:
        """The forks of the partition of a kept rest."""
        homes = self.upkeep.partitions.homes
        await homes.has_changed(rest)
        return await homes.forks_of(rest)

    async def named_rest(self, record: StreamRecord, name: str) -> PartitionName:
        """The kept rest of this name, REGION~EPOCH#PARTITION. NotFoundError names them all."""
        rests = {
            f"{record.region_of(one)}~{one.rest}#{one.number}": one
            for one in await self.upkeep.catalog.kept_rests(record)
        }
        found = rests.get(name)
        if found is None:
            raise NotFoundError(
                f"{record.name} has no divergence {name!r}; it has"
                f" {', '.join(sorted(rests)) or 'none'}"
            )
        return found

    async def discard(self, record: StreamRecord, name: str) -> None:
        """Delete a kept rest with its records, for good. NotFoundError."""
        await self.upkeep.discard_rest(await self.named_rest(record, name))


async def insist(ask: Callable[[], Awaitable[T]], *, patience_s: float) -> T:
    """Ask again after errors that may pass, for this long; then raise the last of them."""
    until_s = trio.current_time() + patience_s
    while True:
        try:
            return await ask()
        except GeologError as error:
            if not error.retriable or trio.current_time() >= until_s:
                raise
        await trio.sleep(_AGAIN_S)


def check_left_out(record: StreamRecord, to: str | None, without: Sequence[str]) -> None:
    """InvalidArgumentError unless these are regions of the stream, and not the new home."""
    known = [str(record.home), *record.relay_to]
    for region in without:
        if region not in known:
            raise InvalidArgumentError(
                f"{record.name} has no log in {region!r} to leave out; it has logs in"
                f" {', '.join(known)}"
            )
        if region == to:
            raise InvalidArgumentError(
                f"{region} is to be the home of {record.name}, so its log cannot be left out"
            )


def _check(record: StreamRecord, to: str | None) -> None:
    """InvalidArgumentError or SealedError unless it can be failed over, there or anywhere."""
    if to is not None:
        check_can_move(record, to, is_failover=True)
    elif record.relay_to:
        check_can_move(record, record.relay_to[0], is_failover=True)
    elif record.home is None:
        check_can_move(record, "", is_failover=True)
    else:
        raise InvalidArgumentError(
            f"{record.name} has no targets, so no other region has a copy: bring its home back"
        )
