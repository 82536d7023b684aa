"""One write proxy: its endpoint, its partitions, its record in metadata."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from functools import partial

import attrs
import trio

from geolog.background import open_background
from geolog.client.connect import open_log
from geolog.client.log import LogConfig
from geolog.ledger.replicas.region_prober import RegionProber
from geolog.metadata.proxies import ProxyRecord, owner_name
from geolog.metadata.seam import Metadata
from geolog.partition.home_lease import sleepless_clocks
from geolog.protocol.isolation_lease import LeaseClocks
from geolog.transport.message_socket import MessageTransport
from geolog.transport.request_head import FIRST_BYTES
from geolog.transport.seam import Address, Listener, Transport
from geolog.transport.websocket import WebSockets
from regions.proxy.append_session import GOAWAY_S
from regions.proxy.balance import Balance
from regions.proxy.config import ProxyConfig
from regions.proxy.early_takeovers import EarlyTakeovers
from regions.proxy.endpoint import Endpoint
from regions.proxy.held_partitions import HeldPartitions
from regions.proxy.http.port import HttpPort
from regions.proxy.http.proxy_view import ProxyView
from regions.proxy.in_flight_bytes import InFlightBytes
from regions.proxy.origins import Origins
from regions.proxy.peers import Peers
from regions.proxy.protocol.append_admission import AppendAdmission
from regions.proxy.region_row import RegionRow
from regions.proxy.registration import ProxyRegistration
from regions.proxy.session_host import SessionHost
from regions.proxy.untaken_answers import UntakenAnswers

_DRAIN_S = 5.0
"""How long sessions may take to get their last answers when the proxy ends."""

_EARLY_SHARE = 0.75
"""Part of the bytes in flight at which frames are refused."""

_LEAVE_S = 2 * GOAWAY_S
"""How long they may append to partitions that no other proxy has taken over."""


@attrs.frozen(kw_only=True)
class WriteProxy:
    """A proxy that serves."""

    proxy_id: str
    address: Address
    endpoint: Endpoint
    http: HttpPort | None
    http_address: Address | None
    held: HeldPartitions
    in_flight: InFlightBytes
    answers: UntakenAnswers
    peers: Peers
    early: EarlyTakeovers


@attrs.frozen(kw_only=True)
class ProxySeams:
    """The outside of a proxy."""

    metadata: Metadata
    transport: Transport
    messages: MessageTransport
    """Carries sessions with clients and other proxies."""
    cluster: str
    rng: random.Random
    now_us: Callable[[], int]
    log_config: LogConfig | None
    """Settings of the partitions that it owns; None: the defaults."""
    lease_clocks: Callable[[], LeaseClocks]
    """The clocks by which leases of streams that stop are kept."""


@asynccontextmanager
async def open_write_proxy(
    config: ProxyConfig,
    *,
    metadata: Metadata,
    transport: Transport,
    cluster: str,
    rng: random.Random,
    now_us: Callable[[], int],
    messages: MessageTransport | None = None,
    log_config: LogConfig | None = None,
    lease_clocks: Callable[[], LeaseClocks] = sleepless_clocks,
) -> AsyncIterator[WriteProxy]:
    """Serve while the block lasts.

    messages: carries sessions; WebSockets over the transport if None.

    When it ends, also by cancellation, sessions get the answers that are due, clients are sent
    away, and the ledgers of all partitions are closed.
    """
    seams = ProxySeams(
        metadata=metadata,
        transport=transport,
        messages=messages or WebSockets(transport),
        cluster=cluster,
        rng=rng,
        now_us=now_us,
        log_config=log_config,
        lease_clocks=lease_clocks,
    )
    to_end = trio.Event()
    async with open_background() as nursery:
        try:
            yield await nursery.start(_serve, config, seams, to_end)
        finally:
            to_end.set()


async def _serve(
    config: ProxyConfig,
    seams: ProxySeams,
    to_end: trio.Event,
    *,
    task_status: trio.TaskStatus[WriteProxy],
) -> None:
    """Serve until `to_end`, then drain.

    Once it serves, cancellation from outside does not reach the sessions: it would end them
    before they have their answers.
    """
    async with _listen(seams.transport, config) as listeners:
        with trio.CancelScope() as scope:
            await _serve_at(listeners, config, seams, scope, to_end, task_status)


@attrs.frozen
class _Listeners:
    """Where clients connect."""

    websocket: Listener
    http: Listener | None


@asynccontextmanager
async def _listen(transport: Transport, config: ProxyConfig) -> AsyncIterator[_Listeners]:
    with ExitStack() as stack:
        websocket = await transport.listen(config.listen, first_bytes_min=FIRST_BYTES)
        stack.callback(websocket.close)
        http = None
        if config.http is not None:
            http = await transport.listen(config.http, first_bytes_min=FIRST_BYTES)
            stack.callback(http.close)
        yield _Listeners(websocket, http)


async def _serve_at(
    listeners: _Listeners,
    config: ProxyConfig,
    seams: ProxySeams,
    scope: trio.CancelScope,
    to_end: trio.Event,
    task_status: trio.TaskStatus[WriteProxy],
) -> None:
    address = config.advertise or listeners.websocket.address
    proxy_id = config.proxy_id or str(address)
    who = owner_name(proxy_id, config.region)
    record = ProxyRecord(
        proxy_id=proxy_id,
        region=config.region,
        address=address,
        http=_http_address(config, listeners.http),
        owner=who,
    )
    registration = ProxyRegistration(seams.metadata, seams.cluster, record)
    async with (
        open_log(
            metadata=seams.metadata,
            transport=seams.transport,
            cluster=seams.cluster,
            region=config.region,
            who=who,
            rng=seams.rng,
            now_us=seams.now_us,
            config=seams.log_config,
            lease_clocks=seams.lease_clocks,
            via="proxy",
            messages=seams.messages,
        ) as log,
        open_background() as partitions,
        open_background() as nursery,
    ):
        peers = Peers(
            metadata=seams.metadata, cluster=seams.cluster, messages=seams.messages, here=who
        )
        early = EarlyTakeovers(
            seams.metadata,
            seams.cluster,
            pause_s=config.early_takeover_pause_s,
            nursery=nursery,
        )
        held = HeldPartitions(
            metadata=seams.metadata,
            cluster=seams.cluster,
            region=config.region,
            opener=log.partition_opener,
            peers=peers,
            early=early,
            idle_release_s=config.idle_release_s,
            nursery=partitions,
        )
        host = SessionHost(
            config=config,
            log=log,
            opener=log.partition_opener,
            held=held,
            rng=seams.rng,
            now_us=seams.now_us,
            in_flight=InFlightBytes(
                config.in_flight_bytes_max, _admission_of(config, seams.rng)
            ),
            # With records of 50 bytes, an answer is as long as its frame.
            answers=UntakenAnswers(config.in_flight_bytes_max, config.client_share),
            origins=Origins.of(config.allow_origin, _addresses(listeners, record)),
        )
        endpoint = Endpoint(listeners.websocket, seams.messages, host, nursery)
        nursery.start_soon(registration.run)
        nursery.start_soon(endpoint.run)
        nursery.start_soon(held.run_release)
        nursery.start_soon(early.prepare)
        nursery.start_soon(partial(registration.run_load, lambda: len(held)))
        http = None
        if listeners.http is not None:
            region_row = RegionRow(RegionProber(log.access.replicas, seams.rng), record)
            nursery.start_soon(region_row.run)
            view = ProxyView(
                record=record,
                host=host,
                endpoint=endpoint,
                early=early,
                region_row=region_row,
                metadata=seams.metadata,
                cluster=seams.cluster,
                is_registered=registration.is_registered,
            )
            http = HttpPort(listeners.http, view, nursery)
            nursery.start_soon(http.run)
        await registration.is_registered.wait()
        nursery.start_soon(peers.run)
        balance = Balance(
            metadata=seams.metadata,
            cluster=seams.cluster,
            here=who,
            region=config.region,
            held=held,
            offers=log.partition_opener.upkeep.partitions.offers,
            peers=peers,
            pause_s=config.balance_pause_s,
            moves_max=config.balance_moves_max,
            rng=seams.rng,
        )
        async with log.partition_opener.open_offer(), open_background() as balancing:
            balancing.start_soon(balance.run)
            scope.shield = True
            task_status.started(
                WriteProxy(
                    proxy_id=proxy_id,
                    address=address,
                    endpoint=endpoint,
                    http=http,
                    http_address=record.http,
                    held=held,
                    in_flight=host.in_flight,
                    answers=host.answers,
                    peers=peers,
                    early=early,
                )
            )
            await to_end.wait()
        with trio.move_on_after(_DRAIN_S):
            await registration.leave()
            host.draining.set()
            await held.hand_over_all()
            # Partitions that nobody took over are still served: sessions get their answers.
            with trio.move_on_after(_LEAVE_S):
                await _wait_idle(endpoint, http)
            await held.give_up_all()
            await _wait_idle(endpoint, http)


def _admission_of(config: ProxyConfig, rng: random.Random) -> AppendAdmission:
    # Early: before the proxy stops reading, which would hold up sealed batches, too.
    proxy_bytes_max = int(config.in_flight_bytes_max * _EARLY_SHARE)
    return AppendAdmission(
        proxy_bytes_max=proxy_bytes_max,
        partition_bytes_max=config.partition_in_flight_bytes_max,
        client_bytes_max=int(config.in_flight_bytes_max * config.client_share),
        queue_s_max=config.append_queue_s,
        rng=rng,
    )


async def _wait_idle(endpoint: Endpoint, http: HttpPort | None) -> None:
    """Wait until no client is left."""
    await endpoint.wait_idle()
    if http is not None:
        await http.wait_idle()


def _addresses(listeners: _Listeners, record: ProxyRecord) -> list[Address]:
    """All under which clients know this proxy."""
    known = [listeners.websocket.address, record.address, record.http]
    if listeners.http is not None:
        known.append(listeners.http.address)
    return [one for one in known if one is not None]


def _http_address(config: ProxyConfig, listener: Listener | None) -> Address | None:
    if listener is None:
        return None
    return config.http_advertise or listener.address
