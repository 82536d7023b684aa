"""How a program reaches its cluster: by its arguments, else by the command's settings."""

import asyncio  # noqa: TID251 - a program that geolog.connect must turn away.
import pickle
import traceback
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import trio

import geolog
from geolog.client import connect
from geolog.client.cluster_reach import ClusterReach, reach_in_settings
from geolog.metadata.zookeeper import open_zookeeper
from geolog.transport.seam import Address

FILE = """\
zookeeper = "far:1,farther:2/geolog"
zookeeper_regions = "us-east, eu-west"
region = "us-east"
gateway = "near:9"

[serve.storage]
mark_idle = "1s"

[profile.test]
cluster = "test"
"""


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("CONFIG", "PROFILE", "ZOOKEEPER", "REGION"):
        monkeypatch.delenv(f"GEOLOG_{name}", raising=False)


def settings_in(directory: Path, text: str = FILE) -> Path:
    path = directory / "geolog.toml"
    path.write_text(text)
    return path


def test_a_file_in_the_working_directory_is_read(tmp_path: Path) -> None:
    path = settings_in(tmp_path)

    assert reach_in_settings(None, None) == ClusterReach(
        zookeeper="far:1,farther:2/geolog",
        region="us-east",
        gateway=Address("near", 9),
        zookeeper_regions=["us-east", "eu-west"],
        origin=f"zookeeper from {path}:1; region from {path}:3; gateway from {path}:4",
    )


def test_the_environment_names_a_file_and_wins_over_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deep").mkdir()
    monkeypatch.setenv("GEOLOG_CONFIG", str(settings_in(tmp_path / "deep")))
    monkeypatch.setenv("GEOLOG_REGION", "eu-west")
    monkeypatch.setenv("GEOLOG_PROFILE", "test")

    reach = reach_in_settings(None, None)

    assert (reach.region, reach.cluster) == ("eu-west", "test")
    assert "region from environment GEOLOG_REGION" in str(reach.origin)


def test_arguments_win_over_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings_in(tmp_path, 'zookeeper = "127.0.0.1:1"\nregion = "nowhere"\n')
    impatient = partial(open_zookeeper, connect_timeout_s=0.5)
    monkeypatch.setattr(connect, "open_zookeeper", impatient)

    async def main() -> None:
        connection = geolog.connect(cluster="other", region="elsewhere", session_timeout_s=0.2)
        with trio.fail_after(20):
            async with connection:
                pass

    with pytest.raises(geolog.UnavailableError, match=r"127\.0\.0\.1:1") as caught:
        trio.run(main)
    assert f"zookeeper from {tmp_path}/geolog.toml:1" in str(caught.value)


def test_servers_in_the_arguments_leave_settings_alone(tmp_path: Path) -> None:
    settings_in(tmp_path, "unknown = 1\n")

    geolog.connect(zookeeper="127.0.0.1:1")
    with pytest.raises(geolog.InvalidArgumentError, match=r"geolog\.toml:1: unknown key"):
        geolog.connect()


@pytest.mark.parametrize("surface", [geolog, geolog.aio, geolog.blocking])
def test_a_call_that_cannot_connect_fails_at_once(surface: ModuleType) -> None:
    with pytest.raises(geolog.InvalidArgumentError, match="no servers are named: give"):
        surface.connect()
    with pytest.raises(geolog.InvalidArgumentError, match="zookeeper is 2181"):
        surface.connect(zookeeper=2181)
    with pytest.raises(geolog.InvalidArgumentError, match="needs your region"):
        surface.connect(zookeeper="127.0.0.1:1", gateway="127.0.0.1:2")


def test_a_stale_export_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEOLOG_CONFIG", str(tmp_path / "gone.toml"))

    with pytest.raises(geolog.NotFoundError, match=r"GEOLOG_CONFIG names .*/gone\.toml, which"):
        geolog.connect()


def test_asyncio_is_told_of_the_module_for_it() -> None:
    async def main() -> None:
        async with geolog.connect(zookeeper="127.0.0.1:1"):
            pass

    with pytest.raises(geolog.InvalidArgumentError, match=r"use geolog\.aio\.connect\(\)"):
        asyncio.run(main())


def test_a_program_without_a_loop_is_told_of_the_module_for_it() -> None:
    with (
        pytest.raises(geolog.InvalidArgumentError, match=r"geolog\.blocking\.connect\(\)"),
        geolog.connect(zookeeper="127.0.0.1:1"),
    ):
        pass


def test_tracebacks_name_an_error_as_a_program_catches_it() -> None:
    with pytest.raises(geolog.InvalidArgumentError) as caught:
        geolog.connect()

    last = traceback.format_exception_only(caught.value)[-1]
    assert last.startswith("geolog.InvalidArgumentError: no servers are named")


@pytest.mark.parametrize("name", [name for name in geolog.__all__ if name.endswith("Error")])
def test_every_public_error_bears_its_public_name(name: str) -> None:
    error = getattr(geolog, name)

    assert error.__module__ == "geolog"
    assert pickle.loads(pickle.dumps(error)) is error
