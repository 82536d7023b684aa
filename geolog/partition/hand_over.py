"""Handing owned partitions over to processes that offer to take them.

`HandOver` decides; this shell ends the writers, and asks metadata.
"""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import assert_never

import attrs
import trio

from geolog.background import all_of
from geolog.catalog.offers import Offer, Offers
from geolog.catalog.partition_owners import VersionedOwner
from geolog.metadata.seam import BadVersionError, NoNodeError
from geolog.partition.partition_writer import PartitionWriter
from geolog.partition.shown_owners import ShownOwners
from geolog.protocol.hand_over import (
    Effect,
    End,
    Give,
    HandOver,
    JudgeGive,
    Leave,
    Outcome,
    PauseBeforeRetry,
)
from geolog.protocol.stream_state import PartitionName
from topology.errors import GeologError

_log = logging.getLogger(__name__)

END_S = 2.0
"""How long a wave waits for a partition whose appends get no answer; it then stays."""


@attrs.frozen
class HandedOver:
    """What became of each partition."""

    given: Mapping[PartitionName, Offer]
    """The successors, which own them now."""
    lost: Sequence[PartitionName]
    """Another process owns these, or their stream is gone."""
    kept: Sequence[PartitionName]
    """Still this process's: not answered in time, or without a successor from the start."""
    left: Sequence[PartitionName]
    """Stopped, but not given: every successor was gone, or the ledger was not closed in time.
    They have no owner, at the latest when their writers' blocks have ended."""


async def hand_over(
    successors: Mapping[PartitionWriter, Sequence[Offer]],
    *,
    owners: ShownOwners,
    offers: Offers,
    end_s: float = END_S,
) -> HandedOver:
    """Give each partition to the first of its successors that is still there.

    Every append that a writer took is answered first; later ones are refused as
    HandedOverError. A writer whose partition was given, or left, has failed with that error; if
    its block ends because of that, it waits for the hand-over.
    The caller bounds the time. If it stops waiting, the end of the writers' block settles what
    is open, as after any failure.
    """
    run = _Run(
        HandOver(
            {
                writer.name: [offer.offer_id for offer in wishes]
                for writer, wishes in successors.items()
            }
        ),
        writers={writer.name: writer for writer in successors},
        offers_by_id={
            offer.offer_id: offer for wishes in successors.values() for offer in wishes
        },
        owners=owners,
        offers=offers,
        end_s=end_s,
    )
    try:
        await run.follow(run.core.begin())
    finally:
        for writer in successors:
            writer.on_handed_over()
    return run.handed_over()


@attrs.define(eq=False)
class _Run:
    """One hand-over."""

    core: HandOver
    writers: Mapping[PartitionName, PartitionWriter]
    offers_by_id: Mapping[str, Offer]
    owners: ShownOwners
    offers: Offers
    end_s: float
    ended: dict[PartitionName, VersionedOwner] = attrs.field(factory=dict)
    """The last owner records of writers that have ended."""

    def handed_over(self) -> HandedOver:
        """The result, when nothing is left to perform."""
        by_outcome: dict[Outcome, list[PartitionName]] = {outcome: [] for outcome in Outcome}
        for name, outcome in self.core.outcomes.items():
            by_outcome[outcome].append(name)
        given_to = self.core.given_to
        return HandedOver(
            {name: self.offers_by_id[given_to[name]] for name in by_outcome[Outcome.GIVEN]},
            by_outcome[Outcome.LOST],
            by_outcome[Outcome.KEPT],
            by_outcome[Outcome.LEFT],
        )

    async def follow(self, effects: Sequence[Effect]) -> None:
        """Perform these, concurrently if they are several, and all that follows from them."""
        while len(effects) == 1:
            effects = await self._perform(effects[0])
        if effects:
            await all_of([partial(self.follow, [effect]) for effect in effects])

    async def _perform(self, effect: Effect) -> list[Effect]:
        match effect:
            case End(names=names):
                with trio.move_on_after(self.end_s):
                    await all_of([partial(self._end, name) for name in names])
                stopped = [name for name in names if self.writers[name].failure is not None]
                return self.core.on_ended(effect, self.ended.keys() & set(names), stopped)
            case Give():
                return await self._give(effect)
            case JudgeGive():
                return await self._look(effect)
            case PauseBeforeRetry(pause_s, then):
                await trio.sleep(pause_s)
                return [then]
            case Leave(names):
                await all_of([partial(self.owners.release, self.ended[name]) for name in names])
                return []
            case _:
                assert_never(effect)

    async def _end(self, name: PartitionName) -> None:
        try:
            self.ended[name] = await self.writers[name].end()
        except GeologError as error:
            _log.warning("%s: not handed over: %s", name, error)

    async def _give(self, give: Give) -> list[Effect]:
        try:
            await self.offers.give(*self._asked(give))
        except (BadVersionError, NoNodeError):
            return self.core.on_refused(give)
        except GeologError as error:
            if error.retriable:
                return self.core.on_doubt(give)
            _log.warning("%d partitions not handed over: %s", len(give.names), error)
            return self.core.on_refused(give)
        effects = self.core.on_given(give)
        self._forget(give)
        return effects

    async def _look(self, look: JudgeGive) -> list[Effect]:
        try:
            standings = await self.offers.standings(*self._asked(look.give))
        except GeologError as error:
            if not error.retriable:
                raise
            return self.core.on_unreadable(look)
        effects = self.core.on_found(look, standings)
        self._forget(look.give)
        return effects

    def _asked(self, give: Give) -> tuple[Offer, dict[PartitionName, VersionedOwner]]:
        return self.offers_by_id[give.offer], {name: self.ended[name] for name in give.names}

    def _forget(self, give: Give) -> None:
        """Forget the owners whose successors have replaced them."""
        for name in give.names:
            if self.core.outcomes.get(name) is Outcome.GIVEN:
                self.owners.on_given(self.ended[name])
