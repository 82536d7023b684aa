"""The seam between a writer's lane and the owner of a partition.

A lane calls `hello` and `append`, and waits for the owner's end. Everything else comes back in
answers (`geolog.protocol.owner_answers`). The owner may be in this process or anywhere: many
batches are in flight, and their answers come in order.
"""

from typing import Protocol

import attrs
import trio

from geolog.protocol.home_record import Lineage
from geolog.protocol.owner_answers import OwnerAnswer, OwnerEnded, Received
from geolog.protocol.stream_state import PartitionName
from geolog.protocol.writer_standing import WriterFence, WriterStanding
from geolog.wire.batch import SealedBatch
from geolog.wire.batch_terms import BatchTerms


class AnswerListener(Protocol):
    """Hears of answers to what was sent with it. Called at once, once for several answers."""

    def on_answers(self) -> None:
        """Some were answered, in order: the sender finds the answers in what it sent."""
        ...


@attrs.define(eq=False)
class SentBatch:
    """A batch that an owner was given, and its answer."""

    listener: AnswerListener | None = attrs.field(default=None, kw_only=True)
    answer: OwnerAnswer | None = attrs.field(default=None, kw_only=True)
    """The latest answer; the last one once `done` is set."""
    received: trio.Event = attrs.field(factory=trio.Event, kw_only=True)
    """Set with the first answer."""
    done: trio.Event = attrs.field(factory=trio.Event, kw_only=True)
    """Set with the last answer."""

    def receive(self, answer: Received) -> None:
        """Give it a first answer, before the last one."""
        self.answer = answer
        self.received.set()

    def finish(self, answer: OwnerAnswer) -> None:
        """Give it its last answer. The caller tells the listener."""
        self.answer = answer
        self.received.set()
        self.done.set()


def answered(answer: OwnerAnswer) -> SentBatch:
    """A batch that is answered at once."""
    sent = SentBatch()
    sent.finish(answer)
    return sent


@attrs.frozen
class Opened:
    """The facts that an owner tells when it is opened."""

    transaction_id: int | None
    """Highest transaction id in the log, if any record has one."""
    home_epoch: int
    """The stream's home epoch, as the owner knows it."""
    session_epoch: int
    """The home epoch in which sessions of writers begin; see `SessionHome`."""
    lineage: Lineage
    """The home epochs of its segments."""


class BatchSink(Protocol):
    """Destination of sealed batches: the owner in this process, or a way to it elsewhere."""

    @property
    def name(self) -> PartitionName:
        """The partition."""
        ...

    @property
    def opened(self) -> Opened:
        """The facts told when it was opened."""
        ...

    def home_epoch_of(self, segment: int) -> int:
        """The home epoch in which a segment of the partition was written."""
        ...

    async def hello(self, writer_id: bytes, fence: WriterFence | None) -> WriterStanding:
        """Ask where a named writer stands; with a fence, begin its session. FencedError."""
        ...

    def append(
        self, sealed: SealedBatch, terms: BatchTerms, listener: AnswerListener | None
    ) -> SentBatch:
        """Take a batch in. Its answer comes at once, or later and in order.

        The listener hears of an answer that comes later. Without one, the records were sent
        before: if the log has them, each has an answer of its own (`Repeated`).
        """
        ...

    async def wait_ended(self) -> OwnerEnded:
        """Wait until the owner takes nothing more: there may be no batch to tell it with."""
        ...
