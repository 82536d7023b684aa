"""A type for each id, and an ordered value for each position."""

import re
from typing import NewType

import attrs

from topology.errors import InvalidArgumentError

LedgerId = NewType("LedgerId", int)
"""Names a ledger; never used again, also not after deletion."""

EntryId = NewType("EntryId", int)
"""Number of an entry in its ledger: 0, 1, 2 and so on."""

Epoch = NewType("Epoch", int)
"""Raised by whoever takes a ledger, or a partition, over."""

InstanceId = NewType("InstanceId", str)
"""32 hex digits, minted with a node's disk: the node's durable identity."""

Sequence = NewType("Sequence", int)
"""A record's dense number in its partition, from 0."""

NO_EPOCH = Epoch(0)
"""Below every epoch that anybody takes."""

NO_ENTRY = EntryId(-1)
"""Below the first entry: the LAC of a ledger of which nothing is confirmed."""

_DLSN_TEXT = re.compile(r"([0-9]{1,19})-([0-9]{1,19})-([0-9]{1,19})")
_DLSN_PART_MAX = 2**63 - 1


@attrs.frozen(order=True)
class DLSN:
    """Where a record lives: segment (from 1), then entry in it, then slot in the entry."""

    segment: int
    entry: int
    slot: int

    def __str__(self) -> str:
        return f"{self.segment}-{self.entry}-{self.slot}"

    def sortable(self) -> str:
        """The DLSN with each part as 19 decimal digits: text order equals log order."""
        return f"{self.segment:019d}-{self.entry:019d}-{self.slot:019d}"

    @classmethod
    def parse(cls, text: str) -> "DLSN":
        """Read `segment-entry-slot`, plain or sortable; InvalidArgumentError otherwise."""
        match = _DLSN_TEXT.fullmatch(text)
        parts = [int(part) for part in match.groups()] if match else []
        if not parts or parts[0] == 0 or max(parts) > _DLSN_PART_MAX:
            raise InvalidArgumentError(
                f"{text!r} is not a DLSN: it reads SEGMENT-ENTRY-SLOT, segments from 1,"
                " as 1-0-0"
            )
        return cls(*parts)


@attrs.frozen(order=True)
class Position:
    """What cursors and checkpoints keep: home epoch, and sequence within the partition."""

    home_epoch: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.sequence}@{self.home_epoch}"
