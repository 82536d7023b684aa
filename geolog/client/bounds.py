"""Where a read starts and stops, as values and as people write them."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import attrs

from geolog.protocol.ids import DLSN
from topology.errors import InvalidArgumentError


@attrs.frozen
class Earliest:
    """The first record that is there."""


@attrs.frozen
class Latest:
    """Behind the last record that is there now."""


@attrs.frozen
class LastRecords:
    """So many records before the end."""

    count: int


@attrs.frozen
class AtDlsn:
    """The record with this DLSN, or the next behind it."""

    dlsn: DLSN


@attrs.frozen
class AtSequence:
    """The record with this sequence. The home epoch is 1 for a stream that never moved."""

    sequence: int
    home_epoch: int = 1


@attrs.frozen
class AtTime:
    """The first record appended at this time or later; microseconds since 1970, UTC."""

    time_us: int


@attrs.frozen
class AtTransaction:
    """The first record whose transaction id is this or higher."""

    transaction_id: int


Bound = Earliest | Latest | LastRecords | AtDlsn | AtSequence | AtTime | AtTransaction

EARLIEST = Earliest()
LATEST = Latest()

_FORMS = (
    "earliest, latest, last:N, SEGMENT-ENTRY-SLOT, sequence:N[@EPOCH], time:RFC3339, time:-1h"
    " or txid:N"
)
_UNITS_US = {"ms": 1_000, "s": 10**6, "m": 60 * 10**6, "h": 3600 * 10**6, "d": 86400 * 10**6}
_AGO = re.compile(r"-([0-9]{1,12}(?:\.[0-9]{1,12})?)(ms|s|m|h|d)")
_NUMBER = re.compile(r"[0-9]{1,19}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_bound(text: str, *, now_us: Callable[[], int]) -> Bound:
    """Read what `--from` and `--to` take. InvalidArgumentError names the forms."""
    name, colon, rest = text.partition(":")
    match name, colon:
        case "earliest", "":
            return EARLIEST
        case "latest", "":
            return LATEST
        case "last", ":":
            return LastRecords(_number(text, rest))
        case "txid", ":":
            return AtTransaction(_number(text, rest))
        case "sequence", ":":
            sequence, at, epoch = rest.partition("@")
            return AtSequence(_number(text, sequence), _number(text, epoch) if at else 1)
        case "time", ":":
            return AtTime(_time_us(text, rest, now_us))
        case _, "" if "-" in text:
            return AtDlsn(DLSN.parse(text))
        case _:
            raise InvalidArgumentError(
                f"{text!r} is no place in a stream: it is one of {_FORMS}"
            )


def _number(text: str, digits: str) -> int:
    if _NUMBER.fullmatch(digits) is None:
        raise InvalidArgumentError(
            f"{text!r}: {digits!r} is not a number from 0 on, of 19 digits at most"
        )
    return int(digits)


def _time_us(text: str, rest: str, now_us: Callable[[], int]) -> int:
    ago = _AGO.fullmatch(rest)
    if ago is not None:
        return now_us() - int(float(ago.group(1)) * _UNITS_US[ago.group(2)])
    try:
        moment = datetime.fromisoformat(rest)
    except ValueError:
        raise InvalidArgumentError(
            f"{text!r}: {rest!r} is neither a time as 2026-01-31T12:00:00Z nor an age as -1h"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)
