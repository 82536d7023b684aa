"""Opens a log: builds it over its seams, real or in memory."""

import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Literal

from geolog.background import open_background
from geolog.catalog.partition_owners import PartitionOwners
from geolog.client.arguments import checked
from geolog.client.hedging import hedge_policy
from geolog.client.log import Log, LogConfig
from geolog.client.placement_policies import own_policies
from geolog.client.proxied_log import open_proxied_log
from geolog.client.proxies.connection import ProxyConnections
from geolog.client.proxies.directory import RegisteredProxies
from geolog.client.proxies.proxies import Proxies, Via
from geolog.client.proxies.routes import ProxyRoutes
from geolog.client.relays.relay_links import RelayLinks
from geolog.client.relays.relay_places import RelayPlaces
from geolog.client.standing import check_region
from geolog.ledger.nodes.node_pool import open_node_pool
from geolog.ledger.repair_reporter import open_repair_reporter
from geolog.ledger.replicas.region_prober import RegionProber
from geolog.ledger.replicas.region_search import RegionSearch
from geolog.ledger.replicas.replicas import Replicas
from geolog.ledger.replicas.shadow_requests import ShadowRequests
from geolog.metadata.clusters import check_cluster
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.reachability import AskReach, reach_of
from geolog.metadata.relays import RelayGroups
from geolog.metadata.repair_queue import RepairQueue
from geolog.metadata.seam import Metadata
from geolog.metadata.zookeeper import open_zookeeper, parse_servers
from geolog.partition.relay_multicast import FindRelays, RelayMulticast
from geolog.partition.shown_owners import open_shown_owners
from geolog.protocol.hedge_policy import AUTO, HedgePolicy
from geolog.transport.gateway import gateway_of, transport_through
from geolog.transport.message_socket import MessageTransport
from geolog.transport.seam import Address, Transport
from geolog.transport.websocket import WebSockets
from topology.errors import InvalidArgumentError
from topology.own_policy import GROUP, OwnPlacement


@asynccontextmanager
async def open_log(
    *,
    metadata: Metadata,
    transport: Transport,
    cluster: str,
    region: str | None,
    who: str,
    rng: random.Random,
    now_us: Callable[[], int],
    config: LogConfig | None = None,
    ask_reach: AskReach | None = None,
    metadata_regions: tuple[str, ...] | None = None,
    via: Via | None = "direct",
    proxies: Sequence[Address] = (),
    messages: MessageTransport | None = None,
    hedge: HedgePolicy = AUTO,
    placement: Sequence[OwnPlacement] = (),
    find_relays: FindRelays | None = None,
) -> AsyncIterator[Log]:
    """Open a log over given seams, for the length of the block.

    ask_reach: asks the servers of the metadata store how they are. metadata_regions: the region
    of each of them. None: not known. proxies: write proxies to ask before others. messages:
    carries sessions with them; WebSockets over the transport if None. find_relays: tells the
    relays of a region; metadata does if None.
    """
    config = config or LogConfig()
    paths = ClusterPaths(cluster)
    queue = RepairQueue(metadata, paths, now_us=now_us)
    async with (
        open_node_pool(
            transport=transport,
            metadata=metadata,
            cluster=cluster,
            rng=rng,
            config=config.pool,
            own_policies=own_policies(placement),
        ) as pool,
        open_repair_reporter(queue) as repairs,
        open_shown_owners(metadata, paths, PartitionOwners(metadata, paths), rng) as owners,
        open_background() as nursery,
    ):
        replicas = Replicas.of(pool, region=region, hedge=hedge)
        nursery.start_soon(ShadowRequests(replicas).run)
        if replicas.order.local is None:
            nursery.start_soon(RegionSearch(replicas, RegionProber(replicas, rng)).run)
        directory = RegisteredProxies(metadata, cluster, region, proxies)
        messages = messages or WebSockets(transport)
        find_relays = find_relays or RelayPlaces(RelayGroups(metadata, cluster)).find
        multicast = RelayMulticast(
            cluster=cluster,
            region=region,
            sender=who,
            messages=messages,
            find_relays=find_relays,
            config=config.multicast,
        )
        nursery.start_soon(multicast.run)
        log = Log(
            metadata=metadata,
            replicas=replicas,
            repairs=repairs,
            owners=owners,
            cluster=cluster,
            region=region,
            who=who,
            rng=rng,
            now_us=now_us,
            config=config,
            ask_reach=ask_reach,
            metadata_regions=metadata_regions,
            proxies=Proxies(
                ProxyConnections(messages, nursery),
                ProxyRoutes(directory, rng),
                via,
            ),
            multicast=multicast,
            links=partial(RelayLinks, messages=messages, find_relays=find_relays),
        )
        try:
            yield log
        finally:
            log.close()


@asynccontextmanager
@checked
async def connect(
    *,
    zookeeper: str | None = None,
    proxies: str | Sequence[str] | None = None,
    cluster: str = "default",
    region: str | None = None,
    via: Literal["direct", "proxy"] | None = None,
    session_timeout_s: float = 6.0,
    config: LogConfig | None = None,
    gateway: Address | str | None = None,
    zookeeper_regions: Sequence[str] | None = None,
    hedge: str | HedgePolicy = "auto",
    placement: Sequence[OwnPlacement] = (),
) -> AsyncIterator[Log]:
    """Connect to a cluster, for the length of the block.

    zookeeper: servers and chroot, `HOST:PORT,…[/chroot]`. proxies: write proxies to ask first,
    `HOST:PORT,…` or a list; without zookeeper the log appends and reads through them, and every
    other call raises InvalidArgumentError. region: the caller's region; reads
    prefer its nodes. None: the region with the shortest round trips, once readers have measured
    them. via: `proxy` writes through write proxies; `direct` makes this process the
    owner of the streams it writes. Left out: through proxies if any is up, else directly.
    gateway: `HOST:PORT` of a gateway of an emulated WAN, to reach all servers as from `region`.
    zookeeper_regions: the region of each ZooKeeper server, in the same order, if known.
    hedge: when a late read also goes to another replica: `auto`, when it is later than usual;
    `off`; a fixed time, e.g. `25ms`; `sla:50ms`, in time for an answer within 50 ms; or a
    `HedgePolicy`, itself or by the name under which a package offers it.
    placement: placement policies of your own, for streams that name them; those that installed
    packages offer need not be given.
    UnavailableError: no ZooKeeper server answers. NotFoundError: there is no such cluster, or
    it has servers and none was ever in this region.
    """
    rng = random.Random()
    policy = hedge_policy(hedge)
    given = _addresses(proxies)
    if zookeeper is None:
        if not given:
            raise InvalidArgumentError("give zookeeper='HOST:PORT' or proxies='HOST:PORT'")
        if via == "direct":
            raise InvalidArgumentError(
                "via='direct' needs ZooKeeper: give zookeeper='HOST:PORT'"
            )
        if policy is not AUTO:
            raise InvalidArgumentError(
                f"hedge={policy.name!r} needs ZooKeeper: give zookeeper='HOST:PORT'. Write"
                " proxies hedge reads by a policy of their own"
            )
        if placement:
            raise InvalidArgumentError(
                "placement needs ZooKeeper: give zookeeper='HOST:PORT'. Write proxies place by"
                f" the policies that are installed there (entry points {GROUP!r})"
            )
        async with open_proxied_log(
            given,
            transport=transport_through(gateway_of(gateway, region)),
            cluster=cluster,
            region=region,
            rng=rng,
            now_us=_now_us,
        ) as proxied:
            yield proxied
        return
    through = gateway_of(gateway, region)
    servers = [Address.parse(each) for each in parse_servers(zookeeper)[0].split(",")]
    async with open_zookeeper(
        zookeeper, session_timeout_s=session_timeout_s, gateway=through
    ) as metadata:
        await check_cluster(metadata, cluster, where=zookeeper)
        async with open_log(
            metadata=metadata,
            transport=transport_through(through),
            cluster=cluster,
            region=region,
            who=f"{region or 'nowhere'}/{rng.getrandbits(32):08x}",
            rng=rng,
            now_us=_now_us,
            config=config,
            ask_reach=partial(reach_of, servers, transport_through(through)),
            metadata_regions=_checked_regions(zookeeper_regions, len(servers)),
            via=via,
            proxies=given,
            hedge=policy,
            placement=placement,
        ) as log:
            if region is not None:
                await check_region(log, region, others=zookeeper_regions or ())
            yield log


def _now_us() -> int:
    return time.time_ns() // 1000  # noqa: TID251 - where it is born.


def _addresses(proxies: str | Sequence[str] | None) -> list[Address]:
    """The addresses of proxies, given as one text or as several. InvalidArgumentError."""
    if proxies is None:
        return []
    texts = proxies.split(",") if isinstance(proxies, str) else proxies
    return [Address.parse(one.strip()) for one in texts]


def _checked_regions(
    regions: Sequence[str] | None, servers_count: int
) -> tuple[str, ...] | None:
    if regions is None:
        return None
    if len(regions) != servers_count:
        raise InvalidArgumentError(
            f"zookeeper_regions has {len(regions)} regions ({', '.join(regions)}) for"
            f" {servers_count} ZooKeeper servers: give one region per server, in the same order"
        )
    return tuple(regions)
