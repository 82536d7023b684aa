"""Quantities with units: times, sizes, rates, shares."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.settings.quantities import (
    format_bytes,
    format_seconds,
    parse_bytes,
    parse_bytes_per_second,
    parse_seconds,
    short_bytes,
    short_rate,
    short_seconds,
)
from topology.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("80ms", 0.08), ("30s", 30), ("1.5s", 1.5), ("5m", 300), ("1h", 3600), ("7d", 604800)],
)
def test_a_time_has_a_unit(text: str, seconds: float) -> None:
    assert parse_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("1B", 1), ("64KiB", 65536), ("64MiB", 64 << 20), ("1.5kB", 1500), ("2 GB", 2 * 10**9)],
)
def test_a_size_has_a_unit(text: str, size_bytes: int) -> None:
    assert parse_bytes(text) == size_bytes


def test_a_rate_is_a_size_per_second() -> None:
    assert parse_bytes_per_second("20MB/s") == 20e6


@pytest.mark.parametrize("parse", [parse_seconds, parse_bytes, parse_bytes_per_second])
def test_a_number_without_a_unit_is_refused_with_an_example(parse: object) -> None:
    assert callable(parse)

    with pytest.raises(InvalidArgumentError, match=r"'30' has no unit: write e\.g\."):
        parse("30")


@pytest.mark.parametrize("text", ["", "s", "-1s", "1e3s", "ten s", "1s2s", "٣s"])
def test_anything_but_a_quantity_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        parse_seconds(text)


def test_the_error_for_an_unknown_unit_lists_the_known_ones() -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"unknown unit 'sec' in '3sec': use one of us, ms, s"
    ):
        parse_seconds("3sec")


def test_half_a_byte_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="not a whole number"):
        parse_bytes("0.3B")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (604800, "7d"),
        (5400, "90m"),
        (0.02, "20ms"),
        (0.0012345, "1.23ms"),
        (12.345, "12.3s"),
        (100000, "1.16d"),
    ],
)
def test_a_time_is_shown_in_a_short_form(seconds: float, text: str) -> None:
    assert short_seconds(seconds) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0B"),
        (512, "512B"),
        (10934, "10.7KiB"),
        (64 << 20, "64MiB"),
        (1023 << 10, "1023KiB"),
    ],
)
def test_a_size_is_shown_in_three_digits(size_bytes: int, text: str) -> None:
    assert short_bytes(size_bytes) == text


@given(st.integers(0, 1 << 50))
def test_a_formatted_size_parses_to_the_same_size(size_bytes: int) -> None:
    assert parse_bytes(format_bytes(size_bytes)) == size_bytes


@given(st.integers(0, 10**9).map(lambda milliseconds: milliseconds / 1000))
def test_a_formatted_time_parses_to_the_same_time(seconds: float) -> None:
    assert parse_seconds(format_seconds(seconds)) == pytest.approx(seconds, rel=1e-5)


@pytest.mark.parametrize(
    ("bytes_per_s", "text"),
    [(20e6, "20MB/s"), (1.5e9, "1.5GB/s"), (2048, "2.05kB/s"), (512, "512B/s"), (0, "0B/s")],
)
def test_a_rate_is_short_and_decimal(bytes_per_s: float, text: str) -> None:
    assert short_rate(bytes_per_s) == text
