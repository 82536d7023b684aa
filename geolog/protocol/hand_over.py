"""Decides how an owner hands its partitions to other processes: in which groups, and to which.

Theory of operation. Each partition comes with its successors, best first. A successor stands
behind an offer: a node in metadata that goes with its session, and that it deletes to withdraw.
The partitions of one successor go in waves of at most `GROUP_PARTITIONS_MAX`, one wave after
the other, so that each partition is without an owner for two rounds of metadata only, however
many there are. A wave has two steps:

1. End: the owner takes no more appends, answers those that it took, and closes its ledger. So
   every append is answered before the partition moves, or refused for certain.
2. Give: one multi checks the offer and writes all owner records of the wave, each over the
   version that this owner stored, with the next epoch and a claim that only the successor can
   take up.

A partition that cannot be ended in time does not hold up its wave; it stays where it is. If its
writer has stopped already, and only the answer to its close is late, it is left instead.

A give that was refused, or whose answer was lost, is judged by the owner records, read for
certain: metadata answers in the order of requests, so the multi is over by then. All records
tell the same about the multi, but each may have changed since, or before. If the give was
refused although all records are still this owner's, the successor has withdrawn or died, so
its partitions go to their next successors. Without one, an ended partition is left, as if its
owner had closed.

Invariants:
1. A partition is given only after it has ended, and is in one request at a time.
2. It counts as given only if the multi succeeded; as lost only if another claim has it.
3. No request names more than `GROUP_PARTITIONS_MAX` partitions.
4. Each refusal takes away a partition or a successor, so a hand-over ends.

Rules: PROTOCOL O15 and O16.
"""

import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

import attrs

from geolog.protocol.stream_state import PartitionName

GROUP_PARTITIONS_MAX = 64
"""Maximum owner records in one multi: with their checks they stay far below 1 MiB."""

LOOK_AGAIN_S = 0.25
"""Pause before metadata is asked again, when it gave no answer."""


class Standing(enum.Enum):
    """Whose a partition is, by its owner record, after a give without a clear answer."""

    OURS = "as this owner stored it"
    GIVEN = "the successor's, by this give"
    OTHERS = "another's, or gone"


class Outcome(enum.Enum):
    """End of a partition's hand-over."""

    GIVEN = "its successor owns it"
    LOST = "another process owns it, or it is gone"
    KEPT = "its appends were not answered in time, or it was never begun: this owner has it"
    LEFT = "it takes nothing more, and has no successor"


@attrs.frozen
class End:
    """Take no more appends, answer the rest, close the ledgers; `on_ended`."""

    offer: str
    names: tuple[PartitionName, ...]


@attrs.frozen
class Give:
    """Write these owner records, if the offer stands; `on_given`, `on_refused`, `on_doubt`."""

    offer: str
    names: tuple[PartitionName, ...]


@attrs.frozen
class JudgeGive:
    """Read the owner records of this give, for certain; `on_found`, or `on_unreadable`."""

    give: Give
    is_refused: bool
    """Whether the give was refused, rather than left without an answer."""


@attrs.frozen
class PauseBeforeRetry:
    """Wait this long, then go on with this effect."""

    pause_s: float
    then: Give | JudgeGive


@attrs.frozen
class Leave:
    """Record that their owner has left; then nothing."""

    names: tuple[PartitionName, ...]


Effect = End | Give | JudgeGive | PauseBeforeRetry | Leave


class HandOver:
    """One hand-over. The effects of one event may be performed concurrently."""

    def __init__(self, wishes: Mapping[PartitionName, Sequence[str]]) -> None:
        """`wishes`: offers for each partition, best first."""
        self._wishes = {name: list(offers) for name, offers in wishes.items()}
        self._queues: dict[str, dict[PartitionName, None]] = {}
        """Partitions not begun, by offer, in order."""
        self._withdrawn: set[str] = set()
        self._under_way: Counter[str] = Counter()
        """Waves and gives under way, by offer."""
        self.outcomes: dict[PartitionName, Outcome] = {}
        self.given_to: dict[PartitionName, str] = {}
        """The offer that took each partition that was given."""

    def __repr__(self) -> str:
        return f"HandOver({len(self.outcomes)} of {len(self._wishes)} partitions)"

    def begin(self) -> list[Effect]:
        """Hand all partitions over."""
        for name in self._wishes:
            self._queue(name)
        return self._next_waves()

    # A wave.

    def on_ended(
        self,
        end: End,
        ended: Iterable[PartitionName],
        stopped: Iterable[PartitionName] = (),
    ) -> list[Effect]:
        """These partitions of the wave have ended; the others could not in time.

        stopped: those whose writers take nothing more, whether or not their ledgers are closed.
        """
        done, not_kept = set(ended), set(stopped)
        for name in end.names:
            if name not in done:
                self.outcomes[name] = Outcome.LEFT if name in not_kept else Outcome.KEPT
        names = tuple(name for name in end.names if name in done)
        return self._over(end.offer) if not names else self._give(end.offer, names)

    def on_given(self, give: Give) -> list[Effect]:
        """The multi succeeded."""
        self._note_given(give, give.names)
        return self._over(give.offer)

    def on_refused(self, give: Give) -> list[Effect]:
        """The multi was refused: a record has changed, or the offer is gone."""
        return [JudgeGive(give, is_refused=True)]

    def on_doubt(self, give: Give) -> list[Effect]:
        """The answer to the multi was lost."""
        return [JudgeGive(give, is_refused=False)]

    def on_found(
        self, look: JudgeGive, standings: Mapping[PartitionName, Standing]
    ) -> list[Effect]:
        """The owner records were read, after the multi was over."""
        give = look.give
        ours = tuple(name for name in give.names if standings[name] is Standing.OURS)
        given = [name for name in give.names if standings[name] is Standing.GIVEN]
        self._note_given(give, given)
        for name in give.names:
            if standings[name] is Standing.OTHERS:
                self.outcomes[name] = Outcome.LOST
        if not ours:
            return self._over(give.offer)
        if look.is_refused and len(ours) == len(give.names):
            return self._on_withdrawn(give)
        again = Give(give.offer, ours)
        return [again] if look.is_refused else [PauseBeforeRetry(LOOK_AGAIN_S, again)]

    def on_unreadable(self, look: JudgeGive) -> list[Effect]:
        """Metadata did not answer."""
        return [PauseBeforeRetry(LOOK_AGAIN_S, look)]

    def _note_given(self, give: Give, names: Iterable[PartitionName]) -> None:
        for name in names:
            self.outcomes[name] = Outcome.GIVEN
            self.given_to[name] = give.offer

    # Successors.

    def _give(self, offer: str, ended: Sequence[PartitionName]) -> list[Effect]:
        """Give partitions that have ended, unless their successor is known to be gone."""
        give = Give(offer, tuple(ended))
        return self._on_withdrawn(give) if offer in self._withdrawn else [give]

    def _on_withdrawn(self, give: Give) -> list[Effect]:
        """The successor of these ended partitions is gone: give them to their next ones."""
        self._withdrawn.add(give.offer)
        effects: list[Effect] = []
        by_offer: dict[str, list[PartitionName]] = {}
        left: list[PartitionName] = []
        for name in give.names:
            offer = self._best(name)
            if offer is None:
                self.outcomes[name] = Outcome.LEFT
                left.append(name)
            else:
                by_offer.setdefault(offer, []).append(name)
        for offer, names in by_offer.items():
            self._under_way[offer] += 1
            effects.append(Give(offer, tuple(names)))
        if left:
            effects.append(Leave(tuple(left)))
        for name in self._queues.pop(give.offer, {}):
            self._queue(name)
        return [*effects, *self._over(give.offer)]

    def _best(self, name: PartitionName) -> str | None:
        """Its best successor that is not known to be gone."""
        wishes = self._wishes[name]
        return next((offer for offer in wishes if offer not in self._withdrawn), None)

    def _queue(self, name: PartitionName) -> None:
        offer = self._best(name)
        if offer is None:
            self.outcomes[name] = Outcome.KEPT
        else:
            self._queues.setdefault(offer, {})[name] = None

    def _over(self, offer: str) -> list[Effect]:
        """A wave or give is over: begin the waves that nothing is ahead of."""
        self._under_way[offer] -= 1
        return self._next_waves()

    def _next_waves(self) -> list[Effect]:
        waves: list[Effect] = []
        for offer, queue in self._queues.items():
            if queue and not self._under_way[offer]:
                self._under_way[offer] += 1
                wave = tuple(islice(queue, GROUP_PARTITIONS_MAX))
                for name in wave:
                    del queue[name]
                waves.append(End(offer, wave))
        return waves
