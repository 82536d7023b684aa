"""What a stream's settings may be, and how they may change.

Rules: PROTOCOL S14.
"""

from collections.abc import Mapping

import attrs

from geolog.protocol.stream_state import PARTITIONS_MAX, StreamRecord
from topology.errors import ConflictError, InvalidArgumentError, SealedError

SEGMENT_BYTES_MIN = 64 * 1024

_MAY_DIFFER = {"created_us", "life", "is_sealed", "is_incomplete", "survive"}


_NAMES = {"placement": "policy"}


def check_settings(record: StreamRecord) -> None:
    """InvalidArgumentError names the setting that cannot be."""
    if not 1 <= record.partitions <= PARTITIONS_MAX:
        raise InvalidArgumentError(
            f"{record.partitions} partitions cannot be: a stream has 1 to {PARTITIONS_MAX}"
        )
    record.placement.check(record.quorum)
    if record.segment_bytes < SEGMENT_BYTES_MIN:
        raise InvalidArgumentError(
            f"segment size {record.segment_bytes} bytes is too small; the smallest is"
            f" {SEGMENT_BYTES_MIN // 1024}KiB"
        )
    for what, limit in (
        ("segment age", record.segment_age_s),
        ("retention", record.retention_s),
        ("writer retention", record.writer_retention_s),
    ):
        if limit is not None and not limit > 0:
            raise InvalidArgumentError(f"a {what} of {limit:g} s cannot be: it is above 0")
    if record.retention_bytes is not None and record.retention_bytes <= 0:
        raise InvalidArgumentError(
            f"a retention of {record.retention_bytes} bytes cannot be: it is above 0"
        )


def check_same(there: StreamRecord, wanted: StreamRecord) -> None:
    """ConflictError if a stream that exists has other settings than are wanted."""
    found, asked = attrs.asdict(there, recurse=False), attrs.asdict(wanted, recurse=False)
    differing = [
        f"{_setting_name(key)} is {_setting_text(key, found[key])}, not"
        f" {_setting_text(key, asked[key])}"
        for key in asked
        if key not in _MAY_DIFFER and found[key] != asked[key]
    ]
    if differing:
        raise ConflictError(
            f"stream {str(there.name)!r} exists with other settings: {'; '.join(differing)}."
            " Ask for those that it has, or change them (geolog stream update)"
        )


def _setting_name(key: str) -> str:
    """A setting for people: its unit stands beside the value."""
    return _NAMES.get(key, key).removesuffix("_s").replace("_", " ")


def _setting_text(key: str, value: object) -> str:
    """A setting's value; None is a retention without a limit."""
    if value is None:
        return "without limit"
    unit = " s" if key.endswith("_s") else ""
    return f"{value:g}{unit}" if isinstance(value, float) else f"{value}{unit}"


def changed_settings(record: StreamRecord, given: Mapping[str, object]) -> StreamRecord:
    """The successor with these settings. InvalidArgumentError, SealedError."""
    changed = attrs.evolve(record, **given)  # type: ignore[arg-type] # They were named by us.
    check_settings(changed)
    if changed.partitions < record.partitions:
        raise InvalidArgumentError(
            f"{record.name} has {record.partitions} partitions; there can be more, never less"
        )
    if record.is_sealed and changed.partitions != record.partitions:
        raise SealedError(f"{record.name} is sealed: it gets no more partitions")
    return changed
