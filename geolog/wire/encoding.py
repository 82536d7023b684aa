"""Messages into frames."""

import struct

from crc32c import crc32c

from geolog.protocol.ids import EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.messages import Add, Answer, Message, ProbeAnswer, ReadAnswer, Status
from geolog.wire import layouts
from geolog.wire.fields import check_count, instance_bytes
from geolog.wire.frame import encode_frame_front
from geolog.wire.layouts import FrameType
from geolog.wire.limits import DOCUMENT_BYTES_MAX, ENTRY_BYTES_MAX
from geolog.wire.message_table import ENCODERS
from topology.errors import InvalidArgumentError, TooLargeError

Buffers = list[bytes | memoryview]


def encode(message: Message) -> Buffers:
    """The buffers of the message's frame, in order; bodies are not copied.

    InvalidArgumentError for a number or text that the format cannot hold; TooLargeError for
    anything over its limit. Only the message of a `Refused` is cut to fit.
    """
    try:
        return _encode(message)
    except (struct.error, UnicodeEncodeError) as error:
        raise InvalidArgumentError(f"cannot send {message}: {error}") from error


def encode_add_front(
    *,
    ordinal: int,
    ledger: LedgerId,
    entry: EntryId,
    epoch: Epoch,
    lac: EntryId,
    is_recovery: bool,
    wants_received: bool,
    instance: InstanceId,
    body_bytes: int,
    body_crc: int,
) -> bytes:
    """The part of an add's frame before the entry, whose own buffers follow."""
    if not 0 < body_bytes <= ENTRY_BYTES_MAX:
        raise TooLargeError(f"entry size must be 1 to {ENTRY_BYTES_MAX}, got {body_bytes}")
    try:
        fields = layouts.ADD.pack(
            ordinal,
            ledger,
            entry,
            epoch,
            lac,
            is_recovery,
            wants_received,
            instance_bytes(instance),
        )
    except struct.error as error:
        raise InvalidArgumentError(
            f"cannot add entry {entry} of ledger {ledger}: {error}"
        ) from error
    return encode_frame_front(FrameType.ADD, fields, body_bytes, body_crc)


def encode_adds_synced(through: int) -> bytes:
    """The whole frame of an `AddsSynced`."""
    return encode_frame_front(FrameType.ADDS_SYNCED, layouts.ADDS_SYNCED.pack(through))


def _encode(message: Message) -> Buffers:
    match message:
        case Add(
            ordinal, ledger, entry, epoch, lac, is_recovery, received, instance, body, crc
        ):
            front = encode_add_front(
                ordinal=ordinal,
                ledger=ledger,
                entry=entry,
                epoch=epoch,
                lac=lac,
                is_recovery=is_recovery,
                wants_received=received,
                instance=instance,
                body_bytes=len(body),
                body_crc=crc,
            )
            return [front, body]
        case ReadAnswer():
            return _encode_read_answer(message)
        case ProbeAnswer(request, lac, entry_highest, is_fenced, epoch, answers):
            fields = layouts.PROBE_ANSWER.pack(request, lac, entry_highest, is_fenced, epoch)
            return _with_body(FrameType.PROBE_ANSWER, fields, bytes(answers))
        case Status(request, document):
            return _with_body(
                FrameType.STATUS, layouts.REQUEST.pack(request), document.encode()
            )
        case _:
            type_, encode_fields = ENCODERS[type(message)]
            return [encode_frame_front(type_, encode_fields(message))]


def _encode_read_answer(message: ReadAnswer) -> Buffers:
    count = len(message.entries)
    check_count(count, InvalidArgumentError)
    if any((one.answer is Answer.HAVE) != (len(one.body) > 0) for one in message.entries):
        raise InvalidArgumentError(f"{message}: its entries do not match its answers")
    fixed = layouts.READ_ANSWER.pack(
        message.request,
        message.lac,
        message.first,
        message.is_last,
        message.is_fenced,
        count,
    )
    lines = [
        layouts.ENTRY_ANSWER.pack(entry.answer, len(entry.body)) for entry in message.entries
    ]
    bodies = [entry.body for entry in message.entries if len(entry.body)]
    body_crc = 0
    for body in bodies:
        body_crc = crc32c(body, body_crc)
    fields = b"".join([fixed, *lines])
    body_bytes = sum(map(len, bodies))
    return [encode_frame_front(FrameType.READ_ANSWER, fields, body_bytes, body_crc), *bodies]


def _with_body(type_: FrameType, fields: bytes, body: bytes) -> Buffers:
    if len(body) > DOCUMENT_BYTES_MAX:
        raise TooLargeError(
            f"a body of {len(body)} bytes is over the limit of {DOCUMENT_BYTES_MAX}"
        )
    return [encode_frame_front(type_, fields, len(body), crc32c(body)), body]
