"""The files that belong to geolog, as its tidy tests read them."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
FLOORS = ("geolog", "regions", "relay", "sim", "topology")


def files_of_the_checkout() -> list[Path]:
    """Every file that a commit holds or would hold; in an unpacked archive, every file."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        paths = [path for path in ROOT.rglob("*") if ".venv" not in path.parts]
    return sorted(path for path in paths if path.is_file())


def python_files() -> list[Path]:
    """Every Python source file of the floors and of the tests."""
    return [path for path in files_of_the_checkout() if path.suffix == ".py"]


def text_of(path: Path) -> str | None:
    """The file as text; None when it is not text."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def line_of(path: Path, text: str, offset: int) -> str:
    """`path:line` of a place in a file, as an editor understands it."""
    number = text.count("\n", 0, offset) + 1
    return f"{path.relative_to(ROOT)}:{number}"
