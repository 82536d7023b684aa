"""Units of systemd: their contents, and that systemd accepts them."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from geolog.cli.main import run
from geolog.cli.nouns.serve import END_S
from geolog.cli.systemd_units import SERVERS, STOP_S, TARGET, UnitPlan, units
from topology.errors import InvalidArgumentError

SETTINGS = """\
zookeeper = "a.example.net:2181"
region = "a"

[serve.zookeeper]
listen = "a.example.net:2181"

[serve.storage]
location = "/a/rack-1"
listen = "a.example.net:4001"

[serve.proxy]
listen = "a.example.net:7001"

[serve.relay]
listen = "a.example.net:7201"
"""


def plan_of(
    program: str = "/opt/geolog/bin/geolog", nodes: Mapping[str, str] | None = None
) -> UnitPlan:
    return UnitPlan(
        program=Path(program),
        options=("--config", "/etc/geolog/geolog.toml"),
        zookeeper_dir=Path("/var/lib/geolog/zookeeper"),
        storage_dirs={
            name: [Path(each) for each in disks.split(":")]
            for name, disks in (nodes or {"": "/var/lib/geolog/storage"}).items()
        },
    )


def values_of(unit: str, key: str) -> list[str]:
    lines = [line.partition("=") for line in unit.splitlines()]
    return [value for name, _, value in lines if name == key]


def test_each_server_has_a_service_and_the_target_starts_them() -> None:
    written = dict(units(plan_of(), list(SERVERS)))

    assert list(written) == [
        *("geolog-zookeeper.service", "geolog-storage.service", "geolog-proxy.service"),
        *("geolog-relay.service", "geolog.target"),
    ]
    target = written.pop("geolog.target")
    assert values_of(target, "WantedBy") == ["multi-user.target"]
    assert values_of(target, "DefaultDependencies") == ["no"], "the host's start waits for it"
    assert {values_of(text, "WantedBy")[0] for text in written.values()} == {"geolog.target"}
    assert {values_of(text, "PartOf")[0] for text in written.values()} == {"geolog.target"}
    assert {values_of(text, "User")[0] for text in written.values()} == {"geolog"}


def test_only_the_servers_named_get_a_unit() -> None:
    assert list(dict(units(plan_of(), ["proxy"]))) == ["geolog-proxy.service", "geolog.target"]


def test_a_node_has_all_its_disks_and_may_write_nowhere_else() -> None:
    unit = dict(units(plan_of("/opt/g", {"": "/disk1/geolog:/disk 2/100%"}), ["storage"]))[
        "geolog-storage.service"
    ]

    assert values_of(unit, "ExecStart") == [
        "/opt/g --config /etc/geolog/geolog.toml serve storage"
        ' --data-dir /disk1/geolog --data-dir "/disk 2/100%%"'
    ]
    assert values_of(unit, "ReadWritePaths") == ['/disk1/geolog "/disk 2/100%%"']
    assert values_of(unit, "RequiresMountsFor") == ['/disk1/geolog "/disk 2/100%%"']
    assert values_of(unit, "ProtectSystem") == ["strict"]


def test_a_host_may_have_several_nodes_each_with_its_profile() -> None:
    written = dict(units(plan_of("/opt/g", {"a": "/disk1", "b": "/disk2"}), list(SERVERS)))

    assert values_of(written["geolog-storage-b.service"], "ExecStart") == [
        "/opt/g --config /etc/geolog/geolog.toml --profile b serve storage --data-dir /disk2"
    ]
    assert values_of(written["geolog-relay.service"], "After") == [
        "network-online.target geolog-zookeeper.service geolog-storage-a.service"
        " geolog-storage-b.service geolog-proxy.service"
    ]


def test_a_proxy_stops_before_the_storage_node_and_that_before_zookeeper() -> None:
    written = dict(units(plan_of(), list(SERVERS)))

    after = values_of(written["geolog-proxy.service"], "After")[0].split()
    assert after[1:] == ["geolog-zookeeper.service", "geolog-storage.service"]


def test_a_server_has_more_time_to_stop_than_it_takes_itself() -> None:
    unit = dict(units(plan_of(), ["storage"]))["geolog-storage.service"]

    assert values_of(unit, "TimeoutStopSec") == [f"{STOP_S}s"]
    assert STOP_S > END_S


def test_homes_are_hidden_unless_the_command_is_in_one() -> None:
    hidden = [
        values_of(
            dict(units(plan_of(program), ["relay"]))["geolog-relay.service"], "ProtectHome"
        )
        for program in ("/opt/geolog/bin/geolog", "/root/geolog/.venv/bin/geolog")
    ]

    assert hidden == [["yes"], []]


def test_a_relative_path_and_a_line_break_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="absolute"):
        plan_of("bin/geolog")
    with pytest.raises(InvalidArgumentError, match="line break"):
        dict(units(plan_of("/opt/geolog", {"": "/disk\n1"}), ["storage"]))
    with pytest.raises(InvalidArgumentError, match="'a/b' cannot be in a unit"):
        plan_of("/opt/geolog", {"a/b": "/disk"})


def test_a_dollar_is_doubled_in_the_command_alone() -> None:
    """Systemd expands variables nowhere else."""
    (unit,) = (
        text
        for name, text in units(plan_of("/opt/geolog", {"": "/a$b"}), ["storage"])
        if name != TARGET
    )

    assert "--data-dir /a$$b" in unit
    assert values_of(unit, "ReadWritePaths") == ["/a$b"]


def test_the_command_tells_which_settings_are_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "geolog.toml"
    call = ["generate", "systemd", str(tmp_path / "units")]
    monkeypatch.setenv("GEOLOG_CONFIG", str(settings))

    assert run([*call]) == 0
    assert "geolog.toml does not exist yet" in capsys.readouterr().err

    settings.write_text("[serve.proxy]\nlisten = 'a:1'\n[serve.storage]\nlocation = '/a/b'\n")
    assert run([*call]) == 0
    assert [
        line.rpartition(" does not set ")[2]
        for line in capsys.readouterr().err.splitlines()
        if line.startswith("warning: ")
    ] == [
        *("zookeeper", "region", "serve.zookeeper.listen"),
        *("serve.storage.listen", "serve.relay.listen"),
    ]

    settings.write_text(f"{SETTINGS}[profile.p]\ntimeout = '9s'\n")
    assert run([*call, "--storage-node", "p", "--storage-dir", "/d"]) == 2
    assert run([*call, "--storage-node", "q"]) == 3
    capsys.readouterr()

    assert run([*call, "--region", "b", "--storage-node", "p"]) == 0
    assert "warning" not in capsys.readouterr().err
    unit = (tmp_path / "units" / "geolog-relay.service").read_text()
    assert f" --config {settings} --region b serve relay" in unit


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    # It looks whether the command is there, and can be run.
    for name, text in units(plan_of(sys.executable), list(SERVERS)):
        (tmp_path / name).write_text(text)
    paths = sorted(map(str, tmp_path.iterdir()))

    checked = subprocess.run(
        ["systemd-analyze", "verify", *paths], capture_output=True, check=False, text=True
    )

    complaints = [line for line in checked.stderr.splitlines() if "geolog" in line]
    assert (checked.returncode, complaints) == (0, [])
