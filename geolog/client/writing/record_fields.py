"""A record to append, and the checks it must pass before it joins a batch."""

from collections.abc import Iterable, Mapping

import attrs

from geolog.wire.batch_terms import local_only_with_transaction
from geolog.wire.limits import INT64_MAX, RECORD_BYTES_MAX
from topology.errors import InvalidArgumentError, TooLargeError

_RECORD_OVERHEAD_BYTES = 32
"""Upper bound of a record's bytes besides its values: three offsets, times and ids."""

_HEADER_OVERHEAD_BYTES = 16

_PLAIN_BYTES_MAX = 64 << 10
"""Records above have a cost of their own: their bytes."""


@attrs.define(kw_only=True)
class RecordFields:
    """A record to append, and the conditions on it."""

    value: bytes
    key: bytes | None = None
    headers: Mapping[str, bytes] | None = None
    transaction_id: int | None = None
    seq: int | None = None
    """The number that its named writer gives the record."""
    expect_sequence: int | None = None
    """The sequence that the record must get."""
    is_posted: bool = False
    """Whether no answer is waited for."""
    local_only: bool = False
    """Whether the record must not leave the region of the stream's home."""
    created_us: int | None = None
    """When the application appended it, if that was before now: it comes from a spool."""


def size_of(fields: RecordFields) -> int:
    """Check the record and return its size in a batch. TooLargeError, InvalidArgumentError."""
    if fields.seq is not None:
        _check_number("seq", fields.seq)
    if fields.expect_sequence is not None:
        _check_number("expect_sequence", fields.expect_sequence)
    if fields.local_only and fields.transaction_id is not None:
        raise local_only_with_transaction(fields.transaction_id)
    return record_size_bytes(fields.value, fields.key, fields.headers, fields.transaction_id)


def checked_records(
    values: Iterable[bytes],
    *,
    key: bytes | None,
    headers: Mapping[str, bytes] | None,
    local_only: bool,
) -> list[RecordFields]:
    """One record per value, in order. TooLargeError, InvalidArgumentError if one is wrong."""
    records = [
        RecordFields(value=value, key=key, headers=headers, local_only=local_only)
        for value in values
    ]
    for number, fields in enumerate(records):
        try:
            size_of(fields)
        except (TooLargeError, InvalidArgumentError) as error:
            raise type(error)(f"record {number} of append_many: {error}") from error
    return records


def record_size_bytes(
    value: bytes,
    key: bytes | None,
    headers: Mapping[str, bytes] | None,
    transaction_id: int | None,
) -> int:
    """Check the record and return its size in a batch. TooLargeError, InvalidArgumentError."""
    if not isinstance(value, bytes):
        raise _not_bytes("value", value)
    size_bytes = len(value)
    if key is not None:
        if not isinstance(key, bytes):
            raise _not_bytes("key", key)
        size_bytes += len(key)
    if headers is not None and not isinstance(headers, Mapping):
        raise InvalidArgumentError(
            "headers must be a dict of str to bytes, e.g. {'source': b'till-7'}, not"
            f" {type(headers).__name__}"
        )
    if headers:
        size_bytes += sum(_header_size(name, content) for name, content in headers.items())
    if transaction_id is not None:
        _check_transaction_id(transaction_id)
    if size_bytes > RECORD_BYTES_MAX:
        raise TooLargeError(
            f"the record has {size_bytes} bytes; the limit is {RECORD_BYTES_MAX}: split it, or"
            " store it elsewhere and append its address"
        )
    return size_bytes + _RECORD_OVERHEAD_BYTES


def plain_size_bytes(value: bytes, key: bytes | None) -> int | None:
    """The size in a batch of a small record with no more than a value and a key; else None."""
    if type(value) is not bytes:
        return None
    size_bytes = len(value) + _RECORD_OVERHEAD_BYTES
    if key is not None:
        if type(key) is not bytes:
            return None
        size_bytes += len(key)
    return size_bytes if size_bytes <= _PLAIN_BYTES_MAX else None


def _not_bytes(name: str, given: object) -> InvalidArgumentError:
    hint = f". Did you mean {name}.encode()?" if isinstance(given, str) else ""
    return InvalidArgumentError(
        f"a record's {name} must be bytes, not {type(given).__name__}{hint}"
    )


def _check_number(name: str, number: object) -> None:
    if not isinstance(number, int) or not 0 <= number <= INT64_MAX:
        raise InvalidArgumentError(
            f"{name} is {number!r}; it must be a whole number from 0 to {INT64_MAX}"
        )


def _check_transaction_id(number: object) -> None:
    if not isinstance(number, int) or not 0 <= number <= INT64_MAX:
        raise InvalidArgumentError(
            f"transaction_id is {number!r}; it must be a whole number from 0 to {INT64_MAX}"
        )


def _header_size(name: object, content: object) -> int:
    if not isinstance(name, str) or not isinstance(content, bytes):
        raise InvalidArgumentError(
            f"a header's name must be str and its value bytes, not {type(name).__name__} and"
            f" {type(content).__name__}"
        )
    try:
        return len(name.encode()) + len(content) + _HEADER_OVERHEAD_BYTES
    except UnicodeEncodeError:
        raise InvalidArgumentError(f"header name {name!r} cannot be encoded as UTF-8") from None
