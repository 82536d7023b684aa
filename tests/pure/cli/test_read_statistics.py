"""The line of `geolog read --progress` about hedging."""

from geolog.cli.terminal.read_statistics import read_statistics_line
from geolog.ledger.replicas.hedging import HedgeRecord


def test_reads_in_time_take_one_clause() -> None:
    record = HedgeRecord(asked_count=120)

    assert read_statistics_line(record.statistics()) == (
        "120 questions to replicas; none hedged"
    )


def test_every_kind_of_trouble_is_named() -> None:
    record = HedgeRecord(asked_count=1000, won_count=9, failed_count=3, late_count=2)
    record.hedged_count.update({1: 18, 2: 2})
    record.damaged_count["us-east-storage-1"] = 4
    record.extra_bytes_count = 2 * 1024 * 1024

    assert read_statistics_line(record.statistics()) == (
        "1000 questions to replicas; 20 extra requests (2.00%: 18 at stage 1, 2 at stage 2),"
        " 9 of them answered first; 3 requests failed; 2 later than the limit; damaged copies:"
        " us-east-storage-1 4; about 2MiB asked twice"
    )
