"""The seqs of one batch of a named writer: they rise, most often without a gap.

A writer divides its records among partitions, and a record's key says which is its own: so what
one partition gets of them has gaps, where the seqs of the others are. Seqs are kept as the
first, the count and the gaps. Those are a number for each record but the first, of the seqs
that were left out before it, as LEB128: seven bits a byte, the lowest first, and the top bit
says that another byte follows. So a record costs a byte, where its writer fills a hundred
partitions or fewer. Where no seq was left out there are no gaps: not one byte.

Invariant: equal seqs have equal gaps. So a gap has no byte more than it needs, and gaps that
are all zero are not written.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate

import attrs

GAPS_BYTES_MAX = 8192
"""Of one batch: those of all batches that are remembered of a writer fit one record."""

_GAP_BYTES_MAX = 9
"""Of one gap: seqs have 63 bits."""

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

    def row_of(self, seq: int) -> int | None:
        """Which record has this seq; None if none has."""
        distance = seq - self.first
        if not self.gaps:
            return distance if 0 <= distance < self.count else None
        distances = _distances(self.gaps)
        row = bisect_left(distances, distance)
        return row if row < self.count and distances[row] == distance else None

    def fault(self) -> str | None:
        """Why this cannot be what a batch's records have, if it cannot."""
        if self.first < 0 or self.count < 1:
            return f"{self.count} seqs from {self.first} on cannot be"
        if self.gaps:
            why = _fault_of_gaps(self.gaps, self.count - 1)
            if why is not None:
                return why
        return None if self.last <= _SEQ_MAX else f"seq {self.last} has more than 63 bits"


class RisingSeqs:
    """Gathers the seqs of a batch that is being filled."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.last = first
        self.count = 1
        self._gaps = bytearray()  # None are kept before the first that is not zero.

    def __repr__(self) -> str:
        return f"RisingSeqs({self.first} to {self.last}, {self.count} records)"

    def fits(self, seq: int) -> bool:
        """Whether one more seq keeps the gaps within their bound."""
        if seq == self.last + 1 and not self._gaps:
            return True
        gaps_bytes = len(self._gaps) or self.count - 1
        return gaps_bytes + _GAP_BYTES_MAX <= GAPS_BYTES_MAX

    def add(self, seq: int) -> None:
        """One more record, whose seq is above all."""
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


@lru_cache(maxsize=128)  # What comes again asks for each record, partition by partition.
def _distances(gaps: bytes) -> "array[int]":
    """How far each record's seq is from the first."""
    numbers = gaps if gaps.isascii() else _numbers(gaps)
    return array("q", accumulate((number + 1 for number in numbers), initial=0))


def _fault_of_gaps(gaps: bytes, count: int) -> str | None:
    """Why these cannot be so many gaps, if they cannot."""
    if len(gaps) > GAPS_BYTES_MAX:
        return f"gaps of {len(gaps)} bytes are over the limit of {GAPS_BYTES_MAX}"
    if not any(gaps):
        return "gaps that are all zero are not written"
    if gaps.isascii():
        found = len(gaps)
    else:
        if gaps[-1] > 0x7F:
            return "the last gap between seqs is cut off"
        if _has_long_number(gaps):
            return "a gap between seqs has more bytes than it needs"
        found = sum(byte < 0x80 for byte in gaps)
    return None if found == count else f"{found} gaps between seqs stand where {count} are due"


def _has_long_number(gaps: bytes) -> bool:
    """Whether a number has bytes that say nothing, or more than 63 bits."""
    length = 0
    for byte in gaps:
        length += 1
        if byte < 0x80:
            if length > _GAP_BYTES_MAX or (byte == 0 and length > 1):
                return True
            length = 0
    return False
