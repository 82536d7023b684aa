"""The clock of a partition's owner: the host's clock, held close to the metadata store's.

`geolog.protocol.append_clock` decides the time, and when to ask the store for its own: this
process's monotonic clock may have stood still.
"""

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import assert_never

import trio

from geolog.catalog.metadata_session import MetadataSession
from geolog.catalog.partition_owners import PartitionOwners
from geolog.protocol.append_clock import (
    AHEAD_US_MAX,
    AppendClock,
    AskStore,
    ClockAhead,
    ClockEffect,
    ClockRight,
)
from geolog.protocol.stream_state import OwnerRecord, PartitionName
from topology.errors import GeologError

_log = logging.getLogger(__name__)


class AppendTimes:
    """Gives the time for what one owner of a partition appends."""

    def __init__(
        self,
        name: PartitionName,
        owner: OwnerRecord,
        *,
        owners: PartitionOwners,
        session: MetadataSession,
        now_us: Callable[[], int],
        nursery: trio.Nursery,
    ) -> None:
        self._name = name
        self._owner = owner
        self._owners = owners
        self._session = session
        self.local_us = now_us
        """Wall-clock time of this host, not adjusted."""
        self._nursery = nursery
        self._clock = AppendClock()

    def __repr__(self) -> str:
        return f"AppendTimes({self._name}, {self._clock})"

    def now_us(self) -> int:
        """The current time, at most `AHEAD_US_MAX` ahead of the metadata store's clock."""
        heard, local_us = self._session.time_heard, self.local_us()
        if heard is None:
            return local_us
        now_s = trio.current_time()
        time_us, effects = self._clock.read(
            local_us=local_us, metadata_us=heard.now_us(now_s), now_s=now_s
        )
        for effect in effects:
            self._perform(effect)
        return time_us

    def warn_if_ahead(self, last_us: int) -> None:
        """Warn if the last record, of an earlier owner, has an append time in the future."""
        heard = self._session.time_heard
        if heard is None:
            return
        ahead_us = last_us - heard.now_us(trio.current_time())
        if ahead_us > AHEAD_US_MAX:
            _log.warning(
                "%s: the last record's append time is %s, %s ahead of the metadata store's"
                " clock; one of two clocks is, or was, wrong. Append times never decrease, so"
                " records appended until then get that same time. A read from an earlier time"
                " finds them all; retention uses the times at which segments are completed",
                self._name,
                _words_of(last_us),
                _span(ahead_us),
            )

    def _perform(self, effect: ClockEffect) -> None:
        match effect:
            case AskStore():
                self._nursery.start_soon(self._ask, name=f"time for {self._name}")
            case ClockAhead(ahead_us):
                _log.warning(
                    "%s: this host's clock is %s ahead of the metadata store's, so one of the"
                    " two is wrong; append times stay at most %s ahead of the store's. Correct"
                    " the clock that is wrong",
                    self._name,
                    _span(ahead_us),
                    _span(AHEAD_US_MAX),
                )
            case ClockRight():
                _log.info(
                    "%s: the clocks of this host and the metadata store agree again",
                    self._name,
                )
            case _:
                assert_never(effect)

    async def _ask(self) -> None:
        """Ask the metadata store for its time."""
        is_answered = False
        try:
            is_answered = await self._owners.ask_time(self._owner)
        except GeologError as error:
            _log.debug("%s: the metadata store does not tell its time: %s", self._name, error)
        self._clock.on_asked(is_answered=is_answered, now_s=trio.current_time())
        self.now_us()


def _span(span_us: int) -> timedelta:
    return timedelta(seconds=round(span_us / 1e6))


def _words_of(time_us: int) -> str:
    try:
        return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return f"{time_us} us after 1970"
