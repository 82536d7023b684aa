"""Waits until a cluster is healthy again."""

import trio
from geolog.client.log import Log

_LOOK_EVERY_S = 0.1


async def wait_healthy(log: Log) -> None:
    """Wait until the cluster says that it is healthy; the caller bounds the wait."""
    report = await log.health()
    while not report.is_healthy:
        await trio.sleep(_LOOK_EVERY_S)
        report = await log.health()
