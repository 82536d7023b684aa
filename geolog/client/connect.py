"""Opens a log: builds it over its seams, real or in memory."""

import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Literal, NoReturn

import attrs
import trio

from geolog.background import open_background
from geolog.catalog.partition_owners import PartitionOwners
from geolog.client.arguments import checked
from geolog.client.cluster_reach import ClusterReach, reach_in_settings
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
from geolog.client.standing import check_region, check_region_named
from geolog.ledger.nodes.node_pool import open_node_pool
from geolog.ledger.repair_reporter import open_repair_reporter
from geolog.ledger.replicas.region_prober import RegionProber
from geolog.ledger.replicas.region_search import RegionSearch
from geolog.ledger.replicas.replicas import Replicas
from geolog.ledger.replicas.shadow_requests import ShadowRequests
from geolog.metadata.clusters import check_cluster
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.reachability import AskReach, reach_of, whereabouts_of
from geolog.metadata.relays import RelayGroups
from geolog.metadata.repair_queue import RepairQueue
from geolog.metadata.seam import Metadata
from geolog.metadata.server_ticks import AskTick, tick_of
from geolog.metadata.zookeeper import open_zookeeper, parse_servers
from geolog.partition.home_lease import sleepless_clocks
from geolog.partition.relay_multicast import FindRelays, RelayMulticast
from geolog.partition.shown_owners import open_shown_owners
from geolog.protocol.hedge_policy import AUTO, HedgePolicy
from geolog.protocol.isolation_lease import LeaseClocks
from geolog.transport.gateway import Gateway, gateway_of, transport_through
from geolog.transport.message_socket import MessageTransport
from geolog.transport.seam import Address, Transport
from geolog.transport.websocket import WebSockets
from topology.errors import ClosedError, GeologError, InvalidArgumentError
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
    ask_tick: AskTick | None = None,
    metadata_regions: tuple[str, ...] | None = None,
    lease_clocks: Callable[[], LeaseClocks] = sleepless_clocks,
    via: Via | None = "direct",
    proxies: Sequence[Address] = (),
    messages: MessageTransport | None = None,
    hedge: HedgePolicy = AUTO,
    placement: Sequence[OwnPlacement] = (),
    find_relays: FindRelays | None = None,
) -> AsyncIterator[Log]:
    """Open a log over given seams, for the length of the block.

    ask_reach, ask_tick: ask the servers of the metadata store how they are, and for their tick.
    metadata_regions: the region of each of them. None: not known. proxies: write proxies to ask
    before others. messages: carries sessions with them; WebSockets over the transport if None.
    find_relays: tells the relays of a region; metadata does if None.
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
            ask_tick=ask_tick,
            metadata_regions=metadata_regions,
            lease_clocks=lease_clocks,
            proxies=Proxies(
                ProxyConnections(messages, nursery, lease_clocks),
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


@checked
def connect(
    *,
    zookeeper: str | None = None,
    proxies: str | Sequence[str] | None = None,
    cluster: str | None = None,
    region: str | None = None,
    via: Literal["direct", "proxy"] | None = None,
    session_timeout_s: float = 6.0,
    config: LogConfig | None = None,
    gateway: Address | str | None = None,
    zookeeper_regions: Sequence[str] | None = None,
    hedge: str | HedgePolicy = "auto",
    placement: Sequence[OwnPlacement] = (),
    settings: str | Path | None = None,
    profile: str | None = None,
) -> "LogConnection":
    """Connect to a cluster, for the length of an `async with` block.

    Without zookeeper and proxies, the settings of the command say how to reach the cluster: the
    environment (`GEOLOG_ZOOKEEPER` and the like), then the file that `settings` names, else
    `$GEOLOG_CONFIG`, else ./geolog.toml, else those of a demo that runs on this machine, which
    a warning in the log names, else /etc/geolog/geolog.toml. Arguments win over settings. With
    zookeeper or proxies, no settings are read unless `settings` or `profile` is given.

    zookeeper: servers and chroot, `HOST:PORT,…[/chroot]`. proxies: write proxies to ask first,
    `HOST:PORT,…` or a list; without zookeeper the log appends and reads through them, and every
    other call raises InvalidArgumentError. cluster: its name; `default` if nothing names it.
    region: the caller's region; reads prefer its nodes. None: the region with the shortest
    round trips, once readers have measured them. via: `proxy` writes through write proxies;
    `direct` makes this process the owner of the streams it writes. Left out: through proxies if
    any is up, else directly. gateway: `HOST:PORT` of a gateway of an emulated WAN, to reach all
    servers as from `region`. zookeeper_regions: the region of each ZooKeeper server, in the
    same order, if known. hedge: when a late read also goes to another replica: `auto`, when it
    is later than usual; `off`; a fixed time, e.g. `25ms`; `sla:50ms`, in time for an answer
    within 50 ms; or a `HedgePolicy`, itself or by the name under which a package offers it.
    placement: placement policies of your own, for streams that name them; those that installed
    packages offer need not be given. profile: a profile of the settings file.
    InvalidArgumentError, InvalidConfigError, NotFoundError: arguments or settings are wrong;
    raised by the call itself. UnavailableError: no ZooKeeper server answers. NotFoundError:
    there is no such cluster, or it has servers and none was ever in this region.
    """
    policy = hedge_policy(hedge)
    asks_settings = settings is not None or profile is not None
    if asks_settings or (zookeeper is None and proxies is None):
        reach = reach_in_settings(settings, profile)
    else:
        reach = ClusterReach()
    if zookeeper is None and proxies is None:
        zookeeper, proxies = reach.zookeeper, reach.proxies
    gateway = gateway or reach.gateway
    region = region or reach.region
    regions = zookeeper_regions or reach.zookeeper_regions
    given = _addresses(proxies)
    if zookeeper is None:
        _check_proxied(via, policy, placement)
    return LogConnection(
        _Terms(
            zookeeper=zookeeper,
            servers=[] if zookeeper is None else _servers(zookeeper),
            proxies=given,
            cluster=cluster or reach.cluster,
            region=region,
            via=via,
            session_timeout_s=session_timeout_s,
            config=config,
            gateway=gateway_of(gateway, region),
            zookeeper_regions=regions,
            hedge=policy,
            placement=placement,
            origin=reach.origin,
        )
    )


@attrs.frozen(kw_only=True)
class _Terms:
    """Arguments and settings of a connection, checked."""

    zookeeper: str | None
    servers: Sequence[Address]
    proxies: Sequence[Address]
    cluster: str
    region: str | None
    via: Via | None
    session_timeout_s: float
    config: LogConfig | None
    gateway: Gateway | None
    zookeeper_regions: Sequence[str] | None
    hedge: HedgePolicy
    placement: Sequence[OwnPlacement]
    origin: str | None
    """Where settings came from, for errors; None if there were none."""


class LogConnection(AbstractAsyncContextManager[Log]):
    """Connects when `async with` enters it, and closes the log when the block ends."""

    def __init__(self, terms: _Terms) -> None:
        self._terms = terms
        self._block: AbstractAsyncContextManager[Log] | None = None

    async def __aenter__(self) -> Log:
        if not trio.lowlevel.in_trio_run():
            raise InvalidArgumentError(
                "geolog.connect() runs under trio, and this event loop is another: under"
                " asyncio, use geolog.aio.connect()"
            )
        if self._block is not None:
            raise ClosedError("this block was entered before: connect again")
        self._block = _opened(self._terms)
        try:
            return await self._block.__aenter__()
        except GeologError as error:
            raise _with_origin(error, self._terms.origin) from error.__cause__

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        assert self._block is not None, "the block was entered"
        return await self._block.__aexit__(kind, error, traceback)

    def __enter__(self) -> NoReturn:
        raise InvalidArgumentError(
            "geolog.connect() is for `async with`, under trio: a program without an event loop"
            " uses geolog.blocking.connect(), one under asyncio geolog.aio.connect()"
        )

    def __exit__(self, *_: object) -> None:
        """Complete the protocol of `with`, so that `__enter__` can say what to do instead."""


def _with_origin(error: GeologError, origin: str | None) -> GeologError:
    """The error, saying where the settings stand that led to it."""
    if origin is not None and len(error.args) == 1:
        error.args = (f"{error.args[0]} ({origin})",)
    return error


def _check_proxied(
    via: Via | None, policy: HedgePolicy, placement: Sequence[OwnPlacement]
) -> None:
    """InvalidArgumentError if an argument needs ZooKeeper, where only proxies are known."""
    if via == "direct":
        raise InvalidArgumentError("via='direct' needs ZooKeeper: give zookeeper='HOST:PORT'")
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


@asynccontextmanager
async def _opened(terms: _Terms) -> AsyncIterator[Log]:
    """Open the log that the terms describe, for the length of the block."""
    rng = random.Random()
    transport = transport_through(terms.gateway)
    if terms.gateway is not None:
        await check_region_named(terms.gateway)
    if terms.zookeeper is None:
        async with open_proxied_log(
            terms.proxies,
            transport=transport,
            cluster=terms.cluster,
            region=terms.region,
            rng=rng,
            now_us=_now_us,
            lease_clocks=machine_clocks,
        ) as proxied:
            yield proxied
        return
    async with open_zookeeper(
        terms.zookeeper,
        session_timeout_s=terms.session_timeout_s,
        gateway=terms.gateway,
        whereabouts=whereabouts_of(terms.region, terms.servers, terms.zookeeper_regions),
    ) as metadata:
        await check_cluster(metadata, terms.cluster, where=terms.zookeeper)
        async with open_log(
            metadata=metadata,
            transport=transport,
            cluster=terms.cluster,
            region=terms.region,
            who=f"{terms.region or 'nowhere'}/{rng.getrandbits(32):08x}",
            rng=rng,
            now_us=_now_us,
            config=terms.config,
            ask_reach=partial(reach_of, terms.servers, transport),
            ask_tick=partial(tick_of, terms.servers, transport),
            metadata_regions=_checked_regions(terms.zookeeper_regions, len(terms.servers)),
            lease_clocks=machine_clocks,
            via=terms.via,
            proxies=terms.proxies,
            hedge=terms.hedge,
            placement=terms.placement,
        ) as log:
            if terms.region is not None:
                await check_region(log, terms.region, others=terms.zookeeper_regions or ())
            yield log


def machine_clocks() -> LeaseClocks:
    """The clocks of this machine: one goes on while it sleeps."""
    return LeaseClocks(trio.current_time(), time.clock_gettime(time.CLOCK_BOOTTIME))


def _now_us() -> int:
    return time.time_ns() // 1000  # noqa: TID251 - where it is born.


def _servers(zookeeper: str) -> list[Address]:
    return [Address.parse(each) for each in parse_servers(zookeeper)[0].split(",")]


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
