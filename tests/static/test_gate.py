"""The static tools, run as tests: pytest is the only gate."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("ruff format --check --diff --quiet .", id="format"),
        pytest.param("ruff check --quiet --output-format concise .", id="lint"),
        pytest.param("lint-imports --no-logo", id="imports"),
        pytest.param("mypy --no-error-summary", id="types"),
    ],
)
def test_the_tool_has_nothing_to_say(command: str) -> None:
    tool, *arguments = command.split()

    done = subprocess.run(
        [BIN / tool, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )

    if done.returncode != 0:
        pytest.fail(f"{command}\n{done.stdout}{done.stderr}", pytrace=False)
