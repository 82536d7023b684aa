"""Tables for people: values carry units, so labels do not."""

import json

import pytest

from geolog.cli.terminal.output import show

DOCUMENT = {
    "segment_bytes": 64 << 20,
    "segment_age_s": 3600.0,
    "rate_bytes_per_s": 2048,
    "syncs.p50_s": 0.002,
    "created_us": 0,
    "is_sealed": False,
    "owner": "",
}


def test_times_sizes_and_rates_are_shown_with_units(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(DOCUMENT, "table")

    rows = [line.split("  ", 1) for line in capsys.readouterr().out.splitlines()]
    assert [[name, value.strip()] for name, value in rows] == [
        ["segment size", "64MiB"],
        ["segment age", "1h"],
        ["rate bytes", "2.05kB/s"],
        ["syncs.p50", "2ms"],
        ["created", "1970-01-01 00:00:00 UTC"],
        ["is sealed", "no"],
        ["owner", "-"],
    ]


def test_json_keeps_numbers_and_field_names(capsys: pytest.CaptureFixture[str]) -> None:
    show(DOCUMENT, "json")

    assert json.loads(capsys.readouterr().out) == DOCUMENT
