"""Storage servers whose disk fails, as processes: a message, exit code 1, nothing lost."""

import json
import resource
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from geolog.protocol.messages import AddsSynced, Answer, LedgerOpened, Message
from geolog.transport.seam import Address
from geolog.transport.tcp import TcpTransport
from tests.pure.storage.nodes import BareClient
from tests.system.addresses import free_addresses
from tests.system.demo_process import WAIT_S_MAX, geolog, read_rest, read_some, started

PLACE = ("--location", "/a/rack-1", "--node-id", "node-1")
BODY = bytes(range(256)) * 400
ENTRIES_MAX = 40


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a ZooKeeper server."""
    address, data_dir = str(free_addresses(1)[0]), str(tmp_path_factory.mktemp("zookeeper"))
    with started(
        *("serve", "zookeeper", "--data-dir", data_dir, "--listen", address)
    ) as server:
        read_some(server.stdout, b"\n")
        yield address


def arguments(zookeeper: str, cluster: str, directory: Path, address: Address) -> list[str]:
    return [
        *("serve", "storage", "--data-dir", str(directory), *PLACE, "--listen", str(address)),
        *("--zookeeper", zookeeper, "--cluster", cluster, "--journal-file-bytes", "1MiB"),
    ]


@asynccontextmanager
async def connected(address: Address, cluster: str) -> AsyncIterator[BareClient]:
    stream = await TcpTransport().connect(address)
    try:
        client = BareClient(stream)
        await client.say_hello(cluster)
        yield client
    finally:
        stream.close()


async def answer_to(client: BareClient, message: Message) -> str:
    await client.send(message)
    return repr(await client.receive())


async def add_until_it_ends(client: BareClient) -> int:
    """Add one entry after the other; return how many were acknowledged."""
    await client.send(client.open())
    await client.receive_one(LedgerOpened)
    for entry in range(ENTRIES_MAX):
        await client.send(client.add(entry + 1, entry, BODY))
        answer = await client.receive()
        if answer is None:
            return entry
        assert answer == AddsSynced(entry + 1)
    raise AssertionError("the disk never failed")


def end_of(node: subprocess.Popen[bytes]) -> str:
    """The message of a node that its disk ended."""
    assert node.wait(WAIT_S_MAX) == 1
    message = read_rest(node.stderr).decode()
    assert "Traceback" not in message
    assert "unexpected" not in message
    return message


async def test_a_node_whose_disk_refuses_a_write_ends_and_loses_nothing(
    zookeeper: str, tmp_path: Path
) -> None:
    (address,) = free_addresses(1)
    with started(*arguments(zookeeper, "limited", tmp_path / "data", address)) as node:
        read_some(node.stdout, b"\n")
        resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (300_000, 300_000))
        async with connected(address, "limited") as client:
            added = await add_until_it_ends(client)
        message = end_of(node)

    assert f"0000000000000001.journal in {tmp_path / 'data'}: File too large" in message
    assert added > 0
    with started(*arguments(zookeeper, "limited", tmp_path / "data", address)) as node:
        read_some(node.stdout, b"\n")
        async with connected(address, "limited") as client:
            for entry in range(added):
                (found,) = (await client.read(entry, 1)).entries
                assert (found.answer, bytes(found.body)) == (Answer.HAVE, BODY)


async def test_a_node_whose_directory_vanishes_ends_before_it_answers_without_data(
    zookeeper: str, tmp_path: Path
) -> None:
    (address,) = free_addresses(1)
    with started(*arguments(zookeeper, "vanished", tmp_path / "data", address)) as node:
        read_some(node.stdout, b"\n")
        async with connected(address, "vanished") as client:
            shutil.rmtree(tmp_path / "data")
            await add_until_it_ends(client)
        message = end_of(node)

    assert f"in {tmp_path / 'data'}: No such file or directory" in message
    again = geolog(*arguments(zookeeper, "vanished", tmp_path / "data", address))
    assert again.returncode == 1
    assert "restore its disk, or replace the node" in again.stderr.decode()


def test_a_node_takes_no_journal_file_of_another(zookeeper: str, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for cluster, directory in (("one", one), ("other", other)):
        for _ in range(2):
            (address,) = free_addresses(1)
            with started(*arguments(zookeeper, cluster, directory, address)) as node:
                read_some(node.stdout, b"\n")
                node.terminate()
                assert node.wait(WAIT_S_MAX) == 0
    foreign = max(other.glob("*.journal"))
    before = {path.name: path.read_bytes() for path in one.iterdir()}
    shutil.copy(foreign, one / "00000000000000ff.journal")

    (address,) = free_addresses(1)
    done = geolog(*arguments(zookeeper, "one", one, address))

    assert done.returncode == 1
    assert "00000000000000ff.journal" in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()
    (one / "00000000000000ff.journal").unlink()
    assert {path.name: path.read_bytes() for path in one.iterdir()} == before


async def test_a_node_that_starts_on_a_full_disk_fences_and_stores_nothing_new(
    zookeeper: str, tmp_path: Path
) -> None:
    (address,) = free_addresses(1)
    argv = arguments(zookeeper, "full", tmp_path / "data", address)
    with started(*argv, "--free-bytes-min", "1024TiB") as node:
        ready = json.loads(read_some(node.stdout, b"\n"))
        async with connected(address, "full") as client:
            refused = await answer_to(client, client.open())
            fenced = await answer_to(client, client.fence(2))

    assert ready["ready"] is True
    assert "READ_ONLY" in refused
    assert fenced.startswith("Fenced(")


async def test_a_node_takes_nothing_below_the_epoch_it_was_told(
    zookeeper: str, tmp_path: Path
) -> None:
    (address,) = free_addresses(1)
    argv = arguments(zookeeper, "epochs", tmp_path / "data", address)
    for _ in range(2):  # It remembers across its kill.
        with started(*argv) as node:
            read_some(node.stdout, b"\n")
            async with connected(address, "epochs") as client:
                fenced = await answer_to(client, client.fence(5))
                requests = (client.open(4), client.fence(4), client.add(1, 0, b"late", epoch=4))
                late = [await answer_to(client, request) for request in requests]

        assert fenced.startswith("Fenced(")
        for answer in late:
            assert "FENCED" in answer
            assert "epoch_highest=5" in answer
