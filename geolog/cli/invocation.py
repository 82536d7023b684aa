"""One call of the command: its global options, and the settings that follow from them.

The global options stand before the noun or after the verb, as one likes; the later one wins.
"""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import attrs
import click

from geolog.cli.settings.nearest import nearest
from geolog.cli.settings.settings_file import SettingsFile
from geolog.cli.settings.sources import (
    COMMAND,
    CommandConfig,
    Decided,
    Role,
    SettingSources,
    check_environment,
    check_keys,
    configured,
)
from topology.errors import InvalidConfigError, NotFoundError

COMPLETE_VARIABLE = "_GEOLOG_COMPLETE"
"""Set by a shell that asks what may stand next on its command line."""

_GLOBAL_SETTINGS = {
    "zookeeper": ("HOST:PORT,…[/chroot]", "The cluster's ZooKeeper servers."),
    "cluster": ("NAME", "The cluster's name (default: default)."),
    "region": ("NAME", "The region where I stand."),
    "gateway": ("HOST:PORT", "A gateway between regions: servers are reached through it."),
    "timeout": ("TIME", "How long to wait for an answer or for progress, as 30s."),
}


@attrs.define(slots=False)
class Invocation:
    """What all commands share: flags as given, and settings decided from all places."""

    environment: Mapping[str, str] = attrs.field(factory=lambda: dict(os.environ), repr=False)
    flags: dict[str, str] = attrs.field(factory=dict)
    config_path: str | None = None
    profile: str | None = None
    is_debug: bool = False
    is_confirmed: bool = False

    @cached_property
    def file(self) -> SettingsFile | None:
        """The settings file: `--config`, else `$GEOLOG_CONFIG`, else ./geolog.toml if there."""
        named = self.config_path or self.environment.get("GEOLOG_CONFIG")
        if named is None and not Path("geolog.toml").exists():
            return None
        return SettingsFile.read(Path(named or "geolog.toml"))

    @cached_property
    def places(self) -> SettingSources:
        """All that may decide a setting. InvalidConfigError for a key that means nothing."""
        if self.file is not None and (complaints := check_keys(self.file)):
            raise InvalidConfigError("\n".join(complaints))
        for complaint in check_environment(self.environment):
            tell(f"warning: {complaint}")
        profile = self.profile or self.environment.get("GEOLOG_PROFILE")
        if profile is not None:
            self._check_profile(profile)
        return SettingSources(self.flags, self.environment, self.file, profile)

    @cached_property
    def config(self) -> CommandConfig:
        """The settings that every command needs."""
        return configured(CommandConfig, self.decide(COMMAND))

    def decide(self, role: Role) -> list[Decided]:
        """Each setting of a role with its value and origin."""
        return self.places.decide(role)

    def _check_profile(self, profile: str) -> None:
        profiles = [] if self.file is None else self.file.profiles
        if profile not in profiles:
            where = "no settings file is in use" if self.file is None else str(self.file.path)
            hint = (
                f"; the nearest known one is {nearest(profile, profiles)}" if profiles else ""
            )
            raise NotFoundError(f"there is no profile {profile!r} ({where}){hint}")


def tell(message: str) -> None:
    """A message for a person: on stderr, so that stdout holds data alone.

    What was printed before stands before it, also where both go to one file.
    """
    with suppress(OSError, ValueError):  # What stdout does not take is told at the end.
        sys.stdout.flush()
    print(message, file=sys.stderr, flush=True)


def this_invocation() -> Invocation:
    """The call of the command that is being carried out."""
    found = click.get_current_context().find_root().obj
    assert isinstance(found, Invocation)
    return found


def named_zookeeper(invocation: Invocation) -> str:
    """The ZooKeeper servers that the settings name; a usage error if they name none."""
    if not invocation.config.zookeeper:
        raise click.UsageError(
            "no ZooKeeper is named: give --zookeeper HOST:PORT, set GEOLOG_ZOOKEEPER, or name "
            "a file that does (--config DIR/geolog.toml of a demo)"
        )
    return invocation.config.zookeeper


def examples(*lines: str) -> str:
    """What stands below a command's help: calls of it, a line each."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


class Verb(click.Command):
    """A command that takes the global options too."""

    def own_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Its parameters without the global ones."""
        return super().get_params(ctx)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Its own parameters, then the global ones."""
        own = self.own_params(ctx)
        return [*own, *_shared_options(own)]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Its own options one by one; the global ones by name, since `geolog --help` tells."""
        own = self.own_params(ctx)
        options = [param for param in own if isinstance(param, click.Option)]
        rows = [row for param in options if (row := param.get_help_record(ctx)) is not None]
        if rows:
            with formatter.section("Options"):
                formatter.write_dl(rows)
        names = " ".join(option.opts[-1] for option in _shared_options(own))
        formatter.write_paragraph()
        formatter.write_text(f"Also, as on geolog itself: {names}")


def _shared_options(own: list[click.Parameter]) -> list[click.Option]:
    """The global options, but for those whose name a command uses itself."""
    taken = {name for param in own for name in param.opts}
    return [option for option in global_options() if taken.isdisjoint(option.opts)]


class Noun(click.Group):
    """A noun: its verbs take the global options."""

    command_class = Verb

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's shape.
        """The verbs, in the order in which one meets them."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each verb with its first sentence, whole."""
        verbs = ((name, self.commands[name]) for name in self.list_commands(ctx))
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.get_short_help_str(1000)) for name, verb in verbs])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb; an unknown one is an error that names the nearest."""
        known = self.list_commands(ctx)
        word = args[0]
        if not word.startswith("-") and word not in known:
            raise click.UsageError(
                f"{ctx.command_path} has no {word!r}; the nearest known one is "
                f"{nearest(word, known)!r} (all: {', '.join(known)})",
                ctx,
            )
        return super().resolve_command(ctx, args)


def global_options() -> list[click.Option]:
    """Options that each command takes, before the noun or after the verb."""
    options = [
        _option(["--config"], _note_config, metavar="FILE", help="Settings file (TOML)."),
        _option(["--profile"], _note_profile, metavar="NAME", help="Profile in that file."),
    ]
    for name, (metavar, text) in _GLOBAL_SETTINGS.items():
        options.append(_option([f"--{name}"], _note_flag, metavar=metavar, help=text))
    options += [
        _option(
            ["-o", "--output"],
            _note_flag,
            type=click.Choice(["table", "json", "jsonl"]),
            help="table for people, json: one document, jsonl: one a line.",
        ),
        _option(["--yes"], _note_confirmed, is_flag=True, help="Ask nothing; do it."),
        _option(["--debug"], _note_debug, is_flag=True, help="Show the traceback of an error."),
    ]
    return options


def _option(names: list[str], note: object, **keywords: object) -> click.Option:
    return click.Option(names, callback=note, expose_value=False, **keywords)  # type: ignore[arg-type]


def _note_flag(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None and param.name is not None:
        _invocation(ctx).flags[param.name] = value


def _note_config(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        _invocation(ctx).config_path = value


def _note_profile(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        _invocation(ctx).profile = value


def _note_confirmed(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's shape.
    if value:
        _invocation(ctx).is_confirmed = True


def _note_debug(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's shape.
    if value:
        _invocation(ctx).is_debug = True


def _invocation(ctx: click.Context) -> Invocation:
    found = ctx.find_root().obj
    assert isinstance(found, Invocation)
    return found
