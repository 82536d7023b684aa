"""The digest of staged rows tells other rows, and not their order or entries."""

from collections.abc import Mapping

import pytest

from geolog.client.staging.staged_rows import StagedRows

Row = tuple[bytes, bytes | None, Mapping[str, bytes] | None]
ROWS: list[Row] = [(b"a", None, None), (b"b", b"k", {"x": b"1", "y": b"2"}), (b"", b"", {})]


def digest_of(rows: list[Row]) -> int:
    staged = StagedRows()
    for value, key, headers in rows:
        staged.add(value, key, headers)
        if value == b"b":
            staged.seal(now_us=0)
    return staged.digest


def test_the_order_of_rows_and_headers_is_of_no_account() -> None:
    assert digest_of(ROWS) == digest_of(ROWS[::-1]) != 0
    assert digest_of([(b"b", b"k", {"y": b"2", "x": b"1"})]) == digest_of(ROWS[1:2])


@pytest.mark.parametrize(
    "other",
    [
        (b"c", b"k", {"x": b"1", "y": b"2"}),
        (b"b", None, {"x": b"1", "y": b"2"}),
        (b"kb", b"", {"x": b"1", "y": b"2"}),
        (b"b", b"k", {"x": b"2", "y": b"1"}),
        (b"b", b"k", {"x": b"1"}),
        (b"b", b"k", None),
    ],
)
def test_another_value_key_or_header_is_another_row(other: Row) -> None:
    assert digest_of([other]) != digest_of(ROWS[1:2])
    assert digest_of([*ROWS, other]) != digest_of([*ROWS, ROWS[1]])
