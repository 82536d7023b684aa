"""A demo with distant regions: ZooKeeper and all other servers cope with the delays."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.demo_process import WAIT_S_MAX, DemoProcess, running_demo, wait_until
from tests.system.test_demo import is_gone

WAN = '[[link]]\nbetween = ["all", "all"]\nrtt = "60ms"\n'


def wan_in(directory: Path) -> str:
    """Write a file with the links of these tests and return its path."""
    path = directory / "far.toml"
    path.write_text(WAN)
    return str(path)


@pytest.fixture(scope="module")
def far_demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoProcess]:
    """Run three regions with one node and one ZooKeeper server each, 60 ms apart."""
    directory = tmp_path_factory.mktemp("far")
    options = ("--regions", "a,b,c", "--nodes-per-region", "1", "--wan", wan_in(directory))
    with running_demo(directory, *options) as running:
        yield running


def cut_state(links: object) -> dict[tuple[str, str], bool]:
    assert isinstance(links, list)
    return {(link["from"], link["to"]): link["is_cut"] for link in links}


def test_the_links_have_the_conditions_of_the_file(far_demo: DemoProcess) -> None:
    links = far_demo.json("wan", "show")

    assert isinstance(links, list)
    assert len(links) == 6
    assert {link["delay_s"] for link in links} == {0.03}


def test_round_trips_are_measured_link_by_link(far_demo: DemoProcess) -> None:
    done = far_demo.run("wan", "check", "-o", "json")

    measured = json.loads(done.stdout)
    assert [(each["here"], each["there"]) for each in measured] == [
        ("a", "b"),
        ("a", "c"),
        ("b", "c"),
    ]
    assert all(each["median_s"] >= 0.058 for each in measured)


def test_an_unknown_region_is_refused_at_once_with_those_there_are(
    far_demo: DemoProcess,
) -> None:
    for words in (["stream", "ls"], ["read", "t/any"], ["append", "t/any"]):
        done = far_demo.run(*words, "--region", "mars", "--timeout", "5s", given=b"a\n")

        assert done.returncode == 3
        assert "unknown region 'mars' (--region); the regions are a, b, c" in (
            done.stderr.decode()
        )


@pytest.mark.long
def test_a_killed_zookeeper_server_rejoins_the_others(
    far_demo: DemoProcess,
) -> None:
    for name in ("a-zookeeper-1", "c-zookeeper-3"):
        assert far_demo.run("demo", "kill", name).returncode == 0
        assert far_demo.run("demo", "restart", name).returncode == 0

    assert far_demo.run("cluster", "health", "--wait", "--timeout", "60s").returncode == 0


@pytest.mark.long
def test_a_region_that_is_cut_off_delays_nobody_and_comes_back(far_demo: DemoProcess) -> None:
    quorums = ("--ensemble", "2", "--write-quorum", "2", "--ack-quorum", "2")
    made = far_demo.run("stream", "create", "t/cut", *quorums, "--min-regions", "2")
    assert made.returncode == 0, made.stderr.decode()
    cut = cut_state(far_demo.json("wan", "cut", "c", "all"))
    assert cut == {
        ("a", "b"): False,
        ("a", "c"): True,
        ("b", "a"): False,
        ("b", "c"): True,
        ("c", "a"): True,
        ("c", "b"): True,
    }

    def reasons() -> str:
        return far_demo.run("cluster", "health", "--timeout", "5s").stderr.decode()

    # The remaining servers elect a leader, which then drops the nodes that were cut off.
    wait_until(lambda: "c-storage-1" in reasons() and "a-storage-1" not in reasons())
    alone = far_demo.run("stream", "ls", "--region", "c", "--timeout", "3s")
    assert alone.returncode == 5
    assert "c is cut off from ZooKeeper's majority: of 3 servers" in alone.stderr.decode()
    done = far_demo.run("append", "t/cut", "--timeout", "60s", given=b"through\n")
    assert done.returncode == 0, done.stderr.decode()
    assert not any(cut_state(far_demo.json("wan", "heal")).values())

    assert far_demo.run("cluster", "health", "--wait", "--timeout", "60s").returncode == 0
    assert far_demo.run("--region", "c", "read", "t/cut").stdout == b"through\n"


def test_the_emulator_ends_with_the_demo_even_after_sigkill(tmp_path: Path) -> None:
    with running_demo(
        tmp_path, "--regions", "a,b", "--nodes-per-region", "1", "--wan", wan_in(tmp_path)
    ) as demo:
        assert isinstance(demo.ready, dict)
        emulator = demo.ready["wan"]["pid"]

        demo.process.send_signal(signal.SIGKILL)

        wait_until(lambda: is_gone(emulator))
        demo.process.wait(WAIT_S_MAX)
