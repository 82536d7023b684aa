"""Connects a command to the cluster, and bounds how long it waits."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from geolog.cli.invocation import Invocation, named_zookeeper, this_invocation
from geolog.cli.settings.roles import PLACEMENT
from geolog.cli.standing import check_standing
from geolog.client.connect import connect
from geolog.client.log import Log, LogConfig
from geolog.client.proxies.proxies import Via
from geolog.ledger.nodes.node_pool import PoolConfig
from geolog.ledger.nodes.placement_config import PlacementConfig
from geolog.metadata.reachability import reach_of, whereabouts_of
from geolog.metadata.zookeeper import parse_servers
from geolog.settings.quantities import format_seconds
from geolog.settings.sources import configured
from geolog.transport.gateway import gateway_of, transport_through
from geolog.transport.seam import Address
from topology.errors import UnavailableError

Answer = TypeVar("Answer")


def ask(question: Callable[[Log], Awaitable[Answer]], *, minds_region: bool = False) -> Answer:
    """Connect, ask one question, and wait up to `--timeout` for the answer.

    minds_region: the answer depends on the region that the command runs in.
    """
    invocation = this_invocation()

    async def connect_and_ask() -> Answer:
        try:
            with trio.fail_after(invocation.config.timeout_s):
                async with open_log(invocation, minds_region=minds_region) as log:
                    return await question(log)
        except trio.TooSlowError as error:
            raise await too_slow(invocation) from error

    return trio.run(connect_and_ask)


@asynccontextmanager
async def open_log(
    invocation: Invocation,
    *,
    minds_region: bool = False,
    via: Via | None = None,
    hedge: str = "auto",
) -> AsyncIterator[Log]:
    """Open the log that the settings name. via, hedge: as of `connect`.

    NotFoundError if there is no such cluster or, with `minds_region`, no such region.
    """
    config = invocation.config
    placement = configured(PlacementConfig, invocation.decide(PLACEMENT))
    async with connect(
        zookeeper=config.zookeeper or None if config.proxy else named_zookeeper(invocation),
        proxies=config.proxy or None,
        cluster=config.cluster,
        region=config.region,
        gateway=config.gateway,
        via=via,
        hedge=hedge,
        zookeeper_regions=config.server_regions,
        config=LogConfig(pool=PoolConfig(placement=placement)),
    ) as log:
        if minds_region and config.zookeeper:
            await check_standing(log, invocation)
        yield log


class Patience:
    """Cancel scope that ends work that makes no progress for `--timeout`."""

    def __init__(self, invocation: Invocation) -> None:
        self._timeout_s = invocation.config.timeout_s
        self.scope = trio.CancelScope(deadline=trio.current_time() + self._timeout_s)

    def progressed(self) -> None:
        """Restart the wait: there was progress."""
        self.scope.deadline = trio.current_time() + self._timeout_s

    def suspend(self) -> None:
        """Stop the clock: no server owes us an answer."""
        self.scope.deadline = float("inf")


async def too_slow(invocation: Invocation) -> UnavailableError:
    """Build the error for a wait longer than `--timeout`, by probing which servers answer."""
    config = invocation.config
    waited = f"no answer within {format_seconds(config.timeout_s)} (--timeout)"
    if not config.zookeeper:
        return UnavailableError(f"{waited}: are the write proxies {config.proxy} up?")
    hosts, _ = parse_servers(config.zookeeper)
    servers = [Address.parse(host) for host in hosts.split(",")]
    transport = transport_through(gateway_of(config.gateway, config.region))
    reach = await reach_of(servers, transport)
    why = reach.why_away(whereabouts_of(config.region, servers, config.server_regions))
    if why is not None and not reach.idle:
        return UnavailableError(
            f"{waited}: {why}. Is ZooKeeper running there? `geolog config show --origin` shows"
            " where the address comes from"
        )
    if why is not None:
        return UnavailableError(f"{waited}: {why}")
    return UnavailableError(
        f"{waited}, though ZooKeeper answers. Are storage nodes down? Check with"
        " `geolog node ls`"
    )
