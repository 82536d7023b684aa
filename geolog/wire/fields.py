"""The fields of a message: what may stand in them, and how texts and instances do."""

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
    """Fields must be as long as their layout, not more and not less."""
    if len(fields) != layout.size:
        raise DamagedBytesError(f"fields of {len(fields)} bytes instead of {layout.size}")


def check_numbers(*numbers: int) -> None:
    """Each number must fit a signed 64-bit column: the formats store it unsigned."""
    if max(numbers) > INT64_MAX:
        raise DamagedBytesError(f"a number of {numbers} is over {INT64_MAX}")


def check_count(count: int, error: type[GeologError]) -> int:
    """Give the count of entries back if one answer can hold so many; `error` if not."""
    if count > ENTRIES_PER_ANSWER_MAX:
        raise error(f"{count} entries are more than one answer holds: {ENTRIES_PER_ANSWER_MAX}")
    return count


def check_positions(*positions: int) -> None:
    """Each number is an entry's, or -1 for none."""
    if min(positions) < -1:
        raise DamagedBytesError(f"a position of {positions} is below -1")


def flag(number: int) -> bool:
    """Read a truth value, of which there are two."""
    if number > 1:
        raise DamagedBytesError(f"{number} is neither true nor false")
    return number == 1


def member(members: Mapping[int, Enum], number: int) -> Enum:
    """Read a member of an enumeration."""
    found = members.get(number)
    if found is None:
        raise DamagedBytesError(f"{number} is none of {[one.name for one in members.values()]}")
    return found


@functools.lru_cache(maxsize=4096)
def instance_bytes(instance: InstanceId) -> bytes:
    """Give the 16 bytes of an instance's 32 hex digits."""
    if not _INSTANCE_TEXT.fullmatch(instance):
        raise InvalidArgumentError(f"{instance!r} is not an instance id: 32 hex digits")
    return bytes.fromhex(instance)


def pack_text(text: str) -> bytes:
    """Lay out a text. TooLargeError for one over the limit."""
    encoded = text.encode()
    if len(encoded) > TEXT_BYTES_MAX:
        raise TooLargeError(
            f"a text of {len(encoded)} bytes is over the limit of {TEXT_BYTES_MAX}"
        )
    return _TEXT_LENGTH.pack(len(encoded)) + encoded


def pack_cut_text(text: str) -> bytes:
    """Lay out a text, cut to fit."""
    cut = text.encode(errors="replace")[:TEXT_BYTES_MAX]
    return pack_text(cut.decode(errors="ignore"))


def trailing_text(layout: struct.Struct, fields: memoryview) -> str:
    """Read the one text that follows the fixed fields, and is the last."""
    text_start = layout.size + _TEXT_LENGTH.size
    if len(fields) < text_start:
        raise DamagedBytesError(f"fields of {len(fields)} bytes are cut off before their text")
    (length,) = _TEXT_LENGTH.unpack_from(fields, layout.size)
    if length > TEXT_BYTES_MAX or len(fields) != text_start + length:
        raise DamagedBytesError(
            f"a text of {length} bytes does not fit fields of {len(fields)} bytes"
        )
    return decode_text(fields[text_start:])


def decode_text(data: memoryview) -> str:
    """Read UTF-8."""
    try:
        return data.tobytes().decode()
    except UnicodeDecodeError as error:
        raise DamagedBytesError("a text is not UTF-8") from error
