"""What Python can give an append alone is measured with real processes."""

from functools import partial
from pathlib import Path

import pytest
import trio

from sim.processes.bench.bare_replicas import MESSAGE_BYTES, Kind, measure_bare_append


@pytest.mark.parametrize("kind", ["sockets", "trio"])
def test_bare_replicas_store_and_answer(tmp_path: Path, kind: Kind) -> None:
    p50_s = trio.run(
        partial(measure_bare_append, tmp_path, kind, replicas_count=3, duration_s=0.1)
    )

    assert 0 < p50_s < 1
    written = list(tmp_path.rglob("written"))
    assert len(written) == 3
    assert all(any(file.read_bytes()[:MESSAGE_BYTES]) for file in written)
