"""Resolves settings from five sources.

From strongest to weakest: a flag, the environment (`GEOLOG_…`), the chosen profile, the
settings file, the default. The settings of a role are the fields of one frozen class. A key in
the file is the name of the field without the unit `s`, because its value has a unit: `timeout =
"30s"`. Tables in the file are named after their command: `[serve.storage]`, `[demo]`.
"""

import enum
import importlib
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, get_args, get_origin

import attrs

from geolog.settings.quantities import (
    format_bytes,
    format_seconds,
    parse_bytes,
    parse_bytes_per_second,
    parse_seconds,
)
from geolog.settings.settings_file import SettingsFile
from geolog.transport.seam import Address
from topology.errors import InvalidArgumentError, InvalidConfigError
from topology.nearest import suggestion


@attrs.frozen
class Role:
    """Class of settings, imported when needed, and the table in the file that sets them."""

    table: str
    module: str
    class_name: str
    given: tuple[str, ...] = ()
    """Fields that the command itself fills; they are not settings."""

    def settings_class(self) -> type[attrs.AttrsInstance]:
        """Import and return the frozen class."""
        found = getattr(importlib.import_module(self.module), self.class_name)
        assert isinstance(found, type)
        assert attrs.has(found)
        return found


class ValueKind(enum.Enum):
    """Kind of a setting's value: decides how its text is parsed."""

    SECONDS = "a time, e.g. 30s"
    BYTES = "a size, e.g. 64MiB"
    BYTES_PER_SECOND = "a rate, e.g. 20MB/s"
    INTEGER = "a whole number"
    NUMBER = "a number"
    FLAG = "true or false"
    CHOICE = "one of a few words"
    PATH = "a path"
    ADDRESS = "HOST:PORT"
    TEXT = "a text"


@attrs.frozen
class Setting:
    """One field of a role's class, with its name in the file and in the environment."""

    key: str
    """Name in the file, including the table: `serve.storage.mark_idle`."""
    field: str
    kind: ValueKind
    choices: tuple[str, ...]
    default: object

    @property
    def environment_name(self) -> str:
        """Name in the environment: `GEOLOG_SERVE_STORAGE_MARK_IDLE`."""
        return "GEOLOG_" + self.key.replace(".", "_").upper()

    def parse(self, text: str) -> object:
        """Parse a value. InvalidArgumentError says what a valid one looks like."""
        match self.kind:
            case ValueKind.SECONDS:
                return parse_seconds(text)
            case ValueKind.BYTES:
                return parse_bytes(text)
            case ValueKind.BYTES_PER_SECOND:
                return parse_bytes_per_second(text)
            case ValueKind.INTEGER | ValueKind.NUMBER:
                return _number(text, self.kind)
            case ValueKind.FLAG:
                return self._choice(text, ("true", "false")) == "true"
            case ValueKind.CHOICE:
                return self._choice(text, self.choices)
            case ValueKind.PATH:
                return Path(text)
            case ValueKind.ADDRESS:
                return parse_address(text)
            case ValueKind.TEXT:
                return text

    def show(self, value: object) -> str:
        """Format a value as text that `parse` accepts."""
        match self.kind, value:
            case _, None:
                return ""
            case ValueKind.SECONDS, float() | int():
                return format_seconds(value)
            case ValueKind.BYTES, int():
                return format_bytes(value)
            case ValueKind.BYTES_PER_SECOND, float() | int():
                return f"{format_bytes(round(value))}/s"
            case ValueKind.FLAG, _:
                return "true" if value else "false"
            case _:
                return str(value)

    def _choice(self, text: str, choices: tuple[str, ...]) -> str:
        if text not in choices:
            raise InvalidArgumentError(f"{text!r} is not one of {', '.join(choices)}")
        return text


@attrs.frozen
class Decided:
    """A setting, its value, and the source of the value."""

    setting: Setting
    value: object
    origin: str


@attrs.frozen
class SettingSources:
    """All sources of settings, the strongest first."""

    flags: Mapping[str, str]
    environment: Mapping[str, str]
    file: SettingsFile | None
    profile: str | None

    def decide(self, role: Role) -> list[Decided]:
        """Resolve each setting of the role, in the order of its class."""
        return [self._decide(setting) for setting in settings_of(role)]

    def _decide(self, setting: Setting) -> Decided:
        for text, origin, place in self._texts(setting):
            try:
                return Decided(setting, setting.parse(text), origin)
            except InvalidArgumentError as error:
                raise InvalidConfigError(f"{place}: {error}") from error
        return Decided(setting, setting.default, "default")

    def _texts(self, setting: Setting) -> Iterator[tuple[str, str, str]]:
        """Yield each text for the setting, its origin, and its place for an error message."""
        if (text := self.flags.get(setting.key)) is not None:
            flag = f"--{setting.key.rpartition('.')[2].replace('_', '-')}"
            yield text, f"flag {flag}", flag
        if (text := self.environment.get(setting.environment_name)) is not None:
            yield text, f"environment {setting.environment_name}", setting.environment_name
        if self.file is None:
            return
        for key in (f"profile.{self.profile}.{setting.key}", setting.key):
            if key in self.file.values:
                of_profile = f" [profile.{self.profile}]" if key != setting.key else ""
                origin = f"{self.file.place(key)}{of_profile}"
                yield self.file.text(key), origin, f"{origin}: {setting.key}"


SettingsClass = typing.TypeVar("SettingsClass", bound=attrs.AttrsInstance)


def configured(
    settings_class: type[SettingsClass], decided: list[Decided], **given: object
) -> SettingsClass:
    """Build an object of the role's class from resolved settings and `given` fields."""
    values = {each.setting.field: each.value for each in decided if each.origin != "default"}
    return settings_class(**(values | given))


def settings_of(role: Role) -> list[Setting]:
    """List the settings of a role: the fields of its class that can be parsed from text."""
    settings_class = role.settings_class()
    hints = typing.get_type_hints(settings_class)
    return [
        Setting(
            key=f"{role.table}.{_key(field.name)}" if role.table else _key(field.name),
            field=field.name,
            kind=kind,
            choices=_choices(hints[field.name]),
            default=None if field.default is attrs.NOTHING else field.default,
        )
        for field in attrs.fields(settings_class)
        if field.name not in role.given
        if (kind := _kind(field.name, hints[field.name])) is not None
    ]


def table_of(key: str) -> str:
    """Table of a key in the file, without its profile: `serve.storage`, or nothing."""
    return _without_profile(key).rpartition(".")[0]


def unknown_key(file: SettingsFile, key: str, role: Role) -> str | None:
    """Return a complaint if the role has no such key, suggesting the nearest that it has."""
    plain = _without_profile(key)
    known = [setting.key for setting in settings_of(role)]
    if plain in known:
        return None
    word = plain.rpartition(".")[2]
    hint = suggestion(word, [name.rpartition(".")[2] for name in known])
    return f"{file.place(key)}: unknown key {word!r}{hint}"


_KIND_OF_TYPE: dict[type, ValueKind] = {
    int: ValueKind.INTEGER,
    float: ValueKind.NUMBER,
    bool: ValueKind.FLAG,
    str: ValueKind.TEXT,
    Path: ValueKind.PATH,
    Address: ValueKind.ADDRESS,
}


def _key(field: str) -> str:
    words = field.removesuffix("_bytes_per_s").split("_")
    return "_".join(word for word in words if word != "s")


def _without_profile(key: str) -> str:
    parts = key.split(".")
    return ".".join(parts[2:]) if parts[0] == "profile" and len(parts) > 2 else key


def _kind(name: str, hint: object) -> ValueKind | None:
    words = name.split("_")
    if get_origin(hint) is Literal:
        return ValueKind.CHOICE
    bare = [part for part in _alternatives(hint) if part is not types.NoneType]
    if len(bare) != 1:
        return None
    if bare[0] in (int, float):
        if "bytes" in words:
            return ValueKind.BYTES_PER_SECOND if words[-2:] == ["per", "s"] else ValueKind.BYTES
        if "s" in words:
            return ValueKind.SECONDS
    return _KIND_OF_TYPE.get(bare[0]) if isinstance(bare[0], type) else None


def _alternatives(hint: object) -> tuple[object, ...]:
    return get_args(hint) if get_origin(hint) in (types.UnionType, typing.Union) else (hint,)


def _choices(hint: object) -> tuple[str, ...]:
    return get_args(hint) if get_origin(hint) is Literal else ()


def parse_address(text: str) -> Address:
    """Parse `HOST:PORT`."""
    return Address.parse(text)


def _number(text: str, kind: ValueKind) -> object:
    try:
        return int(text) if kind is ValueKind.INTEGER else float(text)
    except ValueError as error:
        raise InvalidArgumentError(f"{text!r} is not {kind.value}") from error
