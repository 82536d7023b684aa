"""The owner of a partition, reached through write proxies, wherever it is at the moment.

Theory of operation. A channel to the proxy that owns the partition is opened, and opened again
whenever it ends: at the proxy that the last one named, at another proxy of the own region, or
at one of another region. `SentBatches` decides which batches go again. Attempts are spread by
a random back-off; after `patience_s` without a channel the partition fails, for good.

Rules: PROTOCOL S23, S29 and S30.
"""

import random
from collections.abc import Iterable
from typing import assert_never

import attrs
import trio

from geolog.client.proxies.connection import (
    ProxyChannel,
    ProxyConnection,
    ProxyConnections,
)
from geolog.client.proxies.routes import ProxyRoutes
from geolog.partition.batch_admission import FenceRefusedError
from geolog.partition.batch_sink import AnswerListener, Opened, SentBatch
from geolog.partition.repeated_batch import ForgottenSeqError, RepeatUnreadError
from geolog.protocol.append_failure import told_as_unknown, told_of_record
from geolog.protocol.home_record import Lineage
from geolog.protocol.ids import Sequence
from geolog.protocol.isolation_lease import LeaseClocks
from geolog.protocol.owner_answers import (
    FirstPlace,
    OwnerEnded,
    Placed,
    Repeated,
    RepeatedRecords,
    Unknown,
    answer_of_error,
    lease_over,
    place_of_all,
)
from geolog.protocol.sent_batches import AnswerOutOfOrderError, SentBatches
from geolog.protocol.session_home import HomeMovedError, SessionHome
from geolog.protocol.stream_state import PartitionName
from geolog.protocol.writer_standing import WriterFence, WriterStanding
from geolog.transport.seam import Address
from geolog.wire.batch import SealedBatch
from geolog.wire.batch_terms import BatchTerms
from geolog.wire.session.channel_messages import (
    BatchCompared,
    BatchPlaced,
    BatchRefused,
    FirstPlaceTold,
    SendBatch,
    ToldError,
)
from geolog.wire.session.codes import Code
from geolog.wire.session.told_errors import error_of
from topology.errors import (
    ClosedError,
    GeologError,
    OutcomeUnknownError,
    OwnedDirectlyError,
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
    one.__name__: one for one in (ForgottenSeqError, OwnedDirectlyError, RepeatUnreadError)
}


@attrs.define(eq=False)
class RemoteBatch(SentBatch):
    """A sealed batch in flight to whatever proxy owns the partition."""

    sealed: SealedBatch
    terms: BatchTerms
    sent_at: LeaseClocks | None = None
    """When it was sent last, by the clocks of this machine."""


@attrs.frozen
class ToldRecords(RepeatedRecords):
    """Repeated records that the owner has compared already."""

    rows: tuple[FirstPlace | GeologError, ...]

    async def answer(self, row: int) -> FirstPlace:
        """Where the record in this row is. Errors as of `RepeatedRecords`."""
        told = self.rows[row]
        if isinstance(told, GeologError):
            raise told
        return told


class RemotePartition:
    """A `BatchSink` over proxies. `run` keeps a channel open; `wait_opened` waits for it."""

    def __init__(
        self,
        name: PartitionName,
        *,
        home: SessionHome,
        connections: ProxyConnections,
        routes: ProxyRoutes,
        rng: random.Random,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.name = name
        self._home = home
        self._connections = connections
        self._routes = routes
        self._rng = rng
        self._patience_s = patience_s
        self._sent: SentBatches[RemoteBatch] = SentBatches()
        self._channel: tuple[ProxyConnection, ProxyChannel] | None = None
        self._channel_changed = trio.Event()
        self._failure: GeologError | None = None
        self._has_failed = trio.Event()
        self._opened: Opened | None = None

    def __repr__(self) -> str:
        return f"RemotePartition({self.name}, {self._sent!r})"

    async def wait_opened(self) -> None:
        """Wait until a channel is open. Raises the failure instead, if there is one."""
        while self._channel is None or self._channel[1].over.is_set():
            if self._failure is not None:
                raise self._failure
            await self._channel_changed.wait()

    # The seam of a writer.

    @property
    def opened(self) -> Opened:
        """The facts told on the first channel, and where the home was on the last one."""
        assert self._opened is not None, f"{self} is not open"
        return self._opened

    def home_epoch_of(self, segment: int) -> int:
        """The home epoch in which a segment was written."""
        return self.opened.lineage.home_epoch_of(segment)

    async def wait_ended(self) -> OwnerEnded:
        """Wait until nothing more can be appended."""
        await self._has_failed.wait()
        assert self._failure is not None
        return OwnerEnded(self._failure, self._failure)

    async def hello(self, writer_id: bytes, fence: WriterFence | None) -> WriterStanding:
        """Ask where a named writer stands; with a fence, begin its session.

        OutcomeUnknownError if the owner leaves meanwhile: ask again, the next one answers.
        """
        await self.wait_opened()
        assert self._channel is not None
        connection, channel = self._channel
        try:
            return await connection.ask_standing(channel.number, writer_id, fence)
        except FenceRefusedError:
            raise
        except GeologError as error:
            if not error.retriable and not channel.over.is_set():
                raise
            # The owner moves; it may take a moment until this channel hears of it.
            await trio.sleep(BACK_OFF_FIRST_S * self._rng.uniform(0.5, 1.0))
            raise OutcomeUnknownError(
                f"the owner of {self.name} left before it answered: {error}"
            ) from error

    def append(
        self, sealed: SealedBatch, terms: BatchTerms, listener: AnswerListener | None
    ) -> RemoteBatch:
        """Take a batch in, and send it now or when there is a channel."""
        batch = RemoteBatch(sealed, terms, listener=listener)
        is_numbered, failure = terms.writer is not None, self._failure
        if failure is not None:
            told = told_of_record(failure, is_numbered=is_numbered)
            batch.finish(OwnerEnded(failure, told))
            return batch
        self._sent.accept(batch, is_numbered=is_numbered, size_bytes=sealed.length_bytes)
        self._send_due()
        return batch

    def _send_due(self) -> None:
        """Send the batches that may be sent now."""
        while (due := self._sent.next_to_send()) is not None:
            assert self._channel is not None
            connection, channel = self._channel
            number, batch = due
            batch.sent_at = self._connections.lease_clocks()
            connection.send_batch(SendBatch(channel.number, number, batch.terms, batch.sealed))

    def on_answers(self) -> None:
        """Take the answers that have come on the channel."""
        if self._channel is None:
            raise AnswerOutOfOrderError(f"a proxy answers a batch of {self.name} too early")
        _, channel = self._channel
        answered = []
        while channel.answers:
            answered.append(self._finish(channel.answers.popleft()))
        self._send_due()
        _tell(answered)

    def _finish(self, message: BatchPlaced | BatchCompared | BatchRefused) -> RemoteBatch:
        """Give the next batch its answer."""
        batch = self._sent.on_answer(message.number)
        match message:
            case BatchPlaced(segment=segment, entry=entry, slot=slot, first_sequence=first):
                placed = Placed(segment, entry, slot, Sequence(first))
                batch.finish(self._valid(placed, batch, message.valid_ms))
            case BatchCompared(rows=rows):
                places = tuple(self._place_of(one, batch) for one in rows)
                if batch.listener is None:
                    batch.finish(Repeated(ToldRecords(places)))
                else:  # An earlier owner has appended it.
                    batch.finish(place_of_all(places))
            case BatchRefused(error=error):
                batch.finish(answer_of_error(error_of(error, _KINDS)))
            case _:
                assert_never(message)
        return batch

    def _valid(
        self, placed: Placed, batch: RemoteBatch, valid_ms: int | None
    ) -> Placed | Unknown:
        """The answer, if the owner's lease lasts."""
        if valid_ms is None:
            return placed
        try:
            return attrs.evolve(placed, valid_until_s=self._valid_until_s(batch, valid_ms))
        except OutcomeUnknownError as error:
            return Unknown(error)

    def _place_of(
        self, told: FirstPlaceTold | ToldError, batch: RemoteBatch
    ) -> FirstPlace | GeologError:
        """Where a repeated record is, if the owner's lease lasts, or why that is not known."""
        if isinstance(told, ToldError):
            return error_of(told, _KINDS)
        try:
            until_s = self._valid_until_s(batch, told.valid_ms)
        except OutcomeUnknownError as error:
            return error
        return FirstPlace(told.dlsn, Sequence(told.sequence), until_s)

    def _valid_until_s(self, batch: RemoteBatch, valid_ms: int | None) -> float | None:
        """When an answer no longer counts; the time runs since the batch was sent.

        OutcomeUnknownError if that is over.
        """
        if valid_ms is None:
            return None
        assert batch.sent_at is not None
        left_s = valid_ms / 1e3 - self._connections.lease_clocks().passed_s(batch.sent_at)
        if left_s < 0:
            raise lease_over(self.name)
        return trio.current_time() + left_s

    # Channels.

    async def run(self) -> None:
        """Keep a channel open until the partition fails, or this is cancelled."""
        lost: list[Address] = []  # The proxy that was lost just now; others are asked first.
        try:
            while True:
                connection, channel = await self._open(lost)
                self._on_opened(connection, channel)
                await channel.over.wait()
                lost = [connection.address] if channel.closed is None else []
                self._on_closed(channel)
        except GeologError as error:
            self._fail(error)

    def close(self) -> None:
        """Give the channel up: the writer is closed."""
        if self._channel is not None:
            connection, channel = self._channel
            connection.close_channel(channel)
        self._fail(ClosedError("the writer is closed: use it within its block"))

    def _on_opened(self, connection: ProxyConnection, channel: ProxyChannel) -> None:
        assert channel.told is not None
        told, before = channel.told, self._opened
        self._opened = Opened(
            told.transaction_id if before is None else before.transaction_id,
            told.home_epoch,
            told.session_epoch,
            Lineage.of(told.home_epoch, told.forks),
        )
        self._channel = connection, channel
        self._sent.on_opened(credit_bytes=channel.told.credit_bytes)
        self._send_due()
        self._tell_channel()

    def _on_closed(self, channel: ProxyChannel) -> None:
        closed = channel.closed
        self._channel = None
        unknown = self._sent.on_closed(None if closed is None else closed.taken_count)
        for batch in unknown:
            lost = OutcomeUnknownError(
                f"the owner of {self.name} was lost before it answered; these records may be in"
                " the log"
            )
            batch.finish(Unknown(lost))
        _tell(unknown)
        self._routes.on_lost(self.name)
        if closed is not None:
            if closed.location is not None:
                self._routes.on_found(self.name, Address.parse(closed.location))
            elif not _may_recover(closed.error):
                raise error_of(closed.error, _KINDS)

    def _tell_channel(self) -> None:
        changed, self._channel_changed = self._channel_changed, trio.Event()
        changed.set()

    def _fail(self, error: GeologError) -> None:
        if self._failure is not None:
            return
        self._failure = error
        self._channel = None
        given_up = self._sent.give_up()
        for batch in given_up:
            told = told_as_unknown(error, f"{error}; these records may be in the log")
            batch.finish(OwnerEnded(error, told))
        self._has_failed.set()
        _tell(given_up)
        self._tell_channel()

    async def _open(self, failed: list[Address]) -> tuple[ProxyConnection, ProxyChannel]:
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

    async def _open_once(self, failed: list[Address]) -> tuple[ProxyConnection, ProxyChannel]:
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
    ) -> tuple[ProxyConnection, ProxyChannel] | Address:
        """A channel at this proxy, or the address where it sends the client."""
        connection = await self._connections.to(address)
        if connection.is_going_away:
            raise UnavailableError(f"proxy {address} is going away")
        channel = connection.open_channel(
            str(self.name.stream),
            self.name.life,
            self.name.number,
            self,
            avoid=tuple(map(str, failed)),
        )
        try:
            with trio.move_on_after(_OPEN_S):
                await channel.opened.wait()
        except trio.Cancelled:  # Else the channel lasted as long as the process's connection.
            connection.close_channel(channel)
            raise
        if channel.told is not None and not channel.over.is_set():
            try:
                self._home.check(self.name, channel.told.session_epoch)
            except HomeMovedError:
                connection.close_channel(channel)
                raise
            return connection, channel
        connection.close_channel(channel)
        closed = channel.closed
        if closed is None:
            raise UnavailableError(f"proxy {address} did not open {self.name}")
        if closed.location is not None:
            return Address.parse(closed.location)
        # Proxies of a home that was open just now may be back in a moment, or it moves.
        is_home_away = closed.error.code == Code.REGION_UNAVAILABLE and self._opened is not None
        if is_home_away or _may_recover(closed.error):
            raise UnavailableError(f"proxy {address}: {closed.error.error}")
        raise error_of(closed.error, _KINDS)


def _tell(batches: Iterable[RemoteBatch]) -> None:
    """Tell the listener of each that is answered, once."""
    listeners: list[AnswerListener] = []
    for batch in batches:
        if batch.listener is not None and batch.listener not in listeners:
            listeners.append(batch.listener)
    for listener in listeners:
        listener.on_answers()


def _may_recover(error: ToldError) -> bool:
    """Whether another proxy, or the same one later, may open the channel."""
    return error_of(error).retriable
