"""A real script that tells where nodes stand, and the ways in which it may not."""

from pathlib import Path

import pytest

from geolog.ledger.location_script import LocationScript, LocationScriptConfig
from topology.errors import InvalidConfigError, UnavailableError
from topology.location import Location


def script(tmp_path: Path, body: str, timeout_s: float = 20.0) -> LocationScript:
    path = tmp_path / "locate"
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return LocationScript(LocationScriptConfig(path=str(path), script_timeout_s=timeout_s))


async def test_a_node_stands_where_the_script_says_which_is_asked_once(
    tmp_path: Path,
) -> None:
    located = script(tmp_path, f'echo "$1" >> {tmp_path}/asked; echo "/eu/rack-$1"')

    assert await located.locate(["1", "2"]) == {
        "1": Location("eu", "rack-1"),
        "2": Location("eu", "rack-2"),
    }
    assert await located.locate(["2"]) == {"2": Location("eu", "rack-2")}
    assert (tmp_path / "asked").read_text(encoding="utf-8").split() == ["1", "2"]


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        ("echo no such node >&2; exit 3", UnavailableError, r"ended with 3 .*no such node"),
        ("exec sleep 60", UnavailableError, "took over 0.5 s"),
        ("echo eu/rack", InvalidConfigError, "is not of the form /REGION/RACK"),
    ],
)
async def test_a_script_that_fails_hangs_or_prints_nonsense_is_told_of(
    tmp_path: Path, body: str, error: type[Exception], message: str
) -> None:
    located = script(tmp_path, body, timeout_s=0.5 if "sleep" in body else 20.0)

    with pytest.raises(error, match=message):
        await located.locate(["n1"])


async def test_nothing_is_kept_when_one_node_of_several_fails(tmp_path: Path) -> None:
    located = script(
        tmp_path, f'echo "$1" >> {tmp_path}/asked; [ "$1" = 1 ] || exit 1; echo /eu/rack'
    )
    for _ in range(2):
        with pytest.raises(UnavailableError):
            await located.locate(["1", "2"])

    assert (tmp_path / "asked").read_text(encoding="utf-8").split() == ["1", "2", "1", "2"]


async def test_a_script_that_is_not_there_is_told_of(tmp_path: Path) -> None:
    located = LocationScript(LocationScriptConfig(path=str(tmp_path / "none")))

    with pytest.raises(UnavailableError, match="cannot be run: No such file"):
        await located.locate(["n1"])
