"""Settings are found, and a demo without them; settings of a demo that has ended are named."""

import fcntl
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from geolog.cli.exits import Exit
from geolog.cli.invocation import Invocation
from geolog.cli.main import run
from geolog.client.cluster_reach import reach_in_settings
from geolog.settings import found
from geolog.settings.found import check_found, find_demo, find_file
from geolog.settings.running_demo import LOCK_NAME, DemoNote, note_path
from geolog.settings.settings_file import SettingsFile
from topology.errors import InvalidArgumentError, InvalidConfigError, NotFoundError


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DemoNote:
    """The files of a demo; it runs while they are locked."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(found, "FILE_OF_MACHINE", tmp_path / "etc.toml")
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("GEOLOG_")]:
        monkeypatch.delenv(name)
    note = DemoNote(tmp_path / "demo", (1, 2))
    note.directory.mkdir()
    note.settings_file.write_text(
        f'zookeeper = "127.0.0.1:1"\nregion = "a"\n[demo]\ndata_dir = "{note.directory}"\n'
    )
    note_path().write_text(note.text())
    return note


@contextmanager
def running(demo: DemoNote) -> Iterator[None]:
    descriptor = os.open(demo.directory / LOCK_NAME, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


def test_a_demo_is_found_only_while_it_runs(demo: DemoNote) -> None:
    with running(demo):
        assert find_demo({}, {}, None) == demo
    assert find_demo({}, {}, None) is None


@pytest.mark.parametrize(
    ("flags", "environment", "profile"),
    [
        ({"zookeeper": "h:1"}, {}, None),
        ({"proxy": "h:1"}, {}, None),
        ({}, {"GEOLOG_CLUSTER": "main"}, None),
        ({}, {"GEOLOG_PROFILE": "test"}, None),
        ({}, {}, "test"),
    ],
)
def test_anything_that_names_a_cluster_keeps_a_demo_out(
    demo: DemoNote,
    flags: Mapping[str, str],
    environment: Mapping[str, str],
    profile: str | None,
) -> None:
    with running(demo):
        assert find_demo(flags, environment, profile) is None


def test_a_region_names_no_cluster(demo: DemoNote) -> None:
    with running(demo):
        assert find_demo({"region": "b"}, {"GEOLOG_REGION": "b"}, None) == demo


def test_a_program_without_settings_uses_the_demo_and_logs_it(
    demo: DemoNote, caplog: pytest.LogCaptureFixture
) -> None:
    with running(demo):
        reach = reach_in_settings(None, None)

    assert (reach.zookeeper, reach.region) == ("127.0.0.1:1", "a")
    assert caplog.messages == [f"no settings: using the demo that runs in {demo.directory}"]
    with pytest.raises(InvalidArgumentError, match="no servers are named"):
        reach_in_settings(None, None)


def test_settings_of_a_demo_that_has_ended_are_named_with_their_place(demo: DemoNote) -> None:
    path = str(demo.settings_file)
    file = SettingsFile.read(demo.settings_file)
    with running(demo):
        check_found(file, path, {})

    for named, environment, words in (
        (path, {}, f"--config {path} is of a demo that does not run .* drop that file"),
        (None, {"GEOLOG_CONFIG": path}, f"GEOLOG_CONFIG={path} is .* unset GEOLOG_CONFIG"),
        (None, {}, f"{path} is of a demo that does not run any more: start it again with"),
    ):
        with pytest.raises(NotFoundError, match=words):
            check_found(file, named, environment)


def test_settings_about_a_demo_that_it_did_not_write_are_used(
    demo: DemoNote, tmp_path: Path
) -> None:
    with running(demo):
        pass
    copied = tmp_path / "own.toml"
    copied.write_text(demo.settings_file.read_text())

    check_found(SettingsFile.read(copied), str(copied), {})


def test_a_stale_export_names_the_demo_that_runs(demo: DemoNote) -> None:
    environment = {"GEOLOG_CONFIG": "/gone/geolog.toml"}

    with (
        running(demo),
        pytest.raises(
            NotFoundError,
            match=f"unset GEOLOG_CONFIG to use the demo that runs in {demo.directory}",
        ),
    ):
        find_file(None, environment)


@pytest.fixture
def of_machine(demo: DemoNote, tmp_path: Path) -> Path:
    """The settings file of the machine; the demo does not run unless a test says so."""
    with running(demo):
        pass
    file = tmp_path / "etc.toml"
    file.write_text('zookeeper = "10.0.0.1:2181"\nregion = "m"\n')
    return file


def test_the_settings_of_the_machine_are_the_last_that_are_used(
    demo: DemoNote, of_machine: Path, tmp_path: Path
) -> None:
    def regions() -> set[str | None]:
        return {reach_in_settings(None, None).region, Invocation(environment={}).config.region}

    assert regions() == {"m"}
    with running(demo):
        assert regions() == {"a"}
    (tmp_path / "geolog.toml").write_text('zookeeper = "10.0.0.2:2181"\nregion = "here"\n')
    assert regions() == {"here"}


def test_the_settings_of_the_machine_are_named_with_their_place(of_machine: Path) -> None:
    origin = reach_in_settings(None, None).origin
    assert origin == f"zookeeper from {of_machine}:1; region from {of_machine}:2"

    of_machine.write_text('region = "m"\n')
    with pytest.raises(InvalidArgumentError, match=f"no servers are named in {of_machine} or"):
        reach_in_settings(None, None)

    of_machine.write_text('regoin = "m"\n')
    with pytest.raises(InvalidConfigError, match=rf"{of_machine}:1: unknown key .regoin."):
        _ = Invocation(environment={}).config


def test_servers_and_benchmarks_do_not_use_the_settings_of_the_machine(
    of_machine: Path,
) -> None:
    assert of_machine.exists()
    assert Invocation(environment={}, takes_demo=False).file is None


@pytest.fixture(params=["garbled", "cut off", "not UTF-8", "a directory"])
def wrong_file(request: pytest.FixtureRequest, of_machine: Path) -> str:
    """A settings file of the machine that nobody can use; the place that errors name."""
    match request.param:
        case "garbled":
            of_machine.write_text('region = "m"\ntimeout = = 3\n')
            return f"{of_machine}:2: not valid TOML"
        case "cut off":
            of_machine.write_text('region = "m"\n\ntimeout = ')
            return f"{of_machine}:3: not valid TOML"
        case "not UTF-8":
            of_machine.write_bytes(b'region = "m"\ncluster = "caf\xe9"\n')
            return f"{of_machine}:2: not UTF-8"
        case _:
            of_machine.unlink()
            of_machine.mkdir()
            return f"cannot read {of_machine}: Is a directory"


@pytest.mark.parametrize(
    "words",
    [
        "help",
        "help stream create",
        "--version",
        "generate completion bash",
        "generate systemd units",
        "config lint --config own.toml",
        "drill ls",
    ],
)
def test_a_wrong_file_of_the_machine_does_not_stop_commands_that_need_no_cluster(
    wrong_file: str, tmp_path: Path, words: str
) -> None:
    (tmp_path / "own.toml").write_text('zookeeper = "10.0.0.1:2181"\n')

    assert run(words.split()) == Exit.DONE


@pytest.mark.parametrize("words", ["demo ls", "wan show"])
def test_a_wrong_file_of_the_machine_hides_no_demo(
    wrong_file: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    note_path().unlink()

    assert run(words.split()) == Exit.NOT_FOUND
    assert "no demo found" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["stream ls", "cluster health", "config show"])
def test_other_commands_name_the_wrong_file_and_what_to_do(
    wrong_file: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(words.split())
    (told,) = capsys.readouterr().err.splitlines()

    assert code == Exit.USAGE
    assert told.startswith(f"geolog: {wrong_file}")
    assert told.endswith(", or name another file with --config or in GEOLOG_CONFIG")
