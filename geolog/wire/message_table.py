"""The messages without a body: one row each defines their layout in a frame, both ways.

The fields of a message's class are the columns of its struct, in order; a text comes after
them. Their types define the rest: an `InstanceId` is 16 bytes, a `Reason` its number, a `bool`
0 or 1. A number must fit a signed 64-bit one; in a signed column it is a position, -1 or above.
"""

import struct
from collections.abc import Callable
from operator import attrgetter, itemgetter
from typing import Never

import attrs

from geolog.protocol import messages
from geolog.protocol.ids import InstanceId
from geolog.protocol.messages import Message, Reason
from geolog.wire import layouts
from geolog.wire.fields import (
    check_count,
    check_length,
    check_numbers,
    check_positions,
    flag,
    instance_bytes,
    member,
    pack_cut_text,
    pack_text,
    trailing_text,
)
from geolog.wire.layouts import FrameType
from topology.errors import DamagedBytesError, InvalidArgumentError

Encoder = Callable[[Message], bytes]
"""Encodes a message's fields. struct.error for a number that its column cannot hold."""

Decoder = Callable[[memoryview], Message]
"""Decodes a message from its fields. DamagedBytesError."""

_Convert = Callable[[Never], object]

_ROWS: tuple[tuple[FrameType, type[Message], struct.Struct], ...] = (
    (FrameType.HELLO, messages.Hello, layouts.HELLO),
    (FrameType.HELLO_ANSWER, messages.HelloAnswer, layouts.HELLO_ANSWER),
    (FrameType.REFUSED, messages.Refused, layouts.REFUSED),
    (FrameType.ADDS_SYNCED, messages.AddsSynced, layouts.ADDS_SYNCED),
    (FrameType.ADDS_RECEIVED, messages.AddsReceived, layouts.ADDS_RECEIVED),
    (FrameType.ADD_REFUSED, messages.AddRefused, layouts.ADD_REFUSED),
    (FrameType.OPEN_LEDGER, messages.OpenLedger, layouts.OPEN_LEDGER),
    (FrameType.LEDGER_OPENED, messages.LedgerOpened, layouts.REQUEST),
    (FrameType.FENCE, messages.Fence, layouts.FENCE),
    (FrameType.FENCED, messages.Fenced, layouts.FENCED),
    (FrameType.READ, messages.Read, layouts.READ),
    (FrameType.FOLLOW, messages.Follow, layouts.FOLLOW),
    (FrameType.PROBE, messages.Probe, layouts.PROBE),
    (FrameType.CANCEL, messages.Cancel, layouts.REQUEST),
    (FrameType.PUSH_LAC, messages.PushLac, layouts.PUSH_LAC),
    (FrameType.SETTLE_DOUBT, messages.SettleDoubt, layouts.SETTLE_DOUBT),
    (FrameType.DOUBT_SETTLED, messages.DoubtSettled, layouts.REQUEST),
    (FrameType.STATUS_REQUEST, messages.StatusRequest, layouts.REQUEST),
)

_REASONS = {int(reason): reason for reason in Reason}


@attrs.frozen
class _Column:
    """A field in the struct, with the conversion of its value in each direction."""

    name: str
    to_column: _Convert | None = None
    from_column: _Convert | None = None

    @classmethod
    def of(cls, name: str, type_: object) -> "_Column":
        if type_ is InstanceId:
            return cls(name, instance_bytes, bytes.hex)
        if name == "count_max":
            return cls(name, _sendable_count, _received_count)
        if type_ is Reason:
            return cls(name, None, _reason)
        return cls(name, None, flag if type_ is bool else None)


def _sendable_count(count: int) -> int:
    return check_count(count, InvalidArgumentError)


def _received_count(count: int) -> int:
    return check_count(count, DamagedBytesError)


def _reason(number: int) -> Reason:
    return member(_REASONS, number)


def _columns_of(message: type[Message]) -> list[_Column]:
    return [
        _Column.of(field.name, field.type)
        for field in attrs.fields(message)
        if field.type is not str
    ]


def _text_at(message: type[Message]) -> int | None:
    types = [field.type for field in attrs.fields(message)]
    return types.index(str) if str in types else None


def _encoder(message: type[Message], fixed: struct.Struct) -> Encoder:
    columns = _columns_of(message)
    values_of = attrgetter(*(column.name for column in columns))
    if len(columns) == 1:
        return lambda message: fixed.pack(values_of(message))
    converted = [(at, one.to_column) for at, one in enumerate(columns) if one.to_column]
    text_at = _text_at(message)
    text_of = None if text_at is None else attrgetter(attrs.fields(message)[text_at].name)
    pack = pack_cut_text if message is messages.Refused else pack_text

    def encode(message: Message) -> bytes:
        values = list(values_of(message))
        for at, convert in converted:
            values[at] = convert(values[at])
        packed = fixed.pack(*values)
        return packed if text_of is None else packed + pack(text_of(message))

    return encode


def _decoder(message: type[Message], fixed: struct.Struct) -> Decoder:
    columns = _columns_of(message)
    if len(columns) == 1:
        return _number_decoder(message, fixed)
    converted = [(at, one.from_column) for at, one in enumerate(columns) if one.from_column]
    numbers_of = itemgetter(
        *(at for at, one in enumerate(columns) if one.to_column is not instance_bytes)
    )
    has_positions = "q" in fixed.format
    text_at = _text_at(message)

    def decode(fields: memoryview) -> Message:
        text = None
        if text_at is None:
            check_length(fixed, fields)
        else:
            text = trailing_text(fixed, fields)
        values = list(fixed.unpack_from(fields))
        numbers = numbers_of(values)
        check_numbers(*numbers)
        if has_positions:
            check_positions(*numbers)
        for at, convert in converted:
            values[at] = convert(values[at])
        if text_at is not None:
            values.insert(text_at, text)
        return message(*values)

    return decode


def _number_decoder(message: Callable[[int], Message], fixed: struct.Struct) -> Decoder:
    """The fast path for a message of one number: every answer to adds is one."""

    def decode(fields: memoryview) -> Message:
        check_length(fixed, fields)
        (number,) = fixed.unpack(fields)
        check_numbers(number)
        return message(number)

    return decode


ENCODERS: dict[type[Message], tuple[FrameType, Encoder]] = {
    message: (type_, _encoder(message, fixed)) for type_, message, fixed in _ROWS
}
DECODERS: dict[int, Decoder] = {
    type_: _decoder(message, fixed) for type_, message, fixed in _ROWS
}
