"""The place of a demo: locked while it runs, empty at first, and left as it was found."""

import fcntl
import os
import tempfile
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from geolog.settings.running_demo import (
    LOCK_NAME,
    SETTINGS_NAME,
    DemoNote,
    default_directory,
    note_path,
    running_demo,
)
from sim.processes.cluster.place import (
    demo_directory,
    note_started,
    ports_before,
    started_last,
)
from sim.processes.cluster.plan import ClusterShape, draw_plan
from topology.errors import NotFoundError, NotPermittedError, UnavailableError


@pytest.fixture(autouse=True)
def _own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def note_demo_in(directory: Path) -> list[int]:
    shape = ClusterShape(regions=("a",), nodes_per_region=1)
    ports = list(range(20_000, 20_000 + shape.ports_count))
    note_started(draw_plan(shape, cluster="demo", directory=directory, ports=ports), ports)
    return ports


async def test_a_demo_is_found_while_it_runs_and_its_servers_answer() -> None:
    async with demo_directory(None, keeps_data=False) as directory:
        note_demo_in(directory)
        assert running_demo() is None  # Its servers do not answer yet.

        (directory / SETTINGS_NAME).touch()
        found = running_demo()

        assert found is not None
        assert found.directory == directory == default_directory()
    assert running_demo() is None
    assert not directory.exists()


async def test_a_second_demo_in_the_same_place_is_refused(
    autojump_clock: MockClock,
) -> None:
    async with demo_directory(None, keeps_data=False) as directory:
        with pytest.raises(UnavailableError, match=f"a demo runs in {directory}"):
            async with demo_directory(directory, keeps_data=True):
                pass


async def test_a_demo_waits_for_a_process_that_only_looks(tmp_path: Path) -> None:
    (tmp_path / LOCK_NAME).touch()
    looking = os.open(tmp_path / LOCK_NAME, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)

    async def demo() -> None:
        async with demo_directory(tmp_path, keeps_data=False) as directory:
            assert directory == tmp_path

    async with trio.open_nursery() as nursery:
        nursery.start_soon(demo)
        await wait_all_tasks_blocked()
        os.close(looking)


async def test_files_of_a_demo_that_was_killed_are_gone_before_the_next_begins() -> None:
    (default_directory() / "us-east").mkdir(parents=True)
    (default_directory() / "us-east" / "journal").touch()
    (default_directory() / SETTINGS_NAME).touch()

    async with demo_directory(None, keeps_data=False) as directory:
        assert [path.name for path in directory.iterdir()] == [LOCK_NAME]


async def test_data_that_is_to_stay_is_in_a_place_of_its_own(tmp_path: Path) -> None:
    async with demo_directory(None, keeps_data=True) as kept:
        (kept / "journal").touch()
    async with demo_directory(tmp_path / "named", keeps_data=False) as named:
        (named / "journal").touch()

    assert kept != default_directory()
    assert (kept / "journal").exists()
    assert (named / "journal").exists()


async def test_a_link_in_the_place_of_the_default_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    default_directory().symlink_to(tmp_path / "elsewhere")

    with pytest.raises(NotPermittedError, match="is not a directory of yours"):
        async with demo_directory(None, keeps_data=False):
            pass


async def test_the_ports_of_a_demo_are_for_the_next_once_it_has_ended() -> None:
    assert ports_before() == ()
    async with demo_directory(None, keeps_data=False) as directory:
        ports = note_demo_in(directory)
        assert ports_before() == ()

    assert ports_before() == tuple(ports)
    assert started_last() == directory


@pytest.mark.parametrize("text", ["", "[]", '{"directory": "/d"}', '{"directory": 1}'])
def test_a_note_that_is_not_one_leads_nowhere(text: str) -> None:
    note_path().write_text(text)

    with pytest.raises(NotFoundError, match="no demo found"):
        DemoNote.read()
    assert running_demo() is None


def test_a_link_in_the_place_of_the_note_is_refused(tmp_path: Path) -> None:
    note_path().symlink_to(tmp_path / "elsewhere")

    with pytest.raises(NotFoundError, match="belongs to another user"):
        DemoNote.read()
