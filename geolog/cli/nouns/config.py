"""`geolog config`: shows the settings in effect and where each comes from, and checks them."""

from pathlib import Path

import attrs
import click

from geolog.cli.exits import CheckFailedError
from geolog.cli.invocation import Invocation, Noun, examples, tell, this_invocation
from geolog.cli.settings.roles import ROLES, check_environment, check_keys
from geolog.cli.terminal.output import Plain, show
from geolog.settings.command_config import COMMAND, CommandConfig, Output
from geolog.settings.quantities import counted
from geolog.settings.sources import configured
from topology.errors import InvalidConfigError


@click.group(cls=Noun, name="config")
def command() -> None:
    """Show and check settings."""


@command.command(
    "show",
    epilog=examples("geolog config show --origin"),
)
@click.option("--origin", is_flag=True, help="Show where each value comes from.")
def show_(*, origin: bool) -> None:
    """Show every setting and its value."""
    invocation = this_invocation()
    output = invocation.config.output
    rows: list[dict[str, Plain]] = []
    for role in ROLES:
        for decided in invocation.decide(role):
            row: dict[str, Plain] = {
                "key": decided.setting.key,
                "value": decided.setting.show(decided.value),
            }
            text = decided.origin if output != "table" else _in_short(decided.origin)
            rows.append(row | ({"origin": text} if origin else {}))
    if origin and output == "table" and invocation.file is not None:
        tell(f"settings file: {invocation.file.path}")
    show(rows, output)


def _in_short(origin: str) -> str:
    """Origin for people: of the settings file only its name, as its path is printed above."""
    path, colon, line = origin.rpartition(":")
    return f"{Path(path).name}:{line}" if colon and line.isdecimal() else origin


@command.command(epilog=examples("geolog config lint --config geolog.toml"))
def lint() -> None:
    """Check the settings file and the environment; exits with 10 if something is wrong."""
    invocation = this_invocation()
    complaints = check_environment(invocation.environment)
    if invocation.file is not None:
        complaints += check_keys(invocation.file)
    if not complaints:
        complaints += _wrong_values(invocation)
    # The output format itself may be wrong.
    output: Output = "table" if complaints else invocation.config.output
    show(
        [{"problem": complaint} for complaint in complaints], output, empty="no problems found"
    )
    if complaints:
        raise CheckFailedError(f"{counted(len(complaints), 'problem')} found in the settings")


def _wrong_values(invocation: Invocation) -> list[str]:
    """Complaints about impossible values, with each profile and without one, each only once."""
    profiles = [] if invocation.file is None else invocation.file.profiles
    complaints = []
    for profile in (invocation.places.profile, *profiles):
        places = attrs.evolve(invocation.places, profile=profile)
        try:
            for role in ROLES:
                places.decide(role)
            _check_zookeeper(configured(CommandConfig, places.decide(COMMAND)).zookeeper)
        except InvalidConfigError as error:
            complaints.append(str(error))
    return list(dict.fromkeys(complaints))


def _check_zookeeper(servers: str) -> None:
    from geolog.metadata.zookeeper import parse_servers

    if servers:
        parse_servers(servers)
