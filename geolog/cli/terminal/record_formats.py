"""Formats of records in a file or pipe: lines, JSON lines, or length-prefixed values.

All three are parsed incrementally, as bytes arrive. `append --format jsonl` accepts what
`read -o jsonl` writes, and ignores the old positions.
"""

import json
import struct
from collections.abc import Iterator
from functools import partial
from typing import Protocol

from geolog.cli.choices import Format
from geolog.cli.terminal.output import Plain
from geolog.client.reading.record import Record
from geolog.wire.session.json_records import (
    RECORD_KEYS,
    check_keys,
    content_document,
    parse_content,
    parse_object,
)
from geolog.wire.session.messages import RecordContent
from topology.errors import InvalidArgumentError, TooLargeError

LINE_BYTES_MAX = 16 << 20
"""A record is at most 1 MiB; base64 in JSON and headers make its line longer."""

_LENGTH = struct.Struct(">I")

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


class Parser(Protocol):
    """Turns bytes into records, incrementally."""

    @property
    def place(self) -> str:
        """Place of the record yielded last, for errors: `line 3`, or `orders.txt:3`."""
        ...

    def feed(self, data: bytes) -> Iterator[RecordContent]:
        """Yield the records that `data` completes."""
        ...

    def end(self) -> Iterator[RecordContent]:
        """Yield the last record, if any; InvalidArgumentError if it is cut off."""
        ...


def parser_of(
    format_: Format,
    *,
    key_separator: str | None,
    is_keyless_ok: bool = False,
    name: str | None = None,
) -> Parser:
    """Return the parser for a format.

    is_keyless_ok: a line without the separator is a record without a key. name: name of the
    input, for errors; None for stdin.
    """
    separator = None if key_separator is None else key_separator.encode()
    match format_:
        case "lines":
            split = partial(_split_key, separator=separator, is_keyless_ok=is_keyless_ok)
            return LineParser(split, name)
        case "jsonl":
            return LineParser(_parse_json, name)
        case "length-prefixed":
            return LengthPrefixedParser(name)


class LineParser:
    """One record per line, without its newline; the last line may lack one."""

    def __init__(self, parse: "LineFunction", name: str | None) -> None:
        self._parse = parse
        self._name = name
        self._rest = b""
        self._line_number = 0

    @property
    def place(self) -> str:
        """The line parsed last."""
        return self._place(self._line_number)

    def _place(self, number: int) -> str:
        return f"line {number}" if self._name is None else f"{self._name}:{number}"

    def feed(self, data: bytes) -> Iterator[RecordContent]:
        """Yield the records of all complete lines."""
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest
        if len(rest) > LINE_BYTES_MAX:
            raise TooLargeError(
                f"{self._place(self._line_number + len(lines) + 1)} exceeds {LINE_BYTES_MAX}"
                " bytes"
            )
        for line in lines:
            yield from self._one(line)

    def end(self) -> Iterator[RecordContent]:
        """Yield the record of a last line without a newline."""
        if self._rest:
            yield from self._one(self._rest)

    def _one(self, line: bytes) -> Iterator[RecordContent]:
        self._line_number += 1
        outgoing = self._parse(line, self.place)
        if outgoing is not None:
            yield outgoing


class LineFunction(Protocol):
    """Turns one line into a record; None skips it."""

    def __call__(self, line: bytes, place: str, /) -> RecordContent | None:
        """Parse the line. place: where it stands, for errors."""
        ...


class LengthPrefixedParser:
    """The length of each value as four bytes, big-endian, then the value."""

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._rest = b""
        self._records_count = 0

    @property
    def place(self) -> str:
        """The record parsed last, by number."""
        return self._place(self._records_count)

    def _place(self, number: int) -> str:
        return f"record {number}" if self._name is None else f"{self._name}, record {number}"

    def feed(self, data: bytes) -> Iterator[RecordContent]:
        """Yield all complete records."""
        data, start = self._rest + data, 0
        while len(data) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(data, start)
            if length > LINE_BYTES_MAX:
                raise TooLargeError(
                    f"{self._place(self._records_count + 1)}: length prefix {length} exceeds"
                    f" the limit of {LINE_BYTES_MAX} bytes"
                )
            end = start + _LENGTH.size + length
            if end > len(data):
                break
            self._records_count += 1
            yield RecordContent(data[start + _LENGTH.size : end])
            start = end
        self._rest = data[start:]

    def end(self) -> Iterator[RecordContent]:
        """Yield nothing; InvalidArgumentError if a record is cut off."""
        if self._rest:
            raise InvalidArgumentError(
                f"{self._name or 'the input'} ends inside a record:"
                f" {len(self._rest)} bytes left over"
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


def _line(record: Record, separator: bytes | None) -> bytes:
    if b"\n" in record.value:
        raise InvalidArgumentError(
            f"the value of sequence {record.sequence} contains a newline: read it with --format"
            " length-prefixed, --format jsonl or -o jsonl"
        )
    if separator is None or record.key is None:
        return bytes(record.value) + b"\n"
    return b"".join((record.key, separator, record.value, b"\n"))


def _split_key(
    line: bytes, place: str, *, separator: bytes | None, is_keyless_ok: bool
) -> RecordContent:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(
            f"{place} is not UTF-8 ({error.reason} at byte {error.start}): append"
            " binary values with --format length-prefixed, or as value_base64 with --format"
            " jsonl"
        ) from error
    if separator is None:
        return RecordContent(line)
    key, found, value = line.partition(separator)
    if found:
        return RecordContent(value, key)
    if is_keyless_ok:
        return RecordContent(line)
    raise InvalidArgumentError(
        f"{place} has no key: {separator.decode()!r} (--key-separator) is not in it. To append"
        " such lines without a key, pass --keyless-ok"
    )


def _parse_json(line: bytes, where: str) -> RecordContent | None:
    if not line.strip():
        return None
    document = parse_object(line, where)
    if "gap" in document:
        raise InvalidArgumentError(
            f"{where} is a gap in the stream it was read from, not a record: remove such lines"
            " if the copy may lack those records"
        )
    taken = {name: one for name, one in document.items() if name not in _IGNORED}
    check_keys(taken, RECORD_KEYS, where)
    return parse_content(taken, where)


def _content(record: Record) -> dict[str, Plain]:
    content = content_document(record.value, record.key, record.headers)
    return content | {"local_only": True} if record.is_local_only else content
