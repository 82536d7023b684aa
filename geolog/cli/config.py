"""`geolog config`: which settings hold, where they come from, and what is wrong with them."""

import click

from geolog.cli.exits import CheckFailedError
from geolog.cli.invocation import Noun, this_invocation
from geolog.cli.output import Plain, show
from geolog.cli.settings import ROLES, Output, check_environment, check_keys
from topology.errors import InvalidConfigError


@click.group(cls=Noun, name="config")
def command() -> None:
    """Show and check the settings."""


@command.command("show")
@click.option("--origin", is_flag=True, help="Also say which place decided each.")
def show_(*, origin: bool) -> None:
    """Show every setting and its value."""
    invocation = this_invocation()
    rows: list[dict[str, Plain]] = []
    for role in ROLES:
        for decided in invocation.decide(role):
            row: dict[str, Plain] = {
                "key": decided.setting.key,
                "value": decided.setting.show(decided.value),
            }
            rows.append(row | ({"origin": decided.origin} if origin else {}))
    show(rows, invocation.config.output)


@command.command()
def lint() -> None:
    """Check the settings file and the environment; ends with 10 if something is wrong."""
    invocation = this_invocation()
    complaints = check_environment(invocation.environment)
    if invocation.file is not None:
        complaints += check_keys(invocation.file)
    if not complaints:
        try:
            for role in ROLES:
                invocation.decide(role)
            _check_zookeeper(invocation.config.zookeeper)
        except InvalidConfigError as error:
            complaints.append(str(error))
    # The output format itself may be what is wrong.
    output: Output = "table" if complaints else invocation.config.output
    show([{"problem": complaint} for complaint in complaints], output, empty="nothing is wrong")
    if complaints:
        raise CheckFailedError(f"wrong settings: {len(complaints)}")


def _check_zookeeper(servers: str) -> None:
    from geolog.metadata.zookeeper import parse_servers

    if servers:
        parse_servers(servers)
