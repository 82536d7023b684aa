"""Formats of records in a file or pipe: lines, JSON lines, or length-prefixed values.

All three are parsed incrementally, as bytes arrive. `append --format jsonl` accepts what
`read -o jsonl` writes, and ignores the old positions.
"""

import base64
import binascii
import json
import struct
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Literal, Protocol

import attrs

from geolog.cli.settings.nearest import nearest
from geolog.cli.terminal.output import Plain
from geolog.client.reading.record import Record
from geolog.wire.limits import INT64_MAX
from topology.errors import InvalidArgumentError, TooLargeError

Format = Literal["lines", "jsonl", "length-prefixed"]
FORMATS: tuple[Format, ...] = ("lines", "jsonl", "length-prefixed")

LINE_BYTES_MAX = 16 << 20
"""A record is at most 1 MiB; base64 in JSON and headers make its line longer."""

_LENGTH = struct.Struct(">I")

_TAKEN = {"value", "value_base64", "key", "key_base64", "headers", "transaction_id"}
_IGNORED = {
    "stream",
    "partition",
    "epoch",
    "dlsn",
    "sequence",
    "timestamp",
    "origin",
    "served_region",
    "hedged",
    "type",
}


@attrs.frozen
class Outgoing:
    """Record read from the input, to be appended."""

    value: bytes
    key: bytes | None = None
    headers: Mapping[str, bytes] | None = None
    transaction_id: int | None = None


class Parser(Protocol):
    """Turns bytes into records, incrementally."""

    def feed(self, data: bytes) -> Iterator[Outgoing]:
        """Yield the records that `data` completes."""
        ...

    def end(self) -> Iterator[Outgoing]:
        """Yield the last record, if any; InvalidArgumentError if it is cut off."""
        ...


def parser_of(format_: Format, *, key_separator: str | None) -> Parser:
    """Return the parser for a format."""
    separator = None if key_separator is None else key_separator.encode()
    match format_:
        case "lines":
            return LineParser(lambda line, number: _split_key(line, number, separator))
        case "jsonl":
            return LineParser(_parse_json)
        case "length-prefixed":
            return LengthPrefixedParser()


class LineParser:
    """One record per line, without its newline; the last line may lack one."""

    def __init__(self, parse: "LineFunction") -> None:
        self._parse = parse
        self._rest = b""
        self._line_number = 0

    def feed(self, data: bytes) -> Iterator[Outgoing]:
        """Yield the records of all complete lines."""
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest
        if len(rest) > LINE_BYTES_MAX:
            raise TooLargeError(
                f"line {self._line_number + len(lines) + 1} exceeds {LINE_BYTES_MAX} bytes"
            )
        for line in lines:
            yield from self._one(line)

    def end(self) -> Iterator[Outgoing]:
        """Yield the record of a last line without a newline."""
        if self._rest:
            yield from self._one(self._rest)

    def _one(self, line: bytes) -> Iterator[Outgoing]:
        self._line_number += 1
        outgoing = self._parse(line, self._line_number)
        if outgoing is not None:
            yield outgoing


class LineFunction(Protocol):
    """Turns one line into a record; None skips it."""

    def __call__(self, line: bytes, line_number: int, /) -> Outgoing | None:
        """Parse the line."""
        ...


class LengthPrefixedParser:
    """The length of each value as four bytes, big-endian, then the value."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Outgoing]:
        """Yield all complete records."""
        data, start = self._rest + data, 0
        while len(data) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(data, start)
            if length > LINE_BYTES_MAX:
                raise TooLargeError(
                    f"length prefix {length} exceeds the limit of {LINE_BYTES_MAX} bytes"
                )
            end = start + _LENGTH.size + length
            if end > len(data):
                break
            yield Outgoing(data[start + _LENGTH.size : end])
            start = end
        self._rest = data[start:]

    def end(self) -> Iterator[Outgoing]:
        """Yield nothing; InvalidArgumentError if a record is cut off."""
        if self._rest:
            raise InvalidArgumentError(
                f"the input ends inside a record: {len(self._rest)} bytes left over"
            )
        yield from ()


def value_formatter(format_: Format, *, key_separator: str | None) -> "RecordFunction":
    """Return the function that formats a record for `read`."""
    separator = None if key_separator is None else key_separator.encode()
    match format_:
        case "lines":
            return lambda record: _line(record, separator)
        case "jsonl":
            return lambda record: (
                json.dumps(_content(record), ensure_ascii=False).encode() + b"\n"
            )
        case "length-prefixed":
            return lambda record: _LENGTH.pack(len(record.value)) + bytes(record.value)


class RecordFunction(Protocol):
    """Formats a record as bytes of output."""

    def __call__(self, record: Record, /) -> bytes:
        """Format the record."""
        ...


def record_document(record: Record) -> dict[str, Plain]:
    """Build the JSON document of a record with all its fields, as `read -o jsonl` prints it."""
    time = datetime.fromtimestamp(record.timestamp_us // 1_000_000, UTC)
    time = time.replace(microsecond=record.timestamp_us % 1_000_000)
    head: dict[str, Plain] = {
        "stream": record.stream,
        "partition": record.partition,
        "epoch": record.epoch,
        "dlsn": str(record.dlsn),
        "sequence": record.sequence,
        "transaction_id": record.transaction_id,
        "timestamp": time.isoformat(timespec="microseconds").replace("+00:00", "Z"),
    }
    tail: dict[str, Plain] = {
        "origin": record.origin,
        "served_region": record.served_region,
        "hedged": record.hedged,
    }
    return head | _content(record) | tail


def _content(record: Record) -> dict[str, Plain]:
    """Build the fields that the writer gave: key, value and headers."""
    content: dict[str, Plain] = {}
    if record.key is None:
        content["key"] = None
    else:
        content |= _as_text("key", record.key)
    content |= _as_text("value", record.value)
    content["headers"] = {
        name: _header_text(value) for name, value in (record.headers or {}).items()
    }
    return content


def _as_text(name: str, value: bytes | memoryview) -> dict[str, Plain]:
    try:
        return {name: str(value, "utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def _header_text(value: bytes) -> Plain:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _line(record: Record, separator: bytes | None) -> bytes:
    if b"\n" in record.value:
        raise InvalidArgumentError(
            f"the value of sequence {record.sequence} contains a newline: read it with --format"
            " length-prefixed, --format jsonl or -o jsonl"
        )
    if separator is None or record.key is None:
        return bytes(record.value) + b"\n"
    return b"".join((record.key, separator, record.value, b"\n"))


def _split_key(line: bytes, line_number: int, separator: bytes | None) -> Outgoing:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(
            f"line {line_number} is not UTF-8 ({error.reason} at byte {error.start}): append"
            " binary values with --format length-prefixed, or as value_base64 with --format"
            " jsonl"
        ) from error
    if separator is None:
        return Outgoing(line)
    key, found, value = line.partition(separator)
    return Outgoing(value, key) if found else Outgoing(line)


def _parse_json(line: bytes, line_number: int) -> Outgoing | None:
    where = f"line {line_number}"
    if not line.strip():
        return None
    try:
        document = json.loads(line)
    except json.JSONDecodeError as error:
        raise InvalidArgumentError(
            f"{where} is not valid JSON: {error.msg} at column {error.colno}"
        ) from error
    except ValueError as error:  # An integer with thousands of digits.
        raise InvalidArgumentError(f"{where} is not valid JSON: {error}") from error
    except RecursionError as error:
        raise InvalidArgumentError(f"{where} is nested too deeply") from error
    if not isinstance(document, dict):
        raise InvalidArgumentError(f"{where} is not a JSON object: {line[:60]!r}")
    if "gap" in document:
        raise InvalidArgumentError(
            f"{where} is a gap in the stream it was read from, not a record: remove such lines"
            " if the copy may lack those records"
        )
    for name in document.keys() - _TAKEN - _IGNORED:
        raise InvalidArgumentError(
            f"{where}: unknown key {name!r}; did you mean {nearest(name, _TAKEN)!r}?"
        )
    value = _bytes_of(document, "value", where)
    if value is None:
        raise InvalidArgumentError(f'{where} has neither "value" nor "value_base64"')
    transaction_id = document.get("transaction_id")
    if transaction_id is not None and type(transaction_id) is not int:
        raise InvalidArgumentError(
            f"{where}: transaction_id {transaction_id!r} is not an integer"
        )
    if transaction_id is not None and not 0 <= transaction_id <= INT64_MAX:
        raise InvalidArgumentError(
            f"{where}: transaction_id {transaction_id} is out of range: 0 to {INT64_MAX}"
        )
    return Outgoing(
        value=value,
        key=_bytes_of(document, "key", where),
        headers=_headers(document.get("headers"), where),
        transaction_id=transaction_id,
    )


def _bytes_of(document: Mapping[str, object], name: str, where: str) -> bytes | None:
    text, encoded = document.get(name), document.get(f"{name}_base64")
    if text is not None and encoded is not None:
        raise InvalidArgumentError(f'{where} has both "{name}" and "{name}_base64"')
    if encoded is not None:
        return _from_base64(encoded, f"{where}: {name}_base64")
    if text is not None and not isinstance(text, str):
        raise InvalidArgumentError(f"{where}: {name} {text!r} is not a string")
    return None if text is None else _utf8(text, f"{where}: {name}")


def _headers(document: object, where: str) -> Mapping[str, bytes] | None:
    if document is None or document == {}:
        return None
    if not isinstance(document, dict):
        raise InvalidArgumentError(
            f"{where}: headers {document!r} is not a JSON object: give"
            ' {"name": "text", …}, or leave it out'
        )
    return {name: _header(value, f"{where}: header {name}") for name, value in document.items()}


def _header(value: object, where: str) -> bytes:
    match value:
        case str():
            return _utf8(value, where)
        case {"base64": str(encoded)}:
            return _from_base64(encoded, where)
        case _:
            raise InvalidArgumentError(
                f'{where}: {value!r} is neither a string nor {{"base64": "…"}}'
            )


def _utf8(text: str, where: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"{where} is not valid Unicode: use base64") from error


def _from_base64(text: object, where: str) -> bytes:
    if not isinstance(text, str):
        raise InvalidArgumentError(f"{where} {text!r} is not a string")
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise InvalidArgumentError(f"{where} is not valid base64: {error}") from error
