"""Opening a session of a named writer: asks the core, and performs its effects.

The direct writer of a whole stream owns all partitions. If the stream has more of them when
their number is read, it first owns those, too.

Rules: PROTOCOL S20 and S29.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random
from typing import assert_never

import trio

from geolog.background import all_of
from geolog.client.writing.open_batch import WriterSession
from geolog.partition.batch_admission import FenceRefusedError
from geolog.partition.batch_sink import BatchSink
from geolog.protocol.session_home import SessionHome
from geolog.protocol.writer_opening import (
    AskWriter,
    FenceWriter,
    OpeningEffect,
    OpeningLost,
    ReadPartitionCount,
    RestBeforeOpening,
    SessionOpened,
    WriterOpening,
)
from geolog.protocol.writer_standing import WriterStanding
from geolog.wire.limits import WRITER_ID_BYTES_MAX
from topology.errors import FencedError, InvalidArgumentError, OutcomeUnknownError


async def open_session(
    writer_id: str,
    sinks: Sequence[BatchSink],
    *,
    home: SessionHome,
    is_whole: bool,
    count_partitions: Callable[[], Awaitable[int]],
    rng: Random,
) -> WriterSession:
    """Begin the next session of a named writer, which fences the sessions before.

    HomeMovedError if a partition is not in this home.
    `sinks`: by partition number if `is_whole`, else one; `count_partitions` adds those that
    are new. FencedError if other sessions of the writer are faster, or an owner is deposed.
    """
    data = encoded_writer_id(writer_id)
    opening = _Opening(
        data, sinks, home, is_whole=is_whole, count_partitions=count_partitions, rng=rng
    )
    effects = opening.core.begin()
    while effects:
        answers = await all_of([partial(opening.perform, one) for one in effects])
        effects = [one for some in answers for one in some]
    opened = opening.opened
    assert opened is not None, f"{opening.core} has ended without a session"
    partitions = len(opened.standings) if is_whole else 0
    return WriterSession(data, opened.fence.epoch, partitions, home, opened.standings)


def encoded_writer_id(writer_id: str) -> bytes:
    """The id as the log holds it. InvalidArgumentError."""
    data = writer_id.encode()
    if not 0 < len(data) <= WRITER_ID_BYTES_MAX:
        raise InvalidArgumentError(
            f"writer_id {writer_id!r:.60} must have 1 to {WRITER_ID_BYTES_MAX} bytes"
        )
    return data


_Effects = list[OpeningEffect[WriterStanding]]


class _Opening:
    """Performs the effects of one opening."""

    def __init__(
        self,
        writer_id: bytes,
        sinks: Sequence[BatchSink],
        home: SessionHome,
        *,
        is_whole: bool,
        count_partitions: Callable[[], Awaitable[int]],
        rng: Random,
    ) -> None:
        self._writer_id = writer_id
        self._sinks = sinks
        self._home = home
        self._count_partitions = count_partitions
        only = None if is_whole else sinks[0].name.number
        self._first = only or 0
        self.core: WriterOpening[WriterStanding] = WriterOpening(rng, only=only)
        self.opened: SessionOpened[WriterStanding] | None = None
        self._is_counted = True  # The owners have just read the number.

    def __repr__(self) -> str:
        return f"_Opening({self._writer_id!r}, {self.core!r})"

    def _sink(self, partition: int) -> BatchSink:
        return self._sinks[partition - self._first]

    async def perform(self, effect: OpeningEffect[WriterStanding]) -> _Effects:
        """Perform one effect; return those that follow from its answer."""
        match effect:
            case ReadPartitionCount():
                return self.core.on_partition_count(await self._count())
            case AskWriter(partition):
                return await self._ask(partition)
            case FenceWriter():
                return await self._fence(effect)
            case RestBeforeOpening(rest_s):
                await trio.sleep(rest_s)
                return self.core.on_rested()
            case SessionOpened():
                self.opened = effect
                return []
            case OpeningLost(partition, epoch):
                raise FencedError(
                    f"other sessions of writer {self._writer_id.decode()!r} opened first, time"
                    f" and again: the last has epoch {epoch} in partition {partition}"
                )
            case _:
                assert_never(effect)

    async def _count(self) -> int:
        """How many partitions the stream has; the first time, when they were opened."""
        if self._is_counted:
            self._is_counted = False
            return len(self._sinks)
        return await self._count_partitions()

    async def _ask(self, partition: int) -> _Effects:
        try:
            standing = await self._sink(partition).hello(self._writer_id, None)
        except OutcomeUnknownError:
            return self.core.on_answer_lost(partition)
        return self.core.on_asked(partition, standing.epoch)

    async def _fence(self, effect: FenceWriter) -> _Effects:
        sink = self._sink(effect.partition)
        try:
            standing = await sink.hello(self._writer_id, effect.fence)
        except FenceRefusedError as error:
            return self.core.on_refused(effect.partition, error.epoch)
        except OutcomeUnknownError:
            return self.core.on_answer_lost(effect.partition)
        self._home.check(sink.name, standing.home_epoch)
        return self.core.on_fenced(effect.partition, standing)
