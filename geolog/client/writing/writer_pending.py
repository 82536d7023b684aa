"""Appends that wait for their receipts: of records in a batch, and of repeated records."""

import enum
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import assert_never

import attrs
import trio

from geolog.client.writing.open_batch import OpenBatch
from geolog.partition.batch_sink import BatchSink, SentBatch
from geolog.protocol.ids import DLSN, Position
from geolog.protocol.owner_answers import (
    AppendRefused,
    OwnerEnded,
    Placed,
    Received,
    Repeated,
    Unknown,
)
from topology.errors import GeologError


class AckLevel(enum.Enum):
    """The guarantee that an answered append has.

    RECEIVED: the record is in the memory of an ack set. Its position is provisional: a
    takeover, or losing power everywhere at once, can lose it. DURABLE: it is on the disks of an
    ack set.
    """

    RECEIVED = "received"
    DURABLE = "durable"


@attrs.frozen
class Receipt:
    """The place of an appended record; final unless `provisional`."""

    partition: int
    dlsn: DLSN
    sequence: int
    epoch: int
    duplicate: bool = False
    """Whether the log had the record before."""
    provisional: bool = False
    """Whether the record is not on disk yet and may still be lost."""
    valid_until_s: float | None = attrs.field(default=None, eq=False, repr=False)
    """When the owner's lease ends under which this counts, by this process's clock (trio); None
    if it counts always."""

    @property
    def position(self) -> Position:
        """The position to keep in a checkpoint."""
        return Position(self.epoch, self.sequence)

    def behind(self, place: int) -> "Receipt":
        """The receipt of the record `place` slots later in the same batch."""
        dlsn = self.dlsn
        return Receipt(
            self.partition,
            DLSN(dlsn.segment, dlsn.entry, dlsn.slot + place),
            self.sequence + place,
            self.epoch,
            self.duplicate,
            self.provisional,
        )


class Pending(ABC):
    """An append, and its answer once that has arrived."""

    __slots__ = ()

    @property
    @abstractmethod
    def is_done(self) -> bool:
        """Whether the append is answered, or has failed."""

    @abstractmethod
    async def wait(self) -> Receipt:
        """Wait for the answer. Raises the error of an append that was not acknowledged."""

    @property
    def is_durable(self) -> bool:
        """Whether `wait_durable` would not wait; `receipt_nowait` then does the same."""
        return self.is_done

    async def wait_done(self) -> None:
        """Wait until `is_done`. Raises the error of an append that failed."""
        await self.wait()

    @abstractmethod
    async def wait_durable(self) -> Receipt:
        """Wait until the record is on the disks of an ack set, even at ack level received."""

    @abstractmethod
    def receipt_nowait(self) -> Receipt:
        """The answer. trio.WouldBlock if it has not arrived yet."""


@attrs.frozen
class ReceiptTerms:
    """The part that all receipts of one partition share."""

    partition: int
    sink: BatchSink
    ack: AckLevel


class NewRecord(Pending):
    """A record in a batch."""

    __slots__ = ("_terms", "batch", "slot")

    def __init__(self, terms: ReceiptTerms, batch: OpenBatch, slot: int) -> None:
        self._terms = terms
        self.batch = batch
        self.slot = slot

    def __repr__(self) -> str:
        return f"<Pending {'done' if self.is_done else 'in flight'}>"

    @property
    def is_done(self) -> bool:
        """Whether the append is answered, or has failed."""
        sent = self.batch.sent
        return sent is not None and self._answered_event(sent).is_set()

    @property
    def is_durable(self) -> bool:
        """Whether the record is on disk, or its append has failed."""
        sent = self.batch.sent
        return sent is not None and sent.done.is_set()

    def _answered_event(self, sent: SentBatch) -> trio.Event:
        return sent.received if self._terms.ack is AckLevel.RECEIVED else sent.done

    async def wait(self) -> Receipt:
        """Wait for the answer. Raises the error of the append if it failed."""
        sent = self.batch.sent or await self.batch.wait_sent()
        await self._answered_event(sent).wait()
        return self.receipt_nowait()

    async def wait_durable(self) -> Receipt:
        """Wait until the record is on disk."""
        sent = self.batch.sent or await self.batch.wait_sent()
        await sent.done.wait()
        return self.receipt_nowait()

    def receipt_nowait(self) -> Receipt:
        """The answer. trio.WouldBlock if it has not arrived yet."""
        batch, terms = self.batch, self._terms
        answer = None if batch.sent is None else batch.sent.answer
        match answer:
            case Placed():
                return self._receipt(answer)
            case Received() if terms.ack is AckLevel.RECEIVED:
                return self._receipt(answer)
            case None | Received():
                raise trio.WouldBlock
            case Repeated():
                raise batch.told(batch.in_log_already())
            case AppendRefused(error=error) | Unknown(error=error) | OwnerEnded(error=error):
                raise batch.told(error)
            case _:
                assert_never(answer)

    def _receipt(self, place: Placed | Received) -> Receipt:
        return Receipt(
            self._terms.partition,
            DLSN(place.segment, place.entry, place.slot + self.slot),
            place.first_sequence + self.slot,
            self._terms.sink.home_epoch_of(place.segment),
            provisional=isinstance(place, Received),
            valid_until_s=place.valid_until_s if isinstance(place, Placed) else None,
        )


class RepeatedRecord(Pending):
    """A record that the log has already; waiting for it compares its bytes."""

    __slots__ = ("_ask", "_receipt")

    def __init__(self, ask: Callable[[], Awaitable[Receipt]]) -> None:
        self._ask = ask
        self._receipt: Receipt | GeologError | None = None

    def __repr__(self) -> str:
        return f"<Pending {'done' if self.is_done else 'to be compared'}>"

    @property
    def is_done(self) -> bool:
        """Whether the append is answered, or has failed."""
        return self._receipt is not None

    async def wait(self) -> Receipt:
        """Wait for the answer. Raises the error of the append if it failed."""
        if self._receipt is None:
            try:
                self._receipt = await self._ask()
            except GeologError as error:
                if error.retriable:
                    raise
                self._receipt = error
        return self.receipt_nowait()

    async def wait_durable(self) -> Receipt:
        """Wait until the record is on disk."""
        return await self.wait()

    def receipt_nowait(self) -> Receipt:
        """The answer. trio.WouldBlock if it has not arrived yet."""
        if self._receipt is None:
            raise trio.WouldBlock
        if isinstance(self._receipt, GeologError):
            raise self._receipt
        return self._receipt
