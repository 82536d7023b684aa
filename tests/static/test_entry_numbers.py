"""The numbers of an entry in its ledger and in its segment are not compared with each other."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.static.checkout import ROOT

BIN = Path(sys.executable).parent

FRONT = """\
from geolog.protocol.ids import EntryId, SegmentEntry
from geolog.wire.entry import EntryHeader

def is_there(header: EntryHeader, entry: EntryId, segment: int) -> bool:
    return """


@pytest.mark.parametrize(
    "comparison",
    [
        "header.entry == entry",
        "(header.segment, header.entry) != (segment, entry)",
        "header.entry in [entry]",
    ],
)
def test_mypy_refuses_to_compare_the_two_numbers(comparison: str, tmp_path: Path) -> None:
    snippet = tmp_path / "snippet.py"
    snippet.write_text(f"{FRONT}{comparison}\n", encoding="utf-8")

    done = subprocess.run(
        [BIN / "mypy", snippet], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert "[comparison-overlap]" in done.stdout, done.stdout + done.stderr
