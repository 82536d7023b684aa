"""Law 9: append times are not far ahead, whichever clock is wrong.

They never decrease, so one that is far ahead would become the time of all later records. In no
world clocks of hosts and the store's clock are wrong at once.
"""

from collections.abc import Iterator

import attrs

from geolog.protocol.append_clock import AHEAD_US_MAX
from sim.laws.state.seen import Look, SegmentKey


@attrs.define
class TimesAreNear:
    """Keeps the segments that were completed."""

    _looked_at: set[SegmentKey] = attrs.field(factory=set)

    def breaches(self, now: Look) -> Iterator[str]:
        """Check the segments completed since the last look."""
        true_us = now.world.seams.true_now_us()
        for partition, segments in now.lists.items():
            for number, record in segments.items():
                stamped_us = record.last_append_time_us
                if stamped_us is None or (partition, number) in self._looked_at:
                    continue
                self._looked_at.add((partition, number))
                if stamped_us > true_us + AHEAD_US_MAX:
                    ahead_s = (stamped_us - true_us) / 1e6
                    yield (
                        f"segment {number} of partition {partition} ends with an append time"
                        f" {ahead_s:.0f} s ahead"
                    )
