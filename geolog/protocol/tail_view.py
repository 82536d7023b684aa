"""The view that a probe gives of the tail of a ledger that may still be written."""

import attrs

from geolog.protocol.ids import EntryId


@attrs.frozen
class TailView:
    """Result of a probe at the tail of a ledger that may still be written.

    `lac`: the highest LAC that any member knows.
    `end`: no entry from here up was ever acknowledged, because a blocking set of its write set
    says ABSENT. None if too few members answered, or if the end lies beyond the entries probed.
    `held_to`: up to here there is surely no end, because all entries were probed and some
    member has the last one.
    `is_taken`: some member knows of a fence or a higher epoch that the record does not mention,
    so the ledger is, or was, being taken over.
    """

    lac: EntryId
    end: EntryId | None
    held_to: EntryId
    is_taken: bool
    silent_count: int
