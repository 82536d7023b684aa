"""`geolog generate`: completion scripts for shells, man pages, and units of systemd."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from geolog.cli.invocation import (
    COMPLETE_VARIABLE,
    Invocation,
    Noun,
    examples,
    tell,
    this_invocation,
)
from geolog.cli.settings.roles import PROXY, RELAY, STORAGE, ZOOKEEPER, check_keys
from geolog.cli.systemd_units import SERVERS, UnitPlan, units
from geolog.cli.terminal.man_page import man_pages
from geolog.settings.command_config import COMMAND
from geolog.settings.found import CONFIG_VARIABLE, find_sources
from geolog.settings.quantities import counted
from geolog.settings.settings_file import SettingsFile
from geolog.settings.sources import SettingSources
from topology.errors import InvalidConfigError, NotFoundError

SETTINGS_FILE = "/etc/geolog/geolog.toml"
DATA_DIR = Path("/var/lib/geolog")

_NEEDED = {
    "zookeeper": (ZOOKEEPER, ("listen",)),
    "storage": (STORAGE, ("location", "listen")),
    "proxy": (PROXY, ("listen",)),
    "relay": (RELAY, ("listen",)),
}
"""Settings without which a server refuses to start."""


@click.group(cls=Noun, name="generate")
def command() -> None:
    """Print shell completions; write man pages and systemd units."""


@command.command(
    epilog=examples(
        "geolog generate completion bash >> ~/.bashrc",
        "geolog generate completion zsh >> ~/.zshrc",
        "geolog generate completion fish > ~/.config/fish/completions/geolog.fish",
    )
)
@click.argument("shell", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL: bash, zsh or fish.

    The script completes nouns, verbs, options and their choices.
    """
    shell_class = get_completion_class(shell)
    assert shell_class is not None
    script = shell_class(ctx.find_root().command, {}, "geolog", COMPLETE_VARIABLE).source()
    sys.stdout.write(script.lstrip("\n"))


@command.command(
    epilog=examples(
        "geolog generate man ~/.local/share/man/man1",
        "man geolog-stream-create   # If ~/.local/bin is on the PATH.",
    )
)
@click.argument(
    "directory", metavar="DIRECTORY", type=click.Path(path_type=Path, file_okay=False)
)
@click.pass_context
def man(ctx: click.Context, directory: Path) -> None:
    """Write a man page of each command to DIRECTORY, from the help of the command."""
    directory.mkdir(parents=True, exist_ok=True)
    pages = list(man_pages(ctx.find_root(), version=version("geolog")))
    for name, text in pages:
        (directory / name).write_text(text, encoding="utf-8")
    tell(f"{counted(len(pages), 'page')} written to {directory}")


@command.command(
    epilog=examples(
        "geolog generate systemd /etc/systemd/system",
        "geolog generate systemd --storage-node a --storage-node b /etc/systemd/system",
        "geolog generate systemd --server storage \\",
        "    --storage-dir /disk1/geolog --storage-dir /disk2/geolog units",
    )
)
@click.argument(
    "directory", metavar="DIRECTORY", type=click.Path(path_type=Path, file_okay=False)
)
@click.option(
    "--server",
    "servers",
    type=click.Choice(list(SERVERS)),
    multiple=True,
    help="Write only the unit of this server. Repeat for more. [default: all four]",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=DATA_DIR,
    show_default=True,
    metavar="DIR",
    help="Directory in which each server has one of its own, e.g. DIR/zookeeper.",
)
@click.option(
    "--storage-dir",
    "storage_dirs",
    type=click.Path(path_type=Path, file_okay=False),
    multiple=True,
    metavar="DIR",
    help="Data directory of the only storage node. Repeat for each further disk."
    " [default: storage in --data-dir]",
)
@click.option(
    "--storage-node",
    "storage_nodes",
    multiple=True,
    metavar="PROFILE",
    help="Storage node with its settings in this profile, and its data in storage-PROFILE of"
    " --data-dir. Repeat for more nodes on this host.",
)
@click.option(
    "--user",
    default="geolog",
    show_default=True,
    metavar="NAME",
    help="User and group of the servers; they must exist.",
)
@click.option(
    "--program",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The geolog command on the host. [default: this one]",
)
def systemd(
    directory: Path,
    servers: tuple[str, ...],
    data_dir: Path,
    storage_dirs: tuple[Path, ...],
    storage_nodes: tuple[str, ...],
    user: str,
    program: Path | None,
) -> None:
    """Write systemd units of the servers of one host, and a target, to DIRECTORY.

    The servers read the settings file that --config names, else $GEOLOG_CONFIG, else
    /etc/geolog/geolog.toml. If it exists, missing settings are told on stderr. --cluster,
    --profile, --region and --zookeeper go into the units if they are given. Then: systemctl
    daemon-reload, and systemctl enable --now geolog.target and the services.
    """
    invocation = this_invocation()
    chosen = servers or tuple(SERVERS)
    if storage_nodes and (storage_dirs or invocation.profile is not None):
        raise click.UsageError(
            "--storage-node names the profile and the directory of a node: leave out"
            " --storage-dir and --profile"
        )
    nodes = {name: [data_dir / f"storage-{name}"] for name in storage_nodes}
    plan = UnitPlan(
        program=program or _this_program(),
        interpreter=None if program else Path(sys.executable).resolve(),
        options=_options(invocation),
        user=user,
        zookeeper_dir=data_dir / "zookeeper",
        storage_dirs=nodes or {"": storage_dirs or [data_dir / "storage"]},
    )
    written = list(units(plan, chosen))
    try:
        for complaint in _complaints(invocation, chosen, storage_nodes):
            tell(f"warning: {complaint}")
    except InvalidConfigError as error:  # The servers refuse it, too; their units can be right.
        tell(f"warning: {error}")
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in written:
        (directory / name).write_text(text, encoding="utf-8")
    tell(f"{', '.join(name for name, _ in written)} written to {directory}")


def _this_program() -> Path:
    found = shutil.which(sys.argv[0]) or shutil.which("geolog")
    if found is None:
        raise InvalidConfigError("cannot tell where the geolog command is: name it, --program")
    return Path(found).absolute()


def _settings_file(invocation: Invocation) -> Path:
    exported = invocation.environment.get(CONFIG_VARIABLE)
    return Path(invocation.config_path or exported or SETTINGS_FILE).absolute()


def _options(invocation: Invocation) -> list[str]:
    options = ["--config", str(_settings_file(invocation))]
    if invocation.profile is not None:
        options += ["--profile", invocation.profile]
    for name in ("cluster", "region", "zookeeper"):
        if name in invocation.flags:
            options += [f"--{name}", invocation.flags[name]]
    return options


def _complaints(
    invocation: Invocation, servers: Sequence[str], storage_nodes: Sequence[str]
) -> Iterator[str]:
    """Say what keeps the servers from starting, as far as the settings file shows it."""
    path = _settings_file(invocation)
    try:
        file = SettingsFile.read(path)
    except NotFoundError:
        yield f"{path} does not exist yet: write it before you start a server"
        return
    yield from check_keys(file)

    def sources(profile: str | None) -> SettingSources:
        return find_sources(invocation.flags, {}, file, profile)

    shared = sources(invocation.profile).decide(COMMAND)
    is_set = {one.setting.field for one in shared if one.value}
    if "zookeeper" not in is_set and set(servers) != {"zookeeper"}:
        yield f"{path} does not set zookeeper"
    if "region" not in is_set and not {"proxy", "relay"}.isdisjoint(servers):
        yield f"{path} does not set region"
    for server in servers:
        role, needed = _NEEDED[server]
        profiles = storage_nodes if server == "storage" else ()
        for profile in profiles or (invocation.profile,):
            place = f"{path} [profile.{profile}]" if profile else path
            for one in sources(profile).decide(role):
                if one.setting.field in needed and one.value is None:
                    yield f"{place} does not set {one.setting.key}"
