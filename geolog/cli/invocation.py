"""One invocation of the command: its global options and the settings they lead to.

Global options go before the noun or after the verb; the later one wins.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import attrs
import click
from click.types import FuncParamType

from geolog.cli.settings.roles import check_environment, check_keys
from geolog.cli.words_elsewhere import meant_elsewhere
from geolog.settings.command_config import COMMAND, CommandConfig
from geolog.settings.found import (
    CONFIG_VARIABLE,
    check_found,
    file_of_machine,
    find_demo,
    find_file,
    find_sources,
)
from geolog.settings.running_demo import DemoNote
from geolog.settings.settings_file import SettingsFile
from geolog.settings.sources import Decided, Role, SettingSources, configured
from topology.errors import InvalidArgumentError, InvalidConfigError
from topology.nearest import nearest

COMPLETE_VARIABLE = "_GEOLOG_COMPLETE"
"""Set by a shell that asks for completions of its command line."""

_GLOBAL_SETTINGS = {
    "zookeeper": ("HOST:PORT,…[/chroot]", "ZooKeeper servers of the cluster."),
    "proxy": (
        "HOST:PORT,…",
        "Write proxies to ask first; without --zookeeper, append and read go through them.",
    ),
    "cluster": ("NAME", "Name of the cluster. [default: default]"),
    "region": ("NAME", "Region this command runs in; reads prefer its nodes."),
    "gateway": ("HOST:PORT", "Reach servers through this gateway of an emulated WAN."),
    "timeout": (
        "TIME",
        "Give up after this long without an answer or progress. [default: 30s]",
    ),
}


@attrs.define(slots=False)
class Invocation:
    """State that all commands share: flags as given, and settings resolved from all sources."""

    environment: Mapping[str, str] = attrs.field(factory=lambda: dict(os.environ), repr=False)
    flags: dict[str, str] = attrs.field(factory=dict)
    config_path: str | None = None
    profile: str | None = None
    is_debug: bool = False
    is_confirmed: bool = False
    takes_demo: bool = True
    """Whether the command uses a running demo, else the machine's settings, if nothing else
    names a cluster. Servers would join it; benchmarks, drills and the demo itself start a
    cluster of their own, and other commands need none: a wrong file does not stop these."""
    starts_demo: bool = False
    """Whether it starts a demo: the file that `$GEOLOG_CONFIG` names may be yet to come."""
    is_demo_told: bool = False
    """Whether stderr says which demo it uses: a command may connect more than once."""

    @cached_property
    def _file_here(self) -> SettingsFile | None:
        """Settings file: `--config`, else `$GEOLOG_CONFIG`, else ./geolog.toml if it exists."""
        environment = dict(self.environment)
        if self.starts_demo and not Path(environment.get(CONFIG_VARIABLE, "")).exists():
            del environment[CONFIG_VARIABLE]
        return find_file(self.config_path, environment)

    @cached_property
    def demo(self) -> DemoNote | None:
        """Running demo that the command uses, because it has no settings."""
        if self._file_here is not None or not self.takes_demo:
            return None
        return find_demo(self.flags, self.environment, self.profile)

    @cached_property
    def file(self) -> SettingsFile | None:
        """Settings file of the user, else the machine's if the command does not use a demo."""
        is_last_asked = self._file_here is None and self.demo is None and self.takes_demo
        return file_of_machine() if is_last_asked else self._file_here

    @cached_property
    def places(self) -> SettingSources:
        """All sources of settings. InvalidConfigError for an unknown key in the file."""
        if self.file is not None and (complaints := check_keys(self.file)):
            raise InvalidConfigError("\n".join(complaints))
        for complaint in check_environment(self.environment):
            tell(f"warning: {complaint}")
        of_demo = None if self.demo is None else SettingsFile.read(self.demo.settings_file)
        file = self.file or of_demo
        return find_sources(self.flags, self.environment, file, self.profile)

    @cached_property
    def config(self) -> CommandConfig:
        """Settings that every command needs."""
        return configured(CommandConfig, self.decide(COMMAND))

    def decide(self, role: Role) -> list[Decided]:
        """Resolve each setting of a role to its value and origin."""
        return self.places.decide(role)


def tell(message: str) -> None:
    """Print a message for people on stderr; stdout holds data alone.

    Flushes stdout first, to keep the order where both go to one file.
    """
    with suppress(OSError, ValueError):  # main() reports a stdout that cannot be written.
        sys.stdout.flush()
    print(message, file=sys.stderr, flush=True)


def this_invocation() -> Invocation:
    """Invocation that is running."""
    found = click.get_current_context().find_root().obj
    assert isinstance(found, Invocation)
    return found


def named_zookeeper(invocation: Invocation) -> str:
    """ZooKeeper servers from the settings; a usage error if there are none.

    Says on stderr if they are those of a demo that the command found by itself. NotFoundError:
    they are of a demo that has ended.
    """
    servers = invocation.config.zookeeper
    if not servers:
        demo = ", or start a demo (`geolog demo`)" if invocation.takes_demo else ""
        raise click.UsageError(
            "no ZooKeeper servers: give --zookeeper HOST:PORT, set GEOLOG_ZOOKEEPER, name a"
            f" settings file that has them (--config FILE){demo}"
        )
    if invocation.demo is not None:
        if not invocation.is_demo_told:
            tell(f"no settings: using the demo that runs in {invocation.demo.directory}")
        invocation.is_demo_told = True
    elif invocation.file is not None and servers == invocation.file.values.get("zookeeper"):
        check_found(invocation.file, invocation.config_path, invocation.environment)
    return servers


def examples(*lines: str) -> str:
    """Epilog of a command's help: example calls, one per line."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


@attrs.frozen
class OptionParser:
    """Parses the text of an option; click adds the option's name to the error."""

    parse: Callable[[str], object]

    def __call__(self, text: str) -> object:
        """Parse it; InvalidArgumentError becomes a usage error."""
        try:
            return self.parse(text)
        except InvalidArgumentError as error:
            raise click.BadParameter(str(error)) from error


class Verb(click.Command):
    """Command that also takes the global options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; an error in the value of an option names the option."""
        for option in self.params:
            kind = option.type if isinstance(option, click.Option) else None
            if isinstance(kind, FuncParamType) and not isinstance(kind.func, OptionParser):
                kind.func = OptionParser(kind.func)
        return super().parse_args(ctx, args)

    def own_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return its parameters without the global ones."""
        return super().get_params(ctx)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return its own parameters, then the global ones."""
        own = self.own_params(ctx)
        return [*own, *_shared_options(own)]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Describe its own options; name the global ones, which `geolog --help` describes."""
        own = self.own_params(ctx)
        write_options(own, ctx, formatter)
        names = " ".join(option.opts[-1] for option in _shared_options(own))
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(f"Global options (see geolog --help): {names}")


def write_options(
    params: Iterable[click.Parameter], ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    """Write the section of a help page that describes options."""
    with formatter.section("Options"):
        formatter.write_dl(option_rows(params, ctx))


def option_rows(params: Iterable[click.Parameter], ctx: click.Context) -> list[tuple[str, str]]:
    """Return the names of each option, and its description."""
    records = [one.get_help_record(ctx) for one in params if isinstance(one, click.Option)]
    return [(names, _with_plain_bounds(text)) for names, text in filter(None, records)]


def _with_plain_bounds(text: str) -> str:
    """Say the bounds of a number, which click writes as `[default: 1; 1<=x<=9]`, in words."""
    text = re.sub(r"; x>=0(?=[];])| +\[x>=0\]|x>=0; ", "", text)
    for pattern, words in _BOUNDS:
        text = re.sub(pattern, words, text)
    text = re.sub(r"\] +\[", "; ", text)
    return re.sub(r" +\[", " [", text)


_BOUNDS = (
    (r"(\d+)<=x<=(\d+)", r"\1 to \2"),
    (r"\bx>=(\d+)", r"at least \1"),
    (r"\bx>(\d+)", r"more than \1"),
)


def _shared_options(own: list[click.Parameter]) -> list[click.Option]:
    """Global options, without those that the command redefines."""
    taken = {name for param in own for name in param.opts}
    return [option for option in global_options() if taken.isdisjoint(option.opts)]


class Noun(click.Group):
    """Group of verbs that take the global options."""

    command_class = Verb

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's shape.
        """List the verbs in the order a new user meets them."""
        return list(self.commands)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write its options, then its verbs."""
        write_options(self.get_params(ctx), ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each verb with the whole first sentence of its help."""
        verbs = ((name, self.commands[name]) for name in self.list_commands(ctx))
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.get_short_help_str(1000)) for name, verb in verbs])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write its own epilog, or point to the help of its verbs."""
        if self.epilog:
            super().format_epilog(ctx, formatter)
            return
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(
                f'Use "{ctx.command_path} COMMAND --help" for options and examples.'
            )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb; the error for an unknown one suggests what may have been meant."""
        known = self.list_commands(ctx)
        word = args[0]
        if not word.startswith("-") and word not in known:
            meant = meant_elsewhere(word, known) or nearest(word, known)
            hint = "" if meant is None else f"; did you mean {meant!r}?"
            raise click.UsageError(
                f"unknown command {word!r} for {ctx.command_path!r}{hint} (commands:"
                f" {', '.join(known)})",
                ctx,
            )
        return super().resolve_command(ctx, args)


def global_options() -> list[click.Option]:
    """Options of every command, given before the noun or after the verb."""
    options = [
        _option(
            ["--config"],
            _note_config,
            metavar="FILE",
            help="Settings file (TOML). [default: $GEOLOG_CONFIG, else ./geolog.toml, else that"
            " of a running demo, else /etc/geolog/geolog.toml]",
        ),
        _option(
            ["--profile"],
            _note_profile,
            metavar="NAME",
            help="Profile to use from the settings file.",
        ),
    ]
    for name, (metavar, text) in _GLOBAL_SETTINGS.items():
        options.append(_option([f"--{name}"], _note_flag, metavar=metavar, help=text))
    options += [
        _option(
            ["-o", "--output"],
            _note_flag,
            type=click.Choice(["table", "json", "jsonl"]),
            help="Output format: table for people, json for one document, jsonl for one"
            " document per line. [default: table]",
        ),
        _option(["--yes"], _note_confirmed, is_flag=True, help="Do not ask for confirmation."),
        _option(
            ["--debug"], _note_debug, is_flag=True, help="Print the traceback of an error."
        ),
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
