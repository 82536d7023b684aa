"""The seqs of one named writer's batch. They rise, most often without a gap.

A writer divides its records among partitions by key, so what one partition gets has gaps: the
seqs that went to the others. Seqs are kept as the first, the count and the gaps. There is one
gap for each record but the first: the number of seqs left out before it, in LEB128 (seven bits
a byte, lowest first; the top bit says that another byte follows). So a record costs one byte if
its writer fills a hundred partitions or fewer. If no seq was left out there are no gaps, not
even one byte.

Invariant: equal seqs have equal gaps. So a gap has no byte more than it needs, and gaps that
are all zero are not written.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import TypeVar

import attrs

T = TypeVar("T")

GAPS_BYTES_MAX = 8192
"""Maximum bytes of gaps in one batch: all remembered batches of a writer fit one record."""

_GAP_BYTES_MAX = 9
"""Maximum bytes of one gap: seqs have 63 bits."""

_SEQ_MAX = (1 << 63) - 1


@attrs.frozen
class BatchSeqs:
    """The seqs of a batch's records, in order."""

    first: int
    count: int
    gaps: bytes = attrs.field(default=b"", repr=lambda gaps: f"<{len(gaps)} bytes>")
    last: int = attrs.field(init=False, eq=False, repr=False)

    @last.default
    def _last(self) -> int:
        left_out = _left_out(self.gaps) if self.gaps else 0
        return self.first + self.count - 1 + left_out

    def __iter__(self) -> Iterator[int]:
        if not self.gaps:
            return iter(range(self.first, self.first + self.count))
        return (self.first + distance for distance in _distances(self.gaps))

    def at(self, row: int) -> int:
        """The seq of the record in this row."""
        return self.first + (_distances(self.gaps)[row] if self.gaps else row)

    def row_of(self, seq: int) -> int | None:
        """The row of the record with this seq, or None."""
        distance = seq - self.first
        if not self.gaps:
            return distance if 0 <= distance < self.count else None
        distances = _distances(self.gaps)
        row = bisect_left(distances, distance)
        return row if row < self.count and distances[row] == distance else None

    def fault(self) -> str | None:
        """Why these cannot be the seqs of a batch's records, or None if they can."""
        if self.first < 0 or self.count < 1:
            return f"{self.count} seqs starting at {self.first} are impossible"
        if self.gaps:
            why = _fault_of_gaps(self.gaps, self.count - 1)
            if why is not None:
                return why
        return None if self.last <= _SEQ_MAX else f"seq {self.last} has more than 63 bits"


def batch_with(batches: Sequence[T], seq: int, seqs_of: Callable[[T], BatchSeqs]) -> T | None:
    """The batch that has this seq, among batches whose seqs rise from one to the next."""
    # The last that begins at or below `seq` is the only candidate.
    place = bisect_right(batches, seq, key=lambda one: seqs_of(one).first) - 1
    if place < 0 or seqs_of(batches[place]).row_of(seq) is None:
        return None
    return batches[place]


def is_left_out_of(batches: Sequence[T], seq: int, seqs_of: Callable[[T], BatchSeqs]) -> bool:
    """Whether a seq lies in a gap within or between these batches, so that none has it."""
    if not batches or not seqs_of(batches[0]).first <= seq <= seqs_of(batches[-1]).last:
        return False
    return batch_with(batches, seq, seqs_of) is None


class RisingSeqs:
    """Collects the seqs of a batch while it is being filled."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.last = first
        self.count = 1
        self._gaps = bytearray()  # Stays empty until the first gap that is not zero.

    def __repr__(self) -> str:
        return f"RisingSeqs({self.first} to {self.last}, {self.count} records)"

    def fits(self, seq: int) -> bool:
        """Whether the gaps stay within their bound with one more seq."""
        if seq == self.last + 1 and not self._gaps:
            return True
        gaps_bytes = len(self._gaps) or self.count - 1
        return gaps_bytes + _GAP_BYTES_MAX <= GAPS_BYTES_MAX

    def add(self, seq: int) -> None:
        """Add a record, whose seq is above all before it."""
        assert seq > self.last, f"seq {seq} is not above {self.last}"
        left_out = seq - self.last - 1
        if left_out or self._gaps:
            if not self._gaps:
                self._gaps = bytearray(self.count - 1)
            _put_number(self._gaps, left_out)
        self.last = seq
        self.count += 1

    def gathered(self) -> BatchSeqs:
        """The seqs of the batch."""
        return BatchSeqs(self.first, self.count, bytes(self._gaps))


def _put_number(into: bytearray, number: int) -> None:
    while number > 0x7F:
        into.append(number & 0x7F | 0x80)
        number >>= 7
    into.append(number)


def _left_out(gaps: bytes) -> int:
    return sum(gaps if gaps.isascii() else _numbers(gaps))


def _numbers(gaps: bytes) -> list[int]:
    numbers = []
    number = shift = 0
    for byte in gaps:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(number)
            number = shift = 0
    return numbers


@lru_cache(maxsize=128)  # A repeated batch asks for each record, partition by partition.
def _distances(gaps: bytes) -> "array[int]":
    """Distance of each record's seq from the first."""
    numbers = gaps if gaps.isascii() else _numbers(gaps)
    return array("q", accumulate((number + 1 for number in numbers), initial=0))


def _fault_of_gaps(gaps: bytes, count: int) -> str | None:
    """Why this cannot be `count` encoded gaps, or None if it can."""
    if len(gaps) > GAPS_BYTES_MAX:
        return f"gaps of {len(gaps)} bytes are over the limit of {GAPS_BYTES_MAX}"
    if not any(gaps):
        return "gaps that are all zero must not be written"
    if gaps.isascii():
        found = len(gaps)
    else:
        if gaps[-1] > 0x7F:
            return "the last gap between seqs is cut off"
        if _has_long_number(gaps):
            return "a gap between seqs has more bytes than it needs"
        found = sum(byte < 0x80 for byte in gaps)
    return None if found == count else f"found {found} gaps between seqs, expected {count}"


def _has_long_number(gaps: bytes) -> bool:
    """Whether a number has superfluous bytes, or more than 63 bits."""
    length = 0
    for byte in gaps:
        length += 1
        if byte < 0x80:
            if length > _GAP_BYTES_MAX or (byte == 0 and length > 1):
                return True
            length = 0
    return False
