"""A cursor's records in metadata: its readers, and where each of its partitions stands.

A cursor is a named position in each partition of a stream. Its readers are ephemeral nodes, so
metadata's sessions decide who is there. Each partition has a record that names the reader that
reads it. Every change of that record is a compare-and-set, so a reader that has lost the
partition cannot change it.

Rules: PROTOCOL K1, K2 and K4.
"""

import re

import attrs

from geolog.protocol.ids import Position
from geolog.protocol.stream_state import StreamName, StreamRecord
from topology.errors import InvalidArgumentError

NO_READER = ""
"""Stands for the reader of a partition that nobody reads."""

_LEASE_MARK = "."

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def reader_id(reading: str, number: int) -> str:
    """The id of a reader under its lease of this number. reading: unique to the reader."""
    return f"{reading}{_LEASE_MARK}{number}"


def is_of_reader(reader: str, other: str) -> bool:
    """Whether two ids are of one reader, under whichever leases."""
    return reader.partition(_LEASE_MARK)[0] == other.partition(_LEASE_MARK)[0]


@attrs.frozen(order=True)
class CursorName:
    """A cursor of a stream, for one life of the stream's name."""

    stream: StreamName
    life: str
    name: str

    def __str__(self) -> str:
        return f"cursor {self.name!r} of {self.stream}"

    @classmethod
    def of(cls, record: StreamRecord, name: str) -> "CursorName":
        """The cursor `name` of a stream. InvalidArgumentError if it is no valid name."""
        check_cursor_name(name)
        return cls(record.name, record.life, name)


def check_cursor_name(name: str) -> None:
    """InvalidArgumentError unless a cursor may have this name."""
    if _NAME.fullmatch(name) is None:
        nearest = re.sub(r"[^A-Za-z0-9._-]+", "-", name[:200]).lstrip("._-")[:128]
        hint = f"; did you mean {nearest!r}?" if nearest else ""
        raise InvalidArgumentError(
            f"{name[:200]!r} is not a cursor name: use 1 to 128 letters, digits, '.', '_' and"
            f" '-', starting with a letter or digit{hint}"
        )


@attrs.frozen(kw_only=True)
class CursorRecord:
    """A cursor itself. Every reader that joins changes it, so two cannot join unseen."""

    created_us: int
    partitions: int
    """Partitions of the stream when the cursor was made; later ones are read from the start."""
    is_shared: bool = False
    """Whether the reader that joined last shares the cursor."""
    reader: str = NO_READER
    """The reader that joined last."""
    seeks: int = 0
    """How often positions were set by `seek`."""
    cursor_id: str = ""
    """Unique to this cursor, even against one made again under its name."""


@attrs.frozen(kw_only=True)
class CursorReaderRecord:
    """One reader of a cursor: an ephemeral node of this content."""

    who: str
    """The process, as owner records name it."""


@attrs.frozen(kw_only=True)
class CursorPartition:
    """Where a cursor stands in one partition, and which reader reads it."""

    reader: str = NO_READER
    home_epoch: int | None = None
    sequence: int | None = None
    """The first record that is not done; None before the first commit."""
    seeks: int = 0
    """How often `seek` set the position; otherwise it never goes back."""

    @property
    def position(self) -> Position | None:
        """The position, if any was committed."""
        if self.home_epoch is None or self.sequence is None:
            return None
        return Position(self.home_epoch, self.sequence)

    def moved(self, position: Position | None) -> "CursorPartition":
        """The record with this position, or with its own if that is None or not lower."""
        if position is None or (self.position is not None and position <= self.position):
            return self
        return attrs.evolve(self, home_epoch=position.home_epoch, sequence=position.sequence)


@attrs.frozen
class PartitionStanding:
    """A partition's record as read, with the version for a compare-and-set."""

    record: CursorPartition = CursorPartition()
    version: int | None = None
    """None if there is no record yet."""
