"""The file that `--wan` names."""

from pathlib import Path

import pytest

from geolog.cli.settings.wan_file import read_wan
from sim.processes.wan.conditions import Conditions
from sim.processes.wan.profile import default_wan
from topology.errors import InvalidConfigError

REGIONS = ("us-east", "eu-west")


def wan_file(directory: Path, text: str) -> Path:
    path = directory / "wan.toml"
    path.write_text(text)
    return path


def test_a_link_has_the_conditions_of_its_table(tmp_path: Path) -> None:
    text = """
        [[link]]
        between = ["us-east", "eu-west"]
        rtt = "120ms"
        jitter = "10ms"
        bandwidth = "20MB/s"
        stall_rate = "1%"
        stall = "300ms"
        [[link]]
        from = "eu-west"
        to = "us-east"
        bandwidth = "5MB/s"
    """

    directions = read_wan(wan_file(tmp_path, text), REGIONS).directions

    there = Conditions(
        delay_s=0.06, jitter_s=0.005, bandwidth_bytes_per_s=20e6, stall_rate=0.01, stall_s=0.3
    )
    assert directions["us-east", "eu-west"] == there
    assert directions["eu-west", "us-east"].bandwidth_bytes_per_s == 5e6


def test_a_link_that_is_not_named_keeps_its_defaults(tmp_path: Path) -> None:
    assert read_wan(wan_file(tmp_path, ""), REGIONS) == default_wan(REGIONS)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[[link]]\nbetween = ["us-east", "mars"]', "link 1: no link us-east-mars"),
        ('[[link]]\nbetween = ["us-east"]', "name its ends: between = "),
        ('[[link]]\nfrom = "us-east"', "name its ends: between = "),
        ('[[link]]\nbetween = ["all", "all"]\nrtt = 80', "rtt = 80 has no unit"),
        ('[[link]]\nbetween = ["all", "all"]\nrtt = "80"', "'80' has no unit"),
        ('[[link]]\nbetween = ["all", "all"]\nrtt = "-80ms"', "'-80ms' is negative"),
        ('[[link]]\nbetween = ["all", "all"]\nstall_rate = "1"', "'1' has no unit"),
        ('[[link]]\nbetween = ["all", "all"]\nrrt = "80ms"', "did you mean 'rtt'"),
        ('[[link]]\nbetween = ["all", "all"]\njitter = "9s"', "the jitter must be .* got 9s"),
        ("[link]\n", r"only \[\[link\]\] tables"),
        ("rtt = '80ms'", r"only \[\[link\]\] tables"),
        ("[[link", "is not valid TOML"),
    ],
)
def test_an_error_names_the_place_in_the_file(
    tmp_path: Path, text: str, complaint: str
) -> None:
    with pytest.raises(InvalidConfigError, match=complaint):
        read_wan(wan_file(tmp_path, text), REGIONS)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"cannot read --wan .*missing\.toml"):
        read_wan(tmp_path / "missing.toml", REGIONS)
