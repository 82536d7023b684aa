"""Refuses appends to a partition while its targets are too far behind.

`LossBound` decides; the coordinator of the region's relays tells, over the multicast of this
process, how far each target is.

Rules: PROTOCOL T8.
"""

from collections import OrderedDict
from collections.abc import Callable

import attrs
import trio

from geolog.partition.batch_admission import SkippedSeqError
from geolog.partition.relay_multicast import RelayMulticast
from geolog.protocol.loss_bound import (
    RELEASED_BELOW,
    HeldBack,
    LossBound,
    LossTerms,
    TargetTold,
)
from geolog.protocol.stream_state import PartitionName
from geolog.wire.batch_terms import BatchTerms
from geolog.wire.entry import WriterStamp
from geolog.wire.multicast import MulticastProgress
from topology.errors import OverCapacityError, TooLargeError

_WRITERS_MAX = 1024
"""Named writers whose refusals are remembered. Beyond it a batch behind a refused one gets a
conflict, and not the refused one's error."""


@attrs.frozen(kw_only=True)
class LossStatistics:
    """The bound of one partition, as its owner sees it."""

    terms: LossTerms | None
    held: HeldBack | None
    """Why appends are refused; None if they are taken."""
    refused_count: int
    """Appends that were refused, since there is a bound."""


class LossGuard:
    """Judges the appends to one partition at its owner."""

    def __init__(
        self,
        name: PartitionName,
        *,
        multicast: RelayMulticast | None,
        now_us: Callable[[], int],
    ) -> None:
        """multicast: None if nobody tells how far targets are."""
        self._name = name
        self._multicast = multicast
        self._now_us = now_us
        self._bound: LossBound | None = None
        self._known = trio.Event()
        self._refused: OrderedDict[bytes, int] = OrderedDict()
        """The last seq of each named writer that was refused here."""

    def __repr__(self) -> str:
        return f"LossGuard({self._name}, {self._bound})"

    @property
    def held_target(self) -> str:
        """The target because of which appends are refused; empty if they are not."""
        held = None if self._bound is None else self._bound.held
        return "" if held is None else held.target

    def statistics(self) -> LossStatistics:
        """The bound, and whether the partition is held."""
        bound = self._bound
        if bound is None:
            return LossStatistics(terms=None, held=None, refused_count=0)
        return LossStatistics(
            terms=bound.terms,
            held=bound.look(now_s=trio.current_time()),
            refused_count=bound.refused_count,
        )

    def use(self, terms: LossTerms | None, *, sequence_next: int) -> None:
        """Judge by these terms from now on; `sequence_next` is what the owner assigns next."""
        bound = self._bound
        if terms is None:
            self.close()
        elif bound is None:
            now_s = trio.current_time()
            self._bound = LossBound(terms, sequence_next=sequence_next, now_s=now_s)
            if self._multicast is not None:
                self._multicast.follow(self._name, self)
        elif terms != bound.terms:
            bound.on_terms(terms, now_s=trio.current_time())
            if self._multicast is not None:  # A target that is new must be told of.
                self._multicast.leave(self._name, self)
                self._multicast.follow(self._name, self)
        self._note_known()

    def close(self) -> None:
        """Judge nothing more."""
        self._bound = None
        self._known.set()
        if self._multicast is not None:
            self._multicast.leave(self._name, self)

    async def wait_known(self) -> None:
        """Wait until it is known how far the targets are behind."""
        while self._bound is not None and not self._bound.is_known:
            self._known = trio.Event()
            await self._known.wait()

    def check(self, size_bytes: int, stamp: WriterStamp | None) -> None:
        """OverCapacityError if a batch of this size would pass the bound; `on_taken` follows.

        stamp: its writer and seqs, if it has a name. TooLargeError for a batch that could pass
        at no time.
        """
        bound = self._bound
        if bound is None:
            return
        max_bytes = bound.terms.max_bytes
        if max_bytes is not None and size_bytes > max_bytes:
            raise TooLargeError(
                f"{self._name}: a batch of {size_bytes:,} bytes is larger than the stream's rpo"
                f" max of {max_bytes:,} bytes: send smaller batches"
            )
        before = self.held_target
        held = bound.admit(size_bytes, now_s=trio.current_time())
        if self.held_target != before:
            self._tell()
        if held is not None:
            self._note_refused(stamp)
            raise OverCapacityError(f"{self._name}: {_why(bound.terms, held)}")

    def refusal_behind(
        self, terms: BatchTerms, error: SkippedSeqError
    ) -> OverCapacityError | SkippedSeqError:
        """The error of a batch that came behind a refused one, and could be taken without it.

        If the other one was refused here, both may simply be sent again.
        """
        stamp = terms.writer
        assert stamp is not None
        assert terms.seq_before is not None
        if terms.seq_before > self._refused.get(stamp.writer_id, -1):
            return error
        self._note_refused(stamp)
        return OverCapacityError(f"{self._name}: {error}")

    def _note_refused(self, stamp: WriterStamp | None) -> None:
        if stamp is None:
            return
        self._refused[stamp.writer_id] = stamp.seqs.last
        self._refused.move_to_end(stamp.writer_id)
        if len(self._refused) > _WRITERS_MAX:
            self._refused.popitem(last=False)

    def on_taken(self, first: int, sequence_next: int, size_bytes: int) -> None:
        """The owner has taken in a batch with these sequences."""
        if self._bound is not None:
            now_s = trio.current_time()
            self._bound.on_taken(first, sequence_next, size_bytes, now_s=now_s)

    def on_progress(self, told: MulticastProgress) -> None:
        """The coordinator tells the place of one target."""
        bound = self._bound
        if bound is None:
            return
        before = self.held_target
        lag_us = max(0, self._now_us() - told.since_us) if told.since_us else 0
        bound.on_told(
            TargetTold(
                target=told.target,
                relay_epoch=told.relay_epoch,
                durable_next=told.durable_next,
                tail_next=told.tail_next,
                lag_bytes=told.lag_bytes,
                lag_s=lag_us / 1e6,
            ),
            now_s=trio.current_time(),
        )
        if self.held_target != before:
            self._tell()
        self._note_known()

    def _note_known(self) -> None:
        if self._bound is None or self._bound.is_known:
            self._known.set()

    def _tell(self) -> None:
        if self._multicast is not None:
            self._multicast.wake()


def _why(terms: LossTerms, held: HeldBack) -> str:
    limit = (
        f"{terms.max_bytes:,} bytes" if terms.max_bytes is not None else f"{terms.max_s:g} s"
    )
    if held.lag_bytes is None or held.lag_s is None:
        return (
            f"how far {held.target} is behind is not known yet, and the stream's rpo max is"
            f" {limit}: appends go on once a relay of the home tells it"
        )
    lag = f"{held.lag_bytes:,} bytes" if terms.max_bytes is not None else f"{held.lag_s:.3g} s"
    return (
        f"{held.target} is {lag} behind, and the stream's rpo max is {limit}: appends go on"
        f" below {RELEASED_BELOW:.0%} of that"
    )
