"""Frames into messages. What cannot be a message is a DamagedBytesError, whatever it is."""

from collections.abc import Callable

from geolog.protocol.messages import (
    Add,
    AddRefused,
    AddsReceived,
    AddsSynced,
    Answer,
    DoubtSettled,
    EntryAnswer,
    Fence,
    Fenced,
    Follow,
    Hello,
    HelloAnswer,
    LedgerOpened,
    Message,
    OpenLedger,
    Probe,
    ProbeAnswer,
    PushLac,
    Read,
    ReadAnswer,
    Reason,
    Refused,
    SettleDoubt,
    Status,
    StatusRequest,
)
from geolog.wire import layouts
from geolog.wire.fields import (
    check_length,
    check_numbers,
    check_positions,
    decode_text,
    flag,
    member,
    trailing_text,
)
from geolog.wire.frame import Frame
from geolog.wire.layouts import FrameType
from geolog.wire.limits import DOCUMENT_BYTES_MAX, ENTRIES_PER_ANSWER_MAX, ENTRY_BYTES_MAX
from topology.errors import DamagedBytesError

_ANSWERS = {int(answer): answer for answer in Answer}
_REASONS = {int(reason): reason for reason in Reason}
_TYPE_ADD = int(FrameType.ADD)


def decode(frame: Frame) -> Message:
    """Give the message of a frame; bodies stay where they are. DamagedBytesError."""
    type_, fields, body, body_crc = frame
    if type_ == _TYPE_ADD:
        return _add(fields, body, body_crc)
    if type_ in _WITH_BODY:
        return _WITH_BODY[type_](fields, body)
    if type_ not in _BARE:
        raise DamagedBytesError(f"a message of type {type_} is not known here")
    if len(body):
        raise DamagedBytesError(f"a message of type {type_} has a body of {len(body)} bytes")
    return _BARE[type_](fields)


def _add(fields: memoryview, body: memoryview, body_crc: int) -> Add:
    check_length(layouts.ADD, fields)
    ordinal, ledger, entry, epoch, lac, is_recovery, received, instance = layouts.ADD.unpack(
        fields
    )
    check_numbers(ordinal, ledger, entry, epoch)
    check_positions(lac)
    if not 0 < len(body) <= ENTRY_BYTES_MAX:
        raise DamagedBytesError(f"an entry of {len(body)} bytes cannot be added")
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


def _adds_synced(fields: memoryview) -> AddsSynced:
    check_length(layouts.ADDS_SYNCED, fields)
    (through,) = layouts.ADDS_SYNCED.unpack(fields)
    check_numbers(through)
    return AddsSynced(through)


def _adds_received(fields: memoryview) -> AddsReceived:
    check_length(layouts.ADDS_RECEIVED, fields)
    (through,) = layouts.ADDS_RECEIVED.unpack(fields)
    check_numbers(through)
    return AddsReceived(through)


def _add_refused(fields: memoryview) -> AddRefused:
    check_length(layouts.ADD_REFUSED, fields)
    ordinal, reason, epoch_highest = layouts.ADD_REFUSED.unpack(fields)
    check_numbers(ordinal, epoch_highest)
    return AddRefused(ordinal, member(_REASONS, reason), epoch_highest)


def _hello(fields: memoryview) -> Hello:
    cluster = trailing_text(layouts.HELLO, fields)
    request, protocol_version = layouts.HELLO.unpack_from(fields)
    check_numbers(request)
    return Hello(request, protocol_version, cluster)


def _hello_answer(fields: memoryview) -> HelloAnswer:
    location = trailing_text(layouts.HELLO_ANSWER, fields)
    request, protocol_version, instance, in_flight_bytes_max = layouts.HELLO_ANSWER.unpack_from(
        fields
    )
    check_numbers(request, in_flight_bytes_max)
    return HelloAnswer(request, protocol_version, instance.hex(), location, in_flight_bytes_max)


def _refused(fields: memoryview) -> Refused:
    message = trailing_text(layouts.REFUSED, fields)
    request, reason, epoch_highest = layouts.REFUSED.unpack_from(fields)
    check_numbers(request, epoch_highest)
    return Refused(request, member(_REASONS, reason), epoch_highest, message)


def _open_ledger(fields: memoryview) -> OpenLedger:
    check_length(layouts.OPEN_LEDGER, fields)
    request, ledger, epoch, instance = layouts.OPEN_LEDGER.unpack(fields)
    check_numbers(request, ledger, epoch)
    return OpenLedger(request, ledger, epoch, instance.hex())


def _ledger_opened(fields: memoryview) -> LedgerOpened:
    return LedgerOpened(_request_alone(fields))


def _fence(fields: memoryview) -> Fence:
    check_length(layouts.FENCE, fields)
    request, ledger, epoch, instance = layouts.FENCE.unpack(fields)
    check_numbers(request, ledger, epoch)
    return Fence(request, ledger, epoch, instance.hex())


def _fenced(fields: memoryview) -> Fenced:
    check_length(layouts.FENCED, fields)
    request, lac, entry_highest = layouts.FENCED.unpack(fields)
    check_numbers(request)
    check_positions(lac, entry_highest)
    return Fenced(request, lac, entry_highest)


def _read(fields: memoryview) -> Read:
    check_length(layouts.READ, fields)
    request, ledger, first, count_max, bytes_max, answers_max, fence_epoch, instance = (
        layouts.READ.unpack(fields)
    )
    check_numbers(request, ledger, first, fence_epoch)
    _check_count(count_max)
    return Read(
        request,
        ledger,
        first,
        count_max,
        bytes_max,
        answers_max,
        fence_epoch,
        instance.hex(),
    )


def _follow(fields: memoryview) -> Follow:
    check_length(layouts.FOLLOW, fields)
    request, ledger, first, count_max, bytes_max, wait_ms, instance = layouts.FOLLOW.unpack(
        fields
    )
    check_numbers(request, ledger, first)
    _check_count(count_max)
    return Follow(request, ledger, first, count_max, bytes_max, wait_ms, instance.hex())


def _read_answer(fields: memoryview, body: memoryview) -> ReadAnswer:
    fixed = layouts.READ_ANSWER
    line = layouts.ENTRY_ANSWER
    if len(fields) < fixed.size:
        raise DamagedBytesError(f"fields of {len(fields)} bytes are cut off")
    request, lac, first, is_last, is_fenced, count = fixed.unpack_from(fields)
    table = fields[fixed.size :]
    if len(table) != count * line.size:
        raise DamagedBytesError(f"{count} answers do not stand in {len(table)} bytes")
    _check_count(count)
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
        raise DamagedBytesError(f"an entry of {length} bytes does not stand in its body")
    if (answer is Answer.HAVE) != (length > 0):
        raise DamagedBytesError(f"the answer {answer.name} comes with {length} bytes")
    return EntryAnswer(answer, body)


def _probe(fields: memoryview) -> Probe:
    check_length(layouts.PROBE, fields)
    request, ledger, first, count_max, instance = layouts.PROBE.unpack(fields)
    check_numbers(request, ledger, first)
    _check_count(count_max)
    return Probe(request, ledger, first, count_max, instance.hex())


def _probe_answer(fields: memoryview, body: memoryview) -> ProbeAnswer:
    check_length(layouts.PROBE_ANSWER, fields)
    request, lac, entry_highest, is_fenced, epoch_highest = layouts.PROBE_ANSWER.unpack(fields)
    check_numbers(request, epoch_highest)
    check_positions(lac, entry_highest)
    _check_count(len(body))
    answers = tuple(member(_ANSWERS, number) for number in body)
    return ProbeAnswer(request, lac, entry_highest, flag(is_fenced), epoch_highest, answers)


def _push_lac(fields: memoryview) -> PushLac:
    check_length(layouts.PUSH_LAC, fields)
    ledger, epoch, lac, instance = layouts.PUSH_LAC.unpack(fields)
    check_numbers(ledger, epoch)
    check_positions(lac)
    return PushLac(ledger, epoch, lac, instance.hex())


def _settle_doubt(fields: memoryview) -> SettleDoubt:
    check_length(layouts.SETTLE_DOUBT, fields)
    request, ledgers_below, start_number, instance = layouts.SETTLE_DOUBT.unpack(fields)
    check_numbers(request, ledgers_below, start_number)
    return SettleDoubt(request, ledgers_below, start_number, instance.hex())


def _doubt_settled(fields: memoryview) -> DoubtSettled:
    return DoubtSettled(_request_alone(fields))


def _status_request(fields: memoryview) -> StatusRequest:
    return StatusRequest(_request_alone(fields))


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


def _check_count(count: int) -> None:
    if count > ENTRIES_PER_ANSWER_MAX:
        raise DamagedBytesError(
            f"{count} entries are more than one answer holds: {ENTRIES_PER_ANSWER_MAX}"
        )


_BARE: dict[int, Callable[[memoryview], Message]] = {
    FrameType.HELLO: _hello,
    FrameType.HELLO_ANSWER: _hello_answer,
    FrameType.REFUSED: _refused,
    FrameType.ADDS_SYNCED: _adds_synced,
    FrameType.ADDS_RECEIVED: _adds_received,
    FrameType.ADD_REFUSED: _add_refused,
    FrameType.OPEN_LEDGER: _open_ledger,
    FrameType.LEDGER_OPENED: _ledger_opened,
    FrameType.FENCE: _fence,
    FrameType.FENCED: _fenced,
    FrameType.READ: _read,
    FrameType.FOLLOW: _follow,
    FrameType.PROBE: _probe,
    FrameType.PUSH_LAC: _push_lac,
    FrameType.SETTLE_DOUBT: _settle_doubt,
    FrameType.DOUBT_SETTLED: _doubt_settled,
    FrameType.STATUS_REQUEST: _status_request,
}
_WITH_BODY: dict[int, Callable[[memoryview, memoryview], Message]] = {
    FrameType.READ_ANSWER: _read_answer,
    FrameType.PROBE_ANSWER: _probe_answer,
    FrameType.STATUS: _status,
}
