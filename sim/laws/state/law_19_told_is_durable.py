"""Law 19: a home believes durable at a target only what an ack set of the mirror has on disk.

A belief of a process of the home never goes back while it keeps the feeds of its streams, and
its coordinators do not hear of a place that the home does not have.
"""

from collections.abc import Iterator

import attrs

from geolog.protocol.watermark import Watermark
from relay.bridge.home_feed import HomeFeed, HomeFeeds
from sim.laws.state.copies import slots_with
from sim.laws.state.seen import Look, MirrorKey
from sim.world.calls import STREAM

_Believer = tuple[HomeFeeds, MirrorKey]


@attrs.define
class ToldIsDurable:
    """Keeps the last belief of each process about each mirror.

    A relay that falls behind its standby drops its feeds, and begins again with others later.
    A target that is removed and added again has another mirror. Messages about the old
    one may be under way for a while, so a process is judged again once it has let the old one
    go, or has believed something that is true of the new one.
    """

    _believed: dict[_Believer, Watermark | None] = attrs.field(factory=dict)
    _once_removed: set[MirrorKey] = attrs.field(factory=set)
    _present: set[MirrorKey] = attrs.field(factory=set)
    """The logs that there were at the last look."""
    _knows: set[_Believer] = attrs.field(factory=set)
    """Of those once removed: who knows the mirror as it is now."""

    def breaches(self, now: Look) -> Iterator[str]:
        """Check the beliefs that have changed."""
        self._note_removed(now)
        for relay_id, feeds, mirror, durable in _beliefs(now):
            key = feeds, mirror
            before = self._believed.get(key)
            region, partition = mirror
            if key in self._believed and durable == before:
                continue
            if region in now.world.wiped:
                continue  # It was true before the loss of the mirror, and is until it is heard.
            if mirror in self._once_removed and mirror not in now.logs:
                continue  # It is no target now.
            self._believed[key] = durable
            words = f"{relay_id} believes {durable} of partition {partition} durable"
            is_true = durable is None or is_durable(now, mirror, durable)
            if mirror in self._once_removed and key not in self._knows:
                if is_true:
                    self._knows.add(key)
                continue
            has_fallen = before is not None and (durable is None or durable < before)
            if has_fallen and not (durable is None and _is_begun_again(now, mirror)):
                yield f"{words} in {region}, and {before} earlier"
            if not is_true:
                yield f"{words} in {region}, where no ack set has it"

    def _note_removed(self, now: Look) -> None:
        """Note which mirrors went, and who has let them go."""
        gone = (self._present - set(now.logs)) | now.made_again
        self._present = set(now.logs)
        self._once_removed |= gone
        if gone:
            self._knows = {key for key in self._knows if key[1] not in gone}
        for key in [one for one in self._believed if one[1] in self._once_removed]:
            feeds, (region, partition) = key
            feed = _feed_of(feeds, partition)
            if feed is None or region not in feed.record.relay_to:
                del self._believed[key]
                self._knows.add(key)


def _feed_of(feeds: HomeFeeds, partition: int) -> HomeFeed | None:
    for feed in feeds.by_name.values():
        if str(feed.name.stream) == STREAM and feed.name.number == partition:
            return feed
    return None


def _beliefs(now: Look) -> Iterator[tuple[str, HomeFeeds, MirrorKey, Watermark | None]]:
    for host in sorted(now.world.relays):
        for relay in now.world.relays[host].relays[-1:]:
            feeds = relay.feeds
            if feeds is None:
                continue
            for feed in feeds.by_name.values():
                if str(feed.name.stream) != STREAM:
                    continue
                for region, standing in sorted(feed.targets.items()):
                    # A standby may still hear of a target that is none any more.
                    if standing.is_told and region in feed.record.relay_to:
                        yield (
                            relay.relay_id,
                            feeds,
                            (region, feed.name.number),
                            standing.durable,
                        )


def is_durable(now: Look, mirror: MirrorKey, durable: Watermark) -> bool:
    """Whether an ack set of the mirror has everything up to there, as far as rows are there.

    Rows that it lost as it was begun again do not count.
    """
    dropped = now.dropped.get(mirror, 0)
    rows = [
        row
        for number, row in now.logs.get(mirror, {}).items()
        if number > dropped
        and row.segment == durable.segment
        and row.first_entry <= durable.entry
    ]
    if not rows:
        # Only its front goes: a row that is gone was durable and trimmed.
        return now.log_trims[mirror].first_sequence >= durable.sequence_next
    for row in rows:
        entry = row.numbering.in_ledger(durable.entry)
        if row.last_entry is not None and entry > row.last_entry:
            continue
        record = now.ledgers.get(row.ledger)
        if record is None:
            return True  # It is being deleted: its row is the front.
        fragment = record.fragment_of(entry)
        have = slots_with(now, row.ledger, entry, fragment)
        if fragment.rule(record.quorum).is_ack(entry, have):
            return True
    return False


def _is_begun_again(now: Look, mirror: MirrorKey) -> bool:
    """Whether the mirror has gone on behind a gap, empty at first."""
    return now.log_trims[mirror].gap is not None
