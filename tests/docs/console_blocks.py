"""Commands that a page of the documentation shows, and what it says that they print.

A page is run when an HTML comment, invisible to its readers, says in which place:

    <!-- run: demo -->

stands above the first block that it means, and counts for every block from there on, up to the
next such comment; `<!-- run: nothing -->` ends it. The places are the keys of `PLACES` in
`test_pages.py`.

In a ```console block, a line that begins with `$ ` is a command for bash (a backslash at its
end continues it on the next line). The lines below, up to the next command, are what it prints,
messages included, where `...` stands for any text within a line and a line of `...` alone for
any lines. A command with no lines below may print what it likes. Each has to end with exit code
0, unless the comment `# exit CODE` at its end says otherwise. A ```python block is one program,
run like a command.
"""

import re
from collections.abc import Iterator

import attrs

_PLACE = re.compile(r"^<!-- run: (?P<place>[a-z-]+) -->$")
_EXIT = re.compile(r"\s+# exit (?P<code>\d+)$")


@attrs.frozen
class Command:
    """One command of a page."""

    line_number: int
    place: str
    text: str
    exit_code: int = 0
    printed: tuple[str, ...] = ()
    """The lines that the page says it prints; none means that the page does not say."""

    def agrees_with(self, output: str) -> bool:
        """Whether what was printed is what the page says."""
        if not self.printed:
            return True
        pattern = "".join(_pattern(line.rstrip()) for line in self.printed)
        lines = [line.rstrip() for line in output.splitlines()]
        return re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)) is not None


def _pattern(line: str) -> str:
    if line == "...":
        return "(?:.*\n)*?"
    return ".*?".join(re.escape(part) for part in line.split("...")) + "\n"


def commands_of(page: str) -> Iterator[Command]:
    """The commands of a page that are to be run, in the page's order."""
    place = "nothing"
    lines = iter(enumerate(page.splitlines(), start=1))
    for _, line in lines:
        if (named := _PLACE.match(line)) is not None:
            place = named["place"]
        elif line.startswith("```"):
            block = _block(lines)
            if place != "nothing" and line == "```console":
                yield from _commands(block, place)
            if place != "nothing" and line == "```python":
                yield _program(block, place)


def _block(lines: Iterator[tuple[int, str]]) -> list[tuple[int, str]]:
    block = []
    for number, line in lines:
        if line == "```":
            break
        block.append((number, line))
    return block


def _commands(block: list[tuple[int, str]], place: str) -> Iterator[Command]:
    rest = iter(block)
    pending: Command | None = None
    for number, line in rest:
        if line.startswith("$ "):
            if pending is not None:
                yield pending
            text = line.removeprefix("$ ")
            while text.endswith("\\"):
                text = f"{text}\n{next(rest)[1]}"
            pending = _command(number, place, text)
        elif pending is not None:
            pending = attrs.evolve(pending, printed=(*pending.printed, line))
    if pending is not None:
        yield pending


def _program(block: list[tuple[int, str]], place: str) -> Command:
    lines = ["python -P - <<'END_OF_THE_EXAMPLE'", *(line for _, line in block)]
    return Command(block[0][0], place, "\n".join([*lines, "END_OF_THE_EXAMPLE"]))


def _command(number: int, place: str, text: str) -> Command:
    marked = _EXIT.search(text)
    if marked is None:
        return Command(number, place, text)
    return Command(number, place, text[: marked.start()], exit_code=int(marked["code"]))
