"""A handful of seeds: whole clusters under faults, held to the laws; equal seeds compared."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from sim.world.faults import FAULTS
from sim.world.run import run_seed
from sim.world.trace import EVENTS

_PAIRS = (400, 405, 421)

_HASHES = """
import json, sys
from sim.world.run import run_seed
print(json.dumps({seed: run_seed(int(seed)).trace_hash for seed in sys.argv[1:]}))
"""


@pytest.mark.parametrize("seed", range(16))
def test_a_history_keeps_the_laws(seed: int) -> None:
    report = run_seed(seed)

    assert report.violations == []
    assert report.acknowledged, "nothing was appended"


def test_the_trace_names_only_what_is_documented() -> None:
    lines: list[str] = []

    report = run_seed(13, write_line=lines.append)

    assert {line.split(" ", 3)[2] for line in lines} <= set(EVENTS)
    assert report.events == len(lines)
    assert set(report.faults) <= set(FAULTS)


def test_equal_seeds_give_equal_traces_in_other_processes_with_other_hash_seeds() -> None:
    with ThreadPoolExecutor() as pool:
        one, other = pool.map(_hashes_under, ("1", "77"))

    assert len(one) == len(_PAIRS)
    assert one == other


def _hashes_under(hash_seed: str) -> dict[str, str]:
    command = [sys.executable, "-c", _HASHES, *map(str, _PAIRS)]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    hashes: dict[str, str] = json.loads(done.stdout)
    return hashes
