"""The fields of a message: valid values, and the encoding of texts and instances."""

import enum
import functools
import re
import struct
from collections.abc import Mapping
from typing import TypeVar

from geolog.protocol.ids import InstanceId
from geolog.wire.limits import ENTRIES_PER_ANSWER_MAX, INT64_MAX, TEXT_BYTES_MAX
from topology.errors import DamagedBytesError, GeologError, InvalidArgumentError, TooLargeError

_TEXT_LENGTH = struct.Struct("<H")
_INSTANCE_TEXT = re.compile("[0-9a-f]{32}")

Enum = TypeVar("Enum", bound=enum.IntEnum)


def check_length(layout: struct.Struct, fields: memoryview) -> None:
    """Require fields of exactly the length of their layout."""
    if len(fields) != layout.size:
        raise DamagedBytesError(f"fields have {len(fields)} bytes instead of {layout.size}")


def check_numbers(*numbers: int) -> None:
    """Require numbers that fit a signed 64-bit column: the formats store them unsigned."""
    if max(numbers) > INT64_MAX:
        raise DamagedBytesError(f"one of {numbers} is over {INT64_MAX}")


def check_count(count: int, error: type[GeologError]) -> int:
    """Return the count of entries if one answer can hold that many; otherwise raise `error`."""
    if count > ENTRIES_PER_ANSWER_MAX:
        raise error(f"{count} entries in one answer; the limit is {ENTRIES_PER_ANSWER_MAX}")
    return count


def check_positions(*positions: int) -> None:
    """Require numbers of entries, or -1 for none."""
    if min(positions) < -1:
        raise DamagedBytesError(f"one of {positions} is below -1")


def flag(number: int) -> bool:
    """Decode a truth value: 0 or 1."""
    if number > 1:
        raise DamagedBytesError(f"{number} is neither true nor false")
    return number == 1


def member(members: Mapping[int, Enum], number: int) -> Enum:
    """Decode a member of an enumeration."""
    found = members.get(number)
    if found is None:
        raise DamagedBytesError(
            f"{number} is not one of {[one.name for one in members.values()]}"
        )
    return found


@functools.lru_cache(maxsize=4096)
def instance_bytes(instance: InstanceId) -> bytes:
    """The 16 bytes of an instance's 32 hex digits."""
    if not _INSTANCE_TEXT.fullmatch(instance):
        raise InvalidArgumentError(f"{instance!r} is not an instance id: use 32 hex digits")
    return bytes.fromhex(instance)


def pack_text(text: str) -> bytes:
    """Encode a text. TooLargeError for one over the limit."""
    encoded = text.encode()
    if len(encoded) > TEXT_BYTES_MAX:
        raise TooLargeError(
            f"a text of {len(encoded)} bytes is over the limit of {TEXT_BYTES_MAX}"
        )
    return _TEXT_LENGTH.pack(len(encoded)) + encoded


def pack_cut_text(text: str) -> bytes:
    """Encode a text, cut to fit."""
    cut = text.encode(errors="replace")[:TEXT_BYTES_MAX]
    return pack_text(cut.decode(errors="ignore"))


def trailing_text(layout: struct.Struct, fields: memoryview) -> str:
    """Decode the one text after the fixed fields; nothing follows it."""
    text_start = layout.size + _TEXT_LENGTH.size
    if len(fields) < text_start:
        raise DamagedBytesError(f"fields truncated to {len(fields)} bytes, before their text")
    (length,) = _TEXT_LENGTH.unpack_from(fields, layout.size)
    if length > TEXT_BYTES_MAX or len(fields) != text_start + length:
        raise DamagedBytesError(
            f"a text of {length} bytes does not fit fields of {len(fields)} bytes"
        )
    return decode_text(fields[text_start:])


def decode_text(data: memoryview) -> str:
    """Decode UTF-8."""
    try:
        return data.tobytes().decode()
    except UnicodeDecodeError as error:
        raise DamagedBytesError("a text is not UTF-8") from error
