"""Running out of descriptors: few files stay open, and nothing fails for lack of one."""

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from geolog.protocol.ids import EntryId, LedgerId
from geolog.protocol.messages import Answer, ReadAnswer, Reason, Refused
from regions.storage.descriptor_limit import (
    DescriptorPlan,
    TooFewDescriptorsError,
    plan_descriptors,
)
from regions.storage.descriptors import Descriptors
from regions.storage.disk import TooManyOpenFilesError, UnreadableError
from regions.storage.file_disk import FileDisk, open_file_disk
from regions.storage.protocol.records import file_name
from tests.pure.storage.journals import running
from tests.pure.storage.nodes import a_world
from tests.system.demo_process import COMMAND_S_MAX, GEOLOG, plain_environment

FILES_OPEN_MAX = 3
BODY = bytes(range(256)) * 20


def opened_in(directory: Path) -> int:
    """How many files of a directory this process has open."""
    links = (each for each in Path("/proc/self/fd").iterdir())
    return sum(one.parent == directory for one in map(_target, links))


def _target(link: Path) -> Path:
    try:
        return link.readlink()
    except FileNotFoundError:
        return Path()


class Scarcity:
    """While active, the process has no descriptor left for files of a disk."""

    def __init__(self, disk: FileDisk, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_on = False
        self.refused_count = 0
        self._open = disk.open_descriptor
        monkeypatch.setattr(disk, "open_descriptor", self._open_or_refuse)

    def _open_or_refuse(self, name: str, flags: int = os.O_RDWR) -> int:
        if self.is_on:
            self.refused_count += 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self._open(name, flags)


async def store(directory: Path, disk: FileDisk, count: int) -> None:
    async with running(disk, file_bytes_max=16 << 10) as node:
        node.open_ledger(7)
        for entry in range(count):
            node.add(7, entry, BODY)
            await node.journal.wait_synced()
        assert len(await disk.list()) > 10 * FILES_OPEN_MAX
        assert opened_in(directory) <= FILES_OPEN_MAX + 1


async def test_of_many_journal_files_few_are_open_and_all_are_readable(
    tmp_path: Path,
) -> None:
    async with open_file_disk(tmp_path, files_open_max=FILES_OPEN_MAX) as disk:
        await store(tmp_path, disk, 100)

        async with running(disk) as node:
            for entry in range(100):
                assert await node.read(7, entry) == BODY
                assert opened_in(tmp_path) <= FILES_OPEN_MAX + 1


async def test_entries_of_a_file_that_cannot_be_opened_again_are_damaged(
    tmp_path: Path,
) -> None:
    async with open_file_disk(tmp_path, files_open_max=FILES_OPEN_MAX) as disk:
        await store(tmp_path, disk, 100)
        async with running(disk) as node:
            assert await node.read(7, 99) == BODY
            (tmp_path / file_name(1)).unlink()

            for entry, is_from_disk in ((0, True), (0, False), (1, False)):
                (found,) = await node.entries.read(
                    LedgerId(7), EntryId(entry), 1, len(BODY), is_from_disk=is_from_disk
                )
                assert found.answer is Answer.CORRUPT


async def test_many_concurrent_readers_get_their_entries(tmp_path: Path) -> None:
    async with open_file_disk(tmp_path, files_open_max=FILES_OPEN_MAX) as disk:
        files = []
        for number in range(30):
            file = await disk.create(f"{number}")
            await file.write_synced(0, [bytes([number]) * (2 << 20)])
            file.rest()
            files.append(file)

        async def read(number: int) -> None:
            for _ in range(3):  # Too large to read at once, so a thread reads it.
                found = await files[number].read(0, 2 << 20)
                assert found == bytes([number]) * (2 << 20)

        async with trio.open_nursery() as nursery:
            for number in range(30):
                nursery.start_soon(read, number)
        assert disk.descriptors.statistics().idle_count <= FILES_OPEN_MAX


def test_a_borrowed_descriptor_stays_open_and_the_one_idle_longest_is_closed(
    tmp_path: Path,
) -> None:
    def opening(name: str) -> Callable[[], int]:
        return lambda: os.open(tmp_path / name, os.O_RDWR | os.O_CREAT)

    descriptors = Descriptors(idle_max=2)
    first, *others = [
        descriptors.adopt(opening(name)(), opening(name), is_kept=False) for name in "abcdef"
    ]
    with descriptors.lent(first) as number:
        for other in others:
            with descriptors.lent(other):
                pass
        descriptors.close_idle()
        assert os.fstat(number).st_size == 0
        descriptors.close(first)
        assert os.fstat(number).st_size == 0
    with pytest.raises(OSError, match="Bad file descriptor"), descriptors.lent(first):
        pass
    assert descriptors.statistics().open_count == 0
    for other in others:
        with descriptors.lent(other):
            pass
    assert [other.number >= 0 for other in others] == [False, False, False, True, True]
    for other in others:
        descriptors.close(other)


def test_a_descriptor_opened_by_another_reader_is_not_closed_while_borrowed(
    tmp_path: Path,
) -> None:
    """Two readers find a file closed, and open it; one is done before the other takes it."""
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"b")
    comes_first: list[Callable[[], None]] = []

    def opening() -> int:
        if comes_first:
            comes_first.pop()()
        return os.open(tmp_path / "a", os.O_RDONLY)

    descriptors = Descriptors(idle_max=2)
    shared = descriptors.adopt(opening(), opening, is_kept=False)
    descriptors.close_idle()

    def read_and_rest() -> None:
        with descriptors.lent(shared):
            pass

    comes_first.append(read_and_rest)
    with descriptors.lent(shared) as number:
        assert descriptors.statistics().idle_count == 0
        descriptors.close_idle()
        with (tmp_path / "b").open("rb"):  # It would get the same number.
            assert os.pread(number, 1, 0) == b"a"
    assert descriptors.statistics().idle_count == 1


async def test_a_descriptor_closed_under_its_reader_is_not_mistaken_for_damage(
    tmp_path: Path,
) -> None:
    """Damage is repaired from other nodes; our own defect ends the node."""
    async with open_file_disk(tmp_path, files_open_max=1) as disk:
        file = await disk.create("a")
        await file.write_synced(0, [BODY])
        with disk.descriptors.lent(file._descriptor) as number:  # type: ignore[attr-defined]  # noqa: SLF001
            os.close(number)
            with pytest.raises(AssertionError, match="closed under"):
                await file.read(0, len(BODY) + 1)
            assert os.open(tmp_path / "a", os.O_RDWR) == number  # The lowest free number.


async def test_without_a_descriptor_a_read_is_refused_as_busy_and_the_node_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_file_disk(tmp_path, files_open_max=1) as disk, a_world() as world:
        world.disk = disk
        async with world.node() as node, world.client(node) as client:
            await client.store(BODY)
        scarcity = Scarcity(disk, monkeypatch)
        async with world.node() as node, world.client(node) as client:
            scarcity.is_on = True
            disk.descriptors.close_idle()
            await client.send(client.reading(0, 1))
            refused = await client.receive_one(Refused)
            scarcity.is_on = False
            await client.send(client.reading(0, 1))
            (found,) = (await client.receive_one(ReadAnswer)).entries

    assert (refused.reason, "Too many open files" in refused.message) == (Reason.BUSY, True)
    assert (found.answer, bytes(found.body)) == (Answer.HAVE, BODY)


async def test_a_roll_closes_idle_files_first_and_waits_for_a_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_file_disk(tmp_path) as disk:
        async with running(disk, file_bytes_max=8 << 10) as node:
            scarcity = Scarcity(disk, monkeypatch)
            node.open_ledger(7)
            for entry in range(3):
                node.add(7, entry, BODY)
                await node.journal.wait_synced()
            scarcity.is_on = True
            node.add(7, 3, BODY)
            with trio.move_on_after(10):
                while scarcity.refused_count < 6:  # noqa: ASYNC110 - A thread counts.
                    await trio.sleep(0.01)
            assert not node.journal.is_idle
            assert disk.descriptors.statistics().idle_count == 0
            scarcity.is_on = False
            await node.journal.wait_synced()

        async with running(disk) as node:
            assert [await node.read(7, entry) for entry in range(4)] == [BODY] * 4


async def test_a_removed_idle_file_remains_readable_by_its_holder(
    tmp_path: Path,
) -> None:
    async with open_file_disk(tmp_path, files_open_max=1) as disk:
        file = await disk.create("one")
        await file.write_synced(0, [b"still here"])
        file.rest()
        disk.descriptors.close_idle()
        await disk.remove("one")

        assert await file.read(0, 10) == b"still here"


async def test_an_idle_file_removed_by_somebody_else_cannot_be_read(
    tmp_path: Path,
) -> None:
    async with open_file_disk(tmp_path, files_open_max=1) as disk:
        file = await disk.create("one")
        await file.write_synced(0, [b"was here"])
        file.rest()
        disk.descriptors.close_idle()
        (tmp_path / "one").unlink()

        with pytest.raises(UnreadableError, match="No such file"):
            await file.read(0, 4)


async def test_a_start_without_descriptors_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_file_disk(tmp_path) as disk:
        Scarcity(disk, monkeypatch).is_on = True
        with pytest.raises(TooManyOpenFilesError, match="Too many open files"):
            async with running(disk):
                pass


@pytest.mark.parametrize(
    ("limit", "directories", "connections", "files"),
    [
        (1 << 20, 1, 1024, 256),
        (4096, 4, 1024, 256),
        (1024, 1, 738, 246),
        (160, 1, 90, 30),
        (57, 1, 13, 4),
    ],
)
def test_connections_get_the_rest_of_the_limit(
    limit: int, directories: int, connections: int, files: int
) -> None:
    planned = plan_descriptors(
        limit, connections_max=1024, journal_files_open_max=256, directories=directories
    )

    assert planned == DescriptorPlan(limit, connections, files)


@pytest.mark.parametrize(("limit", "directories"), [(56, 1), (20, 1), (64, 2)])
def test_a_limit_below_the_minimum_is_refused(limit: int, directories: int) -> None:
    with pytest.raises(TooFewDescriptorsError, match=f"open-file limit: {limit};"):
        plan_descriptors(
            limit, connections_max=1024, journal_files_open_max=256, directories=directories
        )


@pytest.mark.parametrize(
    ("soft", "hard"), [(256, 700), (700, 700), (15_000, 15_000), (256, 15_000)]
)
def test_a_process_raises_its_own_limit_as_far_as_allowed(soft: int, hard: int) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most != resource.RLIM_INFINITY:
        hard = min(hard, most)
    soft = min(soft, hard)
    code = (
        "from geolog.transport.descriptor_limit import raise_descriptor_limit as up;"
        " print(up(), up())"
    )

    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        preexec_fn=lower,
        capture_output=True,
        check=True,
        text=True,
    )

    assert done.stdout == f"{hard} {hard}\n"


def test_a_node_does_not_start_under_a_limit_that_is_too_low(tmp_path: Path) -> None:
    place = ["--location", "/a/rack-1", "--listen", "127.0.0.1:1", "--zookeeper", "127.0.0.1:1"]

    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))

    done = subprocess.run(
        [*GEOLOG, "serve", "storage", "--data-dir", str(tmp_path / "d"), *place],
        preexec_fn=lower,
        capture_output=True,
        check=False,
        env=plain_environment(),
        timeout=COMMAND_S_MAX,
    )

    message = done.stderr.decode()
    assert done.returncode == 1
    assert "open-file limit: 50;" in message
    assert "needs at least 57. Raise the limit" in message
    assert "Traceback" not in message
    assert not (tmp_path / "d").exists()
