"""Processes that own partitions one at a time, and serve sessions that are elsewhere."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import assert_never

import attrs
import trio

import geolog
from geolog.background import open_background
from geolog.partition.batch_sink import SentBatch
from geolog.partition.owner import open_partition_writers
from geolog.partition.partition_writer import PartitionWriter
from geolog.partition.read_back import BatchReadBack
from geolog.protocol.ids import DLSN, Sequence
from geolog.protocol.owner_answers import (
    AppendRefused,
    OwnerEnded,
    Placed,
    Received,
    Repeated,
    Unknown,
    place_of_all,
)
from geolog.protocol.stream_state import StreamName, StreamRecord
from geolog.protocol.writer_standing import WriterStanding
from geolog.transport.seam import Address, ByteStream, ConnectionFailedError, Transport
from sim.world.calls import STREAM, Calls
from sim.world.process import Process
from sim.world.sessions.line import (
    Delivery,
    Greeting,
    Introduction,
    Line,
    LineAnswer,
    LineError,
    LinePlace,
    RecordComparison,
    Welcome,
)
from topology.errors import GeologError, HandedOverError

_PORT = 4600
_LOOK_S = 0.1
_RETRY_S = 0.25
_GROWTH_LOOK_S = 0.5
_REST_SHARE = 0.25

# A process that owns single partitions is no product yet, so it is put together here.
# ruff: noqa: SLF001


@attrs.define(eq=False)
class OwnerPlaces:
    """The last address at which each partition got an owner; sessions ask there."""

    _places: dict[int, Address] = attrs.field(factory=dict, init=False)

    def move(self, partition: int, address: Address) -> None:
        """The partition has an owner here now."""
        self._places[partition] = address

    def find(self, partition: int) -> Address | None:
        """The place of the last owner, if there ever was one."""
        return self._places.get(partition)


@attrs.define(eq=False)
class Owning:
    """The main functions of owners: they take partitions from each other, one at a time."""

    calls: Calls
    places: OwnerPlaces
    transport_of: Callable[[str], Transport]
    """The transport of a host."""
    rng: Random

    async def own_for_ever(self, process: Process, log: geolog.Log) -> None:
        """Own each partition for a while, rest; repeat."""
        found = await log._catalog.read_latest(StreamName.parse(STREAM))
        house = House(self, process, log, found)
        async with open_background() as nursery:
            nursery.start_soon(house.listen, self.transport_of(process.host))
            known_count = 0
            while not self.calls.quiet.is_set():
                for number in range(known_count, found.partitions):
                    nursery.start_soon(house.own, number)
                known_count = max(known_count, found.partitions)
                await self.calls.rest(_GROWTH_LOOK_S)
                with suppress(geolog.GeologError):
                    found = house.stream = await log._catalog.read_latest(found.name)
            await house.wait_empty()


@attrs.define(eq=False)
class House:
    """One process: the partitions that it owns just now."""

    owning: Owning
    process: Process
    log: geolog.Log
    stream: StreamRecord
    owned: dict[int, PartitionWriter] = attrs.field(factory=dict)

    @property
    def _address(self) -> Address:
        return Address(self.process.host, _PORT)

    async def wait_empty(self) -> None:
        """Wait until it owns no partition."""
        while self.owned:  # noqa: ASYNC110 - no event for it.
            await trio.sleep(_LOOK_S)

    async def own(self, number: int) -> None:
        """Own the partition for a while, rest; repeat."""
        calls, rng = self.owning.calls, self.owning.rng
        hold_s_max = calls.stream.owner_hold_s_max
        while not calls.quiet.is_set():
            await calls.rest(_REST_SHARE * hold_s_max)
            try:
                await self._own_once(number, hold_s=rng.uniform(0.0, hold_s_max))
            except geolog.GeologError as error:
                calls.failed(self.process, f"own {number} {error!r}")
                await trio.sleep(_RETRY_S)

    async def _own_once(self, number: int, *, hold_s: float) -> None:
        calls, log = self.owning.calls, self.log
        if calls.quiet.is_set():
            return
        calls.begin(self.process, f"own {number}")
        upkeep = log._upkeep
        async with open_partition_writers(
            self.stream,
            number,
            who=self.process.key,
            catalog=upkeep.catalog,
            takeover=upkeep.takeover,
            config=log._config.partition,
            wants_received=False,
            now_us=upkeep.now_us,
            read_back=BatchReadBack(log._partitions, log._ledgers, log._reader).read,
        ) as opened:
            [owner] = opened.in_order
            self.owned[number] = owner
            self.owning.places.move(number, self._address)
            calls.history.happened.add("owned-apart")
            try:
                with trio.move_on_after(hold_s):
                    while owner.failure is None and not calls.quiet.is_set():  # noqa: ASYNC110 - a look.
                        await trio.sleep(_LOOK_S)
            finally:
                del self.owned[number]

    # Serving.

    async def listen(self, transport: Transport) -> None:
        """Serve sessions, for ever."""
        listener = await transport.listen(self._address)
        try:
            async with open_background() as nursery:
                while True:
                    nursery.start_soon(self._serve, await listener.accept())
        finally:
            listener.close()

    async def _serve(self, stream: ByteStream) -> None:
        line = Line(stream)
        try:
            with suppress(ConnectionFailedError):
                introduction = await line.receive()
                assert isinstance(introduction, Introduction)
                owner = self.owned.get(introduction.partition)
                if owner is not None:
                    async with open_background() as nursery:
                        nursery.start_soon(line.run)
                        line.send_nowait(Welcome(owner.opened.transaction_id))
                        await _Serving(owner, line, nursery).run()
        finally:
            line.close()


@attrs.define(eq=False)
class _Serving:
    """Answers one session, for one partition."""

    owner: PartitionWriter
    line: Line
    nursery: trio.Nursery

    async def run(self) -> None:
        """Take requests in the order in which they come. ConnectionFailedError."""
        while True:
            request = await self.line.receive()
            match request:
                case Greeting():
                    self._answer_soon(request.number, partial(self._standing, request))
                case Delivery():
                    count = request.sealed.record_count
                    sent = self.owner.append(request.sealed, request.terms)
                    self._answer_soon(request.number, partial(self._place, sent, range(count)))
                case RecordComparison(row=row):
                    sent = self.owner.append(request.sealed, request.terms)
                    only = range(row, row + 1)
                    self._answer_soon(request.number, partial(self._place, sent, only))
                case _:
                    raise AssertionError(f"{request} is no request")

    def _answer_soon(
        self, number: int, find: Callable[[], Awaitable[WriterStanding | LinePlace]]
    ) -> None:
        async def answer() -> None:
            found: WriterStanding | LinePlace | LineError
            try:
                found = await find()
            except GeologError as error:
                if self.owner.failure is not None or isinstance(error, HandedOverError):
                    self.line.close()  # The session asks the next owner.
                    return
                found = LineError.of(error)
            self.line.send_nowait(LineAnswer(number, found))

        self.nursery.start_soon(answer)

    async def _standing(self, request: Greeting) -> WriterStanding:
        return await self.owner.hello(request.writer_id, request.fence)

    async def _place(self, sent: SentBatch, rows: range) -> LinePlace:
        """The place of the first of these records, if they are one behind the other."""
        await sent.done.wait()
        answer = sent.answer
        if isinstance(answer, Repeated):
            places = [await answer.records.answer(row) for row in rows]
            answer = place_of_all(tuple(places))
        elif isinstance(answer, Placed):
            first = answer.first_sequence + rows.start
            answer = attrs.evolve(
                answer, slot=answer.slot + rows.start, first_sequence=Sequence(first)
            )
        match answer:
            case Placed(segment, entry, slot, first_sequence):
                return LinePlace(DLSN(segment, entry, slot), first_sequence)
            case AppendRefused(error=error) | Unknown(error=error) | OwnerEnded(error=error):
                raise error
            case None | Received():
                raise AssertionError(f"{answer} is not the last answer")
            case _:
                assert_never(answer)
