"""The progress line of a long command."""

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from trio.testing import MockClock

from geolog.cli.invocation import Invocation
from geolog.cli.recovery_progress import opened_with_progress
from geolog.cli.session import Patience
from geolog.cli.terminal.progress import Progress, progress_line
from geolog.ledger.recovery.recovery_progress import RecoveryProgress


def test_a_known_total_gives_a_bar_and_the_time_left() -> None:
    assert progress_line(250, "records appended", 0.25, 5.0) == (
        "[██████░░░░░░░░░░░░░░░░░░]  25% 250 records appended, 50/s, 0:15 left"
    )
    assert progress_line(1000, "records appended", 1.0, 20.0) == (
        "[████████████████████████] 100% 1,000 records appended, 50/s"
    )


def test_an_unknown_total_gives_only_the_count_and_the_rate() -> None:
    assert progress_line(12_500, "records read", None, 5.0) == "12,500 records read, 2,500/s"


def test_no_progress_gives_no_time_left() -> None:
    assert progress_line(0, "records read", 0.0, 0.0) == (
        "[░░░░░░░░░░░░░░░░░░░░░░░░]   0% 0 records read, 0/s"
    )


async def test_forced_progress_shows_without_a_terminal(
    autojump_clock: MockClock,
) -> None:
    stream = io.StringIO()
    with Progress("records read", stream, is_forced=True) as progress:
        await trio.sleep(1.0)
        progress.at(5, 10)

    assert stream.getvalue() == (
        "\r\x1b[K[████████████░░░░░░░░░░░░]  50% 5 records read, 5/s, 0:01 left\n"
    )


async def test_nothing_is_shown_without_a_terminal(autojump_clock: MockClock) -> None:
    stream = io.StringIO()
    with Progress("records read", stream) as progress:
        await trio.sleep(5.0)
        progress.at(5)

    assert stream.getvalue() == ""


async def test_recovery_while_a_writer_opens_is_shown_and_counts_as_progress(
    autojump_clock: MockClock,
) -> None:
    """Recovery may take longer than `--timeout`."""
    stream, recovery = io.StringIO(), RecoveryProgress()
    patience = Patience(Invocation(environment={}, flags={"timeout": "5s"}))

    @asynccontextmanager
    async def opening() -> AsyncIterator[str]:
        for _ in range(10):
            await trio.sleep(3)
            recovery.on_entries(100)
        yield "a writer"

    with patience.scope:
        async with opened_with_progress(
            opening(), recovery, patience, stream, is_forced=True
        ) as writer:
            assert writer == "a writer"
            recovery.on_entries(1)  # Of another writer.

    assert not patience.scope.cancelled_caught
    assert stream.getvalue().endswith("1,000 entries recovered or read back, 33/s\n")
