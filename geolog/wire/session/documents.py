"""Messages of a session as documents: mappings that the encodings share.

A document without a `type` but with a value is an append: people type it by hand.
"""

from collections.abc import Mapping
from typing import assert_never

import attrs

from geolog.wire.batch import open_batch
from geolog.wire.limits import INT64_MAX, WRITER_ID_BYTES_MAX
from geolog.wire.session.json_records import (
    RECORD_KEYS,
    Json,
    check_keys,
    parse_content,
    plain_content,
    whole_number,
)
from geolog.wire.session.messages import (
    Ack,
    AckPosition,
    AppendId,
    AppendRequest,
    Credit,
    CursorCommit,
    CursorCommitted,
    CursorLeave,
    ErrorAnswer,
    Goaway,
    ReadEnd,
    RecordContent,
    SessionHello,
)
from topology.errors import DamagedBytesError, InvalidArgumentError
from topology.nearest import suggestion

RECORDS_MAX = 10_000
"""Records in one append."""

ID_CHARACTERS_MAX = 1024
"""Length of an append's id, which its answer repeats."""

TIMEOUT_S_MAX = 86_400.0
"""Longest time limit of an append."""

_HEAD = ("id", "writer", "seq")
"""Keys that `head_of` looks at."""

_LISTS = frozenset({"records", "batch"})
"""Keys of several records, in place of one."""
_APPEND_KEYS = frozenset(
    {"type", "id", "writer", "seq", "ack", "expect_sequence", "timeout_s"}
    | _LISTS
    | RECORD_KEYS
)
_ACKS = ("durable", "received")
_TYPES = ("append", "commit", "credit", "leave")

Document = Mapping[str, object]
FromClient = AppendRequest | Credit | CursorCommit | CursorLeave
FromProxy = SessionHello | Ack | ErrorAnswer | Goaway | ReadEnd | CursorCommitted


class BadFrameError(InvalidArgumentError):
    """A frame that cannot be read as a message. `id` is the append's, if the frame has one."""

    def __init__(self, message: str, id_: AppendId | None) -> None:
        super().__init__(message)
        self.id = id_


@attrs.frozen
class AppendHead:
    """The id and number of an append."""

    id: AppendId | None
    writer: str | None
    seq: int | None


class CheckedDocument(dict[str, object]):
    """The head of a document whose message was made already."""

    def __init__(self, document: Document, message: FromClient) -> None:
        super().__init__((name, document[name]) for name in _HEAD if name in document)
        self.message = message


def message_of(document: Document) -> FromClient:
    """The client's message in a document. BadFrameError."""
    if isinstance(document, CheckedDocument):
        return document.message
    id_: AppendId | None = None
    try:
        id_ = _id_of(document)
        return _message(document, id_)
    except InvalidArgumentError as error:
        raise BadFrameError(str(error), id_) from error


def head_of(document: Document) -> AppendHead:
    """The little of an append that a refusal needs, without a look at its records.

    Fields that are not what they should be are left out: `message_of` tells.
    """
    try:
        id_ = _id_of(document)
    except InvalidArgumentError:
        id_ = None
    writer, seq = document.get("writer"), document.get("seq")
    return AppendHead(
        id=id_,
        writer=writer if isinstance(writer, str) and _is_writer_id(writer) else None,
        seq=seq if type(seq) is int and 0 <= seq <= INT64_MAX else None,
    )


def document_of(message: FromProxy) -> Json:
    """The document of a proxy's message."""
    match message:
        case SessionHello():
            return {
                "type": "hello",
                "session": message.session,
                "region": message.region,
                "owner": message.owner,
                "epoch": message.epoch,
                "writer_epoch": message.writer_epoch,
                "writer_seq": message.writer_seq,
                "max_frame_bytes": message.max_frame_bytes,
                "credit_bytes": message.credit_bytes,
            }
        case Ack():
            return _ack(message)
        case ErrorAnswer():
            return _failure(message)
        case Goaway():
            return {"type": "goaway"}
        case ReadEnd():
            return {"type": "end"}
        case CursorCommitted(id_):
            return {"type": "committed", "id": id_}
        case _:
            assert_never(message)


def _message(document: Document, id_: AppendId | None) -> FromClient:
    is_append = bool(document.keys() & (RECORD_KEYS | _LISTS))
    type_ = document.get("type", "append" if is_append else None)
    match type_:
        case "append":
            return _append(document, id_)
        case "credit":
            check_keys(document, {"type", "records"}, "the credit")
            count = whole_number(document, "records", "the credit")
            if not count:
                raise InvalidArgumentError('the credit needs "records", 1 or more')
            return Credit(count)
        case "commit":
            check_keys(document, {"type", "id", "sequence", "partition"}, "the commit")
            sequence = whole_number(document, "sequence", "the commit")
            if sequence is None:
                raise InvalidArgumentError('the commit needs "sequence"')
            partition = whole_number(document, "partition", "the commit")
            return CursorCommit(sequence, partition, id_)
        case "leave":
            check_keys(document, {"type"}, "the leave")
            return CursorLeave()
        case None:
            raise InvalidArgumentError('the frame has no "type" and no "value"')
        case str():
            raise InvalidArgumentError(
                f"type {type_!r:.60} is unknown{suggestion(type_, _TYPES)}"
            )
        case _:
            raise InvalidArgumentError(f"type {type_!r:.60} is not a string")


def _append(document: Document, id_: AppendId | None) -> AppendRequest:
    where = "the append" if id_ is None else f"append {id_!r:.60}"
    check_keys(document, _APPEND_KEYS, where)
    ack, writer = document.get("ack"), document.get("writer")
    if ack is not None and ack not in _ACKS:
        raise InvalidArgumentError(f"{where}: ack {ack!r:.60} is neither durable nor received")
    if writer is not None:
        if not isinstance(writer, str):
            raise InvalidArgumentError(f"{where}: writer {writer!r:.60} is not a string")
        _check_text(writer, f"{where}: writer")
        if not _is_writer_id(writer):
            raise InvalidArgumentError(
                f"{where}: writer {writer!r:.60} must have 1 to {WRITER_ID_BYTES_MAX} bytes"
            )
    records, seq = _records(document, where), whole_number(document, "seq", where)
    if seq is not None and seq + len(records) - 1 > INT64_MAX:
        raise InvalidArgumentError(f"{where}: the last seq is out of range: 0 to {INT64_MAX}")
    return AppendRequest(
        id=id_,
        records=records,
        is_list=bool(document.keys() & _LISTS),
        writer=writer,
        seq=seq,
        ack=ack,
        expect_sequence=whole_number(document, "expect_sequence", where),
        timeout_s=_timeout_s(document, where),
    )


def _timeout_s(document: Document, where: str) -> float | None:
    found = document.get("timeout_s")
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise InvalidArgumentError(f"{where}: timeout_s {found!r:.60} is not a number")
    if not 0 < found <= TIMEOUT_S_MAX:
        raise InvalidArgumentError(
            f"{where}: timeout_s {found!r:.60} is out of range: more than 0, and up to"
            f" {TIMEOUT_S_MAX:g} seconds"
        )
    return float(found)


def _records(document: Document, where: str) -> tuple[RecordContent, ...]:
    given = document.keys() & _LISTS
    if not given:
        return (parse_content(document, where),)
    if len(given) > 1:
        raise InvalidArgumentError(f'{where} has both "records" and "batch"')
    if document.keys() & RECORD_KEYS:
        (name,) = given
        raise InvalidArgumentError(f'{where} has both "{name}" and a record of its own')
    if "batch" in document:
        return _records_of_batch(document["batch"], where)
    found = document["records"]
    if not isinstance(found, list) or not 1 <= len(found) <= RECORDS_MAX:
        raise InvalidArgumentError(f"{where}: records must be a list of 1 to {RECORDS_MAX}")
    return tuple(
        plain_content(one) or _record(one, f"{where}, record {at}")
        for at, one in enumerate(found)
    )


def _records_of_batch(sealed: object, where: str) -> tuple[RecordContent, ...]:
    if not isinstance(sealed, bytes):
        raise InvalidArgumentError(f"{where}: batch {sealed!r:.60} is not binary")
    try:
        batch = open_batch(sealed)
        if len(batch) > RECORDS_MAX:
            raise InvalidArgumentError(
                f"{where}: batch has {len(batch)} records; {RECORDS_MAX} are allowed"
            )
        return tuple(
            RecordContent(
                batch.value(row),
                batch.key(row),
                batch.headers(row) or None,
                batch.transaction_id(row),
            )
            for row in range(len(batch))
        )
    except DamagedBytesError as error:
        raise InvalidArgumentError(f"{where}: {error}") from error


def _record(document: object, where: str) -> RecordContent:
    if not isinstance(document, dict):
        raise InvalidArgumentError(f"{where} is not an object: {document!r:.60}")
    check_keys(document, RECORD_KEYS, where)
    return parse_content(document, where)


def _id_of(document: Document) -> AppendId | None:
    found = document.get("id")
    match found:
        case None:
            return None
        case int() if type(found) is int:
            return found
        case str() if len(found) <= ID_CHARACTERS_MAX:
            _check_text(found, "id")
            return found
        case str():
            raise InvalidArgumentError(
                f"id has {len(found)} characters; {ID_CHARACTERS_MAX} are allowed"
            )
        case _:
            raise InvalidArgumentError(f"id {found!r:.60} is neither an integer nor a string")


def _is_writer_id(text: str) -> bool:
    return len(text.encode(errors="replace")) <= WRITER_ID_BYTES_MAX


def _check_text(text: str, where: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"{where} {text!r:.60} is not valid Unicode") from error


def _ack(ack: Ack) -> Json:
    document: Json = {"type": "ack"}
    if ack.id is not None:
        document["id"] = ack.id
    document |= _position(ack.positions[0])
    if ack.provisional:
        document["provisional"] = True
    if ack.valid_ms is not None:
        document["valid_ms"] = ack.valid_ms
    if ack.is_list:
        document["records"] = [_position(one) for one in ack.positions]
    return document


def _position(position: AckPosition) -> Json:
    return {
        "dlsn": str(position.dlsn),
        "epoch": position.epoch,
        "sequence": position.sequence,
        "partition": position.partition,
        "duplicate": position.duplicate,
    }


def _failure(failure: ErrorAnswer) -> Json:
    document: Json = {"type": "error"}
    if failure.id is not None:
        document["id"] = failure.id
    document |= {
        "code": failure.code,
        "error": failure.error,
        "outcome": failure.outcome,
        "retriable": failure.retriable,
    }
    if failure.location is not None:
        document["location"] = failure.location
    if failure.retry_after_s is not None:
        document["retry_after_s"] = failure.retry_after_s
    return document
