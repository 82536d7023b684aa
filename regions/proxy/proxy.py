"""One write proxy: its endpoint, its partitions, its record in metadata."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs
import trio

from geolog.background import open_background
from geolog.client.connect import open_log
from geolog.metadata.proxies import ProxyRecord, owner_name
from geolog.metadata.seam import Metadata
from geolog.transport.seam import Address, Listener, Transport
from regions.proxy.config import ProxyConfig
from regions.proxy.early_takeovers import EarlyTakeovers
from regions.proxy.endpoint import Endpoint
from regions.proxy.held_partitions import HeldPartitions
from regions.proxy.in_flight_bytes import InFlightBytes
from regions.proxy.peers import Peers
from regions.proxy.registration import ProxyRegistration
from regions.proxy.session_host import SessionHost

_DRAIN_S = 5.0
"""How long sessions may take to get their last answers when the proxy ends."""


@attrs.frozen
class WriteProxy:
    """A proxy that serves."""

    proxy_id: str
    address: Address
    endpoint: Endpoint
    held: HeldPartitions
    in_flight: InFlightBytes
    peers: Peers
    early: EarlyTakeovers


@attrs.frozen(kw_only=True)
class ProxySeams:
    """The outside of a proxy."""

    metadata: Metadata
    transport: Transport
    cluster: str
    rng: random.Random
    now_us: Callable[[], int]


@asynccontextmanager
async def open_write_proxy(
    config: ProxyConfig,
    *,
    metadata: Metadata,
    transport: Transport,
    cluster: str,
    rng: random.Random,
    now_us: Callable[[], int],
) -> AsyncIterator[WriteProxy]:
    """Serve while the block lasts.

    When it ends, also by cancellation, sessions get the answers that are due, clients are sent
    away, and the ledgers of all partitions are closed.
    """
    seams = ProxySeams(
        metadata=metadata, transport=transport, cluster=cluster, rng=rng, now_us=now_us
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
    listener = await seams.transport.listen(config.listen)
    with trio.CancelScope() as scope:
        try:
            await _serve_at(listener, config, seams, scope, to_end, task_status)
        finally:
            listener.close()


async def _serve_at(
    listener: Listener,
    config: ProxyConfig,
    seams: ProxySeams,
    scope: trio.CancelScope,
    to_end: trio.Event,
    task_status: trio.TaskStatus[WriteProxy],
) -> None:
    address = config.advertise or listener.address
    proxy_id = config.proxy_id or str(address)
    who = owner_name(proxy_id, config.region)
    record = ProxyRecord(proxy_id=proxy_id, region=config.region, address=address, owner=who)
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
            via="proxy",
        ) as log,
        open_background() as partitions,
        open_background() as nursery,
    ):
        peers = Peers(
            metadata=seams.metadata, cluster=seams.cluster, transport=seams.transport, here=who
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
            in_flight=InFlightBytes(config.in_flight_bytes_max),
        )
        endpoint = Endpoint(listener, host, nursery)
        nursery.start_soon(registration.run)
        nursery.start_soon(endpoint.run)
        nursery.start_soon(held.run_release)
        await registration.is_registered.wait()
        nursery.start_soon(peers.run)
        async with log.partition_opener.open_offer():
            scope.shield = True
            task_status.started(
                WriteProxy(proxy_id, address, endpoint, held, host.in_flight, peers, early)
            )
            await to_end.wait()
        with trio.move_on_after(_DRAIN_S):
            await registration.leave()
            host.draining.set()
            await held.hand_over_all()
            await endpoint.wait_idle()
            await held.give_up_all()
