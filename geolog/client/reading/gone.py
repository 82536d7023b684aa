"""Runs of sequences that a reader comes to, and that are not in the log any more.

Rules: PROTOCOL H23.
"""

import attrs

from geolog.client.reading.read_range import UNKNOWN_SEQUENCE
from geolog.protocol.stream_state import TrimRecord


@attrs.frozen
class TrimmedRun:
    """Sequences that are gone, from the next one due; or up to it, if they diverged."""

    from_sequence: int
    to_sequence: int
    is_evicted: bool = False
    """Whether the mirror never had them; else they were trimmed, or diverged."""
    epoch: int | None = None
    """If they diverged, the home epoch that begins at the first of them."""


def runs_gone(trim: TrimRecord, first: int, end: int) -> list[TrimmedRun]:
    """The runs of sequences, up to `end`, that a partition with this trim has no more."""
    if first == UNKNOWN_SEQUENCE:
        return [TrimmedRun(first, end)]
    return [TrimmedRun(*part) for part in trim.parts_of(first, end)]
