"""Appends on their way to their receipts: of records in a batch, and of repeated ones."""

import enum
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

import attrs
import trio

from geolog.client.writing.open_batch import OpenBatch
from geolog.protocol.ids import DLSN, Position
from topology.errors import GeologError


class AckLevel(enum.Enum):
    """What is true when an append is answered.

    RECEIVED: the record is in the memory of an ack set. Its position is provisional: power lost
    everywhere at once, or a takeover, can lose it. DURABLE: it is on the disks of an ack set.
    """

    RECEIVED = "received"
    DURABLE = "durable"


@attrs.frozen
class Receipt:
    """An appended record: its place, for good unless it is provisional."""

    partition: int
    dlsn: DLSN
    sequence: int
    epoch: int
    duplicate: bool = False
    """Whether it was in the log before."""
    provisional: bool = False
    """Whether it is not yet on disk, and may still be lost."""

    @property
    def position(self) -> Position:
        """What a checkpoint keeps."""
        return Position(self.epoch, self.sequence)

    def behind(self, place: int) -> "Receipt":
        """That of the record which stands so many slots behind this one in its batch."""
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
    """An append on its way."""

    __slots__ = ()

    @property
    @abstractmethod
    def is_done(self) -> bool:
        """Whether it is answered, one way or the other."""

    @abstractmethod
    async def wait(self) -> Receipt:
        """Wait for the answer. Raises what became of the append, if it was not acknowledged."""

    @abstractmethod
    async def wait_durable(self) -> Receipt:
        """Wait until the record is on the disks of an ack set, whatever the writer's level."""

    @abstractmethod
    def receipt_nowait(self) -> Receipt:
        """The answer, if it is there; trio.WouldBlock if not yet."""


@attrs.frozen
class ReceiptTerms:
    """What the receipts of one partition's records have in common."""

    partition: int
    home_epoch: int
    ack: AckLevel


class NewRecord(Pending):
    """A record that is in a batch."""

    __slots__ = ("_terms", "batch", "slot")

    def __init__(self, terms: ReceiptTerms, batch: OpenBatch, slot: int) -> None:
        self._terms = terms
        self.batch = batch
        self.slot = slot

    def __repr__(self) -> str:
        return f"<Pending {'done' if self.is_done else 'on its way'}>"

    @property
    def is_done(self) -> bool:
        """Whether it is answered, one way or the other."""
        batch = self.batch
        if batch.error is not None or batch.placed is None:
            return batch.error is not None
        return self._answered_event(batch).is_set()

    def _answered_event(self, batch: OpenBatch) -> trio.Event:
        assert batch.placed is not None
        if self._terms.ack is AckLevel.RECEIVED:
            return batch.placed.received
        return batch.placed.done

    async def wait(self) -> Receipt:
        """Wait for the answer. Raises what became of the append."""
        batch = self.batch
        if batch.placed is None and batch.error is None:
            await batch.sealed.wait()
        if batch.placed is not None:
            await self._answered_event(batch).wait()
        return self.receipt_nowait()

    async def wait_durable(self) -> Receipt:
        """Wait until the record is on disk."""
        batch = self.batch
        if batch.placed is None and batch.error is None:
            await batch.sealed.wait()
        if batch.placed is not None:
            await batch.placed.done.wait()
        return self.receipt_nowait()

    def receipt_nowait(self) -> Receipt:
        """The answer; trio.WouldBlock if it is not there yet."""
        batch = self.batch
        if batch.error is not None:
            raise batch.error
        if not self.is_done:
            raise trio.WouldBlock
        placed = batch.placed
        assert placed is not None
        if placed.error is not None:
            raise placed.error
        slot = self.slot
        return Receipt(
            self._terms.partition,
            DLSN(placed.segment, placed.entry, slot),
            placed.first_sequence + slot,
            self._terms.home_epoch,
            provisional=not placed.done.is_set(),
        )


class RepeatedRecord(Pending):
    """A record that was in the log before: its bytes are compared when it is waited for."""

    __slots__ = ("_ask", "_receipt")

    def __init__(self, ask: Callable[[], Awaitable[Receipt]]) -> None:
        self._ask = ask
        self._receipt: Receipt | GeologError | None = None

    def __repr__(self) -> str:
        return f"<Pending {'done' if self.is_done else 'to be compared'}>"

    @property
    def is_done(self) -> bool:
        """Whether it is answered, one way or the other."""
        return self._receipt is not None

    async def wait(self) -> Receipt:
        """Wait for the answer. Raises what became of the append."""
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
        """The answer; trio.WouldBlock if it is not there yet."""
        if self._receipt is None:
            raise trio.WouldBlock
        if isinstance(self._receipt, GeologError):
            raise self._receipt
        return self._receipt
