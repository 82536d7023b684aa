"""One move of a stream's home under way: its mark, its claims of mirrors, and how it ends.

Planned moves and failovers share these steps; what comes when is decided by their cores.

Rules: PROTOCOL H16 and H17.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

import attrs
import trio

from geolog.background import all_of
from geolog.catalog.home_moves import MarkedMove
from geolog.catalog.partition_owners import VersionedOwner
from geolog.metadata.seam import Freshness
from geolog.partition.mirror_writer import last_watermark
from geolog.partition.takeover import TakenOver, Takeover
from geolog.protocol.stream_state import (
    OwnerRecord,
    PartitionName,
    SegmentRecord,
    StreamRecord,
)
from geolog.protocol.watermark import Watermark
from topology.errors import (
    FencedError,
    GeologError,
    OutcomeUnknownError,
    SealedError,
    UnavailableError,
)

_log = logging.getLogger(__name__)

E = TypeVar("E")

_LOOK_S = 0.05
AGAIN_S = 0.2
"""Pause before a step is tried again."""

END_S_MAX = 10.0
"""How long giving up, or giving mirrors back, may wait for metadata."""


async def follow(
    effects: list[E], perform: Callable[[E], Awaitable[list[E]]], at_once_max: int
) -> None:
    """Perform a core's effects, concurrently if they are several, and all that follow."""
    while len(effects) == 1:
        effects = await perform(effects[0])
    if effects:
        await all_of(
            [partial(follow, [one], perform, at_once_max) for one in effects],
            at_once_max=at_once_max,
        )


@attrs.define(eq=False, kw_only=True)
class HomeMove:
    """The move of one stream to region `to`, by the process named `who`."""

    stream: StreamRecord
    to: str
    who: str
    takeover: Takeover
    move_id: str = attrs.field(init=False)
    marked: MarkedMove | None = None
    """Set once the stream is marked as moving."""
    claims: dict[PartitionName, VersionedOwner] = attrs.field(factory=dict)
    """The mirrors that this process has claimed."""
    owners_at_home: dict[int, OwnerRecord] = attrs.field(factory=dict)
    """For each partition its owner's record at home, as it was once the stream was marked."""
    after: StreamRecord | None = None
    """The stream's settings at the new home, once it is there."""

    def __attrs_post_init__(self) -> None:
        """Draw the id."""
        self.move_id = self.takeover.owners.new_claim_id()

    def mirror(self, number: int, region: str | None = None) -> PartitionName:
        """The name of a partition's mirror in a region; that in the new home if left out."""
        return self.stream.log_in(self.to if region is None else region, number)

    async def mark(self, *, is_failover: bool = False) -> None:
        """Mark the stream as moving. Errors as of `HomeMoves.begin`.

        UnavailableError if its settings are not those that were read before.
        """
        self.marked = await self.takeover.partitions.home_moves.begin(
            self.stream,
            self.to,
            mover=self.takeover.owners.presence,
            move_id=self.move_id,
            who=self.who,
            is_failover=is_failover,
        )
        found, known = self.marked.stream, self.stream
        if attrs.evolve(found, moving_to=known.moving_to) != known:
            raise UnavailableError(
                f"the settings of {known.name} were changed just before its home was to move:"
                " nothing was moved. Try again"
            )

    async def end_home(self, number: int, *, patience_s: float) -> Watermark | None:
        """Wait until the log at home is final, and return its last entry.

        patience_s: how long its owner may take; then it is taken over. The caller bounds the
        whole. HomeMoveConflictError if the move was ended before it took a log over.
        """
        partitions = self.takeover.partitions
        name = self.stream.partition(number)
        with trio.move_on_after(patience_s):
            while not await self._is_closed(name):
                changed = trio.Event()
                await partitions.owners.read(name, changed=changed)
                with trio.move_on_after(_LOOK_S):
                    await changed.wait()
        while not await self._is_closed(name):
            _log.warning("%s: its owner does not close it, so it is taken over", name)
            with suppress(FencedError):
                taken = await self.takeover.take_over(name, self.who, move_id=self.move_id)
                await self.takeover.owners.release(taken.owner)
        return await last_watermark(name, self.takeover, freshness=Freshness.NEARBY)

    async def segment_highest(self, number: int) -> int:
        """The highest segment number that any home has opened: none opens one any more.

        SealedError if the partition is sealed, although the stream is not.
        """
        assert self.marked is not None
        home = self.marked.home.record
        name = self.stream.partition(number)
        owner = await self.takeover.partitions.owners.read(name)
        if owner.record.is_sealed:  # By somebody who died before the stream was.
            raise SealedError(f"{name} is sealed: finish that first (geolog stream seal)")
        self.owners_at_home[number] = owner.record
        return owner.record.segment_highest + home.segment_offset(number, home.home_epoch)

    async def _is_closed(self, name: PartitionName) -> bool:
        """Whether the last row is completed; none can follow, for the stream is moving.

        A nearby server has all rows that were opened before: it has this process's mark.
        """
        last = await self.last_row(name)
        return last is None or last.is_completed

    async def last_row(self, name: PartitionName) -> SegmentRecord | None:
        """The last row of a log, as a nearby server has it."""
        segments = self.takeover.partitions.segments
        found = await segments.last(name, freshness=Freshness.NEARBY)
        return None if found is None else found.record

    async def claim(self, number: int, region: str) -> TakenOver:
        """Take a mirror over from its relay, and complete its last row.

        Retries what may pass; the caller bounds the time.
        """
        mirror = self.mirror(number, region)
        while True:
            try:
                taken = await self.takeover.take_over(
                    mirror, self.who, mirror_in=region, move_id=self.move_id
                )
            except GeologError as error:
                if not (error.retriable or isinstance(error, FencedError)):
                    raise
                await trio.sleep(AGAIN_S)
                continue
            self.claims[mirror] = taken.owner
            return taken

    async def give_back(self, names: Sequence[PartitionName]) -> None:
        """Let others own these mirrors again: relays, or the owners of the new home."""
        for name in names:
            owner = self.claims.pop(name, None)
            if owner is not None:
                try:
                    with suppress(GeologError):
                        await self.takeover.owners.release(owner)
                finally:
                    self.takeover.owners.release_nowait(owner)

    # Giving up.

    async def gave_up(self, error: GeologError) -> GeologError | None:
        """Have the stream stay; None if the flip has happened although its answer was lost.

        Otherwise the error to raise: `error`, or that the outcome is not known.
        """
        failure: GeologError | None = OutcomeUnknownError(
            f"metadata does not answer, so whether {self.stream.name} has moved to {self.to} is"
            f" not known (geolog stream describe {self.stream.name}): {error}"
        )
        with trio.CancelScope(shield=True, deadline=trio.current_time() + END_S_MAX):
            has_stayed = await self.stay()
            if self.marked is not None and not has_stayed:
                self.after = await self._moved()
            failure = error if self.after is None else None
        return failure

    async def stay(self) -> bool:
        """Give the move up; False if it was ended before, either way, or never began."""
        while True:
            try:
                moves = self.takeover.partitions.home_moves
                return await moves.give_up(self.stream, self.move_id)
            except GeologError as error:
                if not error.retriable:
                    return False  # The stream is gone.
                await trio.sleep(AGAIN_S)

    async def _moved(self) -> StreamRecord | None:
        """The stream's settings if its home is the new one."""
        stream, partitions = self.stream, self.takeover.partitions
        epoch = stream.home_epoch + 1
        home = await partitions.homes.read_latest(stream.name, stream.life)
        if home is None or (home.record.region, home.record.home_epoch) != (self.to, epoch):
            return None
        return await partitions.home_moves.settings_of(stream)
