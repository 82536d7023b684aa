"""The disk seam over a real directory, and a node on it over real sockets."""

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path

import attrs
import pytest
import trio

from geolog.protocol.messages import AddsSynced, Answer, LedgerOpened
from geolog.transport.seam import Address
from geolog.transport.tcp import TcpTransport
from regions.storage import file_disk
from regions.storage.config import StorageConfig
from regions.storage.disk import DiskFailedError, DiskFullError, UnreadableError
from regions.storage.file_disk import DirectoryInUseError, open_file_disk, write_all
from regions.storage.node import StorageNode, open_storage_node
from sim.fakes.memory_metadata import open_memory_store
from tests.pure.storage.nodes import BareClient
from topology.errors import NotFoundError


async def test_written_bytes_are_read_back(tmp_path: Path) -> None:
    async with open_file_disk(tmp_path / "new" / "directory") as disk:
        file = await disk.create("one")
        await file.write_synced(0, [b"head ", b"", bytes(100_000), b" tail"])
        await file.write(3, [b"D"])

        assert file.size_bytes == 100_010
        assert await file.read(0, 6) == b"heaD \x00"
        assert await file.read(100_005, 100) == b" tail"
        assert await file.read(200_000, 10) == b""
        assert len(await file.read(0, 100_010)) == 100_010
        await disk.rename("one", "two")
        await disk.sync_directory()
        assert await disk.list() == ["two"]
        assert await disk.free_bytes() > 0
        await file.close()

    async with open_file_disk(tmp_path / "new" / "directory") as disk:
        assert (await disk.open("two")).size_bytes == 100_010
        await disk.remove("two")
        with pytest.raises(NotFoundError, match="cannot open two"):
            await disk.open("two")
        with pytest.raises(NotFoundError, match="cannot remove two"):
            await disk.remove("two")


async def test_nothing_can_be_created_in_a_vanished_directory(tmp_path: Path) -> None:
    async with open_file_disk(tmp_path / "data") as disk:
        (tmp_path / "data").rmdir()

        with pytest.raises(DiskFailedError, match="cannot open one"):
            await disk.create("one")


async def test_space_is_taken_ahead_and_given_back(tmp_path: Path) -> None:
    async with open_file_disk(tmp_path) as disk:
        file = await disk.create("one")
        await file.write_synced(0, [b"head"])
        await file.allocate(4, (1 << 20) - 4)

        assert file.size_bytes == 1 << 20
        assert (tmp_path / "one").stat().st_blocks * 512 >= 1 << 20
        assert await file.read(0, 6) == b"head\0\0"
        await file.truncate(6)
        await file.write_synced(4, [b"!"])
        assert file.size_bytes == (tmp_path / "one").stat().st_size == 6
        await file.close()


async def test_a_failed_allocation_leaves_the_file_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.posix_fallocate

    def take_some(descriptor: int, offset: int, length: int) -> None:
        whole(descriptor, offset, length // 2)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with open_file_disk(tmp_path) as disk:
        file = await disk.create("one")
        await file.write_synced(0, [b"head"])
        with monkeypatch.context() as patched:
            patched.setattr(os, "posix_fallocate", take_some)
            with pytest.raises(DiskFullError, match="cannot allocate 4096 bytes for one"):
                await file.allocate(4, 4096)

        assert file.size_bytes == (tmp_path / "one").stat().st_size == 4
        await file.write_synced(4, [b" and more"])
        assert await file.read(0, 20) == b"head and more"


async def test_a_file_system_without_allocation_is_still_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_descriptor: int, _offset: int, _length: int) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    async with open_file_disk(tmp_path) as disk:
        file = await disk.create("one")
        await file.allocate(0, 4096)
        await file.write_synced(0, [b"head"])

        assert file.size_bytes == (tmp_path / "one").stat().st_size == 4


async def test_a_removed_file_remains_readable_until_its_last_reader_lets_go(
    tmp_path: Path,
) -> None:
    async with open_file_disk(tmp_path) as disk:
        file = await disk.create("one")
        await file.write_synced(0, [b"still here"])
        await disk.remove("one")

        assert await file.read(0, 10) == b"still here"
        assert opened_in(tmp_path) == [tmp_path / "one (deleted)"]
        del file
        assert opened_in(tmp_path) == []


def opened_in(directory: Path) -> list[Path]:
    """The files of a directory that this process has open."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # It was closed meanwhile.
            found.append(descriptor.readlink())
    return [each for each in found if each.parent == directory and "one" in each.name]


async def test_one_process_at_a_time_has_a_directory(tmp_path: Path) -> None:
    async with open_file_disk(tmp_path):
        with pytest.raises(DirectoryInUseError, match=str(tmp_path)):
            async with open_file_disk(tmp_path):
                pass

    async with open_file_disk(tmp_path):
        pass  # It was released.


@pytest.mark.parametrize(
    ("refused", "what"),
    [
        ("listdir", "cannot list"),
        ("open", "cannot open one"),
        ("fstat", "cannot open one"),
        ("fstatvfs", "cannot get the free space"),
        ("pwritev", "cannot write one"),
        ("fdatasync", "cannot write one"),
        ("posix_fallocate", "cannot allocate 100 bytes for one"),
        ("ftruncate", "cannot cut one"),
        ("close", "cannot close one"),
        ("rename", "cannot rename one to two"),
        ("unlink", "cannot remove one"),
        ("fsync", "cannot sync directory"),
    ],
)
async def test_an_error_of_any_call_names_the_call_and_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str, what: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async with open_file_disk(tmp_path) as disk:
        file = await disk.create("one")
        await file.write_synced(0, [b"synced"])
        await file.write(6, [b"and not yet"])
        ask = {
            "listdir": disk.list,
            "open": lambda: disk.open("one"),
            "fstat": lambda: disk.open("one"),
            "fstatvfs": disk.free_bytes,
            "pwritev": lambda: file.write(0, [b"more"]),
            "fdatasync": lambda: file.write_synced(0, [b"more"]),
            "posix_fallocate": lambda: file.allocate(0, 100),
            "ftruncate": lambda: file.truncate(2),
            "close": file.close,
            "rename": lambda: disk.rename("one", "two"),
            "unlink": lambda: disk.remove("one"),
            "fsync": disk.sync_directory,
        }
        with monkeypatch.context() as patched:
            patched.setattr(os, refused, fail)
            with pytest.raises(DiskFailedError, match=rf"{what}.* {tmp_path}.*error"):
                await ask[refused]()


async def test_unreadable_bytes_are_damage_and_not_a_disk_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async with open_file_disk(tmp_path) as disk:
        file = await disk.create("one")
        await file.write_synced(0, [b"synced"])
        with monkeypatch.context() as patched:
            patched.setattr(os, "preadv", fail)
            patched.setattr(os, "pread", fail)
            for ask in (file.read(1, 4), file.read(0, 2 << 20), file.read_many([(0, 2)])):
                with pytest.raises(UnreadableError, match=rf"of one in {tmp_path}: .*error"):
                    await ask

        assert await file.read(0, 6) == b"synced"
        await file.write_synced(6, [b" still"])


@pytest.mark.parametrize(
    ("number", "error"),
    [(errno.EIO, DiskFailedError), (errno.ENOSPC, DiskFullError)],
    ids=["EIO", "ENOSPC"],
)
async def test_after_an_error_a_file_is_never_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: type[Exception]
) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    async with open_file_disk(tmp_path) as disk:
        file = await disk.create("one")
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", fail)
            with pytest.raises(error, match="cannot write one"):
                await file.write_synced(0, [b"lost?"])

        with pytest.raises(DiskFailedError, match="not writing to it again"):
            await file.write_synced(0, [b"again"])


async def test_a_begun_write_is_told_once_and_only_after_its_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = HeardSyncs()
    heard.listen(monkeypatch)
    ended = trio.Event()
    told: list[tuple[Exception | None, int, int]] = []
    async with open_file_disk(tmp_path) as disk:
        file = await disk.create("one")

        def on_written(error: Exception | None) -> None:
            told.append((error, file.size_bytes, len(heard.calls)))
            ended.set()

        file.begin_write_synced(0, [b"begun ", b"at once"], on_written)
        assert told == [], "never within the call"
        with trio.fail_after(10):
            await ended.wait()

        assert told == [(None, 13, 1)]
        assert await file.read(0, 20) == b"begun at once"


async def test_a_failed_begun_write_says_so_and_the_file_is_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    ended = trio.Event()
    told: list[Exception | None] = []

    def on_written(error: Exception | None) -> None:
        told.append(error)
        ended.set()

    async with open_file_disk(tmp_path) as disk:
        file = await disk.create("one")
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", fail)
            file.begin_write_synced(0, [b"lost?"], on_written)
            with trio.fail_after(10):
                await ended.wait()
        with pytest.raises(DiskFailedError, match="not writing to it again"):
            file.begin_write_synced(0, [b"again"], on_written)

    (error,) = told
    assert isinstance(error, DiskFailedError)


async def test_a_write_continues_where_the_kernel_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.pwritev

    def write_some(descriptor: int, vector: list[bytes], offset: int, flags: int) -> int:
        return whole(descriptor, [memoryview(vector[0])[:7]], offset, flags)

    monkeypatch.setattr(os, "pwritev", write_some)
    descriptor = os.open(tmp_path / "one", os.O_RDWR | os.O_CREAT)

    end = write_all(descriptor, 2, [b"0123456789", b"", b"abcdefghij", b"k"])

    assert end == 23
    assert os.pread(descriptor, 100, 2) == b"0123456789abcdefghijk"
    os.close(descriptor)


@attrs.define
class HeardSyncs:
    """The calls that sync something, in order, as the kernel gets them."""

    calls: list[str] = attrs.field(factory=list)
    is_refused: bool = False
    asked_count: int = 0
    """Writes that were to sync, too."""

    def listen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        write, sync = os.pwritev, os.fdatasync

        def pwritev(descriptor: int, vector: list[bytes], offset: int, flags: int) -> int:
            if flags == os.RWF_DSYNC:
                self.asked_count += 1
                if self.is_refused:
                    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
                self.calls.append("range")
            return write(descriptor, vector, offset, flags)

        def fdatasync(descriptor: int) -> None:
            self.calls.append("file")
            sync(descriptor)

        monkeypatch.setattr(os, "pwritev", pwritev)
        monkeypatch.setattr(os, "fdatasync", fdatasync)


async def test_only_what_is_written_is_synced_if_all_else_of_the_file_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = HeardSyncs()
    heard.listen(monkeypatch)
    async with open_file_disk(tmp_path) as disk:
        file = await disk.create("one")
        await file.write_synced(0, [b"first"])
        await file.write_synced(5, [b"second"])
        after_plain = len(heard.calls)
        await file.write(11, [b"not synced"])
        await file.write_synced(21, [b"third"])
        await file.allocate(26, 4096)
        await file.write_synced(26, [b"fourth"])
        await file.write_synced(32, [b"fifth"])
        await file.truncate(37)
        await file.write_synced(37, [b"sixth"])
        reopened = await disk.open("one")
        await reopened.write_synced(42, [b"seventh"])

    assert heard.calls[:after_plain] == ["file", "range"]
    assert heard.calls[after_plain:] == ["file", "file", "range", "file", "file"]


async def test_a_file_system_that_cannot_sync_ranges_syncs_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = HeardSyncs(is_refused=True)
    heard.listen(monkeypatch)
    async with open_file_disk(tmp_path) as disk:
        file = await disk.create("one")
        await file.write_synced(0, [b"first"])
        await file.write_synced(5, [b"second"])
        await file.write_synced(11, [b"third"])
        another = await disk.create("another")
        await another.write_synced(0, [b"fourth"])
        await another.write_synced(6, [b"fifth"])

        assert await file.read(0, 20) == b"firstsecondthird"
    assert heard.calls == ["file"] * 5
    assert heard.asked_count == 1, "a refusal is remembered"


async def test_a_vector_longer_than_the_kernel_takes_is_written(tmp_path: Path) -> None:
    piece = b"x" * 4096  # Not joined with its neighbours.
    async with open_file_disk(tmp_path) as disk:
        file = await disk.create("one")
        await file.write_synced(0, [piece] * 3000)
        assert file.size_bytes == 3000 * 4096


async def test_a_read_that_must_wait_for_the_disk_is_made_by_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_file_disk(tmp_path) as disk:
        file = await disk.create("one")
        await file.write_synced(0, [b"x" * 100])
        monkeypatch.setattr(file_disk, "_READ_AT_ONCE_BYTES_MAX", 10)
        assert await file.read(50, 100) == b"x" * 50


@pytest.mark.parametrize("at_once_bytes_max", [1 << 20, 0])
async def test_many_pieces_are_read_as_each_would_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once_bytes_max: int
) -> None:
    monkeypatch.setattr(file_disk, "_READ_AT_ONCE_BYTES_MAX", at_once_bytes_max)
    pieces = [(50_000, 10), (0, 4), (99_998, 10), (7, 0), (200_000, 5), (3, 90_000)]
    async with open_file_disk(tmp_path) as disk:
        file = await disk.create("one")
        await file.write_synced(0, [secrets.token_bytes(100_000)])

        found = await file.read_many(pieces)

        assert found == [await file.read(offset, length) for offset, length in pieces]
        assert [len(one) for one in found] == [10, 4, 2, 0, 0, 90_000]
        assert await file.read_many([]) == []
        await file.close()


async def test_the_disk_begins_with_all_pieces_and_files_before_the_first_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, int]] = []
    advise, read = os.posix_fadvise, os.pread

    def advised(descriptor: int, offset: int, length: int, advice: int) -> None:
        if advice == os.POSIX_FADV_WILLNEED:
            name = Path(os.readlink(f"/proc/self/fd/{descriptor}")).name
            calls.append((f"advise {name}", offset))
        advise(descriptor, offset, length, advice)

    def reading(descriptor: int, length: int, offset: int) -> bytes:
        calls.append(("read", offset))
        return read(descriptor, length, offset)

    monkeypatch.setattr(file_disk, "_READ_AT_ONCE_BYTES_MAX", 0)
    monkeypatch.setattr(os, "posix_fadvise", advised)
    monkeypatch.setattr(os, "pread", reading)
    async with open_file_disk(tmp_path) as disk:
        one, two = await disk.create("one"), await disk.create("two")
        for file in (one, two):
            await file.write_synced(0, [bytes(100_000)])
        await one.read_many([(5, 4), (9000, 4)], soon=[(two, [(70, 4)])])
        spread, calls[:] = list(calls), []
        await one.read_many([(5, 4)])

    assert spread == [
        ("advise one", 5),
        ("advise one", 9000),
        ("advise two", 70),
        ("read", 5),
        ("read", 9000),
    ]
    assert calls == [("read", 5)], "for a single piece, the kernel reads ahead by itself"


async def test_advice_on_a_file_that_is_gone_fails_no_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_disk, "_READ_AT_ONCE_BYTES_MAX", 0)
    async with open_file_disk(tmp_path) as disk:
        gone, file = await disk.create("gone"), await disk.create("one")
        await file.write_synced(0, [b"x" * 100_000])
        await gone.close()

        assert await file.read_many([(5, 5), (9, 1)], soon=[(gone, [(0, 5)])]) == [
            b"xxxxx",
            b"x",
        ]


async def test_forgotten_pages_are_read_from_disk_where_the_platform_allows(
    tmp_path: Path,
) -> None:
    content = secrets.token_bytes(256 << 10)
    async with open_file_disk(tmp_path) as disk:
        file = await disk.create("one")
        await file.write_synced(0, [content])
        is_in_page_cache = _is_cached(tmp_path / "one")

        await file.forget_cached([(0, len(content))])
        is_left = _is_cached(tmp_path / "one")
        found = await file.read_many([(10, 100), (200_000, 50)])

        assert is_in_page_cache
        assert is_left == _keeps_pages(tmp_path / "other")
        assert found == [content[10:110], content[200_000:200_050]]
        await file.close()


def _is_cached(path: Path) -> bool:
    """Whether the first page of a file can be read without waiting for the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.preadv(descriptor, [bytearray(1)], 0, os.RWF_NOWAIT) == 1
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)


def _keeps_pages(path: Path) -> bool:
    """Whether this file system keeps pages that it should drop, like one in memory."""
    path.write_bytes(bytes(4096))
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 4096, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
    return _is_cached(path)


async def test_a_node_on_a_real_disk_over_tcp_keeps_its_entries(tmp_path: Path) -> None:
    body = secrets.token_bytes(300_000)
    config = StorageConfig(
        location="/here/rack-1",
        listen=Address("127.0.0.1", 0),
        node_id="node-1",
        journal_file_bytes=1 << 20,
    )

    async def a_client(node: StorageNode) -> BareClient:
        client = BareClient(await TcpTransport().connect(node.address))
        await client.say_hello()
        return client

    names: list[str] = []
    async with open_memory_store() as store, store.open_session() as metadata:
        for life in range(3):
            async with (
                open_file_disk(tmp_path) as disk,
                open_storage_node(
                    config,
                    transport=TcpTransport(),
                    disks=[disk],
                    metadata=metadata,
                    random_bytes=secrets.token_bytes,
                ) as node,
            ):
                client = await a_client(node)
                await client.send(client.open())
                await client.receive_one(LedgerOpened)
                for entry in range(5):
                    await client.send(client.add(1 + entry, 5 * life + entry, body))
                    await client.receive_one(AddsSynced)
                for entry in range(5 * life + 5):
                    (answer,) = (await client.read(entry, 1)).entries
                    assert (answer.answer, bytes(answer.body)) == (Answer.HAVE, body)
                client.stream.close()
                names = await disk.list()
    assert sum(name.endswith(".journal") for name in names) > 4
    assert not any(name.endswith(".new") for name in names)
