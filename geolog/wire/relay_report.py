"""Reports of relays as JSON documents: one a message, subprotocol `geolog.v1.relay-report`.

Rules: PROTOCOL T3.
"""

import json

import cattrs

from geolog.protocol.relay_report import RelayReport
from topology.errors import DamagedBytesError

SUBPROTOCOL_REPORT = "geolog.v1.relay-report"

REPORT_PATH = "/relay/report"

REPORT_BYTES_MAX = 64 << 20
"""A report of 50,000 partitions and targets fits."""

_CONVERTER = cattrs.Converter(forbid_extra_keys=False, detailed_validation=False)


def encode_report(report: RelayReport) -> str:
    """The report as JSON."""
    return json.dumps(_CONVERTER.unstructure(report), ensure_ascii=False, separators=(",", ":"))


def decode_report(data: str | bytes) -> RelayReport:
    """A report. DamagedBytesError."""
    if isinstance(data, bytes):
        raise DamagedBytesError(f"a report is text, not {len(data)} bytes")
    try:
        return _CONVERTER.structure(json.loads(data), RelayReport)
    except Exception as error:
        raise DamagedBytesError(f"a report of a relay cannot be read: {error}") from error
