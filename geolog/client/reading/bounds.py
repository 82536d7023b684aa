"""Bounds of a read: where it starts and stops, as values and as text."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import attrs

from geolog.protocol.ids import DLSN
from topology.errors import InvalidArgumentError


@attrs.frozen
class Earliest:
    """The first record that was not trimmed."""


@attrs.frozen
class Latest:
    """The current end: after the last record."""


@attrs.frozen
class LastRecords:
    """`count` records before the current end."""

    count: int

    def __attrs_post_init__(self) -> None:
        _check_whole(self, "count", self.count, least=0)


@attrs.frozen
class AtDlsn:
    """The record with this DLSN, or else the next one."""

    dlsn: DLSN

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.dlsn, DLSN):
            raise InvalidArgumentError(
                f"dlsn of AtDlsn is {self.dlsn!r}; it must be a geolog.DLSN, e.g."
                " geolog.DLSN.parse('1-0-0')"
            )
        _check_whole(self, "segment", self.dlsn.segment, least=1)
        _check_whole(self, "entry", self.dlsn.entry, least=0)
        _check_whole(self, "slot", self.dlsn.slot, least=0)


@attrs.frozen
class AtSequence:
    """The record with this sequence, of the given home epoch; of the current one if None."""

    sequence: int
    home_epoch: int | None = None

    def __attrs_post_init__(self) -> None:
        _check_whole(self, "sequence", self.sequence, least=0)
        if self.home_epoch is not None:
            _check_whole(self, "home_epoch", self.home_epoch, least=0)


@attrs.frozen
class AtTime:
    """The first record appended at this time or later; microseconds since 1970, UTC."""

    time_us: int

    def __attrs_post_init__(self) -> None:
        _check_whole(self, "time_us", self.time_us)


@attrs.frozen
class AtTransaction:
    """The first record whose transaction id is this or higher."""

    transaction_id: int

    def __attrs_post_init__(self) -> None:
        _check_whole(self, "transaction_id", self.transaction_id)


def _check_whole(bound: object, name: str, value: object, *, least: int | None = None) -> None:
    """InvalidArgumentError unless a bound's number is an int, and at least `least`."""
    if isinstance(value, int) and not isinstance(value, bool):
        if least is None or value >= least:
            return
    wanted = "a whole number" if least is None else f"a whole number >= {least}"
    raise InvalidArgumentError(
        f"{name} of {type(bound).__name__} is {value!r}; it must be {wanted}"
    )


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
_SIGNED = re.compile(r"-?[0-9]{1,19}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST_US = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND


def parse_bound(text: str, *, now_us: Callable[[], int]) -> Bound:
    """Parse a value of `--from` or `--to`. InvalidArgumentError names the forms."""
    name, colon, rest = text.partition(":")
    match name, colon:
        case "earliest", "":
            return EARLIEST
        case "latest", "":
            return LATEST
        case "last", ":":
            return LastRecords(_number(text, rest))
        case "txid", ":":
            return AtTransaction(_signed(text, rest))
        case "sequence", ":":
            sequence, at, epoch = rest.partition("@")
            return AtSequence(_number(text, sequence), _number(text, epoch) if at else None)
        case "time", ":":
            return AtTime(_time_us(text, rest, now_us))
        case _, "" if _AGO.fullmatch(text):
            return AtTime(_time_us(text, text, now_us))
        case _, "" if "-" in text:
            return AtDlsn(DLSN.parse(text))
        case _:
            raise InvalidArgumentError(f"{text!r} is not a position in a stream: use {_FORMS}")


def at_moment(moment: datetime) -> AtTime:
    """The bound for a moment; one without a time zone is in UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return AtTime((moment - _EPOCH) // _MICROSECOND)


def bound_text(bound: Bound) -> str:
    """A bound as text that `parse_bound` can read."""
    match bound:
        case Earliest():
            return "earliest"
        case Latest():
            return "latest"
        case LastRecords(count):
            return f"last:{count}"
        case AtDlsn(dlsn):
            return str(dlsn)
        case AtSequence(sequence, home_epoch):
            return f"sequence:{sequence}" + ("" if home_epoch is None else f"@{home_epoch}")
        case AtTime(time_us):
            written_us = min(max(time_us, _FIRST_US), _LAST_US)  # Years 1 to 9999.
            return f"time:{(_EPOCH + written_us * _MICROSECOND).isoformat()}"
        case AtTransaction(transaction_id):
            return f"txid:{transaction_id}"


def check_order(start: Bound, stop: Bound | None) -> None:
    """InvalidArgumentError if `stop` is before `start`, as far as their values show it."""
    match start, stop:
        case LastRecords(ahead), LastRecords(behind) if behind > ahead:
            raise wrong_order(start, stop)
        case Latest(), LastRecords(behind) if behind > 0:
            raise wrong_order(start, stop)
        case AtDlsn(first), AtDlsn(last) if last < first:
            raise wrong_order(start, stop)
        case AtSequence(first_sequence), AtSequence(last_sequence) if (
            last_sequence < first_sequence
        ):
            raise wrong_order(start, stop)
        case AtTime(first_us), AtTime(last_us) if last_us < first_us:
            raise wrong_order(start, stop)
        case AtTransaction(first_id), AtTransaction(last_id) if last_id < first_id:
            raise wrong_order(start, stop)
        case started, Earliest() if started != EARLIEST:
            raise wrong_order(start, EARLIEST)
        case _:
            return


def wrong_order(start: Bound, stop: Bound) -> InvalidArgumentError:
    """The error for a read that would end before it starts."""
    return InvalidArgumentError(
        f"a read from {bound_text(start)} cannot end at {bound_text(stop)}, which is before it:"
        " swap the two"
    )


def _number(text: str, digits: str) -> int:
    if _NUMBER.fullmatch(digits) is None:
        raise InvalidArgumentError(
            f"{text!r}: {digits!r} must be a number >= 0 of at most 19 digits"
        )
    return int(digits)


def _signed(text: str, digits: str) -> int:
    """Parse a transaction id: the application's own number, which may be negative."""
    if _SIGNED.fullmatch(digits) is None:
        raise InvalidArgumentError(
            f"{text!r}: {digits!r} must be a number of at most 19 digits"
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
            f"{text!r}: {rest!r} must be a time, e.g. 2026-01-31T12:00:00Z, or an age, e.g. -1h"
        ) from None
    return at_moment(moment).time_us
