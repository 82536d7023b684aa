"""When a segment is full, and when its successor is prepared."""

import pytest

from geolog.protocol.roll import RollPolicy

POLICY = RollPolicy(segment_bytes=100, segment_age_s=60.0, prepare_share=0.5)


@pytest.mark.parametrize(
    ("written_bytes", "age_s", "is_due"),
    [
        (0, 0.0, False),
        (0, 1e9, False),
        (1, 59.9, False),
        (1, 60.0, True),
        (99, 0.0, False),
        (100, 0.0, True),
        (101, 0.0, True),
    ],
)
def test_a_segment_ends_at_its_size_or_age_but_never_empty(
    written_bytes: int, age_s: float, *, is_due: bool
) -> None:
    assert POLICY.is_due(written_bytes=written_bytes, age_s=age_s) is is_due


@pytest.mark.parametrize(("written_bytes", "is_due"), [(0, False), (49, False), (50, True)])
def test_the_next_ledger_is_made_before_it_is_needed(
    written_bytes: int, *, is_due: bool
) -> None:
    assert POLICY.is_preparation_due(written_bytes=written_bytes) is is_due


def test_a_policy_that_is_told_when_to_roll_only_prepares() -> None:
    told = RollPolicy(segment_bytes=100, segment_age_s=60.0, is_told=True)

    assert not told.is_due(written_bytes=1000, age_s=1000.0)
    assert told.is_preparation_due(written_bytes=50)
