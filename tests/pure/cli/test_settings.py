"""The five sources of a setting, and errors for unknown keys."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from geolog.cli.settings.roles import ROLES, STORAGE, check_environment, check_keys
from geolog.settings.command_config import COMMAND, CommandConfig
from geolog.settings.settings_file import SettingsFile
from geolog.settings.sources import SettingSources, configured, settings_of
from topology.errors import InvalidConfigError, NotFoundError

TEXT = """\
cluster = "from-file"
timeout = "1s"

[profile.test]
cluster = "from-profile"
"""


def file_of(directory: Path, text: str) -> SettingsFile:
    path = directory / "geolog.toml"
    path.write_text(text)
    return SettingsFile.read(path)


def places(
    file: SettingsFile | None = None,
    *,
    flags: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    profile: str | None = None,
) -> SettingSources:
    return SettingSources(flags or {}, environment or {}, file, profile)


def cluster_of(places: SettingSources) -> str:
    return configured(CommandConfig, places.decide(COMMAND)).cluster


def test_each_source_wins_over_the_weaker_ones(tmp_path: Path) -> None:
    file = file_of(tmp_path, TEXT)
    environment = {"GEOLOG_CLUSTER": "from-environment"}
    flags = {"cluster": "from-flag"}

    assert cluster_of(places()) == "default"
    assert cluster_of(places(file)) == "from-file"
    assert cluster_of(places(file, profile="test")) == "from-profile"
    assert cluster_of(places(file, profile="test", environment=environment)) == (
        "from-environment"
    )
    assert (
        cluster_of(places(file, profile="test", environment=environment, flags=flags))
        == "from-flag"
    )


def test_each_setting_names_its_source(tmp_path: Path) -> None:
    file = file_of(tmp_path, TEXT)
    decided = places(
        file, flags={"region": "eu-west"}, environment={"GEOLOG_OUTPUT": "json"}, profile="test"
    ).decide(COMMAND)

    assert {each.setting.key: each.origin for each in decided} == {
        "zookeeper": "default",
        "zookeeper_regions": "default",
        "proxy": "default",
        "gateway": "default",
        "cluster": f"{file.path}:5 [profile.test]",
        "region": "flag --region",
        "output": "environment GEOLOG_OUTPUT",
        "timeout": f"{file.path}:2",
    }


def test_the_error_for_an_unknown_key_has_its_line_and_the_nearest_known_key(
    tmp_path: Path,
) -> None:
    file = file_of(tmp_path, 'cluster = "a"\nzookeper = "localhost:2181"\n')

    assert check_keys(file) == [
        f"{file.path}:2: unknown key 'zookeper'; did you mean 'zookeeper'?"
    ]


def test_unknown_keys_in_profiles_and_unknown_tables_are_found_too(tmp_path: Path) -> None:
    file = file_of(
        tmp_path,
        '[profile.test]\nregoin = "x"\n[serve.storge]\nlocation = "/a/b"\n'
        '[profile.test.serve.storage]\nread_byte_max = "1MiB"\n',
    )

    assert check_keys(file) == [
        f"{file.path}:2: unknown key 'regoin'; did you mean 'region'?",
        f"{file.path}:6: unknown key 'read_byte_max'; did you mean 'read_bytes_max'?",
        f"{file.path}:4: unknown table [serve.storge]; did you mean [serve.storage]?",
    ]


def test_the_error_for_an_unknown_variable_names_the_nearest_known_one() -> None:
    environment = {"GEOLOG_ZOOKEPER": "h:1", "GEOLOG_REGION": "eu-west", "PATH": "/bin"}

    assert check_environment(environment) == [
        "unknown environment variable GEOLOG_ZOOKEPER; did you mean 'GEOLOG_ZOOKEEPER'?"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("timeout = 30\n", r":1: timeout: '30' has no unit"),
        ('timeout = "30"\n', r":1: timeout: '30' has no unit"),
        ('output = "xml"\n', r":1: output: 'xml' is not one of table, json, jsonl"),
        ("cluster = [1]\n", r":1: cluster is \[1\]; give a single string or number"),
    ],
)
def test_an_invalid_value_is_refused_with_its_place(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        places(file_of(tmp_path, text)).decide(COMMAND)


def test_invalid_toml_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"geolog\.toml:2: not valid TOML"):
        file_of(tmp_path, 'cluster = "a"\ntimeout = = 3\n')


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no such settings file: .*none\.toml"):
        SettingsFile.read(tmp_path / "none.toml")


def test_a_server_reads_its_settings_from_its_own_table(tmp_path: Path) -> None:
    file = file_of(tmp_path, '[serve.storage]\nlisten = "127.0.0.1:0"\nmark_idle = "10ms"\n')

    values = {each.setting.field: each.value for each in places(file).decide(STORAGE)}

    assert str(values["listen"]) == "127.0.0.1:0"
    assert values["mark_idle_s"] == pytest.approx(0.01)


def test_every_formatted_default_parses_to_the_same_value() -> None:
    for role in ROLES:
        for setting in settings_of(role):
            if setting.default is not None:
                assert setting.parse(setting.show(setting.default)) == setting.default


def test_no_two_settings_share_a_variable() -> None:
    names = [setting.environment_name for role in ROLES for setting in settings_of(role)]

    assert len(set(names)) == len(names)


def test_a_timeout_of_zero_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="must be more than 0s"):
        CommandConfig(timeout_s=0.0)
