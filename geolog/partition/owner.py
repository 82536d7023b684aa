"""PartitionOpener partitions while a block lasts: take them over, write them, leave.

`StreamTakeover` decides; this shell takes the partitions, and starts and ends their writers.

Rules: PROTOCOL H16.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import assert_never

import attrs
import trio

from geolog.background import all_of, open_background
from geolog.catalog.partition_config import PartitionConfig
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.partition.home_lease import HomeLease
from geolog.partition.ledger_allocator import LedgerAllocator
from geolog.partition.loss_guard import LossGuard
from geolog.partition.partition_writer import PartitionWriter
from geolog.partition.relay_multicast import RelayMulticast
from geolog.partition.repeated_batch import ReadBack
from geolog.partition.takeover import Takeover
from geolog.protocol.home_record import HomeRecord
from geolog.protocol.loss_bound import LossTerms
from geolog.protocol.stream_state import PartitionName, StreamRecord
from geolog.protocol.stream_takeover import (
    CountPartitions,
    StartWriters,
    Step,
    StreamTakeover,
    TakePartitions,
)
from topology.errors import FencedError, GeologError, HandedOverError, NoSuchStreamError

_TOLD_S = 2.0
"""How long a new owner waits to be told how far mirrors are, if the stream bounds that."""

_LOOK_AGAIN_S = 1.0


@asynccontextmanager
async def open_partition_writers(
    stream: StreamRecord,
    number: int | None,
    *,
    who: str,
    catalog: StreamCatalog,
    takeover: Takeover,
    config: PartitionConfig,
    wants_received: bool,
    now_us: Callable[[], int],
    read_back: ReadBack,
    multicast: RelayMulticast | None = None,
) -> AsyncIterator["OwnedPartitions"]:
    """Take over a stream, or one partition of it, and write it while the block lasts.

    Waits until the predecessors' ledgers are recovered; the caller bounds that wait.
    FencedError, NoSuchStreamError, SealedError, NotEnoughNodesError. A block that ends without
    an error leaves the open ledgers CLOSED.
    """
    async with open_background() as nursery:
        now_s = trio.current_time()
        owned = OwnedPartitions(
            stream=stream,
            who=who,
            catalog=catalog,
            takeover=takeover,
            config=config,
            wants_received=wants_received,
            now_us=now_us,
            read_back=read_back,
            multicast=multicast,
            nursery=nursery,
            latest=stream,
            loss_terms=stream.loss_terms,
            core=StreamTakeover.of_stream(stream.partitions, now_s=now_s)
            if number is None
            else StreamTakeover.of_partition(number, now_s=now_s),
        )
        try:
            await owned.open()
            yield owned
            for writer in owned.in_order:
                writer.take_no_more()
            for writer in owned.in_order:
                await writer.wait_idle()
        finally:
            await owned.leave()


class HomeMovingError(HandedOverError):
    """The home of the stream moves: its next owner takes the append, in another region."""


def _moves(writer: PartitionWriter, to: str) -> HomeMovingError:
    return HomeMovingError(f"the home of {writer.name} moves to {to}: append there")


async def _end(writer: PartitionWriter, why: HandedOverError) -> None:
    """Answer what the owner has taken in, and close its segment: another is to own it."""
    try:
        with suppress(GeologError):  # It has failed by itself.
            await writer.end(why)
    finally:
        writer.on_handed_over()


@attrs.define(eq=False, kw_only=True)
class OwnedPartitions:
    """The partitions that a block owns, or has begun to take over."""

    stream: StreamRecord
    who: str
    catalog: StreamCatalog
    takeover: Takeover
    config: PartitionConfig
    wants_received: bool
    now_us: Callable[[], int]
    read_back: ReadBack
    multicast: RelayMulticast | None
    nursery: trio.Nursery
    core: StreamTakeover
    latest: StreamRecord
    """The stream when its partitions were last counted."""
    loss_terms: LossTerms | None
    """The bound on what the loss of its home could cost, as last seen."""
    in_order: list[PartitionWriter] = attrs.field(factory=list)
    """The writers, in the order of their partitions."""
    _taken: list[PartitionWriter] = attrs.field(factory=list)
    """Those whose takeover succeeded, even if another partition's failed."""
    lease: HomeLease | None = None
    """Appends are answered only inside it; None to answer always."""
    _back_off_s: float = 0.0
    _running_count: int = 0

    async def open(self) -> None:
        """Take the stream over, or one partition of it, and run its writers."""
        length_s, terms = self.stream.isolation_lease_s, self.takeover.lease_terms
        if length_s is not None and terms is not None:
            any_partition = self.stream.partition(0)
            self.lease = HomeLease(any_partition, self.stream.home_epoch, length_s, terms)
        await self._own(self.core.begin())
        if self.lease is not None:
            await self.lease.begin()
            self.nursery.start_soon(self.lease.run, name=f"lease of {self.stream.name}")

    async def grow(self) -> int:
        """Read how many partitions the stream has, and own those that are new too."""
        self.latest = await self.catalog.read_same_latest(self.stream)
        await self._own(self.core.on_count(self.latest.partitions))
        return len(self.in_order)

    async def _own(self, step: Step) -> None:
        """Go on from this step of the core until all partitions are owned and written."""
        try:
            await self._take_all(step)
        except FencedError:
            self._back_off_s = self.core.on_overtaken(trio.current_time(), self.takeover.rng)
            raise
        for writer in self.in_order[self._running_count :]:
            self.nursery.start_soon(writer.run, name=f"owner of {writer.name}")
        guards = [one.guard for one in self.in_order[self._running_count :]]
        self._running_count = len(self.in_order)
        with trio.move_on_after(_TOLD_S):  # Appends are refused until then.
            await all_of([one.wait_known for one in guards if one is not None])

    async def follow_stream(self) -> None:
        """Bound the loss of a home as the stream's record says; end once the home moves."""
        while True:
            changed = trio.Event()
            try:
                found = await self.catalog.look(self.stream, changed)
            except NoSuchStreamError:
                return
            except GeologError as error:
                if not error.retriable:
                    raise
                await trio.sleep(_LOOK_AGAIN_S)
                continue
            self.loss_terms = found.loss_terms
            for writer in self._taken:
                writer.use_loss_terms(found.loss_terms)
            if found.isolation_lease_s != self.stream.isolation_lease_s:
                why = HandedOverError(
                    f"{found.name} has another setting for a home that is cut off: open it"
                    " again"
                )
                await all_of([partial(_end, one, why) for one in self._taken])
                return
            if found.moving_to or found.home != self.stream.home:
                to = found.moving_to or str(found.home)
                homes = self.takeover.partitions.homes
                with suppress(GeologError):  # Else closing finds that it has changed.
                    await homes.has_changed(self.latest.partition(0))
                await all_of([partial(_end, one, _moves(one, to)) for one in self._taken])
                return
            await changed.wait()

    async def _take_all(self, step: Step) -> None:
        while True:
            match step:
                case TakePartitions(numbers):
                    names = [self.latest.partition(one) for one in numbers]
                    self.in_order += await all_of([partial(self._take, name) for name in names])
                    step = self.core.on_taken()
                case CountPartitions():
                    self.latest = await self.catalog.read_same(self.stream)
                    step = self.core.on_count(self.latest.partitions)
                case StartWriters():
                    idle = self.in_order[self._running_count :]
                    await all_of([writer.start for writer in idle])
                    return
                case _:
                    assert_never(step)

    async def _take(self, name: PartitionName) -> PartitionWriter:
        source = LedgerAllocator(
            name,
            self.stream,
            ledgers=self.takeover.ledgers,
            replicas=self.takeover.replicas,
            region=self.takeover.region,
            rng=self.takeover.rng,
            nursery=self.nursery,
            config=self.config,
            wants_received=self.wants_received,
        )
        source.prepare_early_nowait()
        if self.stream.home is None:
            self.takeover.partitions.homes.note_global(name)
        try:
            at_home = await self._home_record(name)
            lease_s = 0.0 if self.stream.home is None else self._lease_s
            taken = await self.takeover.take_over(name, self.who, lease_s=lease_s)
        except BaseException:
            await source.give_up()
            raise
        writer = PartitionWriter(
            name,
            self.stream,
            taken,
            partitions=self.takeover.partitions,
            owners=self.takeover.owners,
            source=source,
            config=self.config,
            now_us=self.now_us,
            read_back=self.read_back,
            nursery=self.nursery,
            at_home=at_home,
            multicast=(
                self.multicast.port(name) if self.multicast and self.stream.relay_to else None
            ),
            guard=None
            if self.stream.home is None
            else LossGuard(name, multicast=self.multicast, now_us=self.now_us),
            lease=self.lease,
        )
        writer.use_loss_terms(self.loss_terms)
        self._taken.append(writer)
        return writer

    @property
    def _lease_s(self) -> float | None:
        """The length of its lease; None if it answers always."""
        return None if self.lease is None else self.stream.isolation_lease_s

    async def _home_record(self, name: PartitionName) -> HomeRecord | None:
        """The home record of a stream whose home has moved before."""
        if not self.stream.origin:
            return None
        homes = self.takeover.partitions.homes
        return await homes.record_in(name, self.stream.home_epoch)

    async def leave(self) -> None:
        """End all writers; after a lost race, back off before the caller hears of it."""
        with trio.move_on_after(self.config.close_timeout_s, shield=True):
            await all_of([writer.leave for writer in self._taken])
        for writer in self._taken:
            writer.close()
        if self._back_off_s:
            await trio.sleep(self._back_off_s)
