"""A real location script, and the ways in which it can fail."""

from pathlib import Path

import pytest
import trio

from geolog.ledger.nodes.location_script import LocationScript, LocationScriptConfig
from geolog.ledger.nodes.node_locations import NodeLocations
from geolog.ledger.nodes.placement_config import PlacementConfig
from geolog.metadata.nodes import NodeRecord
from geolog.protocol.ids import InstanceId
from geolog.transport.seam import Address
from tests.system.demo_process import WAIT_S_MAX
from topology.errors import InvalidConfigError, UnavailableError
from topology.location import Location


def script(tmp_path: Path, body: str, timeout_s: float = 20.0) -> LocationScript:
    path = tmp_path / "locate"
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return LocationScript(LocationScriptConfig(path=str(path), script_timeout_s=timeout_s))


async def test_the_script_is_asked_once_for_the_location_of_a_node(
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
        ("echo no such node >&2; exit 3", UnavailableError, r"exited with 3 .*no such node"),
        ("exec sleep 60", UnavailableError, "took over 0.5 s"),
        ("trap '' TERM; sleep 60", UnavailableError, "took over 0.5 s"),
        ("yes /eu/rack", InvalidConfigError, "printed over 16,384 bytes"),
        ("echo eu/rack", InvalidConfigError, "is not of the form /REGION/RACK"),
    ],
)
async def test_a_script_that_fails_hangs_or_prints_nonsense_is_reported(
    tmp_path: Path, body: str, error: type[Exception], message: str
) -> None:
    located = script(tmp_path, body, timeout_s=0.5 if "sleep" in body else 20.0)

    with pytest.raises(error, match=message):
        await located.locate(["n1"])


async def test_child_processes_of_a_script_end_with_it(tmp_path: Path) -> None:
    said, written = tmp_path / "pid", tmp_path / "unfinished"
    located = script(tmp_path, f'sleep 60 & echo "$!" > {written}; mv {written} {said}')

    with trio.fail_after(WAIT_S_MAX):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(located.locate, ["n1"])
            while not said.exists():  # noqa: ASYNC110 - A script tells nobody.
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel(reason="it has waited enough")
        pid = int(said.read_text(encoding="utf-8"))
        while is_running(pid):  # noqa: ASYNC110 - A process that is killed tells nobody.
            await trio.sleep(0.01)


def is_running(pid: int) -> bool:
    """Whether a process runs: a killed one may not be reaped yet."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


async def test_nothing_is_kept_when_one_node_of_several_fails(tmp_path: Path) -> None:
    located = script(
        tmp_path, f'echo "$1" >> {tmp_path}/asked; [ "$1" = 1 ] || exit 1; echo /eu/rack'
    )
    for _ in range(2):
        with pytest.raises(UnavailableError):
            await located.locate(["1", "2"])

    assert (tmp_path / "asked").read_text(encoding="utf-8").split() == ["1", "2", "1", "2"]


async def test_a_missing_script_is_reported(tmp_path: Path) -> None:
    located = LocationScript(LocationScriptConfig(path=str(tmp_path / "none")))

    with pytest.raises(UnavailableError, match=r"cannot run location script .*: No such file"):
        await located.locate(["n1"])


async def test_nodes_stay_where_they_were_when_the_script_fails_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "locate"
    path.write_text('#!/bin/sh\necho "/moved/$1"\n')
    path.chmod(0o755)
    locations = NodeLocations(PlacementConfig(location_script=path))
    old, new = a_node("n1"), a_node("n2")
    first = await locations.locate([old])
    path.write_text("#!/bin/sh\necho it is broken >&2\nexit 3\n")
    later = await locations.locate([old, new])
    again = await locations.locate([old, new])  # It is not asked again this soon.

    assert first == {old.instance: Location("moved", "n1")}
    assert later == again == {**first, new.instance: new.location}
    assert [record.getMessage() for record in caplog.records] == [
        f"node locations: keeping the last known ones (location script {path} exited with 3"
        " for node 'n2' (it is broken))"
    ]


def a_node(name: str) -> NodeRecord:
    return NodeRecord(name, InstanceId(name), Address("host", 1), Location("own", "rack"))
