"""An argument of a wrong type is reported with its parameter and the likely intent."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest

import geolog
from geolog.client.arguments import checked


@checked
def ask(
    name: str = "a/b",
    *,
    start: geolog.Bound = geolog.EARLIEST,
    stop: geolog.Bound | None = None,
    writer_id: str | None = None,
    ack: geolog.AckLevel | Literal["received", "durable"] = "durable",
    partitions: int = 1,
    linger_s: float = 0.1,
    retention_s: float | Literal["same"] | None = None,
    if_not_exists: bool = False,
    regions: Sequence[str] | None = None,
    progress: Callable[[int], None] | None = None,
) -> str:
    return "asked"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": None}, "name is None; it must be a stream's name, e.g. 'shop/orders'"),
        ({"name": b"a/b"}, r"name is b'a/b', of type bytes.*mean name='a/b'\?"),
        ({"start": "earliest"}, r"start is 'earliest', of type str; .*start=geolog.EARLIEST\?"),
        ({"start": "LATEST"}, r"start=geolog.LATEST\?"),
        ({"start": 5}, r"start is 5, of type int.*start=geolog.AtSequence\(sequence=5\)\?"),
        ({"start": "5"}, r"start=geolog.AtSequence\(sequence=5\)\?"),
        ({"stop": "last:3"}, r"or None. .*stop=geolog.LastRecords\(count=3\)\?"),
        ({"start": geolog.DLSN(1, 2, 3)}, r"AtDlsn\(geolog.DLSN\(segment=1, entry=2, slot=3"),
        ({"start": datetime(1970, 1, 1, tzinfo=UTC)}, r"start=geolog.AtTime\(time_us=0\)\?"),
        ({"start": "time:-1h"}, r"geolog.EARLIEST or geolog.AtSequence\(5\)$"),
        ({"start": None}, "start is None; it must be a position in a stream"),
        ({"writer_id": 5}, r"a str or None. Did you mean writer_id='5'\?"),
        ({"ack": "durabel"}, r"'received' or 'durable'. Did you mean ack='durable'\?"),
        ({"partitions": "3"}, r"an int. Did you mean partitions=3\?"),
        ({"partitions": 3.0}, r"an int. Did you mean partitions=3\?"),
        ({"partitions": True}, "partitions is True, of type bool; it must be an int$"),
        ({"linger_s": timedelta(minutes=1)}, r"a number. Did you mean linger_s=60.0\?"),
        ({"retention_s": "7d"}, "a number, 'same' or None"),
        ({"if_not_exists": "yes"}, "True or False"),
        ({"regions": "a, b"}, r"a list or None. Did you mean regions=\['a', 'b'\]\?"),
        ({"regions": [1]}, r"regions is \[1\], of type list"),
        ({"progress": 5}, "progress is 5, of type int; it must be a function or None$"),
        ({"name": "x" * 999}, None),
        ({"writer_id": ["x" * 999]}, "…, of type list"),
    ],
)
def test_a_wrong_type_is_reported_with_the_expected_type_and_the_nearest_value(
    given: dict[str, object], said: str | None
) -> None:
    if said is None:
        assert ask(**given) == "asked"  # type: ignore[arg-type]
        return
    with pytest.raises(geolog.InvalidArgumentError, match=said):
        ask(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given",
    [
        {"start": geolog.LastRecords(3), "stop": geolog.LATEST},
        {"ack": geolog.AckLevel.RECEIVED},
        {"retention_s": 7, "linger_s": 1},
        {"regions": ("a", "b"), "progress": print},
    ],
)
def test_valid_arguments_are_passed_on(given: dict[str, object]) -> None:
    assert ask(**given) == "asked"  # type: ignore[arg-type]


def test_an_unknown_parameter_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="unknown"):
        ask(unknown=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: geolog.AtSequence(-1), "sequence of AtSequence is -1; .* >= 0"),
        (lambda: geolog.AtSequence("5"), "sequence of AtSequence is '5'"),  # type: ignore[arg-type]
        (lambda: geolog.LastRecords(-1), "count of LastRecords is -1"),
        (lambda: geolog.AtTime(1.5), "time_us of AtTime is 1.5; it must be a whole number$"),  # type: ignore[arg-type]
        (lambda: geolog.AtTransaction(None), "transaction_id of AtTransaction is None"),  # type: ignore[arg-type]
        (lambda: geolog.AtDlsn("1-0-0"), "geolog.DLSN.parse"),  # type: ignore[arg-type]
        (lambda: geolog.AtDlsn(geolog.DLSN(0, 0, 0)), "segment of AtDlsn is 0"),
    ],
)
def test_an_invalid_bound_is_refused_when_it_is_made(
    make: Callable[[], object], said: str
) -> None:
    with pytest.raises(geolog.InvalidArgumentError, match=said):
        make()
