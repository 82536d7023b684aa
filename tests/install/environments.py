"""Empty environments, with geolog from its wheel, and with what pip finds for an extra."""

import os
import subprocess
import sys
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[2]
COMMAND_S_MAX = 500.0
"""Time limit for one command: an installation may have to download half a gigabyte."""


def run(*command: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, without variables that lead to the checkout or a cluster."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "JAVA_HOME") and not name.startswith("GEOLOG_")
    }
    return subprocess.run(
        command,
        cwd=cwd,
        env=kept | variables,
        capture_output=True,
        text=True,
        timeout=COMMAND_S_MAX,
        check=False,
    )


def run_well(*command: str | Path, cwd: Path, **variables: str) -> str:
    """Run a command that must succeed; return its output."""
    done = run(*command, cwd=cwd, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build_wheel(directory: Path) -> Path:
    """Build the wheel as a release would."""
    run_well(
        *(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", directory), cwd=ROOT
    )
    (built,) = directory.glob("*.whl")
    return built


@attrs.frozen
class Environment:
    """An environment that has nothing but geolog and its dependencies."""

    home: Path

    @classmethod
    def made(cls, home: Path, wheel: Path, extra: str) -> "Environment":
        """Make it, and install the wheel with this extra; the empty text for none."""
        run_well(sys.executable, "-m", "venv", home, cwd=home)
        made = cls(home)
        made.pip("install", "--quiet", f"{wheel}[{extra}]" if extra else str(wheel))
        return made

    @property
    def geolog(self) -> Path:
        """The command."""
        return self.home / "bin" / "geolog"

    def pip(self, *words: str) -> str:
        """Run pip in it."""
        return run_well(self.home / "bin" / "python", "-m", "pip", *words, cwd=self.home)

    def python(self, program: str, **variables: str) -> str:
        """Run a program in it; return its output."""
        python = self.home / "bin" / "python"
        return run_well(python, "-P", "-c", program, cwd=self.home, **variables)

    def distributions(self) -> set[str]:
        """Names of what is installed."""
        listed = self.pip("list", "--format", "freeze").split()
        return {line.partition("==")[0].lower() for line in listed}
