"""Outcome of a placement repair, planned or done, as values to print."""

from collections.abc import Iterable

import attrs

from geolog.ledger.copying.copier import CopyProgress

REMAINING_NAMED_MAX = 100
"""Fragments that a report names; all are counted."""


@attrs.frozen(kw_only=True)
class SlotMove:
    """One slot's move from one node to another."""

    slot: int
    from_node: str
    from_region: str
    to_node: str
    to_region: str


@attrs.frozen(kw_only=True)
class FragmentMove:
    """The change of one fragment, planned or done."""

    stream: str
    partition: int
    segment: int
    ledger: int
    fragment: int
    first_entry: int
    last_entry: int
    before: str
    """Its adherence before, not counting disks that were given up."""
    after: str
    slots: list[SlotMove]
    bytes_about: int | None
    """Bytes to copy, by the segment's size; None if that is not known."""


@attrs.frozen(kw_only=True)
class FragmentRemaining:
    """A fragment that does not adhere as it should, and the reason why it stays so."""

    stream: str
    partition: int
    segment: int
    ledger: int
    fragment: int
    adherence: str
    why: str
    may_pass: bool
    """Whether waiting may help: nodes are away, or the ledger is still being written."""


@attrs.define
class PlacementRepairReport:
    """Outcome of a repair, planned or done."""

    is_dry_run: bool = False
    segments: int = 0
    fragments: int = 0
    """Fragments that were looked at."""
    moves: int = 0
    """Fragments to change, or changed."""
    slots: int = 0
    bytes_about: int = 0
    """Bytes to copy, as far as segments have a known size."""
    copies_stored: int = 0
    bytes_stored: int = 0
    arrivals_cleared: int = 0
    """Nodes whose notes of abandoned copies were removed."""
    remaining_count: int = 0
    """Fragments that still do not adhere as they should, or name a disk that was given up."""
    may_pass_count: int = 0
    """Those of them where waiting may help."""
    remaining: list[FragmentRemaining] = attrs.field(factory=list)
    warnings: list[str] = attrs.field(factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether nothing remains."""
        return not self.remaining_count

    def note(self, remaining: FragmentRemaining) -> None:
        """Count a fragment that stays as it is."""
        self.remaining_count += 1
        self.may_pass_count += remaining.may_pass
        if len(self.remaining) < REMAINING_NAMED_MAX:
            self.remaining.append(remaining)

    def warn(self, warnings: Iterable[str]) -> None:
        """Keep warnings, up to a maximum number."""
        self.warnings += [*warnings][: REMAINING_NAMED_MAX - len(self.warnings)]

    def add(self, move: FragmentMove) -> None:
        """Count a fragment that was changed, or is to be."""
        self.moves += 1
        self.slots += len(move.slots)
        self.bytes_about += move.bytes_about or 0


@attrs.frozen(kw_only=True)
class RepairTold:
    """Progress of a repair."""

    segments_done: int
    segments_count: int
    copied: CopyProgress
