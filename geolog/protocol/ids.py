"""A type for each id, and an ordered value for each position."""

import re
from typing import NewType

import attrs

from topology.errors import InvalidArgumentError

LedgerId = NewType("LedgerId", int)
"""Names a ledger. Never reused, not even after deletion."""

EntryId = NewType("EntryId", int)
"""Number of an entry in its ledger: 0, 1, 2 and so on."""

SegmentEntry = NewType("SegmentEntry", int)
"""Number of an entry in its segment, from 0, as its header says; see `EntryNumbering`."""

Epoch = NewType("Epoch", int)
"""Ownership number of a ledger or partition; each takeover raises it."""

InstanceId = NewType("InstanceId", str)
"""A node's durable identity: 32 hex digits, minted with its disk."""

ProcessId = NewType("ProcessId", str)
"""Names a process that may own partitions: 16 hex digits, drawn for each log that it opens."""

Sequence = NewType("Sequence", int)
"""A record's dense number in its partition, from 0."""

LEDGER_FIRST = LedgerId(1)
"""The first ledger of a cluster."""

FIRST_SEQUENCE = Sequence(0)
"""Of a partition's first record."""

NO_EPOCH = Epoch(0)
"""Lower than any epoch that an owner takes."""

NO_ENTRY = EntryId(-1)
"""Lower than the first entry: the LAC of a ledger with nothing confirmed."""

_DLSN_TEXT = re.compile(r"([0-9]{1,19})-([0-9]{1,19})-([0-9]{1,19})")
_DLSN_PART_MAX = 2**63 - 1


@attrs.frozen(order=True)
class DLSN:
    """Where a record lives: segment (from 1), entry in the segment, slot in the entry."""

    segment: int
    entry: int
    slot: int

    def __str__(self) -> str:
        return f"{self.segment}-{self.entry}-{self.slot}"

    def sortable(self) -> str:
        """The DLSN with each part padded to 19 digits, so that text order equals log order."""
        return f"{self.segment:019d}-{self.entry:019d}-{self.slot:019d}"

    @classmethod
    def parse(cls, text: str) -> "DLSN":
        """Parse `segment-entry-slot`, plain or sortable, or raise InvalidArgumentError."""
        match = _DLSN_TEXT.fullmatch(text)
        parts = [int(part) for part in match.groups()] if match else []
        if not parts or parts[0] == 0 or max(parts) > _DLSN_PART_MAX:
            raise InvalidArgumentError(
                f"{text!r} is not a DLSN: write SEGMENT-ENTRY-SLOT, e.g. 1-0-0; segments start"
                " at 1"
            )
        return cls(*parts)


@attrs.frozen(order=True)
class Position:
    """Where a cursor or checkpoint stands: home epoch, and sequence in the partition."""

    home_epoch: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.sequence}@{self.home_epoch}"

    def reached_from(self, known: "Position | None") -> "Position":
        """This place, as one of the lineage that `known` is of, from which a reader came.

        A record keeps the home epoch in which it was appended, so behind a place of a later
        home there may be records of earlier ones: that place was sought, or trimmed.
        """
        if known is None or known.home_epoch <= self.home_epoch:
            return self
        return Position(known.home_epoch, self.sequence)
