"""Keeps mirrors open from one bridge to the next.

A mirror belongs to the coordinator of its region, whichever coordinator of its home feeds it.
So when the home's coordinator changes, only the feed changes: the mirror is neither closed nor
taken over again, which would cost a dozen requests to metadata. A mirror that nobody feeds is
closed after a while.

Rules: PROTOCOL B3.
"""

import logging
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs
import trio

from geolog.background import open_background
from geolog.client.log import Log
from geolog.partition.mirror_writer import MirrorListener, MirrorWriter
from geolog.protocol.stream_state import PartitionName, StreamRecord
from geolog.protocol.watermark import Watermark
from topology.errors import GeologError, UnavailableError, first_of

_log = logging.getLogger(__name__)

_UNUSED_S_MAX = 30.0
"""How long a mirror stays open that no bridge feeds."""


@attrs.frozen(eq=False)
class MirrorUser:
    """A channel that feeds a mirror."""

    listener: MirrorListener
    on_taken: Callable[[GeologError], None]
    """Another channel feeds the mirror from now on. Called at once."""


@attrs.define(eq=False)
class _Kept:
    """A mirror that is being opened, or is open: a `MirrorListener`."""

    home_epoch: int
    """Of the stream when it was opened."""
    user: MirrorUser | None = None
    changed: trio.Event = attrs.field(factory=trio.Event)
    """Set once it is fed by another channel, or by none."""
    mirror: MirrorWriter | None = None
    opened: trio.Event = attrs.field(factory=trio.Event)
    """Set once `mirror` or `error` is."""
    error: GeologError | None = None
    is_closing: bool = False
    ended: trio.Event = attrs.field(factory=trio.Event)

    @property
    def is_over(self) -> bool:
        has_failed = self.mirror is not None and self.mirror.failure is not None
        return self.is_closing or self.error is not None or has_failed

    def on_durable(self, watermark: Watermark) -> None:
        """Tell the channel that feeds it. See `MirrorListener`."""
        if self.user is not None:
            self.user.listener.on_durable(watermark)

    def feed_by(self, user: MirrorUser | None) -> None:
        self.user = user
        self.changed.set()


class MirrorKeeper:
    """The mirrors that one coordinator owns; `open_mirrors` opens it."""

    def __init__(self, log: Log, nursery: trio.Nursery) -> None:
        self._log = log
        self._nursery = nursery
        self._kept: dict[PartitionName, _Kept] = {}
        self.opened_count = 0
        """Mirrors that were taken over."""
        self.bugs_count = 0
        """Mirrors that an error other than geolog's own has closed."""

    def __repr__(self) -> str:
        return f"MirrorKeeper({len(self._kept)} open)"

    @asynccontextmanager
    async def use(
        self, record: StreamRecord, name: PartitionName, user: MirrorUser
    ) -> AsyncIterator[MirrorWriter]:
        """Feed this mirror while the block lasts; it is opened unless it still is.

        All that was pushed before is durable when the block begins. UnavailableError if another
        channel takes it meanwhile; errors as of opening a mirror.
        """
        kept = await self._kept_of(record, name)
        before = kept.user
        kept.feed_by(user)
        if before is not None:
            before.on_taken(UnavailableError(f"another bridge feeds mirror {name} now"))
        try:
            await kept.opened.wait()
            if kept.error is not None:
                raise kept.error
            assert kept.mirror is not None
            await kept.mirror.wait_durable()
            if kept.user is not user:
                raise UnavailableError(f"another bridge feeds mirror {name} now")
            yield kept.mirror
        finally:
            if kept.user is user:
                kept.feed_by(None)

    async def _kept_of(self, record: StreamRecord, name: PartitionName) -> _Kept:
        while True:
            kept = self._kept.get(name)
            if kept is None:
                kept = self._kept[name] = _Kept(record.home_epoch)
                self._nursery.start_soon(
                    self._keep, record, name, kept, name=f"owner of {name}"
                )
            if not kept.is_over and kept.home_epoch >= record.home_epoch:
                return kept
            await kept.opened.wait()
            if kept.mirror is not None:
                # It may hold what the later home does not have: opening it again finds out.
                kept.mirror.end(UnavailableError(f"{name} is mirrored from a later home now"))
            await kept.ended.wait()

    async def _keep(self, record: StreamRecord, name: PartitionName, kept: _Kept) -> None:
        opener = self._log.partition_opener
        try:
            async with opener.open_mirror(record, name, kept) as mirror:
                self.opened_count += 1
                kept.mirror = mirror
                kept.opened.set()
                await _wait_unused(kept, mirror)
                kept.is_closing = True
        except* GeologError as errors:
            kept.error = first_of(errors)
        except* Exception as errors:  # noqa: BLE001 - one mirror must not end the others.
            _log.error("mirror %s: met a bug; it is closed", name, exc_info=errors)
            kept.error = UnavailableError(
                f"mirror {name} met a bug: the log of its relay says more"
            )
            self.bugs_count += 1
        finally:
            del self._kept[name]
            kept.is_closing = True
            kept.opened.set()
            kept.ended.set()


async def _wait_unused(kept: _Kept, mirror: MirrorWriter) -> None:
    """Wait until no channel has fed the mirror for a while, or it has failed."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cancel_once_failed, mirror, nursery.cancel_scope)
        while True:
            kept.changed = trio.Event()
            with trio.move_on_after(math.inf if kept.user else _UNUSED_S_MAX) as patience:
                await kept.changed.wait()
            if patience.cancelled_caught:
                nursery.cancel_scope.cancel(reason="no bridge feeds the mirror")
                return


async def _cancel_once_failed(mirror: MirrorWriter, scope: trio.CancelScope) -> None:
    await mirror.wait_failed()
    scope.cancel(reason="the mirror takes nothing more")


@asynccontextmanager
async def open_mirrors(log: Log) -> AsyncIterator[MirrorKeeper]:
    """Own mirrors while the block lasts; each is closed at its end."""
    async with open_background() as nursery:
        yield MirrorKeeper(log, nursery)
