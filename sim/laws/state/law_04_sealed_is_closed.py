"""Law 4: once a stream is reported as sealed, all its ledgers are CLOSED, and none is added."""

from collections.abc import Iterator

import attrs

from sim.laws.state.seen import Look


@attrs.define
class SealedIsClosed:
    """Checks the lists of a sealed stream."""

    def breaches(self, now: Look) -> Iterator[str]:
        """Find ledgers that are open."""
        if now.history.sealed_at is None:
            return
        for partition, segments in now.lists.items():
            for row in segments.values():
                if not row.is_completed:
                    yield (
                        f"partition {partition} is sealed, but its segment {row.segment} is"
                        " open"
                    )
