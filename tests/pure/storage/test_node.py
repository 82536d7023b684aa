"""A storage node, seen by its clients."""

import json
from collections.abc import AsyncIterator, Callable

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.metadata.nodes import list_known_nodes, list_live_nodes
from geolog.protocol.ids import EntryId, LedgerId
from geolog.protocol.messages import (
    AddRefused,
    AddsSynced,
    Answer,
    EntryAnswer,
    Fenced,
    Hello,
    LedgerOpened,
    Message,
    Probe,
    ProbeAnswer,
    PushLac,
    Reason,
    Refused,
    Status,
    StatusRequest,
)
from geolog.transport.seam import Address
from geolog.wire.codec import PROTOCOL_VERSION, encode
from geolog.wire.frame import encode_frame_front
from regions.storage.disk import DiskFailedError
from regions.storage.protocol.records import file_name
from regions.storage.protocol.tables import FOOTER_BYTES, Footer
from sim.fakes.memory_disk import DiskFaults, MemoryDisk
from tests.pure.storage.nodes import LEDGER, World, a_config, a_world
from tests.pure.thinned import sampled, thinned

HAVE, ABSENT = Answer.HAVE, Answer.ABSENT


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with a_world() as world:
        yield world


async def test_an_entry_added_is_synced_and_read_back(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node() as node, world.client(node) as client:
        await client.send(client.open(), client.add(1, 0, b"zero"))

        assert await client.receive() == LedgerOpened(2)
        assert await client.receive() == AddsSynced(1)
        answer = await client.read(0, 2)
        assert answer.entries == (EntryAnswer(HAVE, b"zero"), EntryAnswer(ABSENT))


async def test_adds_of_one_group_are_answered_by_one_number(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node() as node, world.client(node) as client:
        await client.send(client.open())
        await client.receive_one(LedgerOpened)
        adds = [encode(client.add(1 + entry, entry, b"x" * 100)) for entry in range(50)]
        await client.stream.send([buffer for add in adds for buffer in add])

        answers: list[AddsSynced] = []
        while not answers or answers[-1].through < 50:
            answers.append(await client.receive_one(AddsSynced))

    assert len(answers) <= 3


async def test_a_refused_add_is_named_before_the_run_that_passes_it(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node() as node, world.client(node) as client:
        await client.send(
            client.open(),
            client.add(1, 0, b"zero"),
            client.add(2, 0, b"other"),
            client.add(3, 1, b"one"),
        )

        through, refused_before = 0, []
        while through < 3:
            message = await client.receive()
            if isinstance(message, AddRefused):
                refused_before.append((message.ordinal, message.reason))
            elif isinstance(message, AddsSynced):
                through = message.through

    assert refused_before == [(2, Reason.CONFLICT)]


async def test_a_fenced_writer_is_refused_and_recovery_goes_on(
    autojump_clock: MockClock, world: World
) -> None:
    async with (
        world.node() as node,
        world.client(node) as writer,
        world.client(node) as recoverer,
    ):
        await writer.send(writer.open(), writer.add(1, 0, b"zero", lac=-1))
        assert await writer.receive() == LedgerOpened(2)
        assert await writer.receive() == AddsSynced(1)

        await recoverer.send(recoverer.fence(2))
        assert await recoverer.receive() == Fenced(3, lac=-1, entry_highest=0)  # type: ignore[arg-type]
        await writer.send(writer.add(2, 1, b"one"))
        refused = await writer.receive_one(AddRefused)
        assert (refused.ordinal, refused.reason, refused.epoch_highest) == (2, Reason.FENCED, 2)

        await recoverer.send(recoverer.add(1, 0, b"zero", epoch=2, recovery=True))
        assert await recoverer.receive() == AddsSynced(1)
        answer = await recoverer.read(0, 3, fence_epoch=2)
        assert [each.answer for each in answer.entries] == [HAVE, ABSENT, ABSENT]


async def test_a_fence_outlives_power_loss(autojump_clock: MockClock, world: World) -> None:
    async with world.node() as node, world.client(node) as client:
        await client.send(client.open(), client.fence(5))
        await client.receive_one(LedgerOpened)
        await client.receive_one(Fenced)
        assert isinstance(world.disk, MemoryDisk)
        after_power_loss = world.disk.crash()
        world.node_session.cut_off()  # Nobody sees what the node does afterwards.
    world.disk = after_power_loss

    async with world.node() as node, world.client(node) as client:
        await client.send(client.add(1, 0, b"zero", epoch=5))
        refused = await client.receive_one(AddRefused)
        assert (refused.reason, refused.epoch_highest) == (Reason.FENCED, 5)


async def test_a_read_returns_the_requested_bytes_but_at_least_one_entry(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node() as node, world.client(node) as client:
        await client.send(client.open())
        await client.send(*(client.add(1 + n, n, bytes([n]) * 1000) for n in range(10)))
        await client.receive_one(LedgerOpened)
        while (await client.receive_one(AddsSynced)).through < 10:
            pass

        assert len((await client.read(0, 10, bytes_max=3500)).entries) == 3
        assert len((await client.read(0, 10, bytes_max=1)).entries) == 1
        assert len((await client.read(8, 10, bytes_max=10_000)).entries) == 10


async def test_a_probe_returns_everything_except_bodies(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node() as node, world.client(node) as client:
        await client.send(client.open(epoch=3), client.add(1, 1, b"one", epoch=3, lac=0))
        await client.receive_one(LedgerOpened)
        await client.receive_one(AddsSynced)

        probe = await client.probe(0, 3)

        assert probe.answers == (ABSENT, HAVE, ABSENT)
        assert (probe.lac, probe.entry_highest, probe.epoch_highest) == (0, 1, 3)
        assert not probe.is_fenced


async def test_a_pushed_lac_is_told_to_readers(autojump_clock: MockClock, world: World) -> None:
    async with world.node() as node, world.client(node) as client:
        await client.send(client.open(), client.add(1, 0, b"zero"))
        await client.receive_one(LedgerOpened)
        await client.receive_one(AddsSynced)
        open_ledger = client.open()
        await client.send(
            PushLac(LEDGER, open_ledger.epoch, client.add(2, 0, b"").entry, node.instance)
        )

        assert (await client.read(0, 1)).lac == 0


async def test_a_client_of_another_cluster_is_told_so_and_closed(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node() as node, world.bare_client(node.address) as client:
        await client.send(Hello(1, PROTOCOL_VERSION, "other"))

        refused = await client.receive_one(Refused)
        assert (refused.reason, refused.message) == (
            Reason.WRONG_CLUSTER,
            "this node belongs to cluster 'default'",
        )
        assert await client.is_closed()


async def test_a_request_before_hello_ends_the_connection(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node() as node, world.bare_client(node.address) as client:
        await client.send(client.open())

        assert await client.is_closed()


async def test_a_silent_connection_is_closed_in_time(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node() as node, world.bare_client(node.address) as client:
        start_s = trio.current_time()
        assert await client.is_closed()

    assert trio.current_time() - start_s == pytest.approx(a_config().handshake_timeout_s)


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n" * 10, b"\xff" * 4096, b"GLF\x01" + b"\xff" * 60],
    ids=["http", "ones", "oversized"],
)
async def test_garbage_ends_its_connection_and_no_other(
    autojump_clock: MockClock, world: World, garbage: bytes
) -> None:
    async with (
        world.node() as node,
        world.client(node) as good,
        world.bare_client(node.address) as bad,
    ):
        await bad.stream.send([garbage])
        assert await bad.is_closed()

        await good.send(good.open())
        await good.receive_one(LedgerOpened)
        await good.send(StatusRequest(9))
        status = json.loads((await good.receive_one(Status)).document)
        assert status["connections"]["closed_over_garbage"] == 1


async def test_entries_that_a_probe_reports_outlive_power_loss(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node() as node, world.client(node) as client:
        await client.send(client.open())
        await client.receive_one(LedgerOpened)
        assert isinstance(world.disk, MemoryDisk)
        world.disk.faults = DiskFaults(sync_s=1.0)
        probe = Probe(5, LEDGER, EntryId(0), 1, node.instance)
        await client.send(client.add(1, 0, b"zero"), probe)

        await client.receive_one(AddsSynced)  # The disk has it.
        assert (await client.receive_one(ProbeAnswer)).answers == (HAVE,)


async def test_a_stranger_cannot_make_a_node_hold_a_large_frame(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node() as node, world.bare_client(node.address) as client:
        await client.stream.send([encode_frame_front(1, b"", body_bytes=1 << 20)])

        assert await client.is_closed()


async def test_more_connections_than_allowed_are_closed_at_once(
    autojump_clock: MockClock, world: World
) -> None:
    config = attrs.evolve(a_config(), connections_max=1)
    async with (
        world.node(config) as node,
        world.client(node) as first,
        world.bare_client(node.address) as second,
    ):
        assert await second.is_closed()
        await first.send(first.open())
        await first.receive_one(LedgerOpened)


async def test_a_full_disk_takes_nothing_new_but_still_fences_and_reads(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node() as node, world.client(node) as client:
        await client.send(client.open(), client.add(1, 0, b"zero"))
        await client.receive_one(LedgerOpened)
        await client.receive_one(AddsSynced)
        assert isinstance(world.disk, MemoryDisk)
        world.disk.capacity_bytes = 10_000
        await trio.sleep(a_config().free_check_s * 2)

        await client.send(client.add(2, 1, b"one"))
        assert (await client.receive_one(AddRefused)).reason is Reason.READ_ONLY
        async with world.store.open_session() as metadata:
            (live,) = await list_live_nodes(metadata, "default")
        assert not live.is_writable
        await client.send(client.fence(2))
        await client.receive_one(Fenced)
        assert (await client.read(0, 1)).entries == (EntryAnswer(HAVE, b"zero"),)


async def test_a_burst_between_space_checks_does_not_fill_the_disk(
    autojump_clock: MockClock, world: World
) -> None:
    config = attrs.evolve(
        a_config(), free_bytes_min=1 << 20, free_check_s=1e6, journal_file_bytes=1 << 20
    )
    world.disk = MemoryDisk(capacity_bytes=3 << 20)
    async with world.node(config) as node, world.client(node) as client:
        await client.send(client.open())
        await client.receive_one(LedgerOpened)
        for n in range(40):
            await client.send(client.add(1 + n, n, bytes(100_000)))
        refused: list[AddRefused] = []
        while not refused or refused[-1].ordinal < 40:
            message = await client.receive()
            if isinstance(message, AddRefused):
                refused.append(message)
        free_bytes = await world.disk.free_bytes()

    assert {message.reason for message in refused} == {Reason.READ_ONLY}
    assert free_bytes >= 900_000


async def test_a_failed_sync_ends_the_node_and_answers_nothing(
    autojump_clock: MockClock, world: World
) -> None:
    answers: list[object] = []

    async def add_over_a_failure() -> None:
        async with world.node() as node, world.client(node) as client:
            await client.send(client.open())
            await client.receive_one(LedgerOpened)
            assert isinstance(world.disk, MemoryDisk)
            world.disk.faults = DiskFaults(sync_failing=world.disk.syncs_count + 1)
            await client.send(client.add(1, 0, b"zero"))
            answers.append(await client.receive())

    with pytest.raises(DiskFailedError, match="Input/output error"):
        await add_over_a_failure()
    assert answers == []


async def test_a_client_that_takes_no_answers_is_read_no_further_and_finally_closed(
    autojump_clock: MockClock, world: World
) -> None:
    entry_bytes = 1 << 20
    config = attrs.evolve(a_config(), outgoing_bytes_max=entry_bytes)
    async with (
        world.node(config) as node,
        world.client(node) as sleeper,
        world.client(node) as other,
    ):
        await other.send(other.open(), other.add(1, 0, bytes(entry_bytes)))
        await other.receive_one(LedgerOpened)
        await other.receive_one(AddsSynced)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sleeper.ask_for_reads, 100)
            await trio.sleep(1)

            outgoing_bytes = json.loads(node.status())["outgoing_bytes"]
            assert entry_bytes <= outgoing_bytes < 3 * entry_bytes
            await trio.sleep(config.outgoing_stall_s)

            assert json.loads(node.status())["outgoing_bytes"] == 0
            assert json.loads(node.status())["connections"]["open"] == 1
            nursery.cancel_scope.cancel()


async def test_adds_beyond_the_bound_in_flight_wait_and_none_is_refused(
    autojump_clock: MockClock, world: World
) -> None:
    config = attrs.evolve(a_config(), in_flight_bytes_max=8 << 20)
    async with world.node(config) as node, world.client(node) as client:
        await client.send(client.open())
        await client.receive_one(LedgerOpened)
        assert isinstance(world.disk, MemoryDisk)
        world.disk.faults = DiskFaults(sync_s=1.0)
        in_flight_bytes_highest = 0
        async with trio.open_nursery() as nursery:
            adds = [client.add(1 + n, n, bytes(1 << 20)) for n in range(40)]
            nursery.start_soon(client.send, *adds)
            through = 0
            while through < 40:
                through = (await client.receive_one(AddsSynced)).through
                in_flight_bytes = json.loads(node.status())["directories"][0]["journal"][
                    "in_flight_bytes"
                ]
                in_flight_bytes_highest = max(in_flight_bytes_highest, in_flight_bytes)

    assert 4 << 20 < in_flight_bytes_highest <= 9 << 20


@pytest.mark.parametrize(
    "what",
    thinned(
        sampled(["small adds", "fences", "probes", "opens", "ledgers"], one_in=3), one_in=3
    ),
)
async def test_requests_of_every_kind_that_wait_for_a_hanging_disk_are_bounded(
    autojump_clock: MockClock, world: World, what: str
) -> None:
    """None of this is large: the number alone would fill the memory."""
    config = attrs.evolve(a_config(), in_flight_bytes_max=8 << 20)
    async with world.node(config) as node, world.client(node) as client:
        await client.send(client.open())
        await client.receive_one(LedgerOpened)
        assert isinstance(world.disk, MemoryDisk)
        world.disk.faults = DiskFaults(sync_s=100.0)
        await client.send(client.add(1, 0, b"holds up the disk"))
        request_of: dict[str, Callable[[int], Message]] = {
            "small adds": lambda number: client.add(number + 1, number, b"1"),
            "opens": lambda _: client.open(),
            "ledgers": lambda number: client.open(ledger=LedgerId(LEDGER + number)),
            "fences": lambda number: client.fence(1 + number),
            "probes": lambda _: client.probing(0, 1),
        }
        sent_count = 0
        with trio.move_on_after(50):
            while True:
                sent_count += 1
                await client.send(request_of[what](sent_count))
        assert sent_count < 40_000
        (store,) = node.service.stores
        assert store.journal.is_full

        world.disk.faults = DiskFaults()
        await trio.sleep(200)
        assert not store.journal.is_full


async def test_a_node_that_is_cancelled_ends_in_order(
    autojump_clock: MockClock, world: World
) -> None:
    with trio.CancelScope() as ending:
        async with world.node() as node, world.client(node) as client:
            await client.send(client.open(), client.add(1, 0, b"zero"))
            await client.receive_one(LedgerOpened)
            await client.receive_one(AddsSynced)
            ending.cancel()
            await trio.lowlevel.checkpoint()

    assert isinstance(world.disk, MemoryDisk)
    content = world.disk.content(file_name(1))
    assert Footer.decode(content[-FOOTER_BYTES:], 1) is not None
    async with world.store.open_session() as metadata:
        assert await list_live_nodes(metadata, "default") == []


async def test_a_node_that_runs_is_known_and_live_and_leaves_at_the_end(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.store.open_session() as metadata:
        async with world.node() as node:
            (live,) = await list_live_nodes(metadata, "default")
            assert (live.instance, live.address) == (node.instance, Address("storage", 7001))
            assert live.is_writable
            assert live.free_bytes > 0

        assert await list_live_nodes(metadata, "default") == []
        known = attrs.evolve(live, free_bytes=0)  # A running node reports its space.
        assert await list_known_nodes(metadata, "default") == [known]
