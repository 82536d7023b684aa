"""Connections over TLS: both sides show certificates, and a wrong one is named."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.transport.seam import Address, ByteStream, ConnectionFailedError
from geolog.transport.tls import TlsIdentity, TlsTransport, accepted
from sim.fakes.memory_transport import MemoryNetwork
from topology.errors import InvalidConfigError

CERTIFICATES = Path(__file__).parent / "certificates"
SERVER = Address("server.geolog.test", 7200)


def identity(name: str, authority: str = "authority") -> TlsIdentity:
    return TlsIdentity.load(
        certificate=CERTIFICATES / f"{name}.pem",
        key=CERTIFICATES / f"{name}.key",
        authority=CERTIFICATES / f"{authority}.pem",
    )


@attrs.define
class Outcome:
    """How an exchange ended on each side."""

    server: str = ""
    client: str = ""
    is_tls: bool | None = None


async def exchange(
    network: MemoryNetwork,
    *,
    client: TlsIdentity | None,
    server: TlsIdentity | None,
    address: Address = SERVER,
) -> Outcome:
    """Say 100,000 bytes to a server that echoes; how it ended."""
    outcome = Outcome()
    listener = await network.transport(address.host).listen(address)
    plain = network.transport("client.geolog.test")
    connect: Callable[[Address], Awaitable[ByteStream]] = (
        plain.connect if client is None else TlsTransport(plain, client).connect
    )
    words = bytes(range(250)) * 400

    async def serve() -> None:
        stream = await listener.accept()
        try:
            secured, outcome.is_tls = await accepted(stream, server)
            received = bytearray()
            buffer = bytearray(5_000)
            while len(received) < len(words):
                received += buffer[: await secured.receive_into(buffer)]
            await secured.send([received[:10], memoryview(received)[10:]])
            outcome.server = "ok"
        except ConnectionFailedError as error:
            outcome.server = str(error)
            stream.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        try:
            with trio.fail_after(30):
                stream = await connect(address)
                await stream.send([words])
                received = bytearray()
                buffer = bytearray(7_000)
                while count := await stream.receive_into(buffer):
                    received += buffer[:count]
                    if len(received) == len(words):
                        break
                assert received == words
                outcome.client = "ok"
        except ConnectionFailedError as error:
            outcome.client = str(error)
    listener.close()
    return outcome


@pytest.fixture
def network() -> MemoryNetwork:
    return MemoryNetwork()


async def test_bytes_cross_in_both_directions(
    autojump_clock: MockClock, network: MemoryNetwork
) -> None:
    ours = identity("relay")

    secured = await exchange(network, client=ours, server=ours)
    plain = await exchange(network, client=None, server=ours)

    assert (secured.client, secured.server, secured.is_tls) == ("ok", "ok", True)
    assert (plain.client, plain.server, plain.is_tls) == ("ok", "ok", False)


async def test_a_certificate_of_another_authority_is_refused_and_named_on_both_sides(
    autojump_clock: MockClock, network: MemoryNetwork
) -> None:
    ours, stranger = identity("relay"), identity("stranger", "other-authority")
    trusting = identity("stranger")  # Accepts the server, which does not accept it.

    by_client = await exchange(network, client=stranger, server=ours)
    by_server = await exchange(network, client=trusting, server=ours)

    assert "certificate of server.geolog.test:7200 is not accepted: " in (by_client.client)
    assert "not accept ours" in by_client.server
    assert "is not accepted: " in by_server.server
    assert "may not accept our certificate" in by_server.client


async def test_a_certificate_for_another_host_is_refused(
    autojump_clock: MockClock, network: MemoryNetwork
) -> None:
    ours = identity("relay")

    found = await exchange(
        network, client=ours, server=ours, address=Address("server.elsewhere", 7200)
    )

    assert "Hostname mismatch" in found.client


async def test_a_server_without_a_certificate_says_so(
    autojump_clock: MockClock, network: MemoryNetwork
) -> None:
    found = await exchange(network, client=identity("relay"), server=None)

    assert "wants TLS, and this server has no certificate" in found.server
    assert "it may have no certificate" in found.client


def test_files_that_are_wrong_are_named(tmp_path: Path) -> None:
    good = {
        "certificate": CERTIFICATES / "relay.pem",
        "key": CERTIFICATES / "relay.key",
        "authority": CERTIFICATES / "authority.pem",
    }
    empty = tmp_path / "empty.pem"
    empty.write_bytes(b"")
    load = partial(TlsIdentity.load, **good)

    load()
    for name in good:
        with pytest.raises(InvalidConfigError, match=r"none\.pem is not a file"):
            load(**{name: tmp_path / "none.pem"})
        with pytest.raises(InvalidConfigError, match=r"empty\.pem"):
            load(**{name: empty})
    with pytest.raises(InvalidConfigError, match="are not a certificate and its key"):
        load(key=CERTIFICATES / "stranger.key")
