"""All faults of relays and links, one of each, in one cluster of real processes."""

import json

import pytest

from sim.processes.drills.relay_faults import RELAY_FAULTS
from tests.system.demo_process import COMMAND_S_MAX, geolog


@pytest.mark.long
@pytest.mark.timeout(COMMAND_S_MAX)
def test_every_fault_of_relays_and_links_leaves_all_regions_with_the_same_records() -> None:
    done = geolog("drill", "run", "relay-matrix", "--outage", "1s", "-o", "json")

    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    verdict = json.loads(done.stdout)
    counts = verdict["counts"]
    assert (verdict["problems"], counts.pop("faults")) == ([], len(RELAY_FAULTS))
    assert counts.pop("acknowledged") > 1000
    assert set(counts.values()) == {0}
