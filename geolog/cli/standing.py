"""Warns if no storage node of `--region` is up."""

from geolog.cli.invocation import Invocation, tell
from geolog.client.log import Log
from geolog.client.standing import check_region


async def check_standing(log: Log, invocation: Invocation) -> None:
    """Warn if no storage node of the region is up. `connect` has refused unknown ones."""
    here = invocation.config.region
    if here is None:
        return
    others = invocation.config.server_regions or ()
    standing = await check_region(log, here, others=others)
    if not standing.is_up:
        tell(f"warning: no storage node in {here} is up; using nodes in other regions")
