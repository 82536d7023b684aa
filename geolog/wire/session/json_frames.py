"""Text frames of subprotocol `geolog.v1.json`: one JSON object per message.

A frame without a `type` but with a value is an append: people type it by hand.
"""

import json
from collections.abc import Mapping
from typing import Literal, assert_never

from geolog.wire.session.json_records import (
    RECORD_KEYS,
    Json,
    check_keys,
    parse_content,
    parse_object,
    whole_number,
)
from geolog.wire.session.messages import (
    Ack,
    AckPosition,
    AppendId,
    AppendRequest,
    Credit,
    ErrorAnswer,
    Goaway,
    ReadEnd,
    RecordContent,
    SessionHello,
)
from topology.errors import InvalidArgumentError
from topology.nearest import nearest

SUBPROTOCOL = "geolog.v1.json"

RECORDS_MAX = 10_000
"""Records in one append."""

_APPEND_KEYS = frozenset(
    {"type", "id", "records", "writer", "seq", "ack", "expect_sequence"} | RECORD_KEYS
)
_ACKS = ("durable", "received")
_TYPES = ("append", "credit")

FromClient = AppendRequest | Credit
FromProxy = SessionHello | Ack | ErrorAnswer | Goaway | ReadEnd


class BadFrameError(InvalidArgumentError):
    """A frame that cannot be read as a message. `id` is the append's, if the frame has one."""

    def __init__(self, message: str, id_: AppendId | None) -> None:
        super().__init__(message)
        self.id = id_


def decode(text: str) -> FromClient:
    """The client's message in a text frame. BadFrameError."""
    id_: AppendId | None = None
    try:
        document = parse_object(text, "the frame")
        id_ = _id_of(document)
        return _message(document, id_)
    except InvalidArgumentError as error:
        raise BadFrameError(str(error), id_) from error


def encode(message: FromProxy) -> str:
    """The text frame of a proxy's message."""
    return json.dumps(_document(message), ensure_ascii=False, separators=(",", ":"))


def encode_read(type_: Literal["record", "gap"], document: Json) -> str:
    """The text frame of a record or gap, from its document."""
    return json.dumps({"type": type_} | document, ensure_ascii=False, separators=(",", ":"))


def _message(document: Json, id_: AppendId | None) -> FromClient:
    is_append = bool(document.keys() & (RECORD_KEYS | {"records"}))
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
        case None:
            raise InvalidArgumentError('the frame has no "type" and no "value"')
        case str():
            raise InvalidArgumentError(
                f"type {type_!r} is unknown; did you mean {nearest(type_, _TYPES)!r}?"
            )
        case _:
            raise InvalidArgumentError(f"type {type_!r} is not a string")


def _append(document: Json, id_: AppendId | None) -> AppendRequest:
    where = "the append" if id_ is None else f"append {id_!r}"
    check_keys(document, _APPEND_KEYS, where)
    ack, writer = document.get("ack"), document.get("writer")
    if ack is not None and ack not in _ACKS:
        raise InvalidArgumentError(f"{where}: ack {ack!r} is neither durable nor received")
    if writer is not None and not isinstance(writer, str):
        raise InvalidArgumentError(f"{where}: writer {writer!r} is not a string")
    return AppendRequest(
        id=id_,
        records=_records(document, where),
        is_list="records" in document,
        writer=writer,
        seq=whole_number(document, "seq", where),
        ack=ack,
        expect_sequence=whole_number(document, "expect_sequence", where),
    )


def _records(document: Mapping[str, object], where: str) -> tuple[RecordContent, ...]:
    found = document.get("records")
    if found is None:
        return (parse_content(document, where),)
    if document.keys() & RECORD_KEYS:
        raise InvalidArgumentError(f'{where} has both "records" and a record of its own')
    if not isinstance(found, list) or not 1 <= len(found) <= RECORDS_MAX:
        raise InvalidArgumentError(f"{where}: records must be a list of 1 to {RECORDS_MAX}")
    return tuple(_record(one, f"{where}, record {at}") for at, one in enumerate(found))


def _record(document: object, where: str) -> RecordContent:
    if not isinstance(document, dict):
        raise InvalidArgumentError(f"{where} is not a JSON object: {document!r:.60}")
    check_keys(document, RECORD_KEYS, where)
    return parse_content(document, where)


def _id_of(document: Json) -> AppendId | None:
    found = document.get("id")
    if found is None or type(found) is int or isinstance(found, str):
        return found
    raise InvalidArgumentError(f"id {found!r} is neither an integer nor a string")


def _document(message: FromProxy) -> Json:
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
        case _:
            assert_never(message)


def _ack(ack: Ack) -> Json:
    document: Json = {"type": "ack"}
    if ack.id is not None:
        document["id"] = ack.id
    document |= _position(ack.positions[0])
    if ack.provisional:
        document["provisional"] = True
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
