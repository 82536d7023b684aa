"""Values as JSON documents with a checksum, as metadata nodes hold them.

A document is `{"body": …, "crc32c": "89abcdef"}`. The checksum covers the body as canonical
JSON (sorted keys, no spaces), so a person can read it and a program can trust it.
"""

import json
from typing import TypeVar

import attrs
import cattrs
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn
from crc32c import crc32c

from geolog.protocol.failover_record import RangeAtRisk
from geolog.protocol.home_record import Fork, HomeRecord
from topology.errors import DamagedBytesError

T = TypeVar("T")

_converter = cattrs.Converter()


def _as_list(kind: type[attrs.AttrsInstance]) -> None:
    """Encode values of this class as lists: a stream's record may hold many thousands.

    Fields that are added go to the end, and have a default.
    """
    names = [one.name for one in attrs.fields(kind)]

    def encoded(value: attrs.AttrsInstance) -> list[object]:
        return [getattr(value, name) for name in names]

    def decoded(values: object, _kind: object) -> attrs.AttrsInstance:
        if isinstance(values, dict):  # As they were once.
            return kind(**values)
        if not isinstance(values, list):
            raise TypeError(f"{kind.__name__} needs a list of values")
        return kind(**dict(zip(names, values, strict=False)))

    _converter.register_unstructure_hook(kind, encoded)
    _converter.register_structure_hook(kind, decoded)


_as_list(Fork)
_as_list(RangeAtRisk)


def _with_forks_at_hand() -> None:
    """Encode a home record without the forks that are stored apart.

    Then its forks are an object, which versions that know of none apart refuse.
    """
    encoded_whole = make_dict_unstructure_fn(HomeRecord, _converter)
    decoded_whole = make_dict_structure_fn(HomeRecord, _converter)

    def encoded(home: HomeRecord) -> dict[str, object]:
        values = encoded_whole(attrs.evolve(home, forks=home.at_hand))
        apart = values.pop("forks_apart")
        if apart:
            values["forks"] = {"apart": apart, "since": values["forks"]}
        return values

    def decoded(values: dict[str, object], _kind: object) -> HomeRecord:
        forks = values.get("forks")
        if isinstance(forks, dict):
            values = {**values, "forks_apart": forks["apart"], "forks": forks["since"]}
        return decoded_whole(values, HomeRecord)

    _converter.register_unstructure_hook(HomeRecord, encoded)
    _converter.register_structure_hook(HomeRecord, decoded)


_with_forks_at_hand()


def seal_document(value: object) -> bytes:
    """Encode an attrs value as a document."""
    body = _canonical(_converter.unstructure(value))
    return b'{"body":%s,"crc32c":"%08x"}' % (body, crc32c(body))


def open_document(data: bytes, kind: type[T], *, path: str) -> T:
    """Decode the value in `data`, read at `path`. DamagedBytesError if it is not one."""
    try:
        envelope = json.loads(data)
        body = envelope["body"]
        is_whole = f"{crc32c(_canonical(body)):08x}" == envelope["crc32c"]
    except (
        ValueError,
        KeyError,
        TypeError,
        RecursionError,  # JSON nested too deeply.
    ) as error:
        raise DamagedBytesError(
            f"{path} is not a JSON document with a body and its checksum"
        ) from error
    if not is_whole:
        raise DamagedBytesError(f"{path} does not match its checksum")
    try:
        return _converter.structure(body, kind)
    except (ValueError, KeyError, TypeError, cattrs.BaseValidationError) as error:
        raise DamagedBytesError(f"{path} is intact, but required fields are missing") from error


def _canonical(body: object) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
