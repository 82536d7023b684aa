"""Owners that give partitions to each other, and append to those that they own.

Each process offers to take partitions over, for a while at a time. Now and then it gives away
some of its own, or all, as a proxy that drains does. It takes up what it was given late, or
never. Its own records have no numbers: what it is told about them must be true, too.
"""

from collections.abc import Mapping
from functools import partial
from random import Random

import attrs
import trio

import geolog
from geolog.background import open_background
from geolog.catalog.offers import Offer
from geolog.client.writing.partition_batcher import WriterConfig
from geolog.client.writing.writer import Writer, open_linger
from geolog.partition.partition_opener import PartitionOpener
from geolog.partition.partition_writer import PartitionWriter
from geolog.protocol.ids import Epoch
from geolog.protocol.stream_state import PartitionName, StreamName
from sim.world.apps.new_records import NewRecords
from sim.world.apps.tenure import Tenure
from sim.world.calls import HAND_OVER, STREAM
from sim.world.process import Process
from sim.world.sessions.owning import House, Owning
from topology.errors import GeologError

_LOOK_S = 0.3
_RETRY_S = 0.25
_OFFER_S_MAX = 8.0
_NO_OFFER_S_MAX = 2.0
_HAND_OVER_REST_S_MAX = 4.0
_PATIENCE_S = (8.0, 8.0, 0.1)
_ALL_SHARE = 0.5
_TAKEN_UP_SHARE = 0.5
_TAKEN_BY_EPOCH_SHARE = 0.02
_APPENDS_MAX = 4
_APPEND_REST_S_MAX = 0.4

# A session over links is no product yet, so it is put together here.
# ruff: noqa: SLF001


@attrs.define(eq=False)
class HandingOver(Owning):
    """The main functions of such owners."""

    records: NewRecords

    async def own_for_ever(self, process: Process, log: geolog.Log) -> None:
        """Own partitions, offer to take more, and give them away; repeat."""
        found = await log._catalog.read_latest(StreamName.parse(STREAM))
        house = _GivingHouse(self, process, log, found, records=self.records)
        async with open_background() as nursery:
            nursery.start_soon(house.listen, self.transport_of(process.host))
            nursery.start_soon(house.offer_for_ever)
            nursery.start_soon(house.hand_over_for_ever)
            for number in range(found.partitions):
                nursery.start_soon(house.own, number)
            await self.calls.quiet.wait()
            await house.wait_empty()


@attrs.define(eq=False)
class _GivingHouse(House):
    """One process: its offer, and the partitions that it owns just now."""

    records: NewRecords = attrs.field(kw_only=True)
    _offer: Offer | None = None
    _to_withdraw: trio.Event = attrs.field(factory=trio.Event)
    _has_withdrawn: trio.Event = attrs.field(factory=trio.Event)

    @property
    def _opener(self) -> PartitionOpener:
        return self.log.partition_opener

    @property
    def _rng(self) -> Random:
        return self.owning.rng

    # Taking over.

    async def offer_for_ever(self) -> None:
        """Offer to take partitions over, withdraw the offer, rest; repeat."""
        calls = self.owning.calls
        while not calls.quiet.is_set():
            self._to_withdraw = trio.Event()
            try:
                async with self._opener.open_offer() as self._offer:
                    with trio.move_on_after(self._rng.uniform(0.0, _OFFER_S_MAX)):
                        await self._to_withdraw.wait()
            except GeologError as error:
                calls.failed(self.process, f"offer {error!r}")
                await trio.sleep(_RETRY_S)
            finally:
                self._offer = None
                self._has_withdrawn.set()
            await calls.rest(_NO_OFFER_S_MAX)

    async def _withdraw(self) -> None:
        while self._offer is not None:
            self._has_withdrawn = trio.Event()
            self._to_withdraw.set()
            await self._has_withdrawn.wait()

    async def own(self, number: int) -> None:
        """Own the partition for a while whenever it was given, or has no owner; repeat."""
        calls = self.owning.calls
        hold_s_max = calls.stream.owner_hold_s_max
        while not calls.quiet.is_set():
            await calls.rest(2 * _LOOK_S)
            try:
                if await self._is_due(number):
                    await self._own_once(number, hold_s=self._rng.uniform(0.0, hold_s_max))
            except GeologError as error:
                calls.failed(self.process, f"own {number} {error!r}")
                await trio.sleep(_RETRY_S)

    async def _is_due(self, number: int) -> bool:
        """Whether to open the partition now."""
        owners = self._opener.upkeep.partitions.owners
        found = (await owners.read(self.stream.partition(number))).record
        if found.presence == self._opener.upkeep.takeover.owners.presence:
            return self._rng.random() < _TAKEN_UP_SHARE
        if not await owners.is_owner_alive(found):
            return True
        return self._rng.random() < _TAKEN_BY_EPOCH_SHARE

    async def _own_once(self, number: int, *, hold_s: float) -> None:
        calls = self.owning.calls
        if calls.quiet.is_set():
            return
        calls.begin(self.process, f"own {number}")
        async with self._opener.open(self.stream, number, wants_received=False) as opened:
            [owner] = opened.in_order
            self.owned[number] = owner
            self.owning.places.move(number, self._address)
            calls.history.happened.add("owned-apart")
            try:
                with trio.move_on_after(hold_s):
                    async with open_background() as nursery:
                        nursery.start_soon(self._append_for_ever, owner)
                        await self._wait_end(owner)
            finally:
                del self.owned[number]

    async def _wait_end(self, owner: PartitionWriter) -> None:
        """Wait until the owner has failed, or all is quiet: its block ends at once then."""
        async with open_background() as nursery:
            ended = trio.Event()

            async def end_after(wait_one: trio.Event) -> None:
                await wait_one.wait()
                ended.set()

            async def end_when_failed() -> None:
                await owner.wait_ended()
                ended.set()

            nursery.start_soon(partial(end_after, self.owning.calls.quiet))
            nursery.start_soon(end_when_failed)
            await ended.wait()

    async def _append_for_ever(self, owner: PartitionWriter) -> None:
        """Append records of its own until the owner fails."""
        calls, number = self.owning.calls, owner.name.number
        writer = Writer(
            [owner],
            WriterConfig(),
            home_epoch=self.stream.home_epoch,
            now_us=self._opener.upkeep.now_us,
        )
        known = calls.history.partitions
        tenure = Tenure(calls, self.records, self.process, writer, known, number)
        async with open_linger(writer):
            while owner.failure is None:
                try:
                    await tenure.append_run(self._rng.randint(1, _APPENDS_MAX))
                except GeologError as error:
                    calls.failed(self.process, f"append to {number} {error!r}")
                await calls.rest(_APPEND_REST_S_MAX)

    # Giving away.

    async def hand_over_for_ever(self) -> None:
        """Give partitions away, rest; repeat."""
        calls = self.owning.calls
        while not calls.quiet.is_set():
            await calls.rest(_HAND_OVER_REST_S_MAX)
            try:
                await self._hand_over_some()
            except GeologError as error:
                calls.failed(self.process, f"{HAND_OVER} {error!r}")

    async def _hand_over_some(self) -> None:
        """Give some partitions away, or withdraw and give away all."""
        is_all = self._rng.random() < _ALL_SHARE
        if is_all:
            await self._withdraw()
        offers = await self._opener.upkeep.partitions.offers.list_live()
        others = [one for one in offers if one.owner != self.process.key]
        owned = sorted(self.owned)
        if not owned or not others:
            return
        some = self._rng.sample(owned, self._rng.randint(1, len(owned)))
        wishes = {
            self.owned[number]: self._rng.sample(others, len(others))
            for number in (owned if is_all else some)
        }
        epochs = {writer.name: writer.epoch for writer in wishes}
        self.owning.calls.begin(self.process, f"{HAND_OVER} {len(wishes)}")
        begun_s = trio.current_time()
        with trio.move_on_after(self._rng.choice(_PATIENCE_S)):
            done = await self._opener.hand_over(wishes)
            words = (
                f"{len(done.given)} given, {len(done.lost)} lost, {len(done.kept)} kept,"
                f" {len(done.left)} left"
            )
            self.owning.calls.done(self.process, f"{HAND_OVER}: {words}")
            happened = self.owning.calls.history.happened
            happened.update({"handed-over"} if done.given else ())
            happened.update({"hand-over-left"} if done.left else ())
            took_s = trio.current_time() - begun_s
            if took_s < self._opener.config.close_timeout_s:  # Its blocks wait no longer.
                await self._note_lost({name: epochs[name] for name in done.lost})

    async def _note_lost(self, epochs: Mapping[PartitionName, Epoch]) -> None:
        for name, epoch in epochs.items():
            found = (await self._opener.upkeep.partitions.owners.read_latest(name)).record
            self.owning.calls.history.lost_in_hand_overs.append(
                (epoch, found.epoch, f"{self.process.key} lost {name} as it gave it away")
            )
