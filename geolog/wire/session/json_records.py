"""A record's own fields as JSON: text where it is text, base64 where it is not.

Documents of other encodings have bytes where JSON has base64; both are accepted here.
"""

import base64
import binascii
import json
import sys
from collections.abc import Iterable, Mapping

from geolog.wire.limits import INT64_MAX
from geolog.wire.session.messages import RecordContent
from topology.errors import InvalidArgumentError
from topology.nearest import suggestion

RECORD_KEYS = frozenset(
    {"value", "value_base64", "key", "key_base64", "headers", "transaction_id", "local_only"}
)
"""Keys of a record's own fields."""

JsonValue = str | int | float | bool | None | list["JsonValue"] | dict[str, "JsonValue"]
Json = dict[str, JsonValue]


def parse_object(text: str | bytes, where: str) -> Json:
    """Parse one JSON object. InvalidArgumentError says `where` it is and what is wrong."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidArgumentError(
            f"{where} is not valid JSON: {error.msg} at column {error.colno}"
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"{where} is not valid JSON: {error}") from error
    except ValueError as error:  # Its text tells programmers which function to call.
        raise InvalidArgumentError(
            f"{where} has a number with more than {sys.get_int_max_str_digits()} digits"
        ) from error
    except RecursionError as error:
        raise InvalidArgumentError(f"{where} is nested too deeply") from error
    if not isinstance(document, dict):
        raise InvalidArgumentError(f"{where} is not a JSON object: {text[:60]!r}")
    return document


def check_keys(document: Mapping[str, object], known: Iterable[str], where: str) -> None:
    """InvalidArgumentError for a key that is not known, with the nearest that is."""
    known = frozenset(known)
    if document.keys() <= known:
        return
    name = next(one for one in document if one not in known)
    raise InvalidArgumentError(f"{where}: unknown key {name!r:.60}{suggestion(name, known)}")


def plain_content(document: object) -> RecordContent | None:
    """The record of a document with a value and perhaps a key, which most are.

    None if it may be anything else: `parse_content` tells.
    """
    if type(document) is not dict:
        return None
    value, key = document.get("value"), document.get("key")
    if len(document) != 1 + (key is not None):
        return None
    try:
        if type(value) is str:
            value = value.encode()
        if type(key) is str:
            key = key.encode()
    except UnicodeEncodeError:
        return None
    if type(value) is not bytes or (key is not None and type(key) is not bytes):
        return None
    return RecordContent(value, key)


def parse_content(document: Mapping[str, object], where: str) -> RecordContent:
    """The record that the document holds; other keys are ignored. InvalidArgumentError."""
    value = _bytes_of(document, "value", where)
    if value is None:
        raise InvalidArgumentError(f'{where} has neither "value" nor "value_base64"')
    return RecordContent(
        value=value,
        key=_bytes_of(document, "key", where),
        headers=_headers(document.get("headers"), where),
        transaction_id=whole_number(document, "transaction_id", where),
        local_only=_is_true(document, "local_only", where),
    )


def whole_number(document: Mapping[str, object], name: str, where: str) -> int | None:
    """The number under this key, 0 to 2**63 - 1; None if there is none."""
    number = document.get(name)
    if number is None:
        return None
    if type(number) is not int:
        raise InvalidArgumentError(f"{where}: {name} {number!r:.60} is not an integer")
    if not 0 <= number <= INT64_MAX:
        raise InvalidArgumentError(
            f"{where}: {name} {number!r:.60} is out of range: 0 to {INT64_MAX}"
        )
    return number


def _is_true(document: Mapping[str, object], name: str, where: str) -> bool:
    found = document.get(name, False)
    if not isinstance(found, bool):
        raise InvalidArgumentError(f"{where}: {name} {found!r:.60} is neither true nor false")
    return found


def content_document(
    value: bytes | memoryview,
    key: bytes | memoryview | None,
    headers: Mapping[str, bytes] | None,
) -> Json:
    """The document of the fields that the writer gave: key, value and headers."""
    content: Json = {"key": None} if key is None else _as_text("key", key)
    content |= _as_text("value", value)
    content["headers"] = {name: _header_text(one) for name, one in (headers or {}).items()}
    return content


def _bytes_of(document: Mapping[str, object], name: str, where: str) -> bytes | None:
    text, encoded = document.get(name), document.get(f"{name}_base64")
    if text is not None and encoded is not None:
        raise InvalidArgumentError(f'{where} has both "{name}" and "{name}_base64"')
    if encoded is not None:
        return _from_base64(encoded, f"{where}: {name}_base64")
    if isinstance(text, bytes):
        return text
    if text is not None and not isinstance(text, str):
        raise InvalidArgumentError(f"{where}: {name} {text!r:.60} is not a string")
    return None if text is None else _utf8(text, f"{where}: {name}")


def _headers(document: object, where: str) -> Mapping[str, bytes] | None:
    if document is None or document == {}:
        return None
    if not isinstance(document, dict):
        raise InvalidArgumentError(
            f"{where}: headers {document!r:.60} is not an object: give"
            ' {"name": "text", …}, or leave it out'
        )
    return {
        name: _header(value, f"{where}: header {name:.60}") for name, value in document.items()
    }


def _header(value: object, where: str) -> bytes:
    match value:
        case str():
            return _utf8(value, where)
        case bytes():
            return value
        case {"base64": str(encoded)}:
            return _from_base64(encoded, where)
        case _:
            raise InvalidArgumentError(
                f'{where}: {value!r:.60} is neither a string nor {{"base64": "…"}}'
            )


def _utf8(text: str, where: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"{where} is not valid Unicode: use base64") from error


def _from_base64(text: object, where: str) -> bytes:
    if not isinstance(text, str):
        raise InvalidArgumentError(f"{where} {text!r:.60} is not a string")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidArgumentError(f"{where} is not valid base64: {error}") from error


def _as_text(name: str, value: bytes | memoryview) -> Json:
    try:
        return {name: str(value, "utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def _header_text(value: bytes) -> str | Json:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
