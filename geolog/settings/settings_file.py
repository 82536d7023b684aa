"""Reads the TOML file of settings: its keys flattened, each with its line number."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from topology.errors import InvalidConfigError, NotFoundError

_TABLE_LINE = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?")
_TOML_PLACE = re.compile(
    r"(?P<what>.*) \(at (?:line (?P<line>\d+), column \d+|end of document)\)", re.DOTALL
)
"""Complaint of the parser, and its place."""

_ANOTHER = "name another file with --config or in GEOLOG_CONFIG"

_KEY_LINE = re.compile(r"\s*([A-Za-z0-9_.\"'-]+)\s*=")


@attrs.frozen
class SettingsFile:
    """Contents of a settings file."""

    path: Path
    values: Mapping[str, object]
    """Values by dotted key, e.g. `profile.test.zookeeper`."""
    lines: Mapping[str, int]

    @classmethod
    def read(cls, path: Path) -> "SettingsFile":
        """Read a file. InvalidConfigError names the line that is not valid TOML."""
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise NotFoundError(f"no such settings file: {path}") from error
        except OSError as error:
            raise InvalidConfigError(
                f"cannot read {path}: {error.strerror}: make it a file that you can read, or"
                f" {_ANOTHER}"
            ) from error
        except UnicodeDecodeError as error:
            line = 1 + error.object.count(b"\n", 0, error.start)
            raise InvalidConfigError(
                f"{path}:{line}: not UTF-8: save the file as UTF-8, or {_ANOTHER}"
            ) from error
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            told = _with_line(path, str(error), text)
            raise InvalidConfigError(f"{told}, or {_ANOTHER}") from error
        return cls(path, dict(_flattened(table, "")), dict(_numbered(text)))

    def place(self, key: str) -> str:
        """Place of a key, e.g. `geolog.toml:3`; only the file if the line is unknown."""
        return f"{self.path}:{self.lines[key]}" if key in self.lines else str(self.path)

    def text(self, key: str) -> str:
        """Return a value as the text that an environment variable would hold."""
        match self.values[key]:
            case bool() as flag:
                return "true" if flag else "false"
            case str() | int() | float() as value:
                return str(value)
            case other:
                raise InvalidConfigError(
                    f"{self.place(key)}: {key} is {other!r}; give a single string or number"
                )

    @property
    def profiles(self) -> list[str]:
        """Names of the profiles in the file."""
        parts = (key.split(".") for key in self.values)
        return sorted({part[1] for part in parts if part[0] == "profile" and len(part) > 2})


def _with_line(path: Path, complaint: str, text: str) -> str:
    """The parser's complaint with its line in front, as of other errors in the file."""
    if match := _TOML_PLACE.fullmatch(complaint):
        line = match["line"] or str(max(1, len(text.splitlines())))
        return f"{path}:{line}: not valid TOML: {match['what']}: correct the line"
    return f"{path}: not valid TOML: {complaint}: correct the file"


def _flattened(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _numbered(text: str) -> Iterator[tuple[str, int]]:
    """Yield keys with their line numbers, for messages only: it may miss unusual TOML."""
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if match := _TABLE_LINE.fullmatch(line):
            table = match.group(1).replace('"', "") + "."
        elif match := _KEY_LINE.match(line):
            yield table + match.group(1).replace('"', ""), number
