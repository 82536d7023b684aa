"""The ZooKeeper client against a real server: sessions, deadlines, errors, no leftovers."""

import struct
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from itertools import chain, repeat
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from geolog.background import open_background
from geolog.metadata import rules
from geolog.metadata.seam import (
    Check,
    Create,
    Delete,
    Freshness,
    NodeExistsError,
    NoNodeError,
    Operation,
    Put,
    SessionLostError,
    SessionState,
    Stored,
)
from geolog.metadata.zookeeper import ZooKeeperMetadata, open_zookeeper, parse_servers
from geolog.transport.seam import Address, ByteStream, ConnectionFailedError, Listener
from geolog.transport.tcp import TcpTransport
from tests.system.addresses import free_addresses
from tests.system.zookeeper_server import open_server
from topology.errors import InvalidConfigError, OutcomeUnknownError, UnavailableError

WAIT_S = 100.0


@attrs.define
class Forwarder:
    """A proxy between client and server; when held, it silently lets nothing through."""

    address: Address
    _listener: Listener
    _server: Address
    connects: list[bytes] = attrs.Factory(list)
    """The first message of each client connection."""
    _streams: list[ByteStream] = attrs.Factory(list)
    _is_open: trio.Event = attrs.Factory(trio.Event)

    def hold(self) -> None:
        self._is_open = trio.Event()

    def release(self) -> None:
        self._is_open.set()

    def cut(self) -> None:
        for stream in self._streams:
            stream.close()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                near = await self._listener.accept()
                far = await TcpTransport().connect(self._server)
                self._streams += [near, far]
                nursery.start_soon(self._forward, near, far, self.connects)
                nursery.start_soon(self._forward, far, near, [])

    async def _forward(self, source: ByteStream, sink: ByteStream, begins: list[bytes]) -> None:
        buffer = bytearray(1 << 16)
        is_first = True
        try:
            while count := await source.receive_into(buffer):
                if is_first:
                    begins.append(bytes(buffer[:count]))
                is_first = False
                await self._is_open.wait()
                await sink.send([bytes(buffer[:count])])
        except ConnectionFailedError:
            pass
        source.close()
        sink.close()


@asynccontextmanager
async def open_forwarder(server: Address) -> AsyncIterator[Forwarder]:
    listener = await TcpTransport().listen(Address("127.0.0.1", 0))
    forwarder = Forwarder(listener.address, listener, server)
    forwarder.release()
    async with open_background() as nursery:
        nursery.start_soon(forwarder.run)
        yield forwarder
        forwarder.cut()
    listener.close()


async def wait_state(metadata: ZooKeeperMetadata, wanted: SessionState) -> None:
    with trio.fail_after(WAIT_S):
        while metadata.session_state is not wanted:
            await metadata.wait_state_change(metadata.session_state)


async def got_at_last(metadata: ZooKeeperMetadata, path: str) -> Stored:
    """A node, once the server answers as fast as required."""
    with trio.fail_after(WAIT_S):
        while True:
            with suppress(UnavailableError):
                return await metadata.get(path)


async def test_everything_is_under_the_chroot(tmp_path: Path) -> None:
    async with open_server(tmp_path / "data") as address:
        async with open_zookeeper(f"{address}/geo/log") as inside:
            assert await inside.create("/a", b"x") == "/a"
            assert await inside.create("/a/n-", is_sequential=True) == "/a/n-0000000000"
            assert await inside.children("/") == ["a"]
            with pytest.raises(NodeExistsError, match=r"^/a already exists"):
                await inside.create("/a")
        async with open_zookeeper(f"{address}") as outside:
            assert await outside.get("/geo/log/a") == Stored(b"x", 0, children_count=1)


async def test_the_answer_to_a_put_tells_the_time_of_the_servers(tmp_path: Path) -> None:
    async with (
        open_server(tmp_path / "data") as address,
        open_zookeeper(str(address)) as metadata,
    ):
        await metadata.create("/a")

        await metadata.put("/a", b"x", 0)

        heard = metadata.time_heard
        assert heard is not None
        assert heard.store_us == (await metadata.get("/a")).modified_us


async def test_the_largest_requests_that_the_rules_allow_are_taken(tmp_path: Path) -> None:
    """With as many operations as there can be, so that what each needs besides counts most."""

    def fitting(operations: Iterable[Operation]) -> list[Operation]:
        found, size_bytes = list[Operation](), 0
        for one in operations:
            size_bytes += rules.request_bytes([one])
            if size_bytes > rules.REQUEST_BYTES_MAX:
                break
            found.append(one)
        return found

    made = fitting(Create(f"/n{number:05d}") for number in range(100_000))
    puts = [Put(one.path, b"", 0) for one in made[1:]]
    changed = fitting(chain(puts, repeat(Check(made[0].path, 0))))
    async with open_server(tmp_path / "data") as address, open_zookeeper(f"{address}") as to:
        await to.multi(made)
        await to.multi(changed)

        assert (await to.get(made[1].path)).version == 1


async def test_a_client_leaves_no_thread_and_no_session_behind(tmp_path: Path) -> None:
    async with open_server(tmp_path / "data") as address, open_zookeeper(f"{address}") as stays:
        threads = set(threading.enumerate())
        gone = trio.Event()
        async with open_zookeeper(f"{address}") as metadata:
            await metadata.create("/e", is_ephemeral=True)
            await stays.get("/e", changed=gone)
        left = set(threading.enumerate()) - threads
        with trio.fail_after(WAIT_S):
            await gone.wait()

        assert [each.name for each in left if not each.name.startswith("Trio")] == []
        assert await stays.find("/e") is None


async def test_a_cancelled_block_can_still_write_to_metadata(tmp_path: Path) -> None:
    async with open_server(tmp_path / "data") as address, open_zookeeper(f"{address}") as stays:
        with trio.CancelScope() as scope:
            async with open_zookeeper(f"{address}") as metadata:
                try:
                    scope.cancel()
                    await trio.sleep_forever()
                finally:
                    with trio.CancelScope(shield=True):
                        await trio.testing.wait_all_tasks_blocked()
                        await metadata.create("/said")

        assert scope.cancelled_caught
        assert await stays.find("/said") is not None


async def test_the_time_out_is_the_one_that_the_server_agrees_to(tmp_path: Path) -> None:
    async with (
        open_server(tmp_path / "data") as address,
        open_zookeeper(f"{address}", session_timeout_s=0.25) as metadata,
    ):
        assert metadata.session_timeout_s == 1.0  # Two ticks of half a second.


async def test_a_silent_server_makes_writes_unknown_and_reads_fail(tmp_path: Path) -> None:
    async with (
        open_server(tmp_path / "data") as address,
        open_forwarder(address) as forwarder,
        open_zookeeper(f"{forwarder.address}", request_timeout_s=0.5) as metadata,
    ):
        forwarder.hold()

        with pytest.raises(OutcomeUnknownError, match=r"did not answer within 0\.5 s"):
            await metadata.create("/a")
        with pytest.raises(UnavailableError, match=r"did not answer within 0\.5 s"):
            await metadata.get("/a")
        assert metadata.statistics().questions_count == 2
        assert metadata.statistics().answers_missed_count == 2
        forwarder.release()
        assert await got_at_last(metadata, "/a") == Stored(b"", 0)
        assert metadata.statistics().questions_count == 0


async def test_a_broken_connection_keeps_the_session_and_fires_the_watches(
    tmp_path: Path,
) -> None:
    async with (
        open_server(tmp_path / "data") as address,
        open_forwarder(address) as forwarder,
        open_zookeeper(f"{forwarder.address}") as metadata,
    ):
        session_id = metadata.session_id
        await metadata.create("/e", is_ephemeral=True)
        changed = trio.Event()
        await metadata.get("/e", changed=changed)
        forwarder.cut()

        with trio.fail_after(WAIT_S):
            await changed.wait()
        await wait_state(metadata, SessionState.CONNECTED)
        assert (await metadata.get("/e")).is_ephemeral
        assert metadata.session_id == session_id


async def test_an_ephemeral_node_names_its_session_and_can_be_handed_on_in_one_step(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path / "data") as address, open_zookeeper(f"{address}") as stays:
        async with open_zookeeper(f"{address}") as goes:
            await goes.create("/e", is_ephemeral=True)
            assert (await stays.get("/e")).session_id == goes.session_id
            await stays.multi([Delete("/e"), Create("/e", is_ephemeral=True)])

        found = await stays.get("/e", freshness=Freshness.LATEST)
        assert found.session_id == stays.session_id
        await stays.create("/plain")
        assert (await stays.get("/plain")).session_id == 0


async def test_a_suspended_session_is_lost_by_our_own_clock_and_a_new_one_begins(
    tmp_path: Path,
) -> None:
    async with (
        open_server(tmp_path / "data") as address,
        open_forwarder(address) as forwarder,
        open_zookeeper(f"{forwarder.address}", session_timeout_s=2.0) as metadata,
    ):
        session_id = metadata.session_id
        await metadata.create("/e", is_ephemeral=True)
        held_s = trio.current_time()
        forwarder.hold()
        await wait_state(metadata, SessionState.SUSPENDED)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(refused_with_the_session, metadata)
            await wait_state(metadata, SessionState.LOST)
            assert trio.current_time() - held_s >= 2.0
            forwarder.release()
        await wait_state(metadata, SessionState.CONNECTED)

        assert metadata.session_id != session_id
        assert metadata.statistics().sessions_lost_count == 1
        assert await metadata.find("/late") is None


async def refused_with_the_session(metadata: ZooKeeperMetadata) -> None:
    with pytest.raises(SessionLostError, match="the request was not sent"):
        await metadata.create("/late")


def zxid_told(connect: bytes) -> int:
    """The highest zxid that a client reports when it connects."""
    _length, _protocol, zxid = struct.unpack_from(">iiq", connect)
    assert isinstance(zxid, int)
    return zxid


async def test_a_new_session_avoids_servers_that_are_behind_earlier_answers(
    tmp_path: Path,
) -> None:
    async with (
        open_server(tmp_path / "data") as address,
        open_forwarder(address) as forwarder,
        open_zookeeper(f"{forwarder.address}", session_timeout_s=1.0) as metadata,
        open_zookeeper(f"{address}") as other,
    ):
        session_id = metadata.session_id
        await other.create("/a")
        await metadata.get("/a", freshness=Freshness.LATEST)
        forwarder.hold()
        await wait_state(metadata, SessionState.LOST)
        forwarder.release()
        await wait_state(metadata, SessionState.CONNECTED)

        assert metadata.session_id != session_id
        assert zxid_told(forwarder.connects[0]) == 0
        assert zxid_told(forwarder.connects[-1]) > 0


async def zxid_of(server: Address) -> int:
    """The newest change that a server knows."""
    async with await trio.open_tcp_stream(server.host, server.port) as stream:
        await stream.send_all(b"srvr")
        said = b"".join([piece async for piece in stream]).decode()
    (line,) = [line for line in said.splitlines() if line.startswith("Zxid: ")]
    return int(line.partition(": ")[2], 16)


async def test_a_certain_read_takes_a_quorum_and_changes_nothing(
    tmp_path: Path,
) -> None:
    async with (
        open_server(tmp_path / "data") as address,
        open_zookeeper(f"{address}/geo/log") as metadata,
    ):
        await metadata.create("/a", b"x")
        before = await zxid_of(address)

        assert await metadata.get("/a", freshness=Freshness.LATEST) == Stored(b"x", 0)
        assert await zxid_of(address) == before
        assert await metadata.get("/a", freshness=Freshness.CERTAIN) == Stored(b"x", 0)
        assert await zxid_of(address) == before + 1
        assert await metadata.find("/b", freshness=Freshness.CERTAIN) is None
        assert await metadata.children("/", freshness=Freshness.CERTAIN) == ["a"]


async def test_a_read_fails_if_the_request_before_it_was_not_answered(
    tmp_path: Path,
) -> None:
    async with (
        open_server(tmp_path / "data") as address,
        open_forwarder(address) as forwarder,
        open_zookeeper(f"{forwarder.address}", request_timeout_s=WAIT_S) as metadata,
    ):
        await metadata.create("/a")
        forwarder.hold()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(cut_when_asked, metadata, forwarder)
            changed = trio.Event()
            with pytest.raises(UnavailableError, match="the connection to"):
                await metadata.get("/a", changed=changed, freshness=Freshness.LATEST)
        assert metadata.statistics().watches_count == 0


async def cut_when_asked(metadata: ZooKeeperMetadata, forwarder: Forwarder) -> None:
    await trio.testing.wait_all_tasks_blocked()
    assert metadata.statistics().questions_count == 1, "both have one place"
    forwarder.cut()
    forwarder.release()


async def test_a_session_that_the_server_ended_is_lost(tmp_path: Path) -> None:
    async with (
        open_server(tmp_path / "data") as address,
        open_forwarder(address) as forwarder,
        open_zookeeper(f"{forwarder.address}", session_timeout_s=2.0) as metadata,
        open_zookeeper(f"{address}") as other,
    ):
        session_id = metadata.session_id
        await metadata.create("/e", is_ephemeral=True)
        gone = trio.Event()
        await other.get("/e", changed=gone)
        forwarder.hold()
        with trio.fail_after(WAIT_S):
            await gone.wait()
        forwarder.release()
        with trio.fail_after(WAIT_S):
            while metadata.session_id == session_id or await metadata.find("/e"):
                await metadata.wait_state_change(metadata.session_state)

        assert await metadata.find("/e") is None


async def test_a_missing_server_is_reported_with_the_address_and_the_next_step() -> None:
    [nobody] = free_addresses(1)
    with pytest.raises(UnavailableError, match=f"{nobody}.*geolog serve zookeeper"):
        async with open_zookeeper(f"{nobody}", connect_timeout_s=0.5):
            pass


async def test_an_error_of_the_block_comes_out_as_it_is(tmp_path: Path) -> None:
    async with open_server(tmp_path / "data") as address:
        with pytest.raises(NoNodeError):
            async with open_zookeeper(f"{address}") as metadata:
                await metadata.get("/a")


@pytest.mark.parametrize("servers", ["", "host", "host:", ":1", "h:1,", "h:99999", "h:1//a"])
def test_servers_that_cannot_be_parsed_are_refused(servers: str) -> None:
    with pytest.raises(InvalidConfigError):
        parse_servers(servers)


def test_servers_are_read_with_and_without_chroot() -> None:
    assert parse_servers("a:1,[::1]:2") == ("a:1,[::1]:2", "")
    assert parse_servers("a:1/") == ("a:1", "")
    assert parse_servers("a:1,b:2/c/d") == ("a:1,b:2", "/c/d")
