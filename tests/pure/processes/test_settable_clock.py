"""The wall clock of a drilled server can be set from another process."""

import subprocess
import sys
from pathlib import Path

from sim.processes.cluster import settable_clock
from sim.processes.cluster.plan import ClusterPlan, ClusterShape, draw_plan
from sim.processes.cluster.settable_clock import set_clock, shifted


def plan_of(directory: Path, *, has_settable_clocks: bool) -> ClusterPlan:
    shape = ClusterShape(
        nodes_per_region=1, relays_per_region=1, has_settable_clocks=has_settable_clocks
    )
    ports = list(range(2000, 2000 + shape.ports_count))
    return draw_plan(shape, cluster="c", directory=directory, ports=ports)


def test_a_clock_goes_on_from_where_it_was_set(tmp_path: Path) -> None:
    file, ticks = tmp_path / "clocks" / "node", iter([10**18, 10**18 + 5, 10**18 + 7])
    set_clock(file, 0)
    now_ns = shifted(lambda: next(ticks), file)

    as_it_is = now_ns()
    set_clock(file, 3600)
    ahead = now_ns()
    set_clock(file, -0.5)
    behind = now_ns()

    assert as_it_is == 10**18
    assert ahead == 10**18 + 5 + 3600 * 10**9
    assert behind == 10**18 + 7 - 5 * 10**8


def test_geologs_own_servers_get_a_clock_each(tmp_path: Path) -> None:
    usual = plan_of(tmp_path, has_settable_clocks=False)
    bent = plan_of(tmp_path, has_settable_clocks=True)

    assert {server.clock for server in usual.servers} == {None}
    for before, after in zip(usual.servers, bent.servers, strict=True):
        if before.kind == "zookeeper":
            assert after == before
        else:
            assert after.clock == tmp_path / "clocks" / before.name
            assert after.argv[3:5] == (settable_clock.__name__, str(after.clock))
            assert after.argv[5:] == before.argv[4:]


def test_a_command_runs_with_the_clock_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "clock"
    set_clock(file, 10 * 365 * 86400)
    done = subprocess.run(
        [sys.executable, "-P", "-m", settable_clock.__name__, str(file), "--version"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "geolog" in done.stdout
