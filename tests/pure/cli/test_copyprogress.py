"""Progress of a copy: a bar on a terminal, lines in a log, and room for other output."""

import io
import sys

import pytest
import trio
from trio.testing import MockClock

from geolog.cli.terminal.copy_progress import CopyProgressBar

MIB = 1024 * 1024


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def test_a_terminal_shows_a_bar_that_disappears_at_the_end(
    autojump_clock: MockClock,
) -> None:
    stream = Terminal()
    with CopyProgressBar("ledgers", stream) as bar:
        bar.copied(0, 0, 4)
        await trio.sleep(4.0)
        bar.copied(8 * MIB, 1, 4)
        shown = stream.getvalue()

    assert shown.startswith(
        "\r\x1b[K[██████░░░░░░░░░░░░░░░░░░]  25% 8.0 MiB copied, 2.1 MB/s; 1 of"
    )
    assert stream.getvalue() == shown + "\r\x1b[K"


async def test_output_printed_under_a_bar_arrives_on_stdout(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    with CopyProgressBar("segments", Terminal()) as bar:
        await trio.sleep(4.0)
        bar.copied(MIB, 1, 2)
        bar.clear()
        sys.stdout.write("a move\n")

    assert capsys.readouterr().out == "a move\n"


async def test_a_log_gets_a_line_every_five_seconds_and_every_note(
    autojump_clock: MockClock,
) -> None:
    stream = io.StringIO()
    with CopyProgressBar("ledgers", stream) as bar:
        for second in range(11):
            bar.copied(second * MIB, 0, None)
            await trio.sleep(1.0)
        bar.note("eu-west-1 is gone")

    assert stream.getvalue().splitlines() == [
        "5.0 MiB copied, 1.0 MB/s; 0 ledgers done",
        "10.0 MiB copied, 1.0 MB/s; 0 ledgers done",
        "eu-west-1 is gone",
    ]
