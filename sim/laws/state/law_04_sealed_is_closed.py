"""Law 4: when a stream is said to be sealed, all its ledgers are CLOSED, and none comes."""

from collections.abc import Iterator

import attrs

from sim.laws.state.seen import Look


@attrs.define
class SealedIsClosed:
    """Looks at the lists of a stream that is sealed."""

    def breaches(self, now: Look) -> Iterator[str]:
        """Look for what is open."""
        if now.history.sealed_at is None:
            return
        for partition, segments in now.lists.items():
            for row in segments.values():
                if not row.is_completed:
                    yield f"partition {partition} is sealed, and its segment {row.segment} open"
