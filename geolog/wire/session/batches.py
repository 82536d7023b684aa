"""Binary messages of subprotocol `geolog.v1.batches`: one or more in each WebSocket message.

Layout, little-endian:

    0  type u8                      8  length of the fields u32
    1  zero u8                      12 length of the batch u32 (SEND_BATCH only, else 0)
    2  zero u16                     16 CRC32C of bytes 0 to 16 and the fields u32
    4  channel u32                  20 fields
                                       a sealed batch, as its writer sealed it (SEND_BATCH only)

The fields of SEND_BATCH and BATCH_PLACED, which are sent for every batch, are structs; those of
all other messages are JSON objects. A sealed batch has checksums of its own.

A message that cannot be read ends the session. A batch that was sealed wrongly, in a message
that is intact, is refused on its channel, and the session goes on.
"""

import base64
import enum
import json
import struct
from collections.abc import Iterator
from typing import TypeVar

import cattrs
from crc32c import crc32c

from geolog.protocol.batch_seqs import GAPS_BYTES_MAX, BatchSeqs
from geolog.protocol.ids import DLSN
from geolog.protocol.writer_standing import is_possible_fence
from geolog.wire.batch import verify_batch
from geolog.wire.batch_terms import BatchTerms
from geolog.wire.entry import WriterStamp
from geolog.wire.limits import INT64_MAX, WRITER_ID_BYTES_MAX
from geolog.wire.session.channel_messages import (
    AskStanding,
    BatchCompared,
    BatchPlaced,
    BatchRefused,
    ChannelClosed,
    ChannelOpened,
    CloseChannel,
    DescribeRequest,
    FirstPlaceTold,
    OpenChannel,
    RequestRefused,
    SendBatch,
    SessionGoaway,
    StandingTold,
    StreamTold,
    ToldError,
)
from topology.errors import DamagedBytesError, InvalidArgumentError

T = TypeVar("T")

SUBPROTOCOL_BATCHES = "geolog.v1.batches"

BatchesFromClient = DescribeRequest | OpenChannel | AskStanding | SendBatch | CloseChannel
BatchesFromProxy = (
    StreamTold
    | ChannelOpened
    | StandingTold
    | RequestRefused
    | BatchPlaced
    | BatchCompared
    | BatchRefused
    | ChannelClosed
    | SessionGoaway
)
BatchesMessage = BatchesFromClient | BatchesFromProxy


class _Type(enum.IntEnum):
    SEND_BATCH = 1
    BATCH_PLACED = 2
    BATCH_PLACED_FOR = 3
    DESCRIBE_REQUEST = 16
    STREAM_TOLD = 17
    OPEN_CHANNEL = 18
    CHANNEL_OPENED = 19
    ASK_STANDING = 20
    STANDING_TOLD = 21
    REQUEST_REFUSED = 22
    BATCH_COMPARED = 23
    BATCH_REFUSED = 24
    CLOSE_CHANNEL = 25
    CHANNEL_CLOSED = 26
    SESSION_GOAWAY = 27


_FRONT = struct.Struct("<BBHIIII")
_CHECKED_BYTES = 16
_PLACED = struct.Struct("<QQQQQ")
_PLACED_FOR = struct.Struct("<QQQQQI")
_SEND = struct.Struct("<QBqqqqIqIHHB")
"""Number; which terms are given; seq before, expected sequence, first and last transaction id;
then the writer's epoch, first seq, count, partitions, length of the gaps, length of the id."""

_CHANNEL_MAX = (1 << 32) - 1

_HAS_WRITER, _HAS_SEQ_BEFORE, _HAS_EXPECTED, _HAS_TRANSACTIONS, _IS_LOCAL_ONLY = 1, 2, 4, 8, 16
_ALL_GIVEN = _HAS_WRITER | _HAS_SEQ_BEFORE | _HAS_EXPECTED | _HAS_TRANSACTIONS | _IS_LOCAL_ONLY

_AS_JSON: dict[type[BatchesMessage], _Type] = {
    DescribeRequest: _Type.DESCRIBE_REQUEST,
    StreamTold: _Type.STREAM_TOLD,
    OpenChannel: _Type.OPEN_CHANNEL,
    ChannelOpened: _Type.CHANNEL_OPENED,
    AskStanding: _Type.ASK_STANDING,
    StandingTold: _Type.STANDING_TOLD,
    RequestRefused: _Type.REQUEST_REFUSED,
    BatchCompared: _Type.BATCH_COMPARED,
    BatchRefused: _Type.BATCH_REFUSED,
    CloseChannel: _Type.CLOSE_CHANNEL,
    ChannelClosed: _Type.CHANNEL_CLOSED,
    SessionGoaway: _Type.SESSION_GOAWAY,
}
_CLASSES = {type_: class_ for class_, type_ in _AS_JSON.items()}

MESSAGE_TYPES: dict[type[BatchesMessage], int] = {
    SendBatch: _Type.SEND_BATCH,
    BatchPlaced: _Type.BATCH_PLACED,
    **_AS_JSON,
}
"""The number of each message on the wire."""


class BadBatchError(InvalidArgumentError):
    """A batch that was sealed wrongly, or whose terms are impossible; its message is intact."""

    def __init__(self, message: str, *, channel: int, number: int) -> None:
        super().__init__(message)
        self.channel = channel
        self.number = number


def _json_converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True, detailed_validation=False)
    for class_ in (int, str):
        converter.register_structure_hook(class_, _only)
    converter.register_unstructure_hook(bytes, lambda data: base64.b64encode(data).decode())
    converter.register_structure_hook(
        bytes, lambda text, _: base64.b64decode(_only(text, str), validate=True)
    )
    converter.register_unstructure_hook(DLSN, str)
    converter.register_structure_hook(DLSN, lambda text, _: DLSN.parse(text))
    converter.register_unstructure_hook(
        BatchSeqs, lambda seqs: [seqs.first, seqs.count, seqs.gaps.hex()]
    )
    converter.register_structure_hook(BatchSeqs, lambda parts, _: _seqs_of(parts))
    converter.register_structure_hook(
        FirstPlaceTold | ToldError,
        lambda one, _: converter.structure(one, FirstPlaceTold if "dlsn" in one else ToldError),
    )
    return converter


def _only(found: T, class_: type[T]) -> T:
    """The value, of exactly this class: cattrs would convert others."""
    if type(found) is not class_:
        raise DamagedBytesError(f"{found!r:.60} is not of type {class_.__name__}")
    return found


def _seqs_of(parts: list[object]) -> BatchSeqs:
    first, count, gaps = parts
    if not isinstance(first, int) or not isinstance(count, int) or not isinstance(gaps, str):
        raise DamagedBytesError(f"{parts} are not the seqs of a batch")
    return _checked_seqs(BatchSeqs(first, count, bytes.fromhex(gaps)))


def _checked_seqs(seqs: BatchSeqs) -> BatchSeqs:
    fault = seqs.fault()
    if fault is not None:
        raise DamagedBytesError(fault)
    return seqs


_CONVERTER = _json_converter()


def encode_batches(message: BatchesMessage) -> bytes:
    """The WebSocket message of one message."""
    match message:
        case SendBatch():
            return _joined(
                _Type.SEND_BATCH, message.channel, _send_fields(message), message.sealed.data
            )
        case BatchPlaced():
            fields = _PLACED.pack(
                message.number,
                message.segment,
                message.entry,
                message.slot,
                message.first_sequence,
            )
            if message.valid_ms is None:
                return _joined(_Type.BATCH_PLACED, message.channel, fields)
            valid = struct.pack("<I", message.valid_ms)
            return _joined(_Type.BATCH_PLACED_FOR, message.channel, fields + valid)
        case _:
            document = json.dumps(
                _CONVERTER.unstructure(message), ensure_ascii=False, separators=(",", ":")
            )
            return _joined(_AS_JSON[type(message)], 0, document.encode())


def messages_of(data: bytes) -> Iterator[bytes]:
    """The messages in one WebSocket message, each to be decoded; the last may be cut.

    Each of several is a copy: a small batch without an answer keeps no others in memory.
    """
    start = 0
    while True:
        end = len(data)
        if start + _FRONT.size <= end:
            *_, fields_bytes, body_bytes, _ = _FRONT.unpack_from(data, start)
            end = min(end, start + _FRONT.size + fields_bytes + body_bytes)
        yield data[start:end]
        if end == len(data):
            return
        start = end


def decode_from_client(data: bytes) -> BatchesFromClient:
    """The client's message. BadBatchError refuses one batch; DamagedBytesError ends it all."""
    message = _decode(data)
    if not isinstance(message, BatchesFromClient):
        raise DamagedBytesError(f"{type(message).__name__} is a proxy's message")
    _check_numbers(message)
    if isinstance(message, AskStanding):
        _check_writer_id(message.writer_id)
        if message.fence is not None and not is_possible_fence(message.fence):
            raise DamagedBytesError(f"{message.fence} is impossible")
    return message


def _check_numbers(message: BatchesFromClient) -> None:
    """Refuse channels and requests that no answer could name."""
    channel = 0 if isinstance(message, DescribeRequest) else message.channel
    request = message.request if isinstance(message, DescribeRequest | AskStanding) else 0
    if not 0 <= channel <= _CHANNEL_MAX or not 0 <= request <= INT64_MAX:
        raise DamagedBytesError(f"channel {channel} or request {request} is out of range")


def _check_writer_id(writer_id: bytes) -> None:
    if not 0 < len(writer_id) <= WRITER_ID_BYTES_MAX:
        raise DamagedBytesError(f"a writer id has {len(writer_id)} bytes")
    try:
        writer_id.decode()
    except UnicodeDecodeError as error:
        raise DamagedBytesError(f"writer id {writer_id!r:.60} is not UTF-8") from error


def decode_from_proxy(data: bytes) -> BatchesFromProxy:
    """The proxy's message. DamagedBytesError."""
    message = _decode(data)
    if not isinstance(message, BatchesFromProxy):
        raise DamagedBytesError(f"{type(message).__name__} is a client's message")
    return message


def _joined(type_: _Type, channel: int, fields: bytes, body: bytes | memoryview = b"") -> bytes:
    front = _FRONT.pack(type_, 0, 0, channel, len(fields), len(body), 0)[:_CHECKED_BYTES]
    crc = crc32c(fields, crc32c(front))
    return b"".join((front, crc.to_bytes(4, "little"), fields, body))


def _decode(data: bytes) -> BatchesMessage:
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
            f"a message of {len(data)} bytes has a batch up to byte {end + body_bytes}"
        )
    if type_ == _Type.SEND_BATCH:
        return _send_batch(channel, fields, view[end:])
    if body_bytes:
        raise DamagedBytesError(f"a message of type {type_} cannot have a batch")
    if type_ == _Type.BATCH_PLACED:
        return BatchPlaced(channel, *_unpacked(_PLACED, fields))
    if type_ == _Type.BATCH_PLACED_FOR:
        return BatchPlaced(channel, *_unpacked(_PLACED_FOR, fields))
    return _from_json(type_, fields)


def _from_json(type_: int, fields: memoryview) -> BatchesMessage:
    class_ = _CLASSES.get(_Type(type_)) if type_ in _Type._value2member_map_ else None
    if class_ is None:
        raise DamagedBytesError(f"unknown message type {type_}")
    try:
        return _CONVERTER.structure(json.loads(bytes(fields)), class_)
    except DamagedBytesError:
        raise
    except Exception as error:
        raise DamagedBytesError(
            f"the fields of {class_.__name__} are wrong: {error}"
        ) from error


def _unpacked(layout: struct.Struct, fields: memoryview) -> tuple[int, ...]:
    if len(fields) != layout.size:
        raise DamagedBytesError(f"fields have {len(fields)} bytes instead of {layout.size}")
    numbers: tuple[int, ...] = layout.unpack(fields)
    if max(numbers) > INT64_MAX:
        raise DamagedBytesError(f"one of {numbers} is over {INT64_MAX}")
    return numbers


def _send_fields(message: SendBatch) -> bytes:
    terms, given = message.terms, 0
    stamp = terms.writer
    writer_id = gaps = b""
    epoch = first = count = partitions = 0
    if stamp is not None:
        given |= _HAS_WRITER
        writer_id, gaps = stamp.writer_id, stamp.seqs.gaps
        epoch, partitions = stamp.epoch, stamp.partitions
        first, count = stamp.seqs.first, stamp.seqs.count
    given |= _HAS_SEQ_BEFORE * (terms.seq_before is not None)
    given |= _HAS_EXPECTED * (terms.expect_sequence is not None)
    given |= _HAS_TRANSACTIONS * (terms.transaction_first is not None)
    given |= _IS_LOCAL_ONLY * terms.is_local_only
    fixed = _SEND.pack(
        message.number, given,
        -1 if terms.seq_before is None else terms.seq_before,
        terms.expect_sequence or 0,
        terms.transaction_first or 0, terms.transaction_last or 0,
        epoch, first, count, partitions, len(gaps), len(writer_id),
    )  # fmt: skip
    return fixed + writer_id + gaps


def _send_batch(channel: int, fields: memoryview, body: memoryview) -> SendBatch:
    """SEND_BATCH; the batch's checksums and the number of its seqs are verified."""
    if len(fields) < _SEND.size:
        raise DamagedBytesError(f"the fields of a batch are cut to {len(fields)} bytes")
    numbers = _SEND.unpack_from(fields)
    number: int = numbers[0]
    try:
        sealed = verify_batch(body)
        terms = _terms_of(numbers, fields[_SEND.size :], sealed.record_count)
    except DamagedBytesError as error:
        raise BadBatchError(str(error), channel=channel, number=number) from error
    return SendBatch(channel, number, terms, sealed)


def _terms_of(numbers: tuple[int, ...], rest: memoryview, record_count: int) -> BatchTerms:
    (
        _, given, seq_before, expected, transaction_first, transaction_last,
        epoch, first, count, partitions, gaps_bytes, id_bytes,
    ) = numbers  # fmt: skip
    if given & ~_ALL_GIVEN or len(rest) != id_bytes + gaps_bytes:
        raise DamagedBytesError(f"the terms of a batch have {len(rest)} bytes too many")
    stamp = None
    if given & _HAS_WRITER:
        if gaps_bytes > GAPS_BYTES_MAX:
            raise DamagedBytesError(f"{gaps_bytes} bytes of gaps are too many")
        writer_id = bytes(rest[:id_bytes])
        _check_writer_id(writer_id)
        seqs = _checked_seqs(BatchSeqs(first, count, bytes(rest[id_bytes:])))
        if count != record_count:
            raise DamagedBytesError(f"{count} seqs for {record_count} records")
        stamp = WriterStamp(writer_id, epoch, seqs, partitions)
    has_transactions = bool(given & _HAS_TRANSACTIONS)
    return BatchTerms(
        writer=stamp,
        seq_before=seq_before if given & _HAS_SEQ_BEFORE else None,
        expect_sequence=expected if given & _HAS_EXPECTED else None,
        transaction_first=transaction_first if has_transactions else None,
        transaction_last=transaction_last if has_transactions else None,
        is_local_only=bool(given & _IS_LOCAL_ONLY),
    )
