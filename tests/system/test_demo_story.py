"""The story of `geolog demo`: a proxy and a region die, and every flight is read back."""

import json
from pathlib import Path

from tests.system.demo_process import geolog


def test_nothing_is_lost_though_a_proxy_and_a_region_die_while_the_flights_are_written(
    tmp_path: Path,
) -> None:
    done = geolog("demo", "--no-stay", "-o", "json", "--data-dir", str(tmp_path / "d"))

    assert done.returncode == 0, done.stderr.decode()
    report = json.loads(done.stdout)
    assert report["source_count"] == 336_776
    assert report["read_count"] == report["equal_count"] == 336_776
    assert report["acknowledged_count"] + report["found_count"] == 336_776
    assert report["lost_count"] == 0
    assert report["problems"] == []
    assert report["writers_count"] == 3
    parts = {part["when"]: part["lost_count"] for part in report["latencies"]}
    assert list(parts) == [
        "before the kills",
        "proxy killed",
        "region killed",
        "region is back",
    ]
    assert set(parts.values()) == {0}
    relayed = report["relayed"]
    assert (relayed["lost_count"], relayed["repeated_count"]) == (0, 0)
    assert relayed["acknowledged_count"] == 1_000
    assert relayed["killed"] != relayed["coordinator"]
    assert relayed["replayed_count"] > 0
    queried = report["queried"]
    assert queried["rows_count"] == 336_776
    assert queried["served_bytes"][queried["region"]] > 0.95 * sum(
        queried["served_bytes"].values()
    )
    assert [row["airline"] for row in queried["airlines"]] == ["UA", "B6", "EV", "DL", "AA"]
