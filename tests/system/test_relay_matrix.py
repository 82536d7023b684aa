"""Everything that breaks relays and links, once each, on a cluster of its own."""

import json

from sim.processes.drills.relay_faults import RELAY_FAULTS
from tests.system.demo_process import geolog
from tests.system.relay_verdict import assert_whole


def test_whatever_breaks_relays_and_links_every_region_has_the_records_once_and_in_order() -> (
    None
):
    done = geolog("drill", "run", "relay-matrix", "--outage", "500ms", "-o", "json")

    assert done.returncode == 0, done.stderr.decode()
    assert_whole(json.loads(done.stdout), faults_count=len(RELAY_FAULTS))
