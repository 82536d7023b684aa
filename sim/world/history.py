"""What the applications of a world did and were told: the record that the laws are held to."""

from typing import Literal

import attrs

from geolog.protocol.ids import DLSN

Outcome = Literal["pending", "acknowledged", "refused", "unknown"]


@attrs.define(eq=False, kw_only=True)
class Append:
    """One record that an application appended. Moments are counts of events of the trace."""

    value: bytes
    """Different for each append, so that it names it."""
    writer: str
    sent_at: int
    answered_at: int | None = None
    outcome: Outcome = "pending"
    """Of a process that was killed it stays pending: whatever became of it is right."""
    sequence: int | None = None
    dlsn: DLSN | None = None
    answered_by: str = ""
    """The process that was answered OK."""
    seq: int | None = None
    """The writer's own number for it, if it gives one: then it is sent until it is answered."""
    is_in_doubt: bool = False
    """Whether it was sent and its outcome was not told: it may be in the log, whatever is told
    when it is sent again."""
    is_duplicate: bool = False
    """Whether it was answered as one that was in the log before."""


@attrs.define(eq=False, kw_only=True)
class Read:
    """One walk of a reader over the stream."""

    reader: str
    begun_at: int
    is_of_all: bool
    """From the earliest record to the end as it was when it began."""
    sequences: list[int] = attrs.field(factory=list)
    has_reached_end: bool = False


@attrs.frozen(kw_only=True)
class Found:
    """A record as it was read when all was over."""

    sequence: int
    dlsn: DLSN
    timestamp_us: int
    value: bytes


@attrs.define(eq=False)
class History:
    """All appends and reads of a world, in the order in which they began."""

    appends: dict[bytes, Append] = attrs.field(factory=dict, init=False)
    acknowledged_in_order: list[Append] = attrs.field(factory=list, init=False)
    """The appends that were answered OK, in the order of their answers."""
    reads: list[Read] = attrs.field(factory=list, init=False)
    shown: dict[int, bytes] = attrs.field(factory=dict, init=False)
    """By sequence: what readers were given, the first time."""
    shown_otherwise: list[int] = attrs.field(factory=list, init=False)
    """Sequences that were given with other bytes another time."""
    repeats: list[tuple[Append, DLSN]] = attrs.field(factory=list, init=False)
    """What was answered OK and then sent once more, and where it was said to be then."""
    harsh_errors: list[str] = attrs.field(factory=list, init=False)
    """What readers were told that no trying again would mend."""

    def on_sent(self, value: bytes, writer: str, at: int) -> Append:
        """An append is about to be sent."""
        assert value not in self.appends, "an application sends one value once"
        append = Append(value=value, writer=writer, sent_at=at)
        self.appends[value] = append
        return append

    def on_sent_again(self, append: Append) -> None:
        """One that was not answered OK is sent once more, under the same number."""
        append.is_in_doubt |= append.outcome in ("pending", "unknown")
        append.outcome = "pending"

    def on_answered(self, append: Append, outcome: Outcome, at: int) -> None:
        """The application was told what became of an append."""
        append.is_in_doubt |= outcome == "unknown"
        if outcome == "refused" and append.is_in_doubt:
            outcome = "unknown"  # This time it was; an earlier time it may be in the log.
        append.outcome = outcome
        append.answered_at = at
        if outcome == "acknowledged":
            self.acknowledged_in_order.append(append)

    def on_read(self, reader: str, at: int, *, is_of_all: bool) -> Read:
        """A reader begins a walk."""
        read = Read(reader=reader, begun_at=at, is_of_all=is_of_all)
        self.reads.append(read)
        return read

    def on_shown(self, read: Read, sequence: int, value: bytes) -> None:
        """A reader is given a record."""
        read.sequences.append(sequence)
        if self.shown.setdefault(sequence, value) != value:
            self.shown_otherwise.append(sequence)

    def acknowledged(self) -> list[Append]:
        """The appends that were answered OK, in the order in which they were sent."""
        return [each for each in self.appends.values() if each.outcome == "acknowledged"]
