"""Reports of relays as JSON documents: one a message, subprotocol `geolog.v1.relay-report`.

Under the subprotocol `geolog.v1.relay-heard` a relay tells once what it heard of homes.

Rules: PROTOCOL H22 and T3.
"""

import json
from typing import TypeVar

import cattrs

from geolog.protocol.failover_record import HeardTailsReport
from geolog.protocol.relay_report import RelayReport
from topology.errors import DamagedBytesError

SUBPROTOCOL_REPORT = "geolog.v1.relay-report"

SUBPROTOCOL_HEARD = "geolog.v1.relay-heard"
"""On the same path: one message, and the relay closes."""

REPORT_PATH = "/relay/report"

REPORT_BYTES_MAX = 64 << 20
"""A report of 50,000 partitions and targets fits."""

T = TypeVar("T")

_CONVERTER = cattrs.Converter(forbid_extra_keys=False, detailed_validation=False)


def encode_report(report: RelayReport) -> str:
    """The report as JSON."""
    return json.dumps(_CONVERTER.unstructure(report), ensure_ascii=False, separators=(",", ":"))


def decode_report(data: str | bytes) -> RelayReport:
    """A report. DamagedBytesError."""
    return _decoded(data, RelayReport)


def encode_heard(report: HeardTailsReport) -> str:
    """The tails that a relay has heard of, as JSON."""
    return json.dumps(_CONVERTER.unstructure(report), ensure_ascii=False, separators=(",", ":"))


def decode_heard(data: str | bytes) -> HeardTailsReport:
    """The tails that a relay has heard of. DamagedBytesError."""
    return _decoded(data, HeardTailsReport)


def _decoded(data: str | bytes, kind: type[T]) -> T:
    if isinstance(data, bytes):
        raise DamagedBytesError(f"a report is text, not {len(data)} bytes")
    try:
        return _CONVERTER.structure(json.loads(data), kind)
    except Exception as error:
        raise DamagedBytesError(f"a report of a relay cannot be read: {error}") from error
