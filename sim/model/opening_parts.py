"""The parts of the model of opening sessions: logs of partitions, requests, and sessions.

This code stands for the shells. What two processes can tell apart is a value here, so that
states can be compared; each session has the real core.
"""

import copy
from collections.abc import Hashable
from random import Random
from typing import assert_never

import attrs

from geolog.protocol.generations import Generation, with_seq
from geolog.protocol.writer_opening import (
    AskWriter,
    FenceWriter,
    OpeningEffect,
    SessionOpened,
    WriterOpening,
)
from geolog.protocol.writer_standing import NO_NONCE, WriterFence

RECORD_KEY = 5
"""The record's key: of 1, 2 and 3 partitions it belongs to the last."""

RECORD_SEQ = 0
"""The record's seq."""


@attrs.frozen(kw_only=True)
class OpeningShape:
    """The bounds of the model; everything within them is tried."""

    sessions_count: int = 2
    partitions_first: int = 1
    partitions_max: int = 2
    takes_max: int = 1
    """How often all partitions together get another owner."""
    breaks_max: int = 0
    """How often a session loses its connection to an owner that has a fence of it."""
    rests_max: int = 1
    """How often a session tries again after a refused fence."""


@attrs.frozen
class ModelStanding:
    """What an answered fence says of the writer."""

    seq_highest: int
    generations: tuple[Generation, ...]


@attrs.frozen
class LoggedFence:
    """A fence in the log of a partition."""

    fence: WriterFence
    session: int
    is_awaited: bool
    """Whether the session hears of its acknowledgement."""


@attrs.frozen
class LoggedBatch:
    """The record in the log of a partition."""

    epoch: int
    partitions: int
    """How many its session went by."""


Log = tuple[LoggedFence | LoggedBatch, ...]


@attrs.frozen
class ModelPartition:
    """The log of a partition, as its owner has it in memory."""

    log: Log = ()
    acknowledged: int = 0
    """How many of these entries are acknowledged."""
    outdated: tuple[Log, ...] = ()
    """What earlier owners have in memory that do not know that they are no owners any more."""

    def epoch(self) -> int:
        """The writer's epoch that no owner can forget any more."""
        return known_fence(self.log[: self.acknowledged]).epoch


@attrs.frozen
class Packet:
    """A request of a session on its way to the owner of a partition."""

    session: int
    partition: int
    request: AskWriter | FenceWriter | LoggedBatch
    is_awaited: bool = True

    def words(self) -> str:
        """The request in words; no other on its way has the same."""
        match self.request:
            case AskWriter():
                what = "the question"
            case FenceWriter(_, fence):
                what = f"{'the' if self.is_awaited else 'the late'} fence {fence.epoch}"
            case LoggedBatch() as batch:
                what = f"the record under {batch.epoch}"
            case _:
                assert_never(self.request)
        return f"{what} of session {self.session} to partition {self.partition}"


@attrs.frozen
class ModelSession:
    """One process that opens a session, then appends the record again and again."""

    number: int
    core: WriterOpening[ModelStanding]
    effect: OpeningEffect[ModelStanding] | None = None
    """Its next step, other than to wait for answers."""
    rests_count: int = 0
    is_deposed: bool = False

    @property
    def opened(self) -> SessionOpened[ModelStanding] | None:
        """The session, once it is open."""
        return self.effect if isinstance(self.effect, SessionOpened) else None

    def place(self) -> LoggedBatch | None:
        """The record as it appends it, or None unless it is open."""
        if self.opened is None:
            return None
        return LoggedBatch(self.opened.fence.epoch, len(self.opened.standings))

    def key(self) -> Hashable:
        """Everything that it knows."""
        known = [
            tuple(sorted(value.items())) if isinstance(value, dict) else value
            for name, value in vars(self.core).items()
            if name != "_rng"
        ]
        return self.number, tuple(known), self.effect, self.rests_count, self.is_deposed


class Nonces(Random):
    """Chance for a core: one nonce for each session is enough, as its epochs differ."""

    def __init__(self, nonce: int) -> None:
        super().__init__(nonce)
        self._nonce = nonce

    def randint(self, _low: int, _high: int) -> int:
        """The nonce."""
        return self._nonce

    def uniform(self, _low: float, _high: float) -> float:
        """A rest; it ends at any time."""
        return 0.0


def known_fence(log: Log) -> WriterFence:
    """The last fence of the writer; a batch is in the log only under the last fence."""
    fences = (one.fence for one in reversed(log) if isinstance(one, LoggedFence))
    return next(fences, WriterFence(0, NO_NONCE))


def standing_of(log: Log) -> ModelStanding:
    """The answer to a fence behind these entries."""
    generations: tuple[Generation, ...] = ()
    seq_highest = -1
    for one in log:
        if isinstance(one, LoggedBatch):
            generations = with_seq(generations, one.partitions, RECORD_SEQ)
            seq_highest = RECORD_SEQ
    return ModelStanding(seq_highest, generations)


def copied(core: WriterOpening[ModelStanding]) -> WriterOpening[ModelStanding]:
    """A copy that shares nothing mutable with the core."""
    twin = copy.copy(core)
    for name, value in vars(core).items():
        if isinstance(value, dict):
            setattr(twin, name, dict(value))
    return twin


def unheard(log: Log) -> Log:
    """The log once no session waits for an answer of its owner."""
    return tuple(
        attrs.evolve(one, is_awaited=False) if isinstance(one, LoggedFence) else one
        for one in log
    )
