"""What can be set, and which of five places decides.

A flag wins over the environment (`GEOLOG_…`), that over the profile chosen, that over the file,
that over the default. Each role's settings are the fields of one frozen class; a key in the
file is the field's name without the unit `s`, since its value carries one: `timeout = "30s"`.
Tables of the file are named like the command they are for: `[serve.storage]`, `[demo]`.
"""

import enum
import importlib
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, get_args, get_origin

import attrs

from geolog.cli.settings.nearest import nearest
from geolog.cli.settings.quantities import (
    format_bytes,
    format_seconds,
    parse_bytes,
    parse_bytes_per_second,
    parse_seconds,
)
from geolog.cli.settings.settings_file import SettingsFile
from geolog.transport.seam import Address
from topology.errors import InvalidArgumentError, InvalidConfigError

Output = Literal["table", "json", "jsonl"]


@attrs.frozen(kw_only=True)
class CommandConfig:
    """What every command needs to know."""

    zookeeper: str = ""
    """The cluster's ZooKeeper servers, `HOST:PORT,HOST:PORT`, with an optional `/chroot`."""

    zookeeper_regions: str = ""
    """The region of each of these servers, `us-east,eu-west,…` in their order: then a stream
    that is to survive a region is refused where ZooKeeper would not."""

    cluster: str = "default"
    """The cluster's name: several can share one ZooKeeper."""

    region: str | None = None
    """The region where this process stands: reads prefer it. Without one, all are as far."""

    gateway: Address | None = None
    """Where a gateway between regions listens, `HOST:PORT`, as an emulated WAN has one: servers
    are reached through it, as from `region`. Without one they are connected to as they are."""

    output: Output = "table"
    """`table` for people, `json` for one document, `jsonl` for one document a line."""

    timeout_s: float = 30.0
    """How long a command waits for an answer, or for progress, before it ends with code 5."""

    def __attrs_post_init__(self) -> None:
        if self.timeout_s <= 0:
            raise InvalidConfigError("a timeout of 0s leaves no time at all: give more, as 30s")


@attrs.frozen(kw_only=True)
class DemoConfig:
    """Where a demo is, for the commands that another terminal gives it."""

    data_dir: Path | None = None
    """The demo's directory; without it, the demo started last on this machine."""


@attrs.frozen
class Role:
    """A class of settings, imported when needed, and the table of the file that sets it."""

    table: str
    module: str
    class_name: str
    given: tuple[str, ...] = ()
    """Fields that the command itself fills; they are no settings."""

    def settings_class(self) -> type[attrs.AttrsInstance]:
        """The frozen class itself."""
        found = getattr(importlib.import_module(self.module), self.class_name)
        assert isinstance(found, type)
        assert attrs.has(found)
        return found


COMMAND = Role("", "geolog.cli.settings.sources", "CommandConfig")
DEMO = Role("demo", "geolog.cli.settings.sources", "DemoConfig")
PLACEMENT = Role("placement", "geolog.ledger.nodes.placement_config", "PlacementConfig")
STORAGE = Role("serve.storage", "regions.storage.config", "StorageConfig", given=("cluster",))
ZOOKEEPER = Role(
    "serve.zookeeper",
    "regions.zookeeper.server",
    "ZooKeeperConfig",
    given=("data_dir", "server_id", "listen", "peers"),
)
ROLES = (COMMAND, PLACEMENT, DEMO, STORAGE, ZOOKEEPER)


class ValueKind(enum.Enum):
    """How a setting's text becomes its value."""

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
    """One field of a role's class, as the file, the environment and a flag name it."""

    key: str
    """As in the file, with its table: `serve.storage.sync_delay`."""
    field: str
    kind: ValueKind
    choices: tuple[str, ...]
    default: object

    @property
    def environment_name(self) -> str:
        """As in the environment: `GEOLOG_SERVE_STORAGE_SYNC_DELAY`."""
        return "GEOLOG_" + self.key.replace(".", "_").upper()

    def parse(self, text: str) -> object:
        """The value that `text` stands for. InvalidArgumentError says what would be one."""
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
        """A value of this setting as text that `parse` reads back."""
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
            raise InvalidArgumentError(f"{text!r} is none of {', '.join(choices)}")
        return text


@attrs.frozen
class Decided:
    """A setting, its value, and the place that decided it."""

    setting: Setting
    value: object
    origin: str


@attrs.frozen
class SettingSources:
    """All that may decide a setting, the strongest first."""

    flags: Mapping[str, str]
    environment: Mapping[str, str]
    file: SettingsFile | None
    profile: str | None

    def decide(self, role: Role) -> list[Decided]:
        """Each setting of the role, in the order of its class."""
        return [self._decide(setting) for setting in settings_of(role)]

    def _decide(self, setting: Setting) -> Decided:
        for text, origin in self._texts(setting):
            try:
                return Decided(setting, setting.parse(text), origin)
            except InvalidArgumentError as error:
                raise InvalidConfigError(f"{origin}: {setting.key}: {error}") from error
        return Decided(setting, setting.default, "default")

    def _texts(self, setting: Setting) -> Iterator[tuple[str, str]]:
        if (text := self.flags.get(setting.key)) is not None:
            yield text, f"flag --{setting.key.rpartition('.')[2].replace('_', '-')}"
        if (text := self.environment.get(setting.environment_name)) is not None:
            yield text, f"environment {setting.environment_name}"
        if self.file is None:
            return
        for key in (f"profile.{self.profile}.{setting.key}", setting.key):
            if key in self.file.values:
                of_profile = f" [profile.{self.profile}]" if key != setting.key else ""
                yield self.file.text(key), f"{self.file.place(key)}{of_profile}"


SettingsClass = typing.TypeVar("SettingsClass", bound=attrs.AttrsInstance)


def configured(
    settings_class: type[SettingsClass], decided: list[Decided], **given: object
) -> SettingsClass:
    """An object of the role's class, from what was decided and what the caller has `given`."""
    values = {each.setting.field: each.value for each in decided if each.origin != "default"}
    return settings_class(**(values | given))


def settings_of(role: Role) -> list[Setting]:
    """What can be set of a role: the fields of its class whose type has a text form."""
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


def check_keys(file: SettingsFile) -> list[str]:
    """A complaint for each key of the file that means nothing, naming the nearest that does."""
    roles = {role.table: role for role in ROLES}
    complaints = []
    for key in file.values:
        plain = _without_profile(key)
        table = plain.rpartition(".")[0]
        if table not in roles:
            known = [name for name in roles if name]
            complaints.append(
                f"{file.place(key)}: unknown table [{table}]; the nearest known one is "
                f"[{nearest(table, known)}]"
            )
            continue
        names = [setting.key for setting in settings_of(roles[table])]
        if plain not in names:
            best = nearest(plain, names).rpartition(".")[2]
            complaints.append(
                f"{file.place(key)}: unknown key {plain.rpartition('.')[2]!r}; "
                f"the nearest known one is {best!r}"
            )
    return complaints


def check_environment(environment: Mapping[str, str]) -> list[str]:
    """A complaint for each `GEOLOG_…` variable that means nothing."""
    present = [name for name in environment if name.startswith("GEOLOG_")]
    known = {"GEOLOG_CONFIG", "GEOLOG_PROFILE", PARENT_PIPE_VARIABLE}
    known |= {setting.environment_name for role in ROLES for setting in settings_of(role)}
    return [
        f"environment: {name} means nothing; the nearest known one is {nearest(name, known)}"
        for name in sorted(present)
        if name not in known
    ]


PARENT_PIPE_VARIABLE = "GEOLOG_PARENT_PIPE"
"""Set by whoever starts servers of its own: a pipe's number; at its end the server ends."""


_KIND_OF_TYPE: dict[type, ValueKind] = {
    int: ValueKind.INTEGER,
    float: ValueKind.NUMBER,
    bool: ValueKind.FLAG,
    str: ValueKind.TEXT,
    Path: ValueKind.PATH,
    Address: ValueKind.ADDRESS,
}


def _key(field: str) -> str:
    return "_".join(word for word in field.split("_") if word != "s")


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
    """Read `HOST:PORT`."""
    return Address.parse(text)


def _number(text: str, kind: ValueKind) -> object:
    try:
        return int(text) if kind is ValueKind.INTEGER else float(text)
    except ValueError as error:
        raise InvalidArgumentError(f"{text!r} is not {kind.value}") from error
