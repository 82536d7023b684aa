"""What a repair of placement does, or would do, as values to print."""

from collections.abc import Iterable

import attrs

from geolog.ledger.copying.copier import CopyProgress

REMAINING_NAMED_MAX = 100
"""Fragments that a report names one by one; all are counted."""


@attrs.frozen(kw_only=True)
class SlotMove:
    """One slot, from one node to another."""

    slot: int
    from_node: str
    from_region: str
    to_node: str
    to_region: str


@attrs.frozen(kw_only=True)
class FragmentMove:
    """What is to be done to one fragment, or was."""

    stream: str
    partition: int
    segment: int
    ledger: int
    fragment: int
    first_entry: int
    last_entry: int
    before: str
    """Its adherence as it was placed, disks that were given up left out."""
    after: str
    slots: list[SlotMove]
    bytes_about: int | None
    """What is to be copied, by the segment's size; None where that is not known."""


@attrs.frozen(kw_only=True)
class FragmentRemaining:
    """A fragment that does not adhere as it should, and why it stays so."""

    stream: str
    partition: int
    segment: int
    ledger: int
    fragment: int
    adherence: str
    why: str
    may_pass: bool
    """Whether time may heal it: nodes that are away, a ledger that is still written."""


@attrs.define
class PlacementRepairReport:
    """What came of a repair, or would."""

    is_dry_run: bool = False
    segments: int = 0
    fragments: int = 0
    """That were looked at."""
    moves: int = 0
    """Fragments that are to be changed, or were."""
    slots: int = 0
    bytes_about: int = 0
    """What is to be copied, where segments tell their size."""
    copies_stored: int = 0
    bytes_stored: int = 0
    arrivals_cleared: int = 0
    """Nodes that were said to be getting copies of a ledger, by what was given up since."""
    remaining_count: int = 0
    """Fragments that do not adhere as they should, or name a disk that was given up."""
    may_pass_count: int = 0
    """Those of them that time may heal."""
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
        """Keep warnings, as long as there is room."""
        self.warnings += [*warnings][: REMAINING_NAMED_MAX - len(self.warnings)]

    def add(self, move: FragmentMove) -> None:
        """Count a fragment that is changed."""
        self.moves += 1
        self.slots += len(move.slots)
        self.bytes_about += move.bytes_about or 0


@attrs.frozen(kw_only=True)
class RepairTold:
    """How far a repair is."""

    segments_done: int
    segments_count: int
    copied: CopyProgress
