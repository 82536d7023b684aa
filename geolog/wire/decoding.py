"""Frames into messages. Anything that is not a message is a DamagedBytesError."""

from collections.abc import Callable

from geolog.protocol.messages import (
    Add,
    Answer,
    EntryAnswer,
    Message,
    ProbeAnswer,
    ReadAnswer,
    Status,
)
from geolog.wire import layouts
from geolog.wire.fields import (
    check_count,
    check_length,
    check_numbers,
    check_positions,
    decode_text,
    flag,
    member,
)
from geolog.wire.frame import Frame
from geolog.wire.layouts import FrameType
from geolog.wire.limits import DOCUMENT_BYTES_MAX, ENTRY_BYTES_MAX
from geolog.wire.message_table import DECODERS
from topology.errors import DamagedBytesError

_ANSWERS = {int(answer): answer for answer in Answer}
_TYPE_ADD = int(FrameType.ADD)


def decode(frame: Frame) -> Message:
    """Decode the message of a frame; bodies are not copied. DamagedBytesError."""
    type_, fields, body, body_crc = frame
    if type_ == _TYPE_ADD:
        return _add(fields, body, body_crc)
    if type_ in _WITH_BODY:
        return _WITH_BODY[type_](fields, body)
    if type_ not in DECODERS:
        raise DamagedBytesError(f"unknown message type {type_}")
    if len(body):
        raise DamagedBytesError(f"message type {type_} cannot have a body: {len(body)} bytes")
    return DECODERS[type_](fields)


def _add(fields: memoryview, body: memoryview, body_crc: int) -> Add:
    check_length(layouts.ADD, fields)
    ordinal, ledger, entry, epoch, lac, is_recovery, received, instance = layouts.ADD.unpack(
        fields
    )
    check_numbers(ordinal, ledger, entry, epoch)
    check_positions(lac)
    if not 0 < len(body) <= ENTRY_BYTES_MAX:
        raise DamagedBytesError(f"entry size out of range: {len(body)} bytes")
    return Add(
        ordinal,
        ledger,
        entry,
        epoch,
        lac,
        flag(is_recovery),
        flag(received),
        instance.hex(),
        body,
        body_crc,
    )


def _read_answer(fields: memoryview, body: memoryview) -> ReadAnswer:
    fixed = layouts.READ_ANSWER
    line = layouts.ENTRY_ANSWER
    if len(fields) < fixed.size:
        raise DamagedBytesError(f"fields truncated to {len(fields)} bytes")
    request, lac, first, is_last, is_fenced, count = fixed.unpack_from(fields)
    table = fields[fixed.size :]
    if len(table) != count * line.size:
        raise DamagedBytesError(f"{count} answers do not fit {len(table)} bytes")
    check_count(count, DamagedBytesError)
    check_numbers(request, first)
    check_positions(lac)
    entries = []
    start = 0
    for answer, length in line.iter_unpack(table):
        end = start + length
        entries.append(_entry_answer(answer, body[start:end], length))
        start = end
    if start != len(body):
        raise DamagedBytesError(f"a body of {len(body)} bytes instead of {start}")
    return ReadAnswer(
        request,
        lac,
        first,
        tuple(entries),
        is_last=flag(is_last),
        is_fenced=flag(is_fenced),
    )


def _entry_answer(number: int, body: memoryview, length: int) -> EntryAnswer:
    answer = member(_ANSWERS, number)
    if len(body) != length or length > ENTRY_BYTES_MAX:
        raise DamagedBytesError(f"an entry of {length} bytes exceeds its body")
    if (answer is Answer.HAVE) != (length > 0):
        raise DamagedBytesError(f"answer {answer.name} must not have {length} bytes")
    return EntryAnswer(answer, body)


def _probe_answer(fields: memoryview, body: memoryview) -> ProbeAnswer:
    check_length(layouts.PROBE_ANSWER, fields)
    request, lac, entry_highest, is_fenced, epoch_highest = layouts.PROBE_ANSWER.unpack(fields)
    check_numbers(request, epoch_highest)
    check_positions(lac, entry_highest)
    check_count(len(body), DamagedBytesError)
    answers = tuple(member(_ANSWERS, number) for number in body)
    return ProbeAnswer(request, lac, entry_highest, flag(is_fenced), epoch_highest, answers)


def _status(fields: memoryview, body: memoryview) -> Status:
    request = _request_alone(fields)
    if len(body) > DOCUMENT_BYTES_MAX:
        raise DamagedBytesError(
            f"a document of {len(body)} bytes is over the limit of {DOCUMENT_BYTES_MAX}"
        )
    return Status(request, decode_text(body))


def _request_alone(fields: memoryview) -> int:
    check_length(layouts.REQUEST, fields)
    request: int
    (request,) = layouts.REQUEST.unpack(fields)
    check_numbers(request)
    return request


_WITH_BODY: dict[int, Callable[[memoryview, memoryview], Message]] = {
    FrameType.READ_ANSWER: _read_answer,
    FrameType.PROBE_ANSWER: _probe_answer,
    FrameType.STATUS: _status,
}
