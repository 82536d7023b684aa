"""Opens a session of a named writer: fences all partitions, then reads their number again.

Theory of operation. A session goes by one number of partitions for as long as it lives, and may
append once no earlier session can. It opens in turns:

1. It asks each partition that it has not asked yet for the writer's epoch there.
2. If an epoch is not below its own, it chooses the next one, and a new nonce.
3. It fences every partition with its epoch and nonce, also those that it fenced in an earlier
   turn. The answer says where the writer stands there, behind everything that older sessions
   sent.
4. It reads the number of partitions. If there are as many as it fenced, it is open; otherwise
   the next turn includes the new ones.

A refused fence means that another session has opened, or is opening. Once all partitions have
answered, this one rests for a random time and then tries a higher epoch, which deposes the
other. After `ATTEMPTS_MAX` refused turns it gives up.

If an answer is lost, it repeats the request, with the same epoch and nonce: the partition may
have taken the fence or not. `geolog/protocol/generations.py` says why each turn fences all
partitions again, and why the number of partitions then never falls from session to session.

A writer of one partition asks and fences that partition only, and is open when it is fenced.

Invariants:
1. A session opens only after a turn in which every partition took its fence, between two reads
   of their number that gave the same one.
2. A request is repeated unchanged; a new epoch always has a new nonce.

Rules: PROTOCOL S20.
"""

from collections.abc import Iterable, Mapping
from random import Random
from typing import Generic, TypeVar

import attrs

from geolog.protocol.writer_standing import NO_NONCE, NONCE_MAX, WriterFence

ATTEMPTS_MAX = 8
"""Turns that another session may spoil before this one gives up."""

_FIRST_REST_S_MAX = 0.5
_REST_S_MAX = 3.0
"""Bounds on the back-off: the first, doubled after each further loss, and the highest."""

Standing = TypeVar("Standing")
"""The answer to a fence. The core passes it on."""


@attrs.frozen
class ReadPartitionCount:
    """Read how many partitions the stream has, at least as new as this request."""


@attrs.frozen
class AskWriter:
    """Ask the partition for the writer's epoch."""

    partition: int


@attrs.frozen
class FenceWriter:
    """Fence the writer's older sessions in the partition."""

    partition: int
    fence: WriterFence


@attrs.frozen
class RestBeforeOpening:
    """Wait before the next attempt: another session opens at the same time."""

    rest_s: float


@attrs.frozen
class SessionOpened(Generic[Standing]):
    """The session may append. It goes by as many partitions as answered."""

    fence: WriterFence
    standings: tuple[Standing, ...]
    """The answers to the last fences, in the order of the partitions."""


@attrs.frozen
class OpeningLost:
    """Give up: other sessions of the writer were faster, time and again."""

    partition: int
    """One that refused the last fence."""
    epoch: int
    """The writer's epoch there."""


OpeningEffect = (
    ReadPartitionCount
    | AskWriter
    | FenceWriter
    | RestBeforeOpening
    | SessionOpened[Standing]
    | OpeningLost
)


class WriterOpening(Generic[Standing]):
    """The core of opening one session. Each request must be answered, or reported as lost."""

    def __init__(self, rng: Random, *, only: int | None = None) -> None:
        """`only`: the partition of a writer that writes just one."""
        self._rng = rng
        self._only = only
        self._partitions: tuple[int, ...] = ()
        self._asked: frozenset[int] = frozenset()
        self._waits_for: dict[int, AskWriter | FenceWriter] = {}
        self._standings: dict[int, Standing] = {}
        """Answers to the fences of this turn."""
        self._highest = 0
        """The highest epoch of another session, as far as partitions have told."""
        self._fence = WriterFence(0, NO_NONCE)
        self._refused: OpeningLost | None = None
        """A refusal in this turn."""
        self._attempts = 0

    def __repr__(self) -> str:
        return (
            f"WriterOpening(epoch {self._fence.epoch}, {len(self._partitions)} partitions,"
            f" {len(self._waits_for)} answers to come)"
        )

    @property
    def waits_for(self) -> Mapping[int, AskWriter | FenceWriter]:
        """The requests without an answer, by partition."""
        return self._waits_for

    def begin(self) -> list[OpeningEffect[Standing]]:
        """Begin the first turn."""
        if self._only is None:
            return [ReadPartitionCount()]
        return self._begin_turn([self._only])

    def on_partition_count(self, count: int) -> list[OpeningEffect[Standing]]:
        """The stream has so many partitions."""
        assert not self._waits_for, f"{self} reads the number in the middle of a turn"
        assert count >= len(self._partitions), f"{self}: now there are only {count} partitions"
        if count == len(self._standings):
            return [self._opened()]
        return self._begin_turn(range(count))

    def _begin_turn(self, partitions: Iterable[int]) -> list[OpeningEffect[Standing]]:
        self._partitions = tuple(partitions)
        return (
            self._request(
                [AskWriter(one) for one in self._partitions if one not in self._asked]
            )
            or self._fence_all()
        )

    def on_asked(self, partition: int, epoch: int) -> list[OpeningEffect[Standing]]:
        """The partition has this epoch of the writer; 0 for none."""
        del self._waits_for[partition]
        self._asked |= {partition}
        self._highest = max(self._highest, epoch)
        return [] if self._waits_for else self._fence_all()

    def _fence_all(self) -> list[OpeningEffect[Standing]]:
        self._standings = {}
        if self._fence.epoch <= self._highest:
            nonce = self._rng.randint(NO_NONCE + 1, NONCE_MAX)
            self._fence = WriterFence(self._highest + 1, nonce)
        return self._request([FenceWriter(one, self._fence) for one in self._partitions])

    def _request(
        self, requests: list[AskWriter] | list[FenceWriter]
    ) -> list[OpeningEffect[Standing]]:
        self._waits_for = {one.partition: one for one in requests}
        return list(requests)

    def on_fenced(self, partition: int, standing: Standing) -> list[OpeningEffect[Standing]]:
        """The partition has taken the fence, and the log holds it for good."""
        del self._waits_for[partition]
        self._standings[partition] = standing
        return self._on_fence_answered()

    def on_refused(self, partition: int, epoch: int) -> list[OpeningEffect[Standing]]:
        """The partition has refused the fence: another session has this epoch there."""
        del self._waits_for[partition]
        self._highest = max(self._highest, epoch)
        self._refused = OpeningLost(partition, epoch)
        return self._on_fence_answered()

    def on_answer_lost(self, partition: int) -> list[OpeningEffect[Standing]]:
        """The answer of this partition will not come; its owner may have changed."""
        return [self._waits_for[partition]]

    def on_rested(self) -> list[OpeningEffect[Standing]]:
        """The rest is over."""
        return self._fence_all()

    def _on_fence_answered(self) -> list[OpeningEffect[Standing]]:
        if self._waits_for:
            return []
        if self._refused is not None:
            return [self._after_refusal(self._refused)]
        if self._only is None:
            return [ReadPartitionCount()]
        return [self._opened()]

    def _after_refusal(self, refused: OpeningLost) -> RestBeforeOpening | OpeningLost:
        self._attempts += 1
        if self._attempts == ATTEMPTS_MAX:
            return refused
        self._refused = None
        rest_s_max = min(_FIRST_REST_S_MAX * 2 ** (self._attempts - 1), _REST_S_MAX)
        return RestBeforeOpening(self._rng.uniform(0, rest_s_max))

    def _opened(self) -> SessionOpened[Standing]:
        standings = tuple(self._standings[one] for one in self._partitions)
        return SessionOpened(self._fence, standings)
