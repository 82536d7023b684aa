"""The owner of a partition, reached through write proxies, wherever it is at the moment.

Theory of operation. A channel to the proxy that owns the partition is opened, and opened again
whenever it ends: at the proxy that the last one named, at another proxy of the own region, or
at one of another region. `SentBatches` decides which batches go again. Attempts are spread by
a random back-off; after `patience_s` without a channel the partition fails, for good.

Rules: PROTOCOL S23.
"""

import random

import attrs
import trio

from geolog.client.proxies.connection import ProxyConnection, ProxyConnections
from geolog.client.proxies.routes import ProxyRoutes
from geolog.partition.batch_in_flight import AnswerListener
from geolog.partition.repeated_batch import (
    FirstPlace,
    ForgottenSeqError,
    RepeatAnswers,
    RepeatUnreadError,
)
from geolog.protocol.append_failure import told_as_unknown, told_of_record
from geolog.protocol.ids import DLSN, Epoch, Sequence
from geolog.protocol.sent_batches import SentBatches
from geolog.protocol.stream_state import FIRST_SEQUENCE, PartitionName
from geolog.protocol.writer_standing import WriterFence, WriterStanding
from geolog.transport.seam import Address
from geolog.wire.batch import SealedBatch
from geolog.wire.batch_terms import BatchTerms
from geolog.wire.session.channel_messages import (
    BatchCompared,
    BatchPlaced,
    BatchRefused,
    ChannelClosed,
    ChannelOpened,
    FirstPlaceTold,
    SendBatch,
    ToldError,
)
from geolog.wire.session.told_errors import error_of
from topology.errors import (
    ClosedError,
    GeologError,
    OutcomeUnknownError,
    UnavailableError,
)

PATIENCE_S = 30.0
"""How long a partition may be without a channel before its writer fails."""

_OPEN_S = 15.0
"""How long a proxy may take to open a channel: it may have to take the partition over."""
BACK_OFF_FIRST_S = 0.02
BACK_OFF_MAX_S = 0.5
_REDIRECTS_MAX = 8
_FAILED_MAX = 8
"""Proxies to ask last, because they have failed just now."""

_KINDS: dict[str, type[GeologError]] = {
    one.__name__: one for one in (ForgottenSeqError, RepeatUnreadError)
}


@attrs.define(eq=False)
class RemoteBatch:
    """A sealed batch in flight, or the answer of a proxy to it."""

    sealed: SealedBatch
    terms: BatchTerms
    listener: AnswerListener | None
    done: trio.Event = attrs.field(factory=trio.Event)
    error: GeologError | None = None
    segment: int = 0
    entry: int = -1
    first_sequence: Sequence = FIRST_SEQUENCE
    rows: tuple[FirstPlaceTold | ToldError, ...] | None = None
    """The answer for each record, if the log had seqs of the batch before."""
    received: trio.Event = attrs.field(init=False)
    """The same event as `done`: proxies answer durable batches only."""

    @received.default
    def _received(self) -> trio.Event:
        return self.done


@attrs.frozen
class RemoteRepeats(RepeatAnswers):
    """The answer to records that were sent before."""

    batch: RemoteBatch

    async def answer(self, row: int) -> FirstPlace:
        """Where the record in this row is. Errors as of `RepeatedBatch`."""
        batch = self.batch
        await batch.done.wait()
        if batch.rows is None:
            if batch.error is not None:
                raise batch.error
            # The owner has refused the seq meanwhile, so it took the record as new.
            dlsn = DLSN(batch.segment, batch.entry, row)
            return FirstPlace(dlsn, Sequence(batch.first_sequence + row), is_duplicate=False)
        told = batch.rows[row]
        if isinstance(told, ToldError):
            raise error_of(told, _KINDS)
        return FirstPlace(told.dlsn, Sequence(told.sequence))


@attrs.define(eq=False)
class _Channel:
    """One channel of the partition: hears the connection, and tells the partition."""

    partition: "RemotePartition"
    opened: trio.Event = attrs.field(factory=trio.Event)
    over: trio.Event = attrs.field(factory=trio.Event)
    told: ChannelOpened | None = None
    closed: ChannelClosed | None = None
    """Why it is over; None if the connection was lost."""

    def on_opened(self, message: ChannelOpened) -> None:
        """The channel takes batches."""
        self.told = message
        self.opened.set()

    def on_answer(self, message: BatchPlaced | BatchCompared | BatchRefused) -> None:
        """The answer to the next batch."""
        self.partition.on_answer(message)

    def on_closed(self, message: ChannelClosed | None) -> None:
        """The channel is over."""
        self.closed = message
        self.over.set()
        self.opened.set()


class RemotePartition:
    """A `BatchSink` over proxies. `run` keeps a channel open; `wait_opened` waits for it."""

    def __init__(
        self,
        name: PartitionName,
        *,
        connections: ProxyConnections,
        routes: ProxyRoutes,
        rng: random.Random,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.name = name
        self._connections = connections
        self._routes = routes
        self._rng = rng
        self._patience_s = patience_s
        self._sent: SentBatches[RemoteBatch] = SentBatches()
        self._channel: tuple[ProxyConnection, int] | None = None
        self._channel_changed = trio.Event()
        self._failure: GeologError | None = None
        self._has_failed = trio.Event()
        self._epoch = Epoch(0)
        self.transaction_id: int | None = None
        self.unknown_count = 0
        self._is_first = True

    def __repr__(self) -> str:
        return f"RemotePartition({self.name}, {self._sent!r})"

    @property
    def epoch(self) -> Epoch:
        """The owner epoch of the last channel."""
        return self._epoch

    @property
    def failure(self) -> GeologError | None:
        """Why nothing more can be appended, if so."""
        return self._failure

    async def wait_failed(self) -> None:
        """Wait until nothing more can be appended."""
        await self._has_failed.wait()

    async def wait_opened(self) -> None:
        """Wait until a channel is open. Raises the failure instead, if there is one."""
        while self._channel is None:
            if self._failure is not None:
                raise self._failure
            await self._channel_changed.wait()

    # The seam of a writer.

    async def hello(self, writer_id: bytes, fence: WriterFence | None) -> WriterStanding:
        """Ask where a named writer stands; with a fence, begin its session."""
        await self.wait_opened()
        assert self._channel is not None
        connection, channel = self._channel
        return await connection.ask_standing(channel, writer_id, fence)

    def append(
        self, sealed: SealedBatch, terms: BatchTerms, listener: AnswerListener | None
    ) -> RemoteBatch | RemoteRepeats:
        """Take a batch in, and send it now or when there is a channel."""
        batch = RemoteBatch(sealed, terms, listener)
        is_numbered = terms.writer is not None
        if self._failure is not None:
            batch.error = told_of_record(self._failure, is_numbered=is_numbered)
            batch.done.set()
        else:
            number = self._sent.accept(batch, is_numbered=is_numbered)
            if number is not None:
                self._send(number, batch)
        return batch if listener is not None else RemoteRepeats(batch)

    def _send(self, number: int, batch: RemoteBatch) -> None:
        assert self._channel is not None
        connection, channel = self._channel
        connection.send_batch(SendBatch(channel, number, batch.terms, batch.sealed))

    def on_answer(self, message: BatchPlaced | BatchCompared | BatchRefused) -> None:
        """Take the answer to the next batch."""
        batch = self._sent.on_answer(message.number)
        match message:
            case BatchPlaced():
                batch.segment, batch.entry = message.segment, message.entry
                batch.first_sequence = Sequence(message.first_sequence)
            case BatchCompared(rows=rows):
                batch.rows = rows
                _place_repeated(batch, rows)
            case BatchRefused(error=error):
                batch.error = error_of(error, _KINDS)
        self._finish([batch])

    def _finish(self, batches: list[RemoteBatch]) -> None:
        listeners: list[AnswerListener] = []
        for batch in batches:
            batch.done.set()
            if batch.listener is not None and batch.listener not in listeners:
                listeners.append(batch.listener)
        for listener in listeners:
            listener.on_answers()

    # Channels.

    async def run(self) -> None:
        """Keep a channel open until the partition fails, or this is cancelled."""
        lost: list[Address] = []  # The proxy that was lost just now; others are asked first.
        try:
            while True:
                connection, channel, number = await self._open(lost)
                self._on_opened(connection, channel, number)
                await channel.over.wait()
                lost = [connection.address] if channel.closed is None else []
                self._on_closed(channel)
        except GeologError as error:
            self._fail(error)

    def close(self) -> None:
        """Give the channel up: the writer is closed."""
        if self._channel is not None:
            connection, number = self._channel
            connection.close_channel(number)
        self._fail(ClosedError("the writer is closed: use it within its block"))

    def _on_opened(self, connection: ProxyConnection, channel: _Channel, number: int) -> None:
        assert channel.told is not None
        self._epoch = Epoch(channel.told.epoch)
        if self._is_first:
            self.transaction_id, self._is_first = channel.told.transaction_id, False
        self._channel = connection, number
        for place, batch in enumerate(self._sent.on_opened()):
            self._send(place, batch)
        self._tell_channel()

    def _on_closed(self, channel: _Channel) -> None:
        closed = channel.closed
        self._channel = None
        unknown = self._sent.on_closed(None if closed is None else closed.taken_count)
        for batch in unknown:
            batch.error = OutcomeUnknownError(
                f"the owner of {self.name} was lost before it answered; these records may be in"
                " the log"
            )
        self._finish(unknown)
        self._routes.on_lost(self.name)
        if closed is not None:
            if closed.location is not None:
                self._routes.on_found(self.name, Address.parse(closed.location))
            elif not _may_recover(closed.error):
                raise error_of(closed.error)

    def _tell_channel(self) -> None:
        changed, self._channel_changed = self._channel_changed, trio.Event()
        changed.set()

    def _fail(self, error: GeologError) -> None:
        if self._failure is not None:
            return
        self._failure = error
        self._channel = None
        given_up = self._sent.give_up()
        self.unknown_count = sum(one.sealed.record_count for one in given_up)
        for batch in given_up:
            batch.error = told_as_unknown(error, f"{error}; these records may be in the log")
        self._has_failed.set()
        self._finish(given_up)
        self._tell_channel()

    async def _open(self, failed: list[Address]) -> tuple[ProxyConnection, _Channel, int]:
        """Open a channel somewhere, there last. Raises what asking again cannot mend."""
        deadline_s = trio.current_time() + self._patience_s
        back_off_s = BACK_OFF_FIRST_S
        while True:
            try:
                return await self._open_once(failed)
            except GeologError as error:
                if not error.retriable:
                    raise
                if trio.current_time() + back_off_s > deadline_s:
                    raise UnavailableError(
                        f"no proxy took {self.name} for {self._patience_s:g} s: {error}"
                    ) from error
            await trio.sleep(back_off_s * self._rng.uniform(0.5, 1.0))
            back_off_s = min(2 * back_off_s, BACK_OFF_MAX_S)

    async def _open_once(self, failed: list[Address]) -> tuple[ProxyConnection, _Channel, int]:
        address = await self._routes.first_for(self.name, failed=failed)
        for _ in range(_REDIRECTS_MAX):
            try:
                opened = await self._open_at(address, failed)
            except GeologError:
                failed[:] = [*failed, address][-_FAILED_MAX:]
                self._routes.on_lost(self.name)
                raise
            if not isinstance(opened, Address):
                self._routes.on_found(self.name, address)
                return opened
            address = opened
        raise UnavailableError(f"{_REDIRECTS_MAX} proxies in turn sent {self.name} elsewhere")

    async def _open_at(
        self, address: Address, failed: list[Address]
    ) -> tuple[ProxyConnection, _Channel, int] | Address:
        """A channel at this proxy, or the address where it sends the client."""
        connection = await self._connections.to(address)
        if connection.is_going_away:
            raise UnavailableError(f"proxy {address} is going away")
        channel = _Channel(self)
        number = connection.open_channel(
            str(self.name.stream),
            self.name.life,
            self.name.number,
            channel,
            avoid=tuple(map(str, failed)),
        )
        with trio.move_on_after(_OPEN_S):
            await channel.opened.wait()
        if channel.told is not None and not channel.over.is_set():
            return connection, channel, number
        connection.close_channel(number)
        closed = channel.closed
        if closed is None:
            raise UnavailableError(f"proxy {address} did not open {self.name}")
        if closed.location is not None:
            return Address.parse(closed.location)
        if _may_recover(closed.error):
            raise UnavailableError(f"proxy {address}: {closed.error.error}")
        raise error_of(closed.error)


def _may_recover(error: ToldError) -> bool:
    """Whether another proxy, or the same one later, may open the channel."""
    return error_of(error).retriable


def _place_repeated(batch: RemoteBatch, rows: tuple[FirstPlaceTold | ToldError, ...]) -> None:
    """Give a batch that was sent again the place it has, if the log has it whole."""
    first = rows[0]
    for row, told in enumerate(rows):
        if isinstance(told, ToldError):
            batch.error = error_of(told, _KINDS)
            return
        assert isinstance(first, FirstPlaceTold)
        if told.sequence != first.sequence + row:
            batch.error = OutcomeUnknownError("its records are in the log at several places")
            return
    assert isinstance(first, FirstPlaceTold)
    batch.segment, batch.entry = first.dlsn.segment, first.dlsn.entry
    batch.first_sequence = Sequence(first.sequence)
