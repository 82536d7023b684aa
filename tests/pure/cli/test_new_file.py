"""A file that a command writes is there whole, or not at all."""

import errno
import os
import signal
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import click
import pytest
import trio

import geolog
from geolog.background import open_background
from geolog.cli import new_file
from geolog.cli.exits import Exit
from geolog.cli.main import run
from geolog.cli.new_file import FileNotWrittenError, open_new_file
from geolog.cli.verbs import relay_divergence


def write(path: Path, *lines: bytes) -> None:
    with open_new_file(path) as file:
        for line in lines:
            file.write(line)


def test_a_file_has_its_name_only_once_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "left.jsonl"
    with open_new_file(path) as file:
        file.write(b"a\n")
        was_there = path.exists()
    mask = os.umask(0)
    os.umask(mask)

    assert not was_there
    assert path.read_bytes() == b"a\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("call", ["fsync", "link"])
def test_a_full_disk_leaves_nothing_and_names_the_file(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last bytes are written when the file is ended, not when the records are."""

    def is_full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, is_full)
    with pytest.raises(FileNotWrittenError, match=r"left.jsonl could not be written: No space"):
        write(tmp_path / "left.jsonl", b"a\n")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [errno.EIO, errno.EINVAL])
def test_a_directory_that_is_not_synced_has_the_file_or_says_that_it_has_not(
    error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems sync directories by themselves, and say EINVAL."""

    def refuse(_directory: Path) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(new_file, "_sync_directory", refuse)
    path = tmp_path / "left.jsonl"
    if error == errno.EINVAL:
        write(path, b"a\n")
    else:
        with pytest.raises(FileNotWrittenError, match=r"could not be written"):
            write(path, b"a\n")

    assert path.exists() == (error == errno.EINVAL)


def test_a_signal_leaves_nothing(tmp_path: Path) -> None:
    def write_and_end() -> None:
        with open_new_file(tmp_path / "left.jsonl") as file:
            file.write(b"a\n")
            raise click.Abort

    with pytest.raises(click.Abort):
        write_and_end()

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("has_links", [True, False])
def test_a_file_that_came_meanwhile_is_not_overwritten(
    has_links: bool,  # noqa: FBT001 - a parameter of the test.
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not has_links:
        _take_links_away(monkeypatch)
    path = tmp_path / "left.jsonl"
    with pytest.raises(geolog.ConflictError, match="exists already"), open_new_file(path):
        path.write_text("of another command", encoding="utf-8")

    assert path.read_text(encoding="utf-8") == "of another command"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_written_where_there_are_no_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _take_links_away(monkeypatch)
    path = tmp_path / "left.jsonl"
    write(path, b"a\n", b"b\n")

    assert path.read_bytes() == b"a\nb\n"
    assert list(tmp_path.iterdir()) == [path]


def _take_links_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)


@attrs.frozen
class ExportingLog:
    """A log that is ended by a signal while it exports."""

    async def export_divergence(
        self,
        _stream: str,
        _divergence: str,
        *,
        into: str,
        progress: Callable[[int], None],
        left_out: Callable[[int], None],
    ) -> int:
        assert into == "shop/carts"
        left_out(0)
        progress(7)
        os.kill(os.getpid(), signal.SIGTERM)
        await trio.sleep_forever()
        raise AssertionError


def test_an_export_into_a_stream_that_a_signal_ends_tells_how_far_it_came(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @asynccontextmanager
    async def opened(_invocation: object) -> AsyncIterator[ExportingLog]:
        async with open_background():  # As a connection does: errors come out as a group.
            yield ExportingLog()

    monkeypatch.setattr(relay_divergence, "open_log", opened)
    command = ["relay", "divergence", "export", "shop/carts", "us-east~2#0"]

    assert run([*command, "--into", "shop/carts"]) == Exit.INTERRUPTED
    assert "has 7 records of us-east~2#0 so far; repeat" in capsys.readouterr().err


def test_an_export_that_a_signal_ends_does_not_end_with_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script would go on and discard what it has no copy of."""

    def is_ended(*_arguments: object) -> int:
        raise click.Abort

    monkeypatch.setattr(relay_divergence, "run_to_a_signal", is_ended)
    path = tmp_path / "left.jsonl"
    command = ["relay", "divergence", "export", "shop/carts", "us-east~2#0"]

    assert run([*command, "--file", str(path)]) == 130
    assert run([*command, "--into", "shop/carts"]) == 130
    assert list(tmp_path.iterdir()) == []
