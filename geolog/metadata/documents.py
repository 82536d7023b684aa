"""Values as JSON documents with a checksum, as metadata nodes hold them.

A document reads `{"body": …, "crc32c": "89abcdef"}`: the checksum covers the body as canonical
JSON (sorted keys, no spaces), so a person can read and a program can trust it.
"""

import json
from typing import TypeVar

import cattrs
from crc32c import crc32c

from topology.errors import DamagedBytesError

T = TypeVar("T")

_converter = cattrs.Converter()


def seal_document(value: object) -> bytes:
    """The document of an attrs value."""
    body = _canonical(_converter.unstructure(value))
    return b'{"body":%s,"crc32c":"%08x"}' % (body, crc32c(body))


def open_document(data: bytes, kind: type[T], *, path: str) -> T:
    """The value that `data`, read at `path`, holds. DamagedBytesError if it does not."""
    try:
        envelope = json.loads(data)
        body = envelope["body"]
        is_whole = f"{crc32c(_canonical(body)):08x}" == envelope["crc32c"]
    except (
        ValueError,
        KeyError,
        TypeError,
        RecursionError,  # JSON that is nested without end.
    ) as error:
        raise DamagedBytesError(
            f"{path} is not a JSON document with a body and its checksum"
        ) from error
    if not is_whole:
        raise DamagedBytesError(f"{path} does not match its checksum")
    try:
        return _converter.structure(body, kind)
    except (ValueError, KeyError, TypeError, cattrs.BaseValidationError) as error:
        raise DamagedBytesError(f"{path} is whole, but lacks what it must say") from error


def _canonical(body: object) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
