"""The trace takes the log lines of its own thread, and no others."""

import logging
import threading

import trio

from sim.scheduling import run_seeded
from sim.world.trace import Trace

_log = logging.getLogger(__name__)


def test_log_lines_of_other_threads_stay_out_of_the_trace() -> None:
    lines: list[str] = []
    trace = Trace(lines.append)

    async def story() -> None:
        _log.warning("from here")
        thread = threading.Thread(target=_log.warning, args=("from elsewhere",))
        thread.start()
        thread.join()
        await trio.lowlevel.checkpoint()

    with trace.taking_logs():
        run_seeded(story, seed=1)

    assert [line.partition(" ")[2] for line in lines] == ["- log from here"]
