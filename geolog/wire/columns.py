"""Columns in Arrow's layout: little-endian buffers, each padded with zeros to 8 bytes.

Building and reading are next to each other, for comparison. A column is checked once, when it
is read from the body; access afterwards trusts it.
"""

import sys
from array import array
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain, pairwise
from operator import sub

import attrs

from geolog.wire.limits import RECORD_BYTES_MAX
from topology.errors import DamagedBytesError

# Columns are used in place, as the machine's own integers.
assert sys.byteorder == "little", "geolog runs on little-endian machines only"
assert array("i").itemsize == 4
assert array("q").itemsize == 8

_ZEROS = bytes(8)


@attrs.frozen(eq=False)
class Int64Column:
    """Numbers, some or none of them null."""

    validity: memoryview | None
    numbers: memoryview

    def __getitem__(self, row: int) -> int | None:
        if not 0 <= row < len(self.numbers):
            raise IndexError(row)
        if self.validity is not None and not _is_valid(self.validity, row):
            return None
        number: int = self.numbers[row]
        return number


@attrs.frozen(eq=False)
class BinaryColumn:
    """Byte strings, some or no nulls: string i is `data[offsets[i]:offsets[i + 1]]`."""

    validity: memoryview | None
    offsets: memoryview
    data: memoryview

    def __getitem__(self, row: int) -> bytes | None:
        if not 0 <= row < len(self.offsets) - 1:
            raise IndexError(row)
        if self.validity is not None and not _is_valid(self.validity, row):
            return None
        return self.raw(row)

    def raw(self, row: int) -> bytes:
        """The bytes at `row`, null or not."""
        return self.data[self.offsets[row] : self.offsets[row + 1]].tobytes()

    def raw_list(self, first: int = 0, end: int | None = None) -> list[bytes]:
        """The byte strings of these rows at once, several times faster than one by one."""
        rows = len(self.offsets) - 1
        end = rows if end is None else end
        if not 0 <= first <= end <= rows:
            raise IndexError(end)
        offsets = self.offsets[first : end + 1].tolist()
        base = offsets[0]
        data = self.data[base : offsets[-1]].tobytes()
        if base:
            offsets = [offset - base for offset in offsets]
        return [data[start:stop] for start, stop in pairwise(offsets)]


@attrs.frozen(eq=False)
class MapColumn:
    """A map from text to bytes per row: row i has items `offsets[i]` to `offsets[i + 1]`."""

    offsets: memoryview
    keys: BinaryColumn
    values: BinaryColumn

    def __getitem__(self, row: int) -> dict[str, bytes]:
        if not 0 <= row < len(self.offsets) - 1:
            raise IndexError(row)
        items = range(self.offsets[row], self.offsets[row + 1])
        return {self.keys.raw(item).decode(): self.values.raw(item) for item in items}


class ColumnReader:
    """Takes columns off the front of a body, one after the other, and checks each."""

    def __init__(self, body: memoryview) -> None:
        self._body = body
        self._position = 0

    def take_int64(self, count: int, *, is_nullable: bool) -> Int64Column:
        """The next `count` numbers."""
        validity = self._take_validity(count) if is_nullable else None
        return Int64Column(validity, self._take(8 * count).cast("q"))

    def take_binary(self, count: int, *, is_nullable: bool) -> BinaryColumn:
        """The next `count` byte strings."""
        validity = self._take_validity(count) if is_nullable else None
        offsets, end = self._take_offsets(count)
        return BinaryColumn(validity, offsets, self._take(end))

    def take_map(self, count: int) -> MapColumn:
        """The next `count` maps."""
        offsets, item_count = self._take_offsets(count)
        keys = self.take_binary(item_count, is_nullable=False)
        _check_text(keys)
        return MapColumn(offsets, keys, self.take_binary(item_count, is_nullable=False))

    def finish(self) -> None:
        """Check that nothing is left."""
        left_bytes = len(self._body) - self._position
        if left_bytes:
            raise DamagedBytesError(f"{left_bytes} bytes follow the last column of a batch")

    def _take(self, length: int) -> memoryview:
        start = self._position
        end = start + length
        self._position = padded_end = end + -end % 8
        if padded_end > len(self._body):
            raise DamagedBytesError(
                f"a column ends at byte {padded_end} of a body of {len(self._body)}"
            )
        if any(self._body[end:padded_end]):
            raise DamagedBytesError(f"the padding at byte {end} of a body is not zero")
        return self._body[start:end]

    def _take_validity(self, count: int) -> memoryview:
        bits = self._take((count + 7) // 8)
        if count % 8 and bits[-1] >> count % 8:
            raise DamagedBytesError("a validity bitmap has bits past its last row")
        return bits

    def _take_offsets(self, count: int) -> tuple[memoryview, int]:
        offsets = self._take(4 * (count + 1)).cast("i")
        numbers: list[int] = offsets.tolist()
        # Sorting a sorted list is a single quick pass.
        if numbers[0] != 0 or numbers != sorted(numbers):
            raise DamagedBytesError("the offsets of a column do not rise from 0")
        if numbers[-1] > RECORD_BYTES_MAX:
            longest = max(map(sub, numbers[1:], numbers))
            if longest > RECORD_BYTES_MAX:
                raise DamagedBytesError(
                    f"a record of {longest} bytes is over the limit of {RECORD_BYTES_MAX}"
                )
        return offsets, numbers[-1]


def int64_buffers(numbers: Sequence[int]) -> list[bytes]:
    """Lay out numbers, none null. OverflowError for one outside 64 bits."""
    return [array("q", numbers).tobytes()]


def binary_buffers(
    strings: Sequence[bytes | memoryview], lengths: Sequence[int]
) -> list[bytes | memoryview]:
    """Lay out byte strings of those lengths, none null."""
    offsets = array("i", accumulate(lengths, initial=0))
    return [offsets.tobytes(), _padding(4 * len(offsets)), *strings, _padding(offsets[-1])]


def map_buffers(maps: Sequence[Mapping[str, bytes]]) -> list[bytes | memoryview]:
    """Lay out one map per row."""
    offsets = array("i", accumulate(map(len, maps), initial=0))
    keys = [key.encode() for key in chain.from_iterable(maps)]
    values = list(chain.from_iterable(row.values() for row in maps))
    return [
        offsets.tobytes(),
        _padding(4 * len(offsets)),
        *binary_buffers(keys, list(map(len, keys))),
        *binary_buffers(values, list(map(len, values))),
    ]


def validity_buffers(items: Sequence[object | None]) -> list[bytes]:
    """Lay out the bitmap that says which items are not null, lowest bit first."""
    digits = "".join(["0" if item is None else "1" for item in reversed(items)])
    bitmap = int(digits, 2).to_bytes((len(items) + 7) // 8, "little")
    return [bitmap, _padding(len(bitmap))]


def _padding(length: int) -> bytes:
    return _ZEROS[: -length % 8]


def _is_valid(validity: memoryview, row: int) -> bool:
    byte: int = validity[row >> 3]
    return bool(byte >> (row & 7) & 1)


def _check_text(column: BinaryColumn) -> None:
    data = column.data.tobytes()
    if data.isascii():
        return
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise DamagedBytesError("the name of a header is not UTF-8") from error
    for start in column.offsets[:-1]:
        # The whole is UTF-8; so is each part that does not begin inside a character.
        if start < len(data) and data[start] & 0xC0 == 0x80:
            raise DamagedBytesError("the name of a header is not UTF-8")
