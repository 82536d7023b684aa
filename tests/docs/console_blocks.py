"""Commands on a page of the documentation, with their expected output.

An HTML comment, invisible to readers, names the place in which the blocks below it run:

    <!-- run: demo -->

It applies up to the next such comment; `<!-- run: nothing -->` ends it. `PLACES` in
`test_pages.py` lists the places; the hosts of one page are in `test_three_data_centres.py`.

In a ```console block, a line that begins with `$ ` is a command for bash. A backslash at its
end continues it on the next line, and `<<END` there takes all lines up to `END`. The lines
below it, up to the next command, are its expected output, messages included. Within a line
`...` matches any text; a line of `...` matches any lines. A command without such lines may
print anything. Each command must exit with 0, unless a comment `# exit CODE` at its end says
otherwise. A ```python block is one program, run like a command.
"""

import re
from collections.abc import Iterator

import attrs

_PLACE = re.compile(r"^<!-- run: (?P<place>[a-z-]+) -->$")
_DOCUMENT = re.compile(r"<<(?P<end>[A-Z]+)$")
_EXIT = re.compile(r"\s+# exit (?P<code>\d+)$")


@attrs.frozen
class Command:
    """One command of a page."""

    line_number: int
    place: str
    text: str
    exit_code: int = 0
    printed: tuple[str, ...] = ()
    """The expected output; empty if the page shows none."""

    def agrees_with(self, output: str) -> bool:
        """Whether the output matches the page."""
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
    """The commands of a page that a test runs, in order."""
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
            if (document := _DOCUMENT.search(text)) is not None:
                for _, inner in rest:
                    text = f"{text}\n{inner}"
                    if inner == document["end"]:
                        break
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
