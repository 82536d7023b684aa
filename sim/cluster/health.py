"""Waits until a cluster is healthy again."""

import trio

from geolog.client.log import Log
from topology.errors import UnavailableError

HEALTHY_S_MAX = 60.0
"""Several session time-outs: longer than a cluster that heals itself can take."""

_LOOK_EVERY_S = 0.1


async def wait_healthy(log: Log) -> None:
    """Wait until the cluster says that it is healthy; UnavailableError tells why it is not."""
    report = await log.health()
    with trio.move_on_after(HEALTHY_S_MAX):
        while not report.is_healthy:
            await trio.sleep(_LOOK_EVERY_S)
            report = await log.health()
    if not report.is_healthy:
        raise UnavailableError(
            f"not healthy after {HEALTHY_S_MAX:.0f} s: " + "; ".join(report.reasons)
        )
