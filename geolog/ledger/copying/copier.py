"""Copies entries to the members of a fragment that lack them, from those that have them intact.

The core (`geolog.protocol.copying`) decides which entry to fetch from which member, and
`FragmentCopy` fetches it. This module keeps rate and progress, over all fragments together.
"""

from collections.abc import Callable, Iterable

import attrs

from geolog.ledger.copying.fragment_copy import (
    CopyConfig,
    CopyMeans,
    CopyOutcome,
    FragmentCopy,
    batches_of,
    lacking_count_of,
)
from geolog.ledger.copying.rate_limit import RateLimit
from geolog.ledger.replicas.replicas import Replicas
from geolog.protocol.copying import FragmentExtent
from geolog.protocol.ledger_state import LedgerRecord


@attrs.define
class CopyProgress:
    """Progress of a copier over all its fragments."""

    entries_checked: int = 0
    copies_stored: int = 0
    bytes_stored: int = 0


class Copier:
    """Copies fragments, one at a time, with one rate limit and one progress for all."""

    def __init__(
        self,
        replicas: Replicas,
        *,
        region: str | None,
        config: CopyConfig,
        on_progress: Callable[[CopyProgress], None] | None = None,
    ) -> None:
        self._region = region
        self._config = config
        self._on_progress = on_progress
        self._replicas = replicas.within(config.member_timeout_s)
        self._means = CopyMeans(
            self._replicas, config, RateLimit(config.rate_bytes_per_s), self._tell
        )
        self.progress = CopyProgress()

    async def copy(
        self,
        record: LedgerRecord,
        extent: FragmentExtent,
        targets: Iterable[int],
        *,
        is_deep: bool = False,
    ) -> CopyOutcome:
        """Give the targets (slots) the entries that they lack, as far as possible now.

        `is_deep` reads the targets' own copies, which finds unnoticed damage.
        """
        members = (*extent.fragment.ensemble, *(member for _, member in extent.leaving))
        order = sorted(
            range(len(members)),
            key=lambda slot: members[slot].location.region != self._region,
        )
        run = FragmentCopy(record, extent, sorted(set(targets)), order, self._means)
        try:
            return await run.run(is_deep=is_deep)
        finally:
            run.close()

    async def lacks_count(self, record: LedgerRecord, extent: FragmentExtent, slot: int) -> int:
        """Number of its own entries that the member does not report. UnavailableError."""
        rule = extent.fragment.rule(record.quorum)
        member = extent.fragment.ensemble[slot]
        lacking_count = 0
        for first, count in batches_of(extent, self._config.batch_entries):
            probed = await self._replicas.probe(record.ledger, member, first, count)
            lacking_count += lacking_count_of(rule, slot, first, probed.answers)
            self._tell(0, 0, 0)
        return lacking_count

    def _tell(self, checked: int, copies: int, size_bytes: int) -> None:
        self.progress.entries_checked += checked
        self.progress.copies_stored += copies
        self.progress.bytes_stored += size_bytes
        if self._on_progress is not None:
            self._on_progress(self.progress)
