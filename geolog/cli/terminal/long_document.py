"""Prints a result too long for memory: its items one by one, and the rest at the end.

As `json` it is still one document, whose first key holds the items; as `jsonl` each item is a
line, and the rest is the last line.
"""

import json
import sys
from types import TracebackType

from geolog.cli.terminal.output import Plain, plain, print_json
from geolog.settings.command_config import Output


class LongDocument:
    """Such a result on stdout; for tables the caller prints the lines itself."""

    def __init__(self, items_name: str, output: Output) -> None:
        self._items_name = items_name
        self._output = output
        self._count = 0

    def __enter__(self) -> "LongDocument":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None and self._output == "json" and self._count:
            sys.stdout.write("\n")  # The document is cut off; later output is not part of it.

    def item(self, value: object) -> None:
        """Print one item."""
        match self._output:
            case "json":
                separator = ", " if self._count else self._begin()
                sys.stdout.write(separator + json.dumps(plain(value), ensure_ascii=False))
            case "jsonl":
                print_json(plain(value))
            case "table":
                pass
        self._count += 1

    def _begin(self) -> str:
        """Begin the document at its first item: a command that fails at once prints none."""
        return f'{{"{self._items_name}": ['

    def end(self, rest: dict[str, object]) -> None:
        """End the document after all items; `rest` holds the other keys."""
        document: dict[str, Plain] = {name: plain(value) for name, value in rest.items()}
        match self._output:
            case "json":
                sys.stdout.write("]" if self._count else self._begin() + "]")
                for name, value in document.items():
                    sys.stdout.write(f', "{name}": {json.dumps(value, ensure_ascii=False)}')
                sys.stdout.write("}\n")
            case "jsonl":
                print_json(document)
            case "table":
                pass
