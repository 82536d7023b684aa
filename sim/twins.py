"""Generate the twins in `geolog/blocking` from their sources in `geolog/aio`.

`python -P -m sim.twins` writes the files that differ; so does `make format`. `--check` only
lists them. Edit the source in `geolog/aio`, never the twin. A twin is its source without
`async` and `await`, with the words of `WORDS` replaced, then sorted and formatted by ruff.

Three files stay hand-written because they differ in kind: `__init__` (has `fail_after` too),
`deadline` (only blocking calls need one) and `waiting` (a lock, not a future of an event loop).
Both `waiting` modules define the same names, so everything above them can be generated.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "geolog" / "aio"
TWINS = ROOT / "geolog" / "blocking"
COMMAND = "python -P -m sim.twins"
NAMES = ("log.py", "opening.py", "reader.py", "writer.py")

WORDS = {
    r"\bgeolog\.aio\b": "geolog.blocking",
    r"\basync (def|with|for)\b": r"\1",
    r"\bawait waiter\b": "waiter.sleep()",
    r"\bawait ": "",
    r"\b__a(enter|exit|iter|next)__\b": r"__\1__",
    r"\bStopAsyncIteration\b": "StopIteration",
    r"\bCoroutine\[None, None, (\w+)\]": r"\1",
    r"\bAbstractAsyncContextManager\b": "AbstractContextManager",
    r"\ban asyncio program\b": "a synchronous program",
    r"\ban event loop\b": "an ordinary thread",
    r"\b(calling|one|this) task\b": r"\1 thread",
    r"\bTasks may\b": "Threads may",
}
"""Regular expressions and their replacements, applied in this order."""

_HEAD = "# Generated from geolog/aio/{name} by `{command}`: edit that file.\n"
_RUFF = Path(sys.executable).with_name("ruff")


def twin_of(name: str, source: str) -> str:
    """Turn a file of `geolog/aio` into its twin."""
    text = source
    for word, replacement in WORDS.items():
        text = re.sub(word, replacement, text)
    text = _ruff(name, text, "check", "--fix", "--select", "F401,I001")
    return _HEAD.format(name=name, command=COMMAND) + _ruff(name, text, "format")


def _ruff(name: str, text: str, *command: str) -> str:
    """Run ruff over a text, with the settings of the file that the text is for."""
    where = str(TWINS / name)
    return subprocess.run(
        [_RUFF, *command, "--quiet", "--stdin-filename", where, "-"],
        input=text,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def sources() -> dict[str, str]:
    """The text of each source, by file name."""
    return {name: (SOURCES / name).read_text(encoding="utf-8") for name in NAMES}


def outdated() -> dict[Path, str]:
    """The twins that differ from what their sources give, and what they should hold."""
    twins = {TWINS / name: twin_of(name, source) for name, source in sources().items()}
    return {
        path: text
        for path, text in twins.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }


def main(arguments: list[str]) -> int:
    """Write or, with `--check`, list the outdated twins; 1 if there were any to list."""
    found = outdated()
    if arguments == ["--check"]:
        sys.stdout.writelines(f"{path.relative_to(ROOT)}\n" for path in found)
        return 1 if found else 0
    for path, text in found.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
