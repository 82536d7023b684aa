"""Binary messages of subprotocol `geolog.v1.bridge`: one or more in each WebSocket message.

Layout, little-endian:

    0  type u8                      8  length of the fields u32
    1  zero, 3 bytes                12 length of the entry u32 (SEND_ENTRY only, else 0)
    4  channel u32, or 0            16 CRC32C of bytes 0 to 16 and the fields u32
                                    20 fields
                                       an entry, as its owner sealed it (SEND_ENTRY only)

The fields of SEND_ENTRY and DURABLE_TOLD are structs; those of all other messages are JSON
objects. An entry has checksums of its own, which are compared here, too: damage on the way is
found before a mirror stores anything. A message that cannot be read ends the bridge.

Rules: PROTOCOL B2.
"""

import enum
import json
import struct
from typing import TypeVar

import attrs
import cattrs
from crc32c import crc32c

from geolog.partition.mirror_entry import SegmentBegin
from geolog.protocol.ids import SegmentEntry, Sequence
from geolog.protocol.watermark import Watermark
from geolog.wire.entry import EncodedEntry, EntryHeader, decode_entry
from geolog.wire.limits import DOCUMENT_BYTES_MAX, ENTRY_BYTES_MAX, INT64_MAX
from relay.protocol.bridge_messages import (
    AskWatermark,
    BridgeHeartbeat,
    BridgeHello,
    BridgeLeaving,
    BridgeMessage,
    BridgeRefused,
    BridgeWelcome,
    ChannelEnded,
    DurableTold,
    FromHome,
    FromTarget,
    RelayedEntry,
    SendEntry,
    WatermarkTold,
    WindowTold,
)
from topology.errors import DamagedBytesError, TooLargeError

T = TypeVar("T")

SUBPROTOCOL_BRIDGE = "geolog.v1.bridge"

MESSAGE_BYTES_MAX = ENTRY_BYTES_MAX + DOCUMENT_BYTES_MAX
"""One WebSocket message: an entry at its limit, with room for what is sent with it."""


class _Type(enum.IntEnum):
    SEND_ENTRY = 1
    DURABLE_TOLD = 2
    BRIDGE_HELLO = 16
    BRIDGE_WELCOME = 17
    ASK_WATERMARK = 18
    WATERMARK_TOLD = 19
    WINDOW_TOLD = 20
    BRIDGE_HEARTBEAT = 21
    CHANNEL_ENDED = 22
    BRIDGE_LEAVING = 23
    BRIDGE_REFUSED = 24


_FRONT = struct.Struct("<BBHIIII")
_CHECKED_BYTES = 16
_WATERMARK = struct.Struct("<QQQQI")
"""Home epoch, segment, entry, next sequence, checksum of the header."""
_BEGIN = struct.Struct("<QqqQ")
"""First sequence, last append time and highest transaction id before the
segment (-1: none), bytes before it."""
_LOCAL_ONLY = struct.Struct("<Q")
"""Local-only records before the segment, if there are any."""
_HEADER_CRC = struct.Struct("<4xI")
_HAS_PREVIOUS, _HAS_BEGIN, _HAS_LOCAL_ONLY = 1, 2, 4
_CHANNEL_MAX = (1 << 32) - 1
_CRC_MAX = (1 << 32) - 1

_AS_JSON: dict[type[BridgeMessage], _Type] = {
    BridgeHello: _Type.BRIDGE_HELLO,
    BridgeWelcome: _Type.BRIDGE_WELCOME,
    AskWatermark: _Type.ASK_WATERMARK,
    WatermarkTold: _Type.WATERMARK_TOLD,
    WindowTold: _Type.WINDOW_TOLD,
    BridgeHeartbeat: _Type.BRIDGE_HEARTBEAT,
    ChannelEnded: _Type.CHANNEL_ENDED,
    BridgeLeaving: _Type.BRIDGE_LEAVING,
    BridgeRefused: _Type.BRIDGE_REFUSED,
}
_CLASSES = {type_: class_ for class_, type_ in _AS_JSON.items()}

BRIDGE_MESSAGE_TYPES: dict[type[BridgeMessage], int] = {
    SendEntry: _Type.SEND_ENTRY,
    DurableTold: _Type.DURABLE_TOLD,
    **_AS_JSON,
}
"""The number of each message on the wire."""


def _only(found: T, class_: type[T]) -> T:
    """The value, of exactly this class: cattrs would convert others."""
    if type(found) is not class_:
        raise DamagedBytesError(f"{found!r:.60} is not of type {class_.__name__}")
    return found


def _json_converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True, detailed_validation=False)
    for class_ in (int, str):
        converter.register_structure_hook(class_, _only)
    return converter


_CONVERTER = _json_converter()


def watermark_of(header: EntryHeader, front: bytes | memoryview) -> Watermark:
    """The watermark of an entry, from its header and the bytes that begin with it."""
    (header_crc,) = _HEADER_CRC.unpack_from(front)
    return Watermark(
        header.home_epoch,
        header.segment,
        header.entry,
        header_crc,
        Sequence(header.next_sequence),
    )


def encode_bridge(message: BridgeMessage) -> bytes:
    """The bytes of one message. TooLargeError for a document over its limit."""
    match message:
        case SendEntry(channel, entry):
            return _joined(
                _Type.SEND_ENTRY, channel, _entry_fields(entry), *entry.encoded.buffers
            )
        case DurableTold(channel, watermark):
            return _joined(_Type.DURABLE_TOLD, channel, _watermark_fields(watermark))
        case _:
            document = json.dumps(
                _CONVERTER.unstructure(message), ensure_ascii=False, separators=(",", ":")
            ).encode()
            if len(document) > DOCUMENT_BYTES_MAX:
                raise TooLargeError(
                    f"a {type(message).__name__} of {len(document)} bytes is over the limit of"
                    f" {DOCUMENT_BYTES_MAX}"
                )
            return _joined(_AS_JSON[type(message)], 0, document)


def decode_from_target(data: bytes | memoryview) -> FromTarget:
    """A message of the target's side. DamagedBytesError ends the bridge."""
    message = _decode(data)
    if not isinstance(message, FromTarget):
        raise DamagedBytesError(f"{type(message).__name__} is a message of the home's side")
    return message


def decode_from_home(data: bytes | memoryview) -> FromHome:
    """A message of the home's side. DamagedBytesError ends the bridge."""
    message = _decode(data)
    if not isinstance(message, FromHome):
        raise DamagedBytesError(f"{type(message).__name__} is a message of the target's side")
    return message


def _joined(type_: _Type, channel: int, fields: bytes, *body: bytes | memoryview) -> bytes:
    body_bytes = sum(map(len, body))
    front = _FRONT.pack(type_, 0, 0, channel, len(fields), body_bytes, 0)[:_CHECKED_BYTES]
    crc = crc32c(fields, crc32c(front))
    return b"".join((front, crc.to_bytes(4, "little"), fields, *body))


def _watermark_fields(watermark: Watermark) -> bytes:
    return _WATERMARK.pack(
        watermark.home_epoch,
        watermark.segment,
        watermark.entry,
        watermark.sequence_next,
        watermark.header_crc,
    )


def _entry_fields(entry: RelayedEntry) -> bytes:
    given = _HAS_PREVIOUS * (entry.previous is not None) | _HAS_BEGIN * (
        entry.begin is not None
    )
    if entry.begin is not None and entry.begin.local_only_before:
        given |= _HAS_LOCAL_ONLY
    parts = [bytes((given,))]
    if entry.previous is not None:
        parts.append(_watermark_fields(entry.previous))
    if entry.begin is not None:
        begin = entry.begin
        transaction_id = begin.transaction_id_before
        parts.append(
            _BEGIN.pack(
                begin.first_sequence,
                begin.append_time_us_before,
                -1 if transaction_id is None else transaction_id,
                begin.size_bytes_before,
            )
        )
        if begin.local_only_before:
            parts.append(_LOCAL_ONLY.pack(begin.local_only_before))
    return b"".join(parts)


def _decode(data: bytes | memoryview) -> BridgeMessage:
    if len(data) < _FRONT.size:
        raise DamagedBytesError(f"a message of {len(data)} bytes is cut within its header")
    type_, zero, zeros, channel, fields_bytes, body_bytes, crc = _FRONT.unpack_from(data)
    end = _FRONT.size + fields_bytes
    if zero or zeros or end > len(data):
        raise DamagedBytesError(f"a message of {len(data)} bytes has fields up to byte {end}")
    view = memoryview(data)
    fields = view[_FRONT.size : end]
    if crc32c(fields, crc32c(view[:_CHECKED_BYTES])) != crc:
        raise DamagedBytesError("a message does not match its checksum")
    if end + body_bytes != len(data):
        raise DamagedBytesError(
            f"a message of {len(data)} bytes has an entry up to byte {end + body_bytes}"
        )
    if type_ == _Type.SEND_ENTRY:
        return SendEntry(channel, _relayed_entry(fields, view[end:]))
    if body_bytes:
        raise DamagedBytesError(f"a message of type {type_} cannot have an entry")
    if type_ == _Type.DURABLE_TOLD:
        if len(fields) != _WATERMARK.size:
            raise DamagedBytesError(
                f"a watermark has {len(fields)} bytes, not {_WATERMARK.size}"
            )
        return DurableTold(channel, _checked(_watermark_at(fields, 0)))
    if channel:
        raise DamagedBytesError(f"a message of type {type_} names its channel in its fields")
    return _from_json(type_, fields)


def _relayed_entry(fields: memoryview, body: memoryview) -> RelayedEntry:
    given = fields[0] if fields else -1
    has_previous, has_begin = given & _HAS_PREVIOUS, given & _HAS_BEGIN
    has_local_only = given & _HAS_LOCAL_ONLY
    is_known = 0 <= given <= _HAS_PREVIOUS | _HAS_BEGIN | _HAS_LOCAL_ONLY
    if not is_known or (has_local_only and not has_begin):
        raise DamagedBytesError(f"unknown flags {given} of an entry on a bridge")
    begin_at = 1 + (_WATERMARK.size if has_previous else 0)
    local_only_at = begin_at + (_BEGIN.size if has_begin else 0)
    fields_end = local_only_at + (_LOCAL_ONLY.size if has_local_only else 0)
    if len(fields) != fields_end:
        raise DamagedBytesError(
            f"fields of an entry have {len(fields)} bytes instead of {fields_end}"
        )
    previous = _checked(_watermark_at(fields, 1)) if has_previous else None
    begin = _begin_at(fields, begin_at) if has_begin else None
    if begin is not None and has_local_only:
        begin = attrs.evolve(begin, local_only_before=_local_only_at(fields, local_only_at))
    decoded = decode_entry(body)
    decoded.verify()
    header = decoded.header
    if previous is not None:
        _check_succession(previous, header)
    if (begin is not None) != (header.entry == 0):
        raise DamagedBytesError(
            f"entry {header.entry} comes {'with' if begin else 'without'} the facts of a"
            " segment's beginning"
        )
    if begin is not None and begin.first_sequence != header.first_sequence:
        raise DamagedBytesError(
            f"segment {header.segment} begins at sequence {begin.first_sequence}, its first"
            f" entry at {header.first_sequence}"
        )
    return RelayedEntry(
        watermark_of(header, body), previous, begin, EncodedEntry(header, (body,), crc32c(body))
    )


def _check_succession(previous: Watermark, header: EntryHeader) -> None:
    """Refuse an entry that cannot come right behind `previous`."""
    place = (header.home_epoch, header.segment, header.entry)
    is_next = previous.is_just_before(*place)
    if not is_next or previous.sequence_next != header.first_sequence:
        raise DamagedBytesError(
            f"entry {header.segment}-{header.entry} of home epoch {header.home_epoch}, sequence"
            f" {header.first_sequence}, cannot come behind {previous}"
        )


def _watermark_at(fields: memoryview, start: int) -> Watermark:
    home_epoch, segment, entry, sequence, crc = _WATERMARK.unpack_from(fields, start)
    return Watermark(home_epoch, segment, SegmentEntry(entry), crc, Sequence(sequence))


def _checked(watermark: Watermark) -> Watermark:
    """Refuse a watermark that no log has."""
    numbers = (
        watermark.home_epoch,
        watermark.segment - 1,
        watermark.entry,
        watermark.sequence_next,
    )
    is_possible = min(numbers) >= 0 and max(numbers) <= INT64_MAX
    if not is_possible or not 0 <= watermark.header_crc <= _CRC_MAX:
        raise DamagedBytesError(f"{watermark} is not a place in a log")
    return watermark


def _begin_at(fields: memoryview, start: int) -> SegmentBegin:
    first_sequence, time_us, transaction_id, size_bytes = _BEGIN.unpack_from(fields, start)
    if max(first_sequence, size_bytes) > INT64_MAX or transaction_id < -1:
        raise DamagedBytesError(
            f"a segment cannot begin at sequence {first_sequence}, behind {size_bytes} bytes"
            f" and transaction id {transaction_id}"
        )
    return SegmentBegin(
        first_sequence=Sequence(first_sequence),
        append_time_us_before=time_us,
        transaction_id_before=None if transaction_id < 0 else transaction_id,
        size_bytes_before=size_bytes,
    )


def _local_only_at(fields: memoryview, start: int) -> int:
    (count,) = _LOCAL_ONLY.unpack_from(fields, start)
    if not 0 < count <= INT64_MAX:
        raise DamagedBytesError(f"a segment cannot begin behind {count} local-only records")
    return int(count)


def _from_json(type_: int, fields: memoryview) -> BridgeMessage:
    class_ = _CLASSES.get(_Type(type_)) if type_ in _Type._value2member_map_ else None
    if class_ is None:
        raise DamagedBytesError(f"unknown message type {type_} on a bridge")
    if len(fields) > DOCUMENT_BYTES_MAX:
        raise DamagedBytesError(f"a {class_.__name__} of {len(fields)} bytes is too large")
    try:
        message: BridgeMessage = _CONVERTER.structure(json.loads(bytes(fields)), class_)
    except DamagedBytesError:
        raise
    except Exception as error:
        raise DamagedBytesError(
            f"the fields of {class_.__name__} are wrong: {error}"
        ) from error
    _check_numbers(message)
    return message


def _check_numbers(message: BridgeMessage) -> None:
    """Refuse numbers that nobody could have meant."""
    match message:
        case WatermarkTold(channel, watermark, first_sequence):
            numbers = [channel, first_sequence]
            if watermark is not None:
                _checked(watermark)
        case AskWatermark():
            numbers = [message.channel, message.partition, message.home_epoch]
        case ChannelEnded():
            numbers = [message.channel, message.code]
        case BridgeHeartbeat():
            numbers = [number for tail in message.tails for number in
                       (tail.channel, tail.sequence_next, tail.size_bytes)]  # fmt: skip
        case BridgeHello():
            numbers = [message.relay_epoch, message.window_bytes - 1]
        case BridgeWelcome():
            numbers = [message.relay_epoch]
        case WindowTold():
            numbers = [message.window_bytes - 1]
        case _:
            return
    if numbers and (min(numbers) < 0 or max(numbers) > INT64_MAX):
        raise DamagedBytesError(f"a number of {message!r:.200} is out of range")
    channel = getattr(message, "channel", 0)
    if channel > _CHANNEL_MAX:
        raise DamagedBytesError(f"channel {channel} is out of range")
