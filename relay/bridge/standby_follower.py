"""Keeps a standby's buffers as its coordinator's need them: trimmed, and filled.

The coordinator's reports tell what each target has durably. The standby forgets what all of
them have. If its buffer began behind entries that a target lacks, the standby reads those from
the log, if they fit: until then its buffer does not count as protection. After a takeover the
same facts tell the lag of targets that are away.

Rules: PROTOCOL T6 and T8.
"""

import logging
from collections.abc import Callable

import attrs
import trio

from geolog.client.relays.relay_links import RelayLinks
from geolog.protocol.relay_report import RelayedStreamReport, RelayReport
from geolog.protocol.watermark import Watermark
from relay.bridge.home_feed import HomeFeed, HomeFeeds, TargetHeard, TargetStanding
from relay.protocol.outgoing import AllSent
from topology.errors import GeologError

_log = logging.getLogger(__name__)

_SILENT_S_MAX = 5.0
_AGAIN_S = 1.0


@attrs.define(eq=False)
class StandbyFollower:
    """Follows the coordinator of the feeds' region; `run` while this member may take over."""

    feeds: HomeFeeds
    links: RelayLinks
    is_coordinator: Callable[[], bool]
    """Whether this member coordinates now: then nobody tells it anything."""
    reports_count: int = 0

    async def run(self) -> None:
        """Follow, and find the coordinator again whenever it falls silent; never returns."""
        while True:
            if not self.is_coordinator():
                try:
                    await self.links.hear(
                        self.feeds.region, self._take, silent_s_max=_SILENT_S_MAX
                    )
                except GeologError as error:
                    _log.debug("%s: no coordinator to follow (%s)", self.feeds, error)
            await trio.sleep(_AGAIN_S)

    async def _take(self, report: RelayReport) -> bool:
        if self.is_coordinator():
            return False
        self.reports_count += 1
        by_feed: dict[HomeFeed, list[RelayedStreamReport]] = {}
        for one in report.streams:
            feed = self.feeds.feed_named(one.stream, one.life, one.partition)
            if feed is None or one.target not in feed.record.relay_to:
                continue  # A target that was removed keeps its number of additions.
            if feed.standing(one.target).additions != one.additions:
                continue  # One of the two looked at the stream's settings before they changed.
            heard = feed.standing(one.target).heard
            if one.heard_epoch is None and heard and heard.relay_epoch == report.relay_epoch:
                feed.standing(one.target).heard = None  # It was taken back.
            if one.durable_records is not None:
                by_feed.setdefault(feed, []).append(one)
        for feed, told in by_feed.items():
            for one in told:
                if one.heard_epoch is not None:
                    heard = TargetHeard(one.heard_epoch, one.heard_next)
                    feed.standing(one.target).heard = heard
                if _is_news(feed.standing(one.target), one.durable):
                    feed.on_durable(one.target, one.durable)
                if report.is_resting:
                    feed.standing(one.target).handed = AllSent(one.durable)
            self._fill(feed, told)
        return True

    def _fill(self, feed: HomeFeed, told: list[RelayedStreamReport]) -> None:
        """Begin further back if a target lacks what came before the buffer, and it fits."""
        late = [one for one in told if not feed.covers(one.target)]
        if not late or not feed.has_begun:
            return
        fits = [one for one in late if (one.lag_bytes or 0) <= feed.fill_bytes_max]
        if not fits:
            return
        marks: list[Watermark | None] = [one.durable for one in fits]
        known = [one for one in marks if one is not None]
        feed.fill_from(min(known) if len(known) == len(marks) else None)


def _is_news(standing: TargetStanding, durable: Watermark | None) -> bool:
    """Whether the coordinator knows more: a new one may be behind this member."""
    if not standing.is_told or standing.durable is None:
        return True
    return durable is not None and durable > standing.durable
