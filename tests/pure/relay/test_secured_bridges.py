"""Bridges over TLS between relays of two regions; wrong certificates are named."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from geolog.transport.seam import Address
from relay.server.config import RelayConfig
from relay.server.relay import Relay, open_relay
from sim.in_process import InProcessCluster, open_in_process_cluster
from tests.pure.relay.test_bridges import wait_equal
from tests.pure.transport.test_tls import CERTIFICATES
from tests.pure.whole.clusters import append_each
from tests.pure.whole.mirroring import HOME, REGIONS, STREAM, TARGET, create
from topology.errors import InvalidConfigError

Files = tuple[Path | None, Path | None, Path | None]


def files(name: str | None, authority: str = "authority") -> Files:
    """Certificate, key and authority."""
    if name is None:
        return None, None, None
    ours = CERTIFICATES / f"{name}.pem", CERTIFICATES / f"{name}.key"
    return (*ours, CERTIFICATES / f"{authority}.pem")


@asynccontextmanager
async def open_secured(
    cluster: InProcessCluster, region: str, tls: Files
) -> AsyncIterator[Relay]:
    host = f"{region}.geolog.test"
    async with (
        cluster.store.open_session() as metadata,
        open_relay(
            RelayConfig(
                region=region,
                listen=Address(host, 7200),
                relay_id=host,
                tls_certificate=tls[0],
                tls_key=tls[1],
                tls_authority=tls[2],
            ),
            metadata=metadata,
            transport=cluster.network.transport(host),
            cluster="default",
            rng=random.Random(host),
            now_us=cluster.now_us,
        ) as relay,
    ):
        yield relay
    assert relay.bugs_count == 0


async def test_a_mirror_follows_its_home_over_tls(autojump_clock: MockClock) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_secured(cluster, HOME, files("relay")),
        open_secured(cluster, TARGET, files("relay")),
    ):
        await create(log)
        async with log.open_writer(STREAM, writer_id="till") as writer:
            await append_each(writer, [b"%d" % number for number in range(20)])
            assert await wait_equal(log) >= 20
        [status] = await log.relay_status(STREAM)  # Reports need no certificate.

    assert status.durable_records == 20


@pytest.mark.parametrize(
    ("home", "target", "why"),
    [
        (files("relay"), files("stranger", "other-authority"), "is not accepted: "),
        (files("relay"), files("stranger"), "may not accept our certificate"),
        (files("relay"), files(None), "takes bridges over TLS alone: start the relays of your"),
        (files(None), files("relay"), "it may have no certificate"),
    ],
    ids=["stranger", "untrusted", "plain target", "plain home"],
)
async def test_a_wrong_certificate_is_told_and_nothing_is_relayed(
    autojump_clock: MockClock, home: Files, target: Files, why: str
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_secured(cluster, HOME, home),
        open_secured(cluster, TARGET, target) as far,
    ):
        await create(log)
        async with log.open_writer(STREAM, writer_id="till") as writer:
            await append_each(writer, [b"%d" % number for number in range(20)])
        await trio.sleep(30)
        [status] = await log.relay_status(STREAM)
        assert far.ends is not None
        failures = set(far.ends.failures)

    assert len(failures) == 1
    assert why in failures.pop()
    assert (status.durable_records, status.state.value) == (None, "down")


def test_half_of_a_certificate_is_refused() -> None:
    config = RelayConfig(
        region=HOME, listen=Address("one", 1), tls_certificate=CERTIFICATES / "relay.pem"
    )

    with pytest.raises(InvalidConfigError, match="give all of tls_certificate"):
        _ = config.identity
