"""A real bash completes commands with the script of `geolog generate completion bash`."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.demo_process import WAIT_S_MAX, geolog

ASK = """
eval "$(geolog generate completion bash)"
COMP_WORDS=({words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_geolog_completion geolog
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("geolog str", {"stream"}),
        ("geolog stream tr", {"truncate"}),
        ("geolog read shop/orders --fo", {"--follow", "--format"}),
        ("geolog append shop/orders --ack du", {"durable"}),
    ],
)
def test_bash_completes(words: str, offered: set[str]) -> None:
    done = subprocess.run(
        ["bash", "--norc", "-c", ASK.format(words=words)],
        capture_output=True,
        env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"},
        timeout=WAIT_S_MAX,
        check=False,
    )

    assert set(done.stdout.decode().split()) == offered, done.stderr.decode()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_a_script_that_names_geolog(shell: str, tmp_path: Path) -> None:
    done = geolog("generate", "completion", shell, cwd=tmp_path)

    assert done.returncode == 0
    assert b"_GEOLOG_COMPLETE" in done.stdout
