"""Law 19: a home believes durable at a target only what an ack set of the mirror has on disk.

A belief of a process of the home never goes back while it keeps the feeds of its streams, and
its coordinators do not hear of a place that the home does not have.
"""

from collections.abc import Iterator

import attrs

from geolog.protocol.watermark import Watermark
from relay.bridge.home_feed import HomeFeeds
from sim.laws.state.copies import slots_with
from sim.laws.state.seen import Look, MirrorKey
from sim.world.calls import STREAM


@attrs.define
class ToldIsDurable:
    """Keeps the last belief of each process about each mirror.

    A relay that falls behind its standby drops its feeds, and begins again with others later.
    """

    _believed: dict[tuple[HomeFeeds, MirrorKey], Watermark | None] = attrs.field(factory=dict)

    def breaches(self, now: Look) -> Iterator[str]:
        """Check the beliefs that have changed."""
        for relay_id, feeds, mirror, durable in _beliefs(now):
            key = feeds, mirror
            before = self._believed.get(key)
            if key in self._believed and durable == before:
                continue
            self._believed[key] = durable
            region, partition = mirror
            words = f"{relay_id} believes {durable} of partition {partition} durable"
            has_fallen = before is not None and (durable is None or durable < before)
            if region in now.world.wiped or region in now.history.targets_removed:
                continue  # It was true before the loss of the mirror, and is until it is heard.
            if has_fallen and not (durable is None and _is_begun_again(now, mirror)):
                yield f"{words} in {region}, and {before} earlier"
            if durable is not None and not _is_durable(now, mirror, durable):
                yield f"{words} in {region}, where no ack set has it"


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
                    if standing.is_told:
                        yield (
                            relay.relay_id,
                            feeds,
                            (region, feed.name.number),
                            standing.durable,
                        )


def _is_durable(now: Look, mirror: MirrorKey, durable: Watermark) -> bool:
    rows = [
        row
        for row in now.logs.get(mirror, {}).values()
        if row.segment == durable.segment and row.first_entry <= durable.entry
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
